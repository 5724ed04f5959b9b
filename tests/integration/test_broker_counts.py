"""A broker's counts of its logs equal full reads of them, also when it or the counting process is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla
from ottla.audit import AuditTopic, CompletenessRules, completeness_of
from ottla.audit.count import BROKER, PRODUCER
from ottla.audit.log_counter import GROUP
from ottla.audit.snapshot import AuditSnapshot
from ottla.client.admin.admin import Admin
from ottla.client.fetching.fetch_requests import fetch_raw
from ottla.client.fetching.offsets import log_ranges
from ottla.client.groups.groups import GroupAdmin
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.wire.cluster import Cluster
from ottla.lost_offsets import read_lost_offsets
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import BatchBuilder, build_batch
from ottla.records.compression import Codec
from ottla.records.header import MAGIC_AT
from ottla.records.record import Record, decode_batch, split_batches
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually

SIZE_MS = 600_000
SETTINGS = {
    "audit.enable": "true",
    "audit.interval.ms": "200",
    "num.partitions": "3",
    "log.flush.policy": "os",
    # The records have old timestamps.
    "log.retention.ms": "-1",
}


def new_broker(data_dir: Path | None = None) -> RunningBroker:
    return RunningBroker(data_dir, settings=SETTINGS)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with new_broker() as running:
        yield running


def read(broker: RunningBroker) -> AuditSnapshot:
    with AuditTopic(broker.bootstrap) as topic:
        return topic.read()


def counted(broker: RunningBroker, topic: str, tier: str = BROKER) -> Counter[int]:
    found: Counter[int] = Counter()
    for count in read(broker).counts:
        if (count.key.topic, count.key.tier) == (topic, tier):
            found[count.key.window.start_ms] += count.records
    return found


def stored(broker: RunningBroker, topic: str) -> Counter[int]:
    """A full read, record by record."""
    found: Counter[int] = Counter()
    with Cluster(broker.bootstrap) as cluster:
        partitions = [TopicPartition(topic, each) for each in cluster.partitions(topic)]
        for partition, offsets in log_ranges(cluster, partitions).items():
            offset = offsets.start
            while offset < offsets.stop:
                fetched = fetch_raw(cluster, topic, partition.partition, offset)
                records = [each for batch in fetched.batches() for each in decode_batch(batch)]
                found.update(each.timestamp_ms // SIZE_MS * SIZE_MS for each in records if each.offset >= offset)
                offset = fetched.next_offset
    return found


def eventually_counted(broker: RunningBroker, topic: str, expected: Counter[int]) -> None:
    eventually(lambda: counted(broker, topic), lambda seen: seen == expected, every_s=0.2)


def children_of(broker: RunningBroker) -> list[int]:
    tasks = Path(f"/proc/{broker.pid}/task").glob("*/children")
    return [int(pid) for task in tasks for pid in task.read_text().split()]


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def counting_process(broker: RunningBroker) -> int | None:
    return next((pid for pid in children_of(broker) if b"ottla.audit.counter_process" in command_of(pid)), None)


def test_broker_counts_equal_a_full_read_of_batches_of_every_kind(broker: RunningBroker) -> None:
    """All codecs, batches across borders of windows, times out of order, records of any size."""
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("every-kind", 1)
        with RawProducer(cluster) as producer:
            for number, codec in enumerate([*Codec, *Codec]):
                builder = BatchBuilder()
                for index in range(700):
                    back_ms = 5 * SIZE_MS if index % 97 == 3 else 0
                    time_ms = 10 * SIZE_MS + number * SIZE_MS // 3 + index * 700 - back_ms
                    value = bytes(index % 50 if number % 2 else 20)
                    builder.append(time_ms, None, value, (("h", b"1"),) if index % 5 == 0 else ())
                producer.send(TopicPartition("every-kind", 0), builder.build(codec=codec))
            assert all(result.error is None for result in producer.flush())
    expected = stored(broker, "every-kind")
    assert expected.total() == 7_000
    assert len(expected) > 5
    eventually_counted(broker, "every-kind", expected)


def test_append_times_are_counted_from_the_heads(broker: RunningBroker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("appended", configs={"message.timestamp.type": "LogAppendTime"})
    with ottla.Producer(broker.bootstrap, compression="zstd") as producer:
        producer.send("appended", [b"%d" % number for number in range(5_000)], timestamp_ms=0)
    expected = stored(broker, "appended")
    assert expected.total() == 5_000
    assert 0 not in expected
    eventually_counted(broker, "appended", expected)


def test_topic_is_complete_at_the_broker_when_it_has_counted_beyond_the_window(broker: RunningBroker) -> None:
    with ottla.Producer(broker.bootstrap) as producer:
        producer.send("hours", [b"a", b"b"], timestamp_ms=0)
    rules = CompletenessRules(tier="lake", delay_ms=0, threshold=1.0)
    now_ms = int(time.time() * 1_000)

    def until_ms() -> int | None:
        return completeness_of(read(broker), "hours", rules, now_ms).reported_until_ms

    assert eventually(until_ms) is not None
    eventually_counted(broker, "hours", Counter({0: 2}))
    assert completeness_of(read(broker), "hours", rules, now_ms).short[0].missing_records == 2


def test_recreated_topic_is_counted_separately_from_the_old_one(broker: RunningBroker) -> None:
    for values in ([b"a", b"b", b"c"], [b"d"]):
        with ottla.Producer(broker.bootstrap) as producer:
            producer.send("again", values, timestamp_ms=0)
        with Cluster(broker.bootstrap) as cluster:
            (found,) = Admin(cluster).describe_topics(["again"])
            topic_id = found.topic_id

            def of_this_topic(expected: int = len(values), topic_id: object = topic_id) -> bool:
                counts = [each for each in read(broker).counts if each.key.topic == "again"]
                return sum(each.records for each in counts if each.key.topic_id == topic_id) == expected

            eventually(of_this_topic, every_s=0.2)
            Admin(cluster).delete_topics(["again"])
    assert counted(broker, "again") == {0: 4}
    # `counted` does not wait for the counters of the old topics.
    eventually(lambda: [each.has_ended for each in read(broker).reports if each.key.topic == "again"], all, every_s=0.2)


def test_records_that_were_deleted_before_they_could_be_counted_are_left_out(tmp_path: Path) -> None:
    with RunningBroker(tmp_path, settings=SETTINGS | {"audit.enable": "false"}) as before:
        with ottla.Producer(before.bootstrap) as producer:
            producer.send("cut", [b"%d" % number for number in range(10)], timestamp_ms=0, partition=0)
        with Cluster(before.bootstrap) as cluster:
            Admin(cluster).delete_records({TopicPartition("cut", 0): 4})
    with new_broker(tmp_path) as broker:
        # Also records in the middle of a batch.
        eventually_counted(broker, "cut", Counter({0: 6}))


def test_range_that_was_deleted_before_it_was_counted_is_a_lost_offset(tmp_path: Path) -> None:
    def send(broker: RunningBroker) -> None:
        with ottla.Producer(broker.bootstrap) as producer:
            producer.send("gone", [b"%d" % number for number in range(10)], timestamp_ms=0, partition=0)

    with new_broker(tmp_path) as broker:
        send(broker)
        eventually_counted(broker, "gone", Counter({0: 10}))
    with RunningBroker(tmp_path, settings=SETTINGS | {"audit.enable": "false"}) as between:
        send(between)
        with Cluster(between.bootstrap) as cluster:
            Admin(cluster).delete_records({TopicPartition("gone", 0): 15})
    with new_broker(tmp_path) as broker:
        eventually_counted(broker, "gone", Counter({0: 15}))
        with Cluster(broker.bootstrap) as cluster:
            (lost,) = read_lost_offsets(cluster)
    assert str(lost.lost) == "offsets 10 to 15 (exclusive) of gone-0 are gone: deleted before it was counted"
    assert lost.reader == GROUP


def test_unreadable_log_is_reported_once_an_interval_and_blocks_no_other(tmp_path: Path) -> None:
    with new_broker(tmp_path) as broker, Cluster(broker.bootstrap) as cluster:
        for topic in ("damaged", "sound"):
            Admin(cluster).create_topic(topic, 1)
            produce_one(cluster, topic)
        eventually(lambda: counted(broker, "damaged"), lambda found: found == Counter({0: 1}))
        pid = counting_process(broker)
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        # The first of them answers a fetch that is on its way.
        for _ in range(2):
            produce_one(cluster, "damaged")
        with (tmp_path / "damaged-0" / f"{0:020}.log").open("r+b") as log:
            *_, last = split_batches(memoryview(content := log.read()))
            log.seek(content.index(last) + MAGIC_AT)
            log.write(b"\7")
        began_s = time.monotonic()
        os.kill(pid, signal.SIGCONT)
        eventually(lambda: told_unread(broker), lambda count: count > 1)
        produce_one(cluster, "sound")
        eventually(lambda: counted(broker, "sound"), lambda found: found == Counter({0: 2}))
        told = told_unread(broker)
        intervals = (time.monotonic() - began_s) * 1000 / int(SETTINGS["audit.interval.ms"])
    assert told <= intervals + 1


def produce_one(cluster: Cluster, topic: str) -> None:
    with RawProducer(cluster) as producer:
        producer.send(TopicPartition(topic, 0), build_batch([Record(0, 1_000, None, b"x")]))
        assert {result.error for result in producer.flush()} == {None}


def told_unread(broker: RunningBroker) -> int:
    return sum("audit.not_read" in line and "damaged-0" in line for line in broker.log_lines)


def test_progress_is_a_group_whose_lag_every_tool_shows(broker: RunningBroker) -> None:
    with ottla.Producer(broker.bootstrap) as producer:
        producer.send("lagging", [b"a", b"b"], timestamp_ms=0, partition=1)

    def committed() -> int | None:
        with Cluster(broker.bootstrap) as cluster:
            found = GroupAdmin(cluster).committed(GROUP).get(TopicPartition("lagging", 1))
            return None if found is None else found.offset

    eventually(committed, lambda offset: offset == 2, every_s=0.2)


# Twice the counting process, then the broker, and again: once in `./dev test`.
@pytest.mark.parametrize("kills_count", [3, 9])
def test_nothing_is_counted_twice_or_left_out_through_kills_of_both_processes(tmp_path: Path, kills_count: int) -> None:
    with new_broker(tmp_path) as broker:
        is_over = threading.Event()
        sent = Counter[int]()

        def send() -> None:
            number = 0
            with ottla.Producer(broker.bootstrap, linger_ms=1, delivery_timeout_ms=120_000) as producer:
                while not is_over.is_set():
                    time_ms = number * 7_000
                    producer.send("killed", [b"%d" % number] * 20, timestamp_ms=time_ms).wait()
                    sent[time_ms // SIZE_MS * SIZE_MS] += 20
                    number += 1

        sender = threading.Thread(target=send)
        sender.start()
        try:
            for number in range(kills_count):
                seen = counted(broker, "killed").total()
                eventually(lambda seen=seen: counted(broker, "killed").total() > seen, every_s=0.05)  # type: ignore[misc]
                if number % 3 == 2:
                    broker.kill()
                    broker.start()
                else:
                    pid = eventually(lambda: counting_process(broker))
                    assert pid is not None
                    os.kill(pid, signal.SIGKILL)
        finally:
            is_over.set()
            sender.join()
        expected = stored(broker, "killed")
        assert expected == sent, "an idempotent producer"
        eventually_counted(broker, "killed", expected)
        broker.stop()
        broker.start()
        with ottla.Producer(broker.bootstrap) as producer:
            producer.send("killed", b"last", timestamp_ms=0)
        eventually_counted(broker, "killed", expected + Counter({0: 1}))


def test_process_that_counts_ends_with_the_broker(tmp_path: Path) -> None:
    with new_broker(tmp_path) as broker:
        for end in (broker.kill, broker.stop):
            pid = eventually(lambda: counting_process(broker))
            assert pid is not None
            end()
            eventually(lambda pid=pid: not command_of(pid))  # type: ignore[misc]
            broker.start()


def test_broker_counts_nothing_by_default(tmp_path: Path) -> None:
    with RunningBroker(tmp_path) as broker:
        assert children_of(broker) == []
        assert counted(broker, "any", PRODUCER) == {}
