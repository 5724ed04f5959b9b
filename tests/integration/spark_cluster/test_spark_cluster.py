"""Jobs on a standalone cluster whose workers have neither this package nor what it needs, sent by `spark-submit`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ottla.spark.worker_archive import write_archive
from ottla.testing import ControlledBroker, consume_all, produce
from tests.eventually import eventually
from tests.integration.spark_cluster import job
from tests.integration.spark_cluster.standalone import WITHIN_S, StandaloneSpark
from tests.s3_server import S3Server

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]

JOB: Final = Path(job.__file__)
RECORDS_COUNT: Final = 12_000
ROWS_PER_BATCH: Final = 4_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneSpark]:
    with StandaloneSpark(tmp_path_factory.mktemp("spark-cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def broker() -> Iterator[ControlledBroker]:
    with ControlledBroker() as broker:
        yield broker


@pytest.fixture
def filled(broker: ControlledBroker) -> Iterator[str]:
    with broker.namespace() as namespace:
        topic = namespace.topic("orders", partitions=2)
        produce(topic, [f"order {number}" for number in range(RECORDS_COUNT)])
        yield topic


def written(directory: Path, **wanted: object) -> str:
    path = directory / "job.json"
    path.write_text(json.dumps(wanted))
    return str(path)


def test_a_job_whose_workers_lack_the_package_prints_how_to_ship_it(
    cluster: StandaloneSpark, broker: ControlledBroker, filled: str, tmp_path: Path
) -> None:
    wanted = written(tmp_path, bootstrap=broker.bootstrap, topic=filled)
    driver = cluster.submit(JOB, wanted, submit=("--conf", "spark.task.maxFailures=1"))
    with driver:
        output, _ = driver.communicate()
    told = output + cluster.errors.read_text()
    assert driver.returncode == 1, told
    assert f"counted {RECORDS_COUNT}" not in told
    assert "ModuleNotFoundError: this worker has no Python package '" in told
    assert "--archives deps.zip#deps --conf spark.executorEnv.PYTHONPATH=deps" in told
    assert "addPyFile" in told


def test_a_stream_and_a_load_survive_the_death_of_executors(
    cluster: StandaloneSpark, broker: ControlledBroker, filled: str, tmp_path: Path
) -> None:
    archive = write_archive(tmp_path / "deps.zip")
    with S3Server() as s3, broker.namespace() as namespace:
        streamed = namespace.topic("streamed", partitions=2)
        wanted = written(
            tmp_path,
            bootstrap=broker.bootstrap,
            topic=filled,
            streamed=streamed,
            rows_per_batch=ROWS_PER_BATCH,
            checkpoint=str(tmp_path / "checkpoint"),
            lake="s3://lake/orders",
            storage=s3.storage,
        )
        driver = cluster.submit(JOB, wanted, submit=tuple(archive.submit_arguments.split()))
        with driver:
            lines = follow(driver, cluster)
        told = cluster.errors.read_text()
        assert driver.returncode == 0, "\n".join(lines) + told[-4000:]
        lost = [line for line in told.splitlines() if "executor" in line.lower()]
        assert told.count("Lost executor") >= 2, "\n".join(lost)
        assert lines[0] == f"counted {RECORDS_COUNT}"
        assert lines[-1] == f"loaded {RECORDS_COUNT}"
        values = sorted(str(record.value) for record in consume_all(filled))
        assert len(values) == RECORDS_COUNT
        # At least once: a task that died had written some of its rows.
        assert set(values) == {str(record.value) for record in consume_all(streamed)}
        places = lake_places(s3)
        assert len(places) == RECORDS_COUNT
        assert len(set(places)) == RECORDS_COUNT


def follow(driver: subprocess.Popen[str], cluster: StandaloneSpark) -> list[str]:
    """The driver's lines.  An executor is killed in the middle of the stream, and one in the middle of the load."""
    lines: list[str] = []
    killed = {"batch": False, "commit": False}
    assert driver.stdout is not None
    for line in map(str.strip, driver.stdout):
        lines.append(line)
        stage = line.partition(" ")[0]
        if killed.get(stage) is False:
            killed[stage] = True
            victim = eventually(lambda: cluster.used_executors, within_s=WITHIN_S)[0]
            os.kill(victim, signal.SIGKILL)
    assert all(killed.values()), "\n".join(lines) + cluster.errors.read_text()[-4000:]
    return lines


def lake_places(s3: S3Server) -> list[tuple[int, int]]:
    from deltalake import DeltaTable

    table = DeltaTable("s3://lake/orders", storage_options={**s3.storage, "AWS_ALLOW_HTTP": "true"})
    rows = table.to_pyarrow_table(columns=["partition", "offset"])
    return list(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
