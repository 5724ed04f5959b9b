"""The pages that start Spark, each run from top to bottom against its own broker; all in one process, with one JVM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla
from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.testing import produce
from ottla.testing.broker import RunningBroker
from tests.integration.guide_pages import PAGES, run_page, starts_spark
from tests.integration.page_snippets import PYTHON, ROOT, PageProcess, Site, read_snippets, run_snippets, the_snippet
from tests.old_records import KEEPS_OLD_RECORDS

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageProcess]:
    with PageProcess(tmp_path_factory.mktemp("pages")) as running:
        yield running


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with RunningBroker(settings=KEEPS_OLD_RECORDS) as running:
        yield running


@pytest.mark.parametrize("page", [page for page in PAGES if starts_spark(page)], ids=lambda page: page.name)
def test_snippets_of_the_page_run_as_shown(page: Path, process: PageProcess, tmp_path: Path) -> None:
    run_page(page, tmp_path, process)


def test_snippet_of_the_readme_shows_the_records(process: PageProcess, broker: RunningBroker, tmp_path: Path) -> None:
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("page-views", 3)
    produce("page-views", ["/jobs"], bootstrap=broker.bootstrap)
    snippet = the_snippet(read_snippets(ROOT / "README.md"), PYTHON, "import ottla.spark")
    site = Site(broker.bootstrap)
    (printed,) = run_snippets([snippet], site, tmp_path, warnings_are_errors=False, process=process)
    assert "/jobs" in printed


def test_page_about_pyspark_copies_a_topic_and_loads_a_lake(
    process: PageProcess, broker: RunningBroker, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake")
    with Cluster(broker.bootstrap) as cluster:
        for topic in ("clicks", "searches", "copy"):
            Admin(cluster).create_topic(topic, 1)
    with ottla.Producer(broker.bootstrap) as producer:
        for topic in ("clicks", "searches"):
            producer.send(topic, [b"1", b"2"])
    lake = tmp_path / "lake"
    snippets = [
        each._replace(code=each.code.replace("/data/lake", str(lake)))
        for each in read_snippets(ROOT / "docs" / "spark.md")
    ]
    run_snippets(snippets, Site(broker.bootstrap), tmp_path, warnings_are_errors=False, process=process)
    assert deltalake.DeltaTable(str(lake)).to_pyarrow_table().num_rows == 4
    with ottla.SimpleConsumer(broker.bootstrap, "copy", 0) as copy:
        assert copy.latest() == 2
