"""A mirror whose records are copied by Spark's tasks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from functools import partial
from operator import lt
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigChange, ConfigOperation, ConfigResource, ResourceType
from ottla.client.groups.group_types import CommittedOffset
from ottla.client.groups.groups import GroupAdmin
from ottla.client.producing.produce_requests import DeliveryStatus
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.wire.cluster import Cluster
from ottla.mirror import MirrorOptions, Names
from ottla.model.errors import ConfigError
from ottla.model.identifiers import TopicPartition
from ottla.spark.mirror import SparkMirror
from ottla.testing.broker import RunningBroker
from tests.eventually import WITHIN_S, eventually
from tests.mirror.mirrored import batch_of, content_of, copied_count, write

pytestmark = pytest.mark.spark

PARTITIONS = 3
SETTINGS = {"group.min.session.timeout.ms": "100"}


@pytest.fixture(scope="module")
def live() -> Iterator[RunningBroker]:
    with RunningBroker(settings=SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="module")
def offline() -> Iterator[RunningBroker]:
    with RunningBroker(settings=SETTINGS) as broker:
        yield broker


@pytest.fixture
def clicks(live: RunningBroker) -> str:
    name = f"clicks-{uuid.uuid4().hex[:8]}"
    with Cluster(live.bootstrap) as cluster:
        Admin(cluster).create_topic(name, PARTITIONS)
    return name


def options_for(topic: str, **more: int) -> MirrorOptions:
    names = Names((topic,))
    return MirrorOptions(topics=names, groups=Names((f"{topic}-.*",)), session_timeout_ms=1000, **more)  # type: ignore[arg-type]


def fill(bootstrap: str, topic: str, word: str, count: int = 30) -> None:
    """So many batches of five in each partition."""
    with Cluster(bootstrap) as cluster, RawProducer(cluster) as producer:
        for number in range(PARTITIONS):
            for at in range(count):
                values = [f"{word}-{number}-{at}-{each}".encode() * 20 for each in range(5)]
                producer.send(TopicPartition(topic, number), batch_of(values))
        assert {result.status for result in producer.flush()} == {DeliveryStatus.ACKNOWLEDGED}


def test_each_run_copies_new_records_and_moves_the_groups(
    spark: SparkSession, live: RunningBroker, offline: RunningBroker, clicks: str
) -> None:
    mirror = SparkMirror(spark, live.bootstrap, offline.bootstrap, options_for(clicks))
    partition = TopicPartition(clicks, 0)
    for word, offset in (("first", 70), ("second", 170)):
        fill(live.bootstrap, clicks, word, 20)
        with Cluster(live.bootstrap) as cluster:
            GroupAdmin(cluster).commit(f"{clicks}-reader", {partition: CommittedOffset(offset)})
        report = mirror.run()
        assert report is not None
        assert (report.counts.records, report.stuck) == (PARTITIONS * 100, [])
        assert content_of(offline.bootstrap, clicks) == content_of(live.bootstrap, clicks)
        with Cluster(offline.bootstrap) as cluster:
            assert GroupAdmin(cluster).committed(f"{clicks}-reader")[partition].offset == offset
    report = mirror.run()
    assert report is not None
    assert report.counts.records == 0


def test_killed_job_continues_without_loss_and_without_a_duplicate(
    spark: SparkSession, live: RunningBroker, offline: RunningBroker, clicks: str
) -> None:
    fill(live.bootstrap, clicks, "word")
    size_bytes = 3 * 30 * 5 * 20 * 12
    program = [sys.executable, "-m", "tests.integration.spark.mirror_program", live.bootstrap, offline.bootstrap]
    job = subprocess.Popen([*program, clicks, str(size_bytes // 6)], start_new_session=True)
    try:
        # A batch is at most half of the records, so the job is killed in the middle.
        eventually(partial(copied_count, offline.bootstrap, clicks, PARTITIONS), partial(lt, 0))
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait(WITHIN_S)
    report = SparkMirror(spark, live.bootstrap, offline.bootstrap, options_for(clicks)).run()
    assert report is not None
    assert not report.stuck
    assert content_of(offline.bootstrap, clicks) == content_of(live.bootstrap, clicks)
    assert [each.counts.duplicate_records + each.counts.foreign_records for each in report.partitions] == [0] * 3


def test_session_that_runs_tasks_twice_is_refused_once_and_for_all(live: RunningBroker, offline: RunningBroker) -> None:
    conf = SparkConf(loadDefaults=False).set("spark.speculation", "true")
    session = SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf))
    mirror = SparkMirror(cast(SparkSession, session), live.bootstrap, offline.bootstrap)
    for run in (mirror.run, partial(mirror.follow, 0.0)):
        with pytest.raises(ConfigError, match="speculation"):
            run()


def test_transactions_are_refused_since_tasks_would_take_their_id_from_each_other() -> None:
    session = cast(SparkSession, SimpleNamespace())
    with pytest.raises(ConfigError, match="one process"):
        SparkMirror(session, "live:9092", "offline:9092", MirrorOptions(is_transactional=True))


def test_partition_that_the_target_refuses_is_reported(
    spark: SparkSession, live: RunningBroker, offline: RunningBroker, clicks: str
) -> None:
    small = ConfigChange("max.message.bytes", ConfigOperation.SET, "500")
    with Cluster(offline.bootstrap) as cluster:
        Admin(cluster).create_topic(clicks, PARTITIONS)
        Admin(cluster).alter_configs(ConfigResource(ResourceType.TOPIC, clicks), [small])
    write(live.bootstrap, clicks, [b"x" * 2000], partition=1)
    write(live.bootstrap, clicks, [b"small"], partition=0)
    notes: list[str] = []
    options = MirrorOptions(topics=Names((clicks,)), groups=Names(()), configs=Names(()), session_timeout_ms=1000)
    report = SparkMirror(spark, live.bootstrap, offline.bootstrap, options, note=notes.append).run()
    assert report is not None
    assert [(each.partition, each.problem is not None) for each in report.stuck] == [(1, True)]
    assert any("did not take it" in note for note in notes), notes
    assert [len(rows) for rows in content_of(offline.bootstrap, clicks).values()] == [1]
