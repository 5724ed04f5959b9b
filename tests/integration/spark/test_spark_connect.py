"""Spark Connect: the client is a process without Java; here its server is a local one, which it starts itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from ottla.testing import ControlledBroker, produce

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ENDS_WITHIN_S: Final = 480

PROGRAM: Final = """
import json, sys
from pyspark.sql import SparkSession
import ottla.spark
from ottla.spark.lake import Loader
from ottla.spark.lake.spark_jobs import master_of, parallelism_of

bootstrap, topic, table = sys.argv[1:]
spark = (
    SparkSession.builder.remote("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
ottla.spark.register(spark)
rows = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic).load()
found = {"read": rows.count(), "master": master_of(spark), "parallelism": parallelism_of(spark)}
loader = Loader(spark, bootstrap, topic, table, rows_per_commit=60)
found["loaded"] = [loader.load().rows_count, loader.load().rows_count]
try:
    Loader(spark, bootstrap, topic, table, decode=lambda batch: 1 / 0).load()
    rows.limit(5).selectExpr("'more' AS value").write.format("ottla").options(
        **{"kafka.bootstrap.servers": bootstrap, "topic": topic}
    ).mode("append").save()
    Loader(spark, bootstrap, topic, table, decode=lambda batch: 1 / 0).load()
except Exception as error:
    found["failed"] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
spark.stop()
"""


def test_source_and_loads_work_in_a_session_of_spark_connect(tmp_path: Path) -> None:
    pytest.importorskip("grpc_status", reason="Spark Connect's client needs pyspark[connect]")
    with ControlledBroker() as broker, broker.namespace() as topics:
        topic = topics.topic("clicks", partitions=2)
        produce(topic, [b"%d" % number for number in range(100)])
        arguments = (broker.bootstrap, str(topic), str(tmp_path / "lake"))
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            cwd=tmp_path,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=ENDS_WITHIN_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["read"], found["master"], found["parallelism"]) == (100, "local[2]", 2)
    assert found["loaded"] == [100, 0]
    # A task's error says what was wrong, and nothing was committed.
    assert found["failed"].startswith("LakeError: a task failed, nothing of it was committed: ZeroDivisionError")
