"""The tour of the README and the page about PySpark, run verbatim against a broker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import ottla
from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.testing.broker import RunningBroker
from tests.integration.page_snippets import PYTHON, ROOT, SHELL, Site, read_snippets, run_snippets, the_snippet

SNIPPETS: Final = read_snippets(ROOT / "README.md")


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker() as running:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "ottla",
                "topic",
                "create",
                "page-views",
                "--partitions",
                "3",
                "-b",
                running.bootstrap,
            ],
            check=True,
            timeout=240,
        )
        yield running


def _run(language: str, containing: str, broker: RunningBroker, directory: Path) -> str:
    """The output of a snippet.  Warnings of other clients are allowed."""
    snippet = the_snippet(SNIPPETS, language, containing)
    (printed,) = run_snippets([snippet], Site(broker.bootstrap), directory, warnings_are_errors=False)
    return printed


def test_commands_of_the_tour_print_its_output(broker: RunningBroker, tmp_path: Path) -> None:
    snippet = the_snippet(SNIPPETS, SHELL, "ottla topic describe")
    snippet = snippet._replace(code=snippet.code.replace(" page-views", " tour"))
    (printed,) = run_snippets([snippet], Site(broker.bootstrap), tmp_path)
    assert '"key": "ada"' in printed or '"key":"ada"' in printed


def test_client_of_the_tour_reads_its_messages(broker: RunningBroker, tmp_path: Path) -> None:
    snippet = the_snippet(SNIPPETS, PYTHON, "ottla.ConsumerConnector")
    (printed,) = run_snippets([snippet], Site(broker.bootstrap), tmp_path)
    assert "b'ada' b'/jobs'" in printed
    assert "b'ada' b'/in/bob'" in printed


@pytest.mark.interop
def test_snippet_of_confluent_kafka_prints_the_record(broker: RunningBroker, tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    assert "/jobs" in _run(PYTHON, "from confluent_kafka", broker, tmp_path)


@pytest.mark.interop
def test_group_of_the_snippet_is_described_and_moved(broker: RunningBroker, tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    _run(PYTHON, "from confluent_kafka", broker, tmp_path)
    printed = _run(SHELL, "ottla group describe", broker, tmp_path)
    assert "readme" in printed
    assert "page-views" in printed


@pytest.mark.interop
def test_snippet_of_kafka_python_prints_the_record(broker: RunningBroker, tmp_path: Path) -> None:
    pytest.importorskip("kafka")
    assert "/jobs" in _run(PYTHON, "from kafka import", broker, tmp_path)


@pytest.mark.interop
@pytest.mark.spark
@pytest.mark.slow
def test_snippet_of_pyspark_shows_the_records(broker: RunningBroker, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    _run(PYTHON, "from kafka import", broker, tmp_path)
    assert "/jobs" in _run(PYTHON, "import ottla.spark", broker, tmp_path)


@pytest.mark.interop
@pytest.mark.spark
@pytest.mark.slow
def test_page_about_pyspark_copies_a_topic_and_loads_a_lake(broker: RunningBroker, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
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
    run_snippets(snippets, Site(broker.bootstrap), tmp_path, warnings_are_errors=False)
    assert deltalake.DeltaTable(str(lake)).to_pyarrow_table().num_rows == 4
    with ottla.SimpleConsumer(broker.bootstrap, "copy", 0) as copy:
        assert copy.latest() == 2
