"""A mirror between two brokers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from operator import eq, lt
from uuid import UUID

import pytest
from click.testing import CliRunner

from ottla.audit import AuditTopic
from ottla.cli.pipeline.mirror import command
from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigChange, ConfigOperation, ConfigResource, ConfigSource, ResourceType
from ottla.client.fetching.fetcher import Fetcher
from ottla.client.fetching.offsets import log_ranges
from ottla.client.groups.group_types import CommittedOffset
from ottla.client.groups.groups import GroupAdmin
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerUnreachable, CallTimedOut, UnknownTopic
from ottla.client.wire.options import ClientOptions
from ottla.mirror import Mirror, MirrorOptions, MirrorReport, Names, TopicAction
from ottla.mirror.audit_commits import WINDOW_MS
from ottla.mirror.copy_ranges import CopyRange, RangeTaken, copy_ranges
from ottla.mirror.mirror import SameCluster
from ottla.mirror.offset_translation import CHUNK_RUNS, EXACT_RUNS_MAX, LANDMARKS_MAX
from ottla.mirror.progress_topic import read_journal
from ottla.mirror.report import PartitionStatus
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.model.own_names import MIRROR_PROGRESS_TOPIC
from ottla.model.windows import window_start_ms
from ottla.records.header import CRC_AT, PRODUCER_AT, read_header
from ottla.testing import ControlledBroker, Namespace, Record, produce
from tests.eventually import eventually
from tests.mirror.conftest import SETTINGS
from tests.mirror.mirrored import (
    CODECS,
    TIME_MS,
    MirrorProcess,
    Writer,
    batch_of,
    content_of,
    copied_count,
    offsets_of,
    write,
)
from tests.peers.free_ports import find_free_ports
from tests.registry_process import ask, serving

MakeMirror = Callable[..., Mirror]


def send(bootstrap: str, partition: TopicPartition, *batches: bytearray) -> None:
    with Cluster(bootstrap) as cluster, RawProducer(cluster) as producer:
        for batch in batches:
            producer.send(partition, batch)
        assert all(result.error is None for result in producer.flush())


def stored_batches(bootstrap: str, partition: TopicPartition) -> list[bytes]:
    """Without the header fields that a leader and a producer write."""
    with Cluster(bootstrap) as cluster:
        offsets = log_ranges(cluster, [partition])[partition]
        with Fetcher(cluster, {partition: offsets.start}, {partition: offsets.stop}) as fetcher:
            batches = [bytes(batch) for fetched in fetcher for batch in fetched.batches()]
    return [batch[CRC_AT + 4 : PRODUCER_AT] + batch[PRODUCER_AT + 14 :] for batch in batches]


def configs_of(bootstrap: str, topic: str) -> dict[str, str | None]:
    with Cluster(bootstrap) as cluster:
        entries = Admin(cluster).describe_configs(ConfigResource(ResourceType.TOPIC, topic))
    return {name: each.value for name, each in entries.items() if each.source is ConfigSource.DYNAMIC_TOPIC}


def commit(bootstrap: str, group: str, offsets: dict[TopicPartition, int]) -> None:
    with Cluster(bootstrap) as cluster:
        GroupAdmin(cluster).commit(group, {each: CommittedOffset(offset) for each, offset in offsets.items()})


def committed(bootstrap: str, group: str) -> dict[TopicPartition, int]:
    with Cluster(bootstrap) as cluster:
        return {each: found.offset for each, found in GroupAdmin(cluster).committed(group).items()}


def the_partition(report: MirrorReport) -> PartitionStatus:
    (found,) = report.partitions
    return found


def test_copy_has_the_same_batches_byte_for_byte(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic = names.topic("clicks")
    partition = TopicPartition(topic, 0)
    send(live.bootstrap, partition, *[batch_of([b"one" * 50, b"two" * 50], codec) for codec in CODECS])
    report = mirror_of().run(once=True)
    assert stored_batches(offline.bootstrap, partition) == stored_batches(live.bootstrap, partition)
    assert content_of(offline.bootstrap, topic) == content_of(live.bootstrap, topic)
    assert (report.counts.records, report.counts.batches, report.counts.rebuilt_batches) == (10, 5, 0)


def test_topics_partitions_and_settings_are_created_and_kept_in_sync(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic = names.topic("clicks", partitions=2, configs={"retention.ms": "7000000", "min.insync.replicas": "1"})
    mirror_of().run(once=True)
    assert configs_of(offline.bootstrap, topic) == {"retention.ms": "7000000"}
    with Cluster(live.bootstrap) as cluster:
        admin = Admin(cluster)
        assert admin.create_partitions({str(topic): 5}) == {str(topic): None}
        changes = [
            ConfigChange("retention.ms", ConfigOperation.DELETE),
            ConfigChange("cleanup.policy", ConfigOperation.SET, "compact"),
        ]
        admin.alter_configs(ConfigResource(ResourceType.TOPIC, topic), changes)
    write(live.bootstrap, topic, [b"of the new one"], partition=4, key=b"k")
    mirror_of().run(once=True)
    assert configs_of(offline.bootstrap, topic) == {"cleanup.policy": "compact"}
    assert content_of(offline.bootstrap, topic) == content_of(live.bootstrap, topic)
    with Cluster(offline.bootstrap) as cluster:
        assert len(cluster.partitions(topic)) == 5


def test_plan_lists_the_changes_and_makes_none(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic = names.topic("clicks", partitions=3, configs={"retention.ms": "7000000"})
    (plan,) = mirror_of().plan().topics
    assert (plan.topic, plan.decision, plan.partitions_count) == (topic, TopicAction.CREATE, 3)
    assert plan.set_configs == {"retention.ms": "7000000"}
    with Cluster(offline.bootstrap) as cluster:
        assert str(topic) not in [each.name for each in Admin(cluster).list_topics()]


def test_running_mirror_copies_new_records_and_new_topics(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    first = names.topic("first")
    ends = threading.Event()
    mirror = mirror_of(MirrorOptions(session_timeout_ms=500, refresh_interval_ms=100))
    running = threading.Thread(target=lambda: mirror.run(should_stop=ends.is_set))
    running.start()
    try:
        write(live.bootstrap, first, [b"1"])
        second = names.topic("second")
        write(live.bootstrap, second, [b"2"])
        for topic, value in ((first, b"1"), (second, b"2")):
            eventually(partial(values_of, offline.bootstrap, topic), partial(eq, [value]))
    finally:
        ends.set()
        running.join()


def values_of(bootstrap: str, topic: str) -> list[bytes | None]:
    try:
        return [value for rows in content_of(bootstrap, topic).values() for _, _, value, _ in rows]
    except UnknownTopic:
        return []


def test_groups_continue_at_the_same_record(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic, group = names.topic("clicks"), names.group("billing")
    partition = TopicPartition(topic, 0)
    for number in range(10):
        write(live.bootstrap, topic, [b"%d" % number])
    with Cluster(live.bootstrap) as cluster:
        Admin(cluster).delete_records({partition: 4})
    commit(live.bootstrap, group, {partition: 7})
    report = mirror_of().run(once=True)
    assert report.committed_group_offsets == 1
    # The source's records from 4 on are the target's from 0 on.
    assert (
        committed(offline.bootstrap, group) == {partition: offsets_of(offline.bootstrap, topic)[b"7"]} == {partition: 3}
    )


def test_group_is_never_moved_backwards(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic, group = names.topic("clicks"), names.group("billing")
    partition = TopicPartition(topic, 0)
    write(live.bootstrap, topic, [b"%d" % number for number in range(10)])
    commit(live.bootstrap, group, {partition: 8})
    mirror_of().run(once=True)
    commit(live.bootstrap, group, {partition: 3})
    mirror_of().run(once=True)
    assert committed(offline.bootstrap, group) == {partition: 8}


def test_compacted_source_is_copied_without_its_gaps_and_group_offsets_stay_exact(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic, group = names.topic("state", configs=COMPACTED), names.group("reader")
    partition = TopicPartition(topic, 0)
    for number in range(40):
        # The middle record of each batch stays, the others are superseded.
        keys = ("first", f"own-{number}", f"last-{number % 4}")
        produce(topic, [Record(f"{number} {key} " + "x" * 1000, key=key, timestamp_ms=TIME_MS) for key in keys])
    eventually(lambda: len(content_of(live.bootstrap, topic).get(0, [])), lambda count: count < 100)
    # Both sides continue to compact: records without a newer value stay.
    (lasting,) = [value for value in offsets_of(live.bootstrap, topic) if value and value.startswith(b"20 own-20 ")]
    commit(live.bootstrap, group, {partition: offsets_of(live.bootstrap, topic)[lasting]})
    report = mirror_of().run(once=True)
    assert report.counts.rebuilt_batches > 0
    assert owned_values(offline.bootstrap, topic) == owned_values(live.bootstrap, topic)
    assert len(owned_values(offline.bootstrap, topic)) == 40
    offset = offsets_of(offline.bootstrap, topic)[lasting]
    assert committed(offline.bootstrap, group) == {partition: offset}
    assert offset < offsets_of(live.bootstrap, topic)[lasting]


def owned_values(bootstrap: str, topic: str) -> list[bytes | None]:
    return [value for _, key, value, _ in content_of(bootstrap, topic)[0] if key is not None and b"own" in key]


COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "40000",
    "min.cleanable.dirty.ratio": "0.01",
}


def test_records_that_the_source_deleted_before_they_were_copied_are_counted(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic = names.topic("clicks")
    partition = TopicPartition(topic, 0)
    for number in range(10):
        write(live.bootstrap, topic, [b"%d" % number])
        if number == 3:
            mirror_of().run(once=True)
    with Cluster(live.bootstrap) as cluster:
        Admin(cluster).delete_records({partition: 6})
    notes: list[str] = []
    report = mirror_of(notes=notes).run(once=True)
    assert report.counts.lost_offsets == 2
    assert list(offsets_of(offline.bootstrap, topic)) == [b"0", b"1", b"2", b"3", b"6", b"7", b"8", b"9"]
    assert any("deleted 2 offsets before they were copied" in note for note in notes), notes


def test_part_of_a_batch_is_copied_when_the_source_has_deleted_the_other(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic = names.topic("clicks")
    write(live.bootstrap, topic, [b"%d" % number for number in range(10)])
    with Cluster(live.bootstrap) as cluster:
        Admin(cluster).delete_records({TopicPartition(topic, 0): 6})
    mirror_of().run(once=True)
    assert offsets_of(offline.bootstrap, topic) == {b"6": 0, b"7": 1, b"8": 2, b"9": 3}


def test_recreated_topic_is_copied_after_the_existing_records(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic = names.topic("clicks")
    write(live.bootstrap, topic, [b"old %d" % number for number in range(5)])
    mirror_of().run(once=True)
    with Cluster(live.bootstrap) as cluster:
        Admin(cluster).delete_topics([topic])
    eventually(lambda: names.topics() == [])
    names.topic("clicks")
    write(live.bootstrap, topic, [b"new %d" % number for number in range(8)])
    refusing = mirror_of(MirrorOptions(session_timeout_ms=500, recreated_topics="fail")).run(once=True)
    assert refusing.refused_topics == {str(topic)}
    assert len(offsets_of(offline.bootstrap, topic)) == 5
    report = mirror_of().run(once=True)
    assert report.counts.records == 8
    expected = [*(b"old %d" % number for number in range(5)), *(b"new %d" % number for number in range(8))]
    assert offsets_of(offline.bootstrap, topic) == {value: at for at, value in enumerate(expected)}
    (row,) = mirror_of().status()
    assert (row.source_end, row.target_end, row.lag_offsets) == (8, 13, 0)


def test_topic_that_is_recreated_under_a_running_mirror_is_copied_whole(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic = names.topic("clicks")
    write(live.bootstrap, topic, [b"old %d" % number for number in range(5)])
    ends = threading.Event()
    mirror = mirror_of(MirrorOptions(session_timeout_ms=500, refresh_interval_ms=200))
    running = threading.Thread(target=lambda: mirror.run(should_stop=ends.is_set))
    running.start()
    try:
        eventually(lambda: len(values_of(offline.bootstrap, topic)), lambda count: count == 5)
        with Cluster(live.bootstrap) as cluster:
            Admin(cluster).delete_topics([topic])
        eventually(lambda: names.topics() == [])
        names.topic("clicks")
        write(live.bootstrap, topic, [b"new %d" % number for number in range(8)])
        eventually(lambda: len(values_of(offline.bootstrap, topic)), lambda count: count == 13)
    finally:
        ends.set()
        running.join()
    assert list(offsets_of(offline.bootstrap, topic))[5:] == [b"new %d" % number for number in range(8)]


def test_copy_with_foreign_writes_is_stopped_and_continues_when_they_are_accepted(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic, group = names.topic("clicks"), names.group("reader")
    partition = TopicPartition(topic, 0)
    write(live.bootstrap, topic, [b"1", b"2"])
    mirror_of().run(once=True)
    write(offline.bootstrap, topic, [b"foreign"])
    write(live.bootstrap, topic, [b"3", b"4"])
    report = mirror_of().run(once=True)
    assert "another writer wrote 1 record" in str(the_partition(report).problem)
    assert b"3" not in offsets_of(offline.bootstrap, topic)
    accepting = MirrorOptions(session_timeout_ms=500, foreign_records="accept")
    report = mirror_of(accepting).run(once=True)
    assert the_partition(report).counts.foreign_records >= 1
    assert offsets_of(offline.bootstrap, topic) == {b"1": 0, b"2": 1, b"foreign": 2, b"3": 3, b"4": 4}
    commit(live.bootstrap, group, {partition: 3})
    mirror_of(accepting).run(once=True)
    assert committed(offline.bootstrap, group) == {partition: 4}


def test_topic_with_other_records_is_not_touched(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic = names.topic("clicks")
    write(live.bootstrap, topic, [b"live"])
    with Cluster(offline.bootstrap) as cluster:
        Admin(cluster).create_topic(topic, 1)
    write(offline.bootstrap, topic, [b"offline"])
    report = mirror_of().run(once=True)
    assert report.refused_topics == {str(topic)}
    assert list(offsets_of(offline.bootstrap, topic)) == [b"offline"]
    mirror_of(MirrorOptions(session_timeout_ms=500, existing_topics="append")).run(once=True)
    assert list(offsets_of(offline.bootstrap, topic)) == [b"offline", b"live"]


def test_copy_is_never_copied_back(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    there, back_only = names.topic("there"), f"{names.prefix}back"
    with Cluster(offline.bootstrap) as cluster:
        Admin(cluster).create_topic(back_only, 1)
    write(live.bootstrap, there, [b"of live"])
    write(offline.bootstrap, back_only, [b"of offline"])
    back = Mirror(offline.bootstrap, live.bootstrap, mirror_of().options)
    for _ in range(3):
        mirror_of().run(once=True)
        report = back.run(once=True)
    assert "circle" in report.left_alone[str(there)]
    for bootstrap in (live.bootstrap, offline.bootstrap):
        assert values_of(bootstrap, there) == [b"of live"]
        assert values_of(bootstrap, back_only) == [b"of offline"]
    with Cluster(live.bootstrap) as cluster:
        Admin(cluster).delete_topics([back_only])


def test_circle_of_three_clusters_does_not_copy_records_back(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic = names.topic("clicks")
    write(live.bootstrap, topic, [b"once"])
    with ControlledBroker({"group.min.session.timeout.ms": "100"}) as third:
        for _ in range(2):
            mirror_of().run(once=True)
            Mirror(offline.bootstrap, third.bootstrap, mirror_of().options).run(once=True)
            report = Mirror(third.bootstrap, live.bootstrap, mirror_of().options).run(once=True)
        assert "circle" in report.left_alone[str(topic)]
        assert values_of(third.bootstrap, topic) == [b"once"]
    assert values_of(live.bootstrap, topic) == [b"once"]


def test_ring_of_mirrors_that_start_at_once_is_broken_at_one_place() -> None:
    """An empty topic is on all three clusters already, so each mirror may claim its copy before it sees the others."""
    options = MirrorOptions(topics=Names(("ring",)), session_timeout_ms=500, refresh_interval_ms=100)
    ends = threading.Event()
    seen: dict[str, MirrorReport] = {}
    with ExitStack() as stack:
        brokers = [stack.enter_context(ControlledBroker(SETTINGS)) for _ in range(3)]
        for broker in brokers:
            with Cluster(broker.bootstrap) as cluster:
                Admin(cluster).create_topic("ring", 1)
        running = []
        for here, there in zip(brokers, [*brokers[1:], brokers[0]], strict=True):
            mirror = Mirror(here.bootstrap, there.bootstrap, options)
            keep = partial(seen.__setitem__, there.bootstrap)
            running.append(threading.Thread(target=partial(mirror.run, should_stop=ends.is_set, on_progress=keep)))
        try:
            for thread in running:
                thread.start()
            # The mirror that gives way leads to the cluster where the chain of the other two starts.
            (first,) = eventually(
                lambda: [each for each, report in dict(seen).items() if report.left_alone], is_settled
            )
            for value in (b"1", b"2"):
                before = values_of(first, "ring")
                write(first, "ring", [value])
                for broker in brokers:
                    eventually(partial(values_of, broker.bootstrap, "ring"), partial(eq, [*before, value]))
        finally:
            ends.set()
            for thread in running:
                thread.join()


def is_settled(left_alone: list[str]) -> bool:
    return len(left_alone) == 1


def test_mirror_of_a_cluster_to_itself_is_refused(live: ControlledBroker) -> None:
    with pytest.raises(SameCluster):
        Mirror(live.bootstrap, live.bootstrap).plan()


def test_refused_batch_stops_its_partition_and_nothing_after_it_is_stored(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic = names.topic("clicks", partitions=2)
    mirror_of().run(once=True)
    with Cluster(offline.bootstrap) as cluster:
        small = ConfigChange("max.message.bytes", ConfigOperation.SET, "1000")
        Admin(cluster).alter_configs(ConfigResource(ResourceType.TOPIC, topic), [small])
    partition = TopicPartition(topic, 0)
    send(live.bootstrap, partition, batch_of([b"small"]), batch_of([b"large" * 1000]), batch_of([b"after"]))
    write(live.bootstrap, topic, [b"other"], partition=1)
    keeping = MirrorOptions(session_timeout_ms=500, configs=type(mirror_of().options.configs)(()))
    report = mirror_of(keeping).run(once=True)
    assert [each.problem is not None for each in report.partitions] == [True, False]
    assert list(offsets_of(offline.bootstrap, topic)) == [b"small"]
    assert list(offsets_of(offline.bootstrap, topic, 1)) == [b"other"]
    # The source does not have the setting: it is removed on the target, and the remaining records follow.
    report = mirror_of().run(once=True)
    assert not report.stuck
    assert list(offsets_of(offline.bootstrap, topic)) == [b"small", b"large" * 1000, b"after"]


def test_target_without_room_delays_the_copy_and_loses_nothing(names: Namespace, mirror_of: MakeMirror) -> None:
    topic = names.topic("clicks", partitions=2)
    with ControlledBroker({"group.min.session.timeout.ms": "100"}) as full:
        options = mirror_of().options
        with Writer(topic.bootstrap, topic, 2) as writer:
            process = MirrorProcess(
                topic.bootstrap, full.bootstrap, "--topics", options.topics.include[0], "--session-timeout-ms", "500"
            )
            try:
                eventually(lambda: len(values_of(full.bootstrap, topic)), lambda count: count > 50)
                with full.full_disk():
                    before = writer.records_count
                    eventually(lambda: writer.records_count > before + 500)
                eventually(lambda: len(values_of(full.bootstrap, topic)), lambda count: count > before)
            finally:
                process.kill()
        report = Mirror(topic.bootstrap, full.bootstrap, options).run(once=True)
        assert not report.stuck
        assert content_of(full.bootstrap, topic) == content_of(topic.bootstrap, topic)


def test_throttled_mirror_keeps_its_rate(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic = names.topic("clicks")
    partition = TopicPartition(topic, 0)
    send(live.bootstrap, partition, *[batch_of([b"x" * 50_000]) for _ in range(40)])
    options = MirrorOptions(session_timeout_ms=500, rate_bytes_s=1_000_000)
    with Cluster(live.bootstrap) as cluster:
        begun_ms = cluster.clock.monotonic_ms()
        report = mirror_of(options).run(once=True)
        took_ms = cluster.clock.monotonic_ms() - begun_ms
    assert report.counts.records == 40
    # 2 MB at 1 MB/s, of which one second's amount may be sent at once.
    assert took_ms > 900, took_ms


def test_second_mirror_waits_and_takes_over(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic = names.topic("clicks")
    pattern = mirror_of().options.topics.include[0]
    flags = ("--topics", pattern, "--session-timeout-ms", "500", "--progress-interval-ms", "200")
    first = MirrorProcess(live.bootstrap, offline.bootstrap, *flags)
    second = None
    try:
        write(live.bootstrap, topic, [b"1"])
        eventually(lambda: values_of(offline.bootstrap, topic) == [b"1"])
        second = MirrorProcess(live.bootstrap, offline.bootstrap, *flags)
        assert "another mirror" in second.read_said().readline()
        write(live.bootstrap, topic, [b"2"])
        eventually(lambda: values_of(offline.bootstrap, topic) == [b"1", b"2"])
        first.kill()
        write(live.bootstrap, topic, [b"3"])
        eventually(lambda: values_of(offline.bootstrap, topic) == [b"1", b"2", b"3"])
        assert second.stop()["duplicate_records"] == 0
    finally:
        for process in (first, second):
            if process is not None and process.is_running:
                process.kill()


def test_topics_of_the_mirror_itself_are_not_copied(
    live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    # The mirror in the opposite direction keeps its progress on the live cluster.
    Mirror(offline.bootstrap, live.bootstrap, mirror_of().options).run(once=True)
    with Cluster(live.bootstrap) as cluster:
        assert MIRROR_PROGRESS_TOPIC in [each.name for each in Admin(cluster).list_topics()]
    everything = Mirror(live.bootstrap, offline.bootstrap, MirrorOptions())
    assert MIRROR_PROGRESS_TOPIC not in [each.topic for each in everything.plan().topics]


def test_plan_reports_a_topic_that_the_target_refuses(names: Namespace, mirror_of: MakeMirror) -> None:
    topic = names.topic("clicks")
    plan = mirror_of(MirrorOptions(session_timeout_ms=500, replication_factor=3)).plan()
    assert "replication" in plan.problems[str(topic)].lower()
    report = mirror_of(MirrorOptions(session_timeout_ms=500)).run(once=True)
    assert not report.refused_topics


def test_header_of_the_copy_has_the_targets_producer(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic = names.topic("clicks")
    write(live.bootstrap, topic, [b"1"])
    mirror_of().run(once=True)
    partition = TopicPartition(topic, 0)
    with Cluster(offline.bootstrap) as cluster, Fetcher(cluster, {partition: 0}, {partition: 1}) as fetcher:
        (batch,) = [bytes(batch) for fetched in fetcher for batch in fetched.batches()]
    header = read_header(batch)
    assert header.producer_id >= 0
    assert header.base_offset == 0


def test_plan_lists_topics_sorted_by_name(names: Namespace, mirror_of: MakeMirror) -> None:
    names.topic("b")
    names.topic("a")
    assert [each.topic.removeprefix(names.prefix) for each in mirror_of().plan().topics] == ["a", "b"]


def audited(bootstrap: str, topic: str) -> dict[int, int]:
    """The mirror counts in the audit of a cluster, by the windows' starts."""
    counts: dict[int, int] = {}
    with AuditTopic(bootstrap) as audit:
        for each in audit.read().counts:
            if each.key.tier == "mirror" and each.key.topic == topic:
                counts[each.key.window.start_ms] = counts.get(each.key.window.start_ms, 0) + each.records
    return counts


def test_audit_of_both_clusters_counts_each_record_once_although_the_mirror_was_killed(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic = names.topic("clicks", partitions=2)
    pattern = mirror_of().options.topics.include[0]
    flags = ("--topics", pattern, "--session-timeout-ms", "500", "--progress-interval-ms", "100", "--audit")
    written = 0
    for _ in range(3):
        process = MirrorProcess(live.bootstrap, offline.bootstrap, *flags, "--audit-interval-ms", "50")
        try:
            for _ in range(20):
                times = [TIME_MS - 700_000 * (written % 5) + at for at in range(3)]
                produce(topic, [Record(f"{written}-{time_ms}", timestamp_ms=time_ms) for time_ms in times])
                written += 3
            least = written
            eventually(partial(copied_count, offline.bootstrap, topic, 2), partial(eq, least))
        finally:
            process.kill()
    mirror_of(MirrorOptions(session_timeout_ms=500, tells_audit=True)).run(once=True)
    expected: dict[int, int] = {}
    for rows in content_of(offline.bootstrap, topic).values():
        for time_ms, *_ in rows:
            start_ms = window_start_ms(time_ms, WINDOW_MS)
            expected[start_ms] = expected.get(start_ms, 0) + 1
    assert sum(expected.values()) == written
    assert len(expected) >= 5
    assert audited(live.bootstrap, topic) == expected
    assert audited(offline.bootstrap, topic) == expected


def test_range_that_two_tasks_copy_is_left_to_the_later_one_and_duplicates_are_counted(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic = names.topic("clicks")
    partition = TopicPartition(topic, 0)
    send(live.bootstrap, partition, *[batch_of([b"%d" % number * 10_000]) for number in range(100, 300)])
    mirror = mirror_of()
    # Each alone would take about five seconds, and checks once a second.
    options = replace(mirror.options, rate_bytes_s=1_000_000, progress_interval_ms=100)
    copy = partial(copy_ranges, live.bootstrap, offline.bootstrap, options=options, clients=(ClientOptions(),) * 2)
    stopped: list[OttlaError] = []

    def copy_first(works: Sequence[CopyRange]) -> None:
        try:
            copy(works)
        except OttlaError as error:
            stopped.append(error)

    def copy_twice(works: Sequence[CopyRange]) -> Sequence[PartitionStatus]:
        first = threading.Thread(target=copy_first, args=(works,))
        first.start()
        eventually(partial(copied_count, offline.bootstrap, topic, 1), partial(lt, 0))
        done = copy(works)
        first.join()
        return done

    report = mirror.run_with(copy_twice)
    assert report is not None
    assert [type(error) for error in stopped] == [RangeTaken]
    assert not report.stuck, report
    expected, found = content_of(live.bootstrap, topic)[0], content_of(offline.bootstrap, topic)[0]
    assert list(dict.fromkeys(found)) == expected
    counts = the_partition(report).counts
    assert (len(found) - len(expected), 0) == (counts.duplicate_records, counts.foreign_records)


def test_copy_that_is_deleted_under_a_running_mirror_is_recreated_and_copied_whole(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    topic = names.topic("clicks", partitions=2)
    pattern = mirror_of().options.topics.include[0]
    flags = ("--topics", pattern, "--session-timeout-ms", "500", "--refresh-interval-ms", "200")
    process = MirrorProcess(live.bootstrap, offline.bootstrap, *flags)
    try:
        # Slower than the mirror on a loaded machine: the mirror must catch up with the writer.
        with Writer(live.bootstrap, topic, 2, pause_s=0.01) as writer, Cluster(offline.bootstrap) as cluster:
            eventually(partial(copied_count, offline.bootstrap, topic, 2), partial(lt, 200))
            before = cluster.topic(topic).topic_id
            Admin(cluster).delete_topics([str(topic)])
            eventually(lambda: made_anew(offline.bootstrap, str(topic), before))
            least = writer.records_count
            eventually(partial(copied_count, offline.bootstrap, topic, 2), partial(lt, least))
        assert process.stop()["stuck"] == {}
    finally:
        if process.is_running:
            process.kill()
    report = mirror_of().run(once=True)
    assert not report.stuck
    assert content_of(offline.bootstrap, topic) == content_of(live.bootstrap, topic)
    assert [each.counts.duplicate_records + each.counts.foreign_records for each in report.partitions] == [0, 0]


def made_anew(bootstrap: str, topic: str, before: UUID) -> bool:
    with Cluster(bootstrap) as cluster:
        return any(not each.error_code and each.topic_id != before for each in cluster.refresh([topic]))


def test_mirror_that_starts_before_a_topic_copies_it_when_it_is_created(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    ends = threading.Event()
    mirror = mirror_of(MirrorOptions(session_timeout_ms=500, refresh_interval_ms=100))
    seen: list[MirrorReport] = []
    running = threading.Thread(target=lambda: mirror.run(should_stop=ends.is_set, on_progress=seen.append))
    running.start()
    try:
        eventually(lambda: seen)
        topic = names.topic("late")
        write(live.bootstrap, topic, [b"1"])
        eventually(partial(values_of, offline.bootstrap, topic), partial(eq, [b"1"]))
    finally:
        ends.set()
        running.join()


def test_compacted_source_with_many_gaps_is_copied_through_a_kill_with_a_small_journal(
    names: Namespace, live: ControlledBroker, offline: ControlledBroker, mirror_of: MakeMirror
) -> None:
    """Each remaining record has a gap before it, so each is a separate run."""
    topic, group = names.topic("state", configs=COMPACTED), names.group("reader")
    partition = TopicPartition(topic, 0)
    survivors = EXACT_RUNS_MAX + LANDMARKS_MAX + 3_000
    for first in range(0, survivors, 500):
        rows = range(first, min(first + 500, survivors))
        keys = [key for number in rows for key in ("replaced", f"own-{number}")]
        produce(topic, [Record(f"value of {key}", key=key, timestamp_ms=TIME_MS) for key in keys])
    eventually(lambda: len(content_of(live.bootstrap, topic)[0]), lambda count: count < survivors + 1_200)
    offsets = offsets_of(live.bootstrap, topic)
    asked = {number: offsets[b"value of own-%d" % number] for number in (survivors - 1_500, 200)}
    flags = ("--topics", mirror_of().options.topics.include[0], "--session-timeout-ms", "500")
    process = MirrorProcess(
        live.bootstrap, offline.bootstrap, *flags, "--rate", "200000", "--progress-interval-ms", "50"
    )
    try:
        eventually(partial(copied_count, offline.bootstrap, topic, 1), partial(lt, survivors // 2))
    finally:
        process.kill()
    report = mirror_of().run(once=True)
    assert not report.stuck
    assert owned_values(offline.bootstrap, topic) == owned_values(live.bootstrap, topic)
    assert the_partition(report).counts.duplicate_records == 0
    with Cluster(offline.bootstrap) as cluster:
        journal = read_journal(cluster)
    (source,) = [each for each in journal.progress if each.topic == str(topic)]
    kept = journal.offset_translation(source)
    assert kept is not None
    assert 0 < len(kept) <= EXACT_RUNS_MAX + LANDMARKS_MAX
    on_target = offsets_of(offline.bootstrap, topic)
    for number, offset in asked.items():
        commit(live.bootstrap, f"{group}-{number}", {partition: offset})
    mirror_of().run(once=True)
    new, old = (committed(offline.bootstrap, f"{group}-{number}")[partition] for number in asked)
    assert new == on_target[b"value of own-%d" % (survivors - 1_500)]
    assert on_target[b"value of own-200"] - CHUNK_RUNS <= old <= on_target[b"value of own-200"]


def test_schemas_keep_their_ids_and_a_registry_continues_on_the_copy() -> None:
    schemas = [{"schema": json.dumps(kind)} for kind in ("string", "long")]
    with ControlledBroker(SETTINGS) as live, ControlledBroker(SETTINGS) as offline:
        with serving(live.bootstrap) as registry:
            ids = [
                ask("POST", f"{registry.url}/subjects/clicks-value-{at}/versions", each)
                for at, each in enumerate(schemas)
            ]
        options = MirrorOptions(topics=Names(("_schemas",)), session_timeout_ms=500)
        report = Mirror(live.bootstrap, offline.bootstrap, options).run(once=True)
        assert not report.stuck
        with serving(offline.bootstrap) as registry:
            for (status, answer), schema in zip(ids, schemas, strict=True):
                assert status == 200
                status, found = ask("GET", f"{registry.url}/schemas/ids/{answer['id']}")
                assert (status, found["schema"]) == (200, schema["schema"])
            status, answer = ask("POST", f"{registry.url}/subjects/other/versions", {"schema": json.dumps("bytes")})
            assert (status, answer["id"]) == (200, len(ids) + 1)


def test_verbs_with_a_wrong_address_fail_at_once_and_name_the_flag(live: ControlledBroker) -> None:
    (port,) = find_free_ports(1)
    wrong = f"127.0.0.1:{port}"
    for verb in ("plan", "run", "status"):
        for flags, flag in (((live.bootstrap, wrong), "--target"), ((wrong, live.bootstrap), "--source")):
            result = CliRunner().invoke(command, [verb, "--source", flags[0], "--target", flags[1]])
            assert isinstance(result.exception, BrokerUnreachable)
            assert str(result.exception).startswith(f"{flag}: cannot connect to {wrong}: ")
            assert result.exception.hint == f"is the broker running, and is {flag} right?"


def test_mirror_reports_within_seconds_that_a_cluster_cannot_be_reached(live: ControlledBroker) -> None:
    (port,) = find_free_ports(1)
    notes: list[str] = []
    impatient = ClientOptions(call_timeout_ms=3_000)
    mirror = Mirror(live.bootstrap, f"127.0.0.1:{port}", target_client=impatient, note=notes.append)
    with pytest.raises(CallTimedOut):
        mirror.run(once=True)
    (note,) = notes
    assert note.startswith("target: waiting: ")
    assert f"127.0.0.1:{port}" in note
