"""The guide's page of declarative pipelines: its definitions run as `spark-pipelines run` runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pyspark
import pytest

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.testing import consume_all, produce
from ottla.testing.broker import RunningBroker
from tests.integration.page_snippets import BROKER, ROOT

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("pyspark.pipelines") is None, reason="Spark 4.0 has no declarative pipelines"),
]

PAGE: Final = ROOT / "docs" / "guide" / "pipelines.md"
STORAGE: Final = "/data/pipelines/pages"
ENDS_WITHIN_S: Final = 480
LOOPBACK: Final = {"SPARK_LOCAL_IP": "127.0.0.1"}
# For one machine, with a catalog that the second run finds.
LOCAL: Final = (
    "spark.ui.enabled=false",
    "spark.sql.shuffle.partitions=2",
    "spark.sql.catalogImplementation=hive",
)


def fence(language: str) -> str:
    """The page's one fence of this language."""
    (code,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return str(code)


class Pipeline:
    """The page's pipeline in a directory, against a broker."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self._directory = directory
        (directory / "definitions").mkdir()
        (directory / "definitions" / "pages.py").write_text(fence("py").replace(BROKER, bootstrap))
        (directory / "spark-pipeline.yml").write_text(fence("yaml").replace(STORAGE, str(directory / "storage")))

    def run(self) -> None:
        home = Path(pyspark.__file__).parent
        settings = [argument for setting in LOCAL for argument in ("--conf", setting)]
        done = subprocess.run(
            [home / "bin" / "spark-pipelines", "--remote", "local[2]", "run", *settings],
            cwd=self._directory,
            env={**os.environ, **LOOPBACK, "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=ENDS_WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-4_000:]}\n{done.stderr[-4_000:]}"

    def rows(self, table: str) -> list[dict[str, object]]:
        files = self._directory / "spark-warehouse" / table
        found: list[dict[str, object]] = pq.read_table(files).to_pylist()
        return found


def test_pipeline_of_the_guide_reads_each_record_once_over_two_runs(tmp_path: Path) -> None:
    pytest.importorskip("grpc_status", reason="pipelines need pyspark[pipelines]")
    with RunningBroker() as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("pipeline-views", 2)
            Admin(cluster).create_topic("visited-pages", 1)
        produce("pipeline-views", ["/jobs", "/home", "/jobs", "/jobs"], bootstrap=broker.bootstrap)
        pipeline = Pipeline(tmp_path, broker.bootstrap)
        pipeline.run()
        assert {row["page"]: row["count"] for row in pipeline.rows("pages")} == {"/jobs": 3, "/home": 1}
        produce("pipeline-views", ["/home"], bootstrap=broker.bootstrap)
        pipeline.run()
        copied = consume_all("visited-pages", bootstrap=broker.bootstrap)
        assert Counter(row["page"] for row in pipeline.rows("views")) == {"/jobs": 3, "/home": 2}
        assert Counter(message.value for message in copied) == {b"/jobs": 3, b"/home": 2}
