"""A mirror between two clusters of three brokers, while leaders die on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from operator import le

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.groups.groups import GroupAdmin, UnknownGroup
from ottla.client.wire.cluster import Cluster
from ottla.mirror import Mirror, MirrorOptions, Names
from ottla.testing.cluster import RunningCluster
from tests.eventually import eventually
from tests.mirror.mirrored import Writer, content_of, copied_count, mirror_process, write
from tests.zookeeper_or_skip import skips_without_zookeeper

# One worker has both clusters.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("mirror-between-clusters")]

TOPIC = "clicks"
PARTITIONS = 3
SETTINGS = {
    "group.min.session.timeout.ms": "100",
    "min.insync.replicas": "2",
    "zookeeper.session.timeout.ms": "4000",
}


@pytest.fixture(scope="module")
def clusters(has_zookeeper: bool) -> Iterator[tuple[RunningCluster, RunningCluster]]:
    with (
        skips_without_zookeeper(),
        RunningCluster(3, settings=SETTINGS, has_zookeeper=has_zookeeper) as live,
        RunningCluster(3, settings=SETTINGS, has_zookeeper=has_zookeeper) as offline,
    ):
        for side in (live, offline):
            create_offsets_topic(side.bootstrap)
        yield live, offline


def create_offsets_topic(bootstrap: str) -> None:
    """Without its topic of committed offsets no mirror starts while one of three brokers is down."""
    with Cluster(bootstrap) as cluster, pytest.raises(UnknownGroup):
        GroupAdmin(cluster).describe("no-such-group")


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
            # Records written after the death arrive while the broker is still down.
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


def test_partition_without_a_leader_blocks_no_other_when_a_mirror_starts(
    clusters: tuple[RunningCluster, RunningCluster],
) -> None:
    """Topics of one replica: one is missing on the target, and one exists there and is empty."""
    live, offline = clusters
    options = MirrorOptions(topics=Names(("(made|there)",)), session_timeout_ms=500, replication_factor=2)
    for side, topics in ((live, ("made", "there")), (offline, ("there",))):
        with Cluster(side.bootstrap) as cluster:
            for topic in topics:
                Admin(cluster).create_topic(topic, PARTITIONS, 1, {"min.insync.replicas": "1"})
                for number in range(PARTITIONS):
                    side.wait_for_leader(topic, number)
    for topic in ("made", "there"):
        for number in range(PARTITIONS):
            write(live.bootstrap, topic, [b"%d" % number], partition=number)
    dead = live.leader_of("made", 1), offline.leader_of("there", 2)
    expected = {topic: content_of(live.bootstrap, topic) for topic in ("made", "there")}
    for side, leader in zip(clusters, dead, strict=True):
        side.broker(leader).kill()
        eventually(partial(leaderless, side.bootstrap))
    report = Mirror(live.bootstrap, offline.bootstrap, options).run(once=True)
    assert report.refused_topics == {"made", "there"}, report
    assert "partition 1 is not copied yet" in report.left_alone["made"]
    assert "is not known now" in report.left_alone["there"]
    copied = {each.partition for each in report.partitions if each.topic == "made"}
    assert 1 not in copied
    assert len(copied) >= 1, "at least one partition of the topic has its leader"
    appending = replace(options, existing_topics="append")
    again = Mirror(live.bootstrap, offline.bootstrap, appending).run(once=True)
    assert "partition 2 is not copied yet" in again.left_alone["there"]
    for each in (report, again):
        # Nothing of it was claimed: otherwise a later run could not distinguish copies.
        assert {status.topic for status in each.partitions} == {"made"}
    for side, leader in zip(clusters, dead, strict=True):
        side.broker(leader).start()
        for topic in ("made", "there"):
            for number in range(PARTITIONS):
                side.wait_for_leader(topic, number)
    report = Mirror(live.bootstrap, offline.bootstrap, options).run(once=True)
    assert not report.stuck
    assert not report.refused_topics
    assert {topic: content_of(offline.bootstrap, topic) for topic in ("made", "there")} == expected


def leaderless(bootstrap: str) -> bool:
    """Whether a partition has no leader."""
    with Cluster(bootstrap) as cluster:
        topics = cluster.refresh(None)
    return any(each.leader_id < 0 for topic in topics for each in topic.partitions.values())


def wait_copied(cluster: RunningCluster, least: int) -> None:
    eventually(partial(copied_count, cluster.bootstrap, TOPIC, PARTITIONS), partial(le, least), every_s=0.2)
