"""A mirror between two clusters of three brokers, while leaders die on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import le

import pytest

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.mirror import Mirror, MirrorOptions, Names
from ottla.testing.cluster import RunningCluster
from tests.eventually import eventually
from tests.mirror.mirrored import Writer, content_of, copied_count, mirror_process
from tests.zookeeper_or_skip import skips_without_zookeeper

pytestmark = pytest.mark.slow

TOPIC = "clicks"
PARTITIONS = 3
SETTINGS = {"group.min.session.timeout.ms": "100", "min.insync.replicas": "2"}


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[RunningCluster, RunningCluster]]:
    with (
        skips_without_zookeeper(),
        RunningCluster(3, settings=SETTINGS) as live,
        RunningCluster(3, settings=SETTINGS) as offline,
    ):
        yield live, offline


def test_each_record_is_copied_once_through_the_deaths_of_leaders_on_both_sides(
    clusters: tuple[RunningCluster, RunningCluster],
) -> None:
    live, offline = clusters
    with Cluster(live.bootstrap) as cluster:
        Admin(cluster).create_topic(TOPIC, PARTITIONS, 3)
    flags = ("--topics", TOPIC, "--replication-factor", "3", "--progress-interval-ms", "300")
    with (
        mirror_process(live.bootstrap, offline.bootstrap, *flags) as process,
        Writer(live.bootstrap, TOPIC, PARTITIONS, pause_s=0.01) as writer,
    ):
        wait_copied(offline, 500)
        for side in (offline, live, offline):
            leader = side.leader_of(TOPIC, 0)
            before = writer.records_count
            side.broker(leader).kill()
            side.wait_for_leader(TOPIC, 0, other_than=leader)
            # What was written after the death arrives while the broker is still gone.
            wait_copied(offline, before + 500)
            side.broker(leader).start()
        report = process.stop()
    assert report["stuck"] == {}
    options = MirrorOptions(topics=Names((TOPIC,)), session_timeout_ms=500)
    rest = Mirror(live.bootstrap, offline.bootstrap, options).run(once=True)
    assert not rest.stuck
    expected, found = content_of(live.bootstrap, TOPIC), content_of(offline.bootstrap, TOPIC)
    assert {each: len(rows) for each, rows in found.items()} == {each: len(rows) for each, rows in expected.items()}
    assert found == expected
    assert sum(map(len, expected.values())) == writer.records_count
    assert [each.counts.duplicate_records + each.counts.foreign_records for each in rest.partitions] == [0] * PARTITIONS


def wait_copied(cluster: RunningCluster, least: int) -> None:
    eventually(partial(copied_count, cluster.bootstrap, TOPIC, PARTITIONS), partial(le, least), every_s=0.2)
