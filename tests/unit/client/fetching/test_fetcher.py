from __future__ import annotations

from uuid import UUID

import pytest

from ottla.client.fetching.fetch_machine import FetchFailure
from ottla.client.fetching.fetch_requests import FetchedPartition, FetchLimits, fetch_raw
from ottla.client.fetching.fetcher import Fetcher
from ottla.client.wire.errors import BrokerRefused, CallTimedOut, FetchTooLarge, OffsetOutOfRange, TopicRecreated
from ottla.client.wire.options import ClientOptions
from ottla.model.error_code import ErrorCode
from ottla.model.errors import WireError
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey, VersionRange
from ottla.records.builder import build_batch
from ottla.records.record import Record, decode_batch
from tests.unit.client.fake_cluster import FakeCluster, Fault


def fill(fake: FakeCluster, partition: TopicPartition, batches_count: int, size_bytes: int = 10) -> None:
    for _ in range(batches_count):
        fake.partitions[partition].append(build_batch([Record(0, 1000, None, bytes(size_bytes))] * 3))


def offsets_in(fetched: FetchedPartition) -> list[int]:
    records = [record for batch in fetched.batches() for record in decode_batch(batch)]
    return [record.offset for record in records if record.offset >= fetched.fetch_offset]


def poll_often(fetcher: Fetcher) -> None:
    for _ in range(1000):
        fetcher.poll(100)


def read_to_the_end(fetcher: Fetcher) -> dict[TopicPartition, list[int]]:
    seen: dict[TopicPartition, list[int]] = {}
    for fetched in fetcher:
        seen.setdefault(fetched.partition, []).extend(offsets_in(fetched))
    return seen


def test_fetcher_reads_partitions_of_several_leaders() -> None:
    fake = FakeCluster(2)
    partitions = fake.add_topic("t", 1, 2, 1)
    for partition in partitions:
        fill(fake, partition, 20)
    with fake.client() as cluster:
        limits = FetchLimits(partition_max_bytes=300)
        fetcher = Fetcher(cluster, dict.fromkeys(partitions, 0), dict.fromkeys(partitions, 60), limits=limits)
        assert read_to_the_end(fetcher) == {partition: list(range(60)) for partition in partitions}


def test_fetcher_has_the_next_fetch_under_way_before_it_gives_the_last() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    fill(fake, partition, 10)
    with fake.client() as cluster, Fetcher(cluster, {partition: 0}, limits=FetchLimits(partition_max_bytes=200)) as it:
        assert it.poll(1000)
        waiting = [request for connection in fake.brokers[1].connections for request in connection.requests]
        assert len(waiting) == 1


@pytest.mark.parametrize("fault", list(Fault))
def test_fetcher_goes_on_where_it_was_when_an_answer_is_lost(fault: Fault) -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    fill(fake, partition, 20)
    steps = [None, fault, None, fault]
    fake.brokers[1].fault_of = lambda api: steps.pop(0) if api is ApiKey.FETCH and steps else None
    with fake.client() as cluster:
        fetcher = Fetcher(cluster, {partition: 0}, {partition: 60}, limits=FetchLimits(partition_max_bytes=300))
        assert read_to_the_end(fetcher) == {partition: list(range(60))}


def test_fetcher_follows_the_leader() -> None:
    fake = FakeCluster(2)
    (partition,) = fake.add_topic("t", 1)
    fill(fake, partition, 20)
    with fake.client() as cluster:
        fetcher = Fetcher(cluster, {partition: 0}, {partition: 60}, limits=FetchLimits(partition_max_bytes=300))
        first = [offset for fetched in fetcher.poll(1000) for offset in offsets_in(fetched)]
        fake.move_leader(partition, 2)
        assert first + read_to_the_end(fetcher)[partition] == list(range(60))
    assert ApiKey.FETCH in [api for api, _ in fake.brokers[2].seen]


def test_fetcher_gives_up_a_partition_that_stays_unreadable() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    fake.brokers[1].error_of = lambda api, _: ErrorCode.KAFKA_STORAGE_ERROR
    with fake.client(ClientOptions(call_timeout_ms=5000)) as cluster, Fetcher(cluster, {partition: 0}) as fetcher:
        with pytest.raises(BrokerRefused, match="KAFKA_STORAGE_ERROR"):
            poll_often(fetcher)
        assert fetcher.is_finished
    assert fake.clock.monotonic_ms() >= 5000


def test_fetcher_asks_for_more_when_the_first_batch_is_cut() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    fill(fake, partition, 1, size_bytes=5000)
    fill(fake, partition, 3)
    with fake.client() as cluster:
        fetcher = Fetcher(cluster, {partition: 0}, {partition: 12}, limits=FetchLimits(partition_max_bytes=100))
        assert read_to_the_end(fetcher) == {partition: list(range(12))}
        assert fetch_raw(cluster, "t", 0, 0, max_bytes=100).next_offset == 3


def test_fetcher_refuses_a_batch_beyond_the_callers_limit() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    fill(fake, partition, 1, size_bytes=5000)
    limits = FetchLimits(partition_max_bytes=100, batch_bytes_max=4000)
    with (
        fake.client() as cluster,
        Fetcher(cluster, {partition: 0}, limits=limits) as fetcher,
        pytest.raises(FetchTooLarge, match="4000"),
    ):
        poll_often(fetcher)


def test_fetcher_reads_again_after_a_seek_where_it_could_not_go_on() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    fill(fake, partition, 2)
    with fake.client() as cluster, Fetcher(cluster, {partition: 77}, {partition: 6}) as fetcher:
        assert fetcher.is_finished, "77 is beyond the requested end"
    with fake.client() as cluster, Fetcher(cluster, {partition: 77}) as fetcher:
        with pytest.raises(OffsetOutOfRange):
            fetcher.poll(1000)
        assert fetcher.poll(1000) == []
        fetcher.seek(partition, 2)
        (fetched,) = fetcher.poll(1000)
        assert offsets_in(fetched) == [2, 3, 4, 5]


def damaged(at: int, content: bytes) -> bytes:
    """The batch at offset 2 with a damaged head."""
    batch = build_batch([Record(0, 1, None, b"x")], base_offset=2)
    batch[at : at + len(content)] = content
    return bytes(batch)


@pytest.mark.parametrize(
    "records",
    [b"x" * 200, damaged(16, b"\x07"), damaged(8, bytes(4)), damaged(8, b"\xff" * 4)],
    ids=["garbage", "format", "no length", "negative length"],
)
def test_fetcher_refuses_bytes_that_are_no_batches_and_goes_on_with_other_partitions(records: bytes) -> None:
    fake = FakeCluster()
    good, bad = fake.add_topic("t", 1, 1)
    fill(fake, good, 2)
    fill(fake, bad, 1)
    hostile = fake.partitions[bad]
    hostile.batches = [bytes(build_batch([Record(0, 1, None, b"y")], base_offset=1)), records]
    with fake.client() as cluster, Fetcher(cluster, {bad: 0, good: 0}, {good: 6}) as fetcher:
        landed = [each for _ in range(10) for each in fetcher.poll_each(1_000)]
        (failure,) = (each for each in landed if isinstance(each, FetchFailure))
        assert (failure.partition, failure.offset) == (bad, 2)
        assert isinstance(failure.error, WireError)
        read = [each for each in landed if isinstance(each, FetchedPartition) and each.partition == bad]
        assert [offset for each in read for offset in offsets_in(each)] == [1]
        assert bad not in fetcher.positions
        assert good not in fetcher.positions


def test_fetcher_checks_checksums_when_told_to() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    fill(fake, partition, 1)
    damaged = bytearray(fake.partitions[partition].batches[0])
    damaged[-1] ^= 1
    fake.partitions[partition].batches = [bytes(damaged)]
    with fake.client() as cluster:
        assert fetch_raw(cluster, "t", 0, 0).next_offset == 3
        with pytest.raises(WireError, match="checksum"):
            fetch_raw(cluster, "t", 0, 0, check_crc=True)


def test_fetch_raw_gives_up_in_time_when_no_leader_answers() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    fake.brokers[1].fault_of = lambda api: Fault.CUT_AFTER if api is ApiKey.FETCH else None
    with fake.client() as cluster, pytest.raises(CallTimedOut, match="t-0"):
        fetch_raw(cluster, "t", 0, 0, timeout_ms=3000)
    # The broker may hold the last fetch for its max_wait_ms.
    assert fake.clock.monotonic_ms() <= 3500


class Room:
    """So many bytes for each partition, and what was reserved and came."""

    def __init__(self, partition_bytes: dict[TopicPartition, int]) -> None:
        self.partition_bytes = partition_bytes
        self.reserved: list[TopicPartition] = []
        self.landed: list[tuple[TopicPartition, int]] = []

    def reserve(self, partition: TopicPartition) -> int:
        if self.partition_bytes[partition]:
            self.reserved.append(partition)
        return self.partition_bytes[partition]

    def on_landed(self, partition: TopicPartition, size_bytes: int) -> None:
        self.landed.append((partition, size_bytes))


def test_fetcher_leaves_out_what_has_no_room_until_it_has() -> None:
    fake = FakeCluster()
    full, free = fake.add_topic("t", 1, 1)
    fill(fake, full, 1)
    fill(fake, free, 1)
    room = Room({full: 0, free: 1000})
    with fake.client() as cluster, Fetcher(cluster, {full: 0, free: 0}, room=room) as fetcher:
        (fetched,) = fetcher.poll_each(100)
        assert isinstance(fetched, FetchedPartition)
        assert fetched.partition == free
        assert fetcher.poll_each(100) == []
        room.partition_bytes[full] = 1000
        # The fetch in flight holds the leader for a while yet.
        assert [each.partition for _ in range(3) for each in fetcher.poll_each(1000)] == [full]


def test_fetcher_says_of_every_fetch_that_had_room_how_it_ended() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    fill(fake, partition, 1)
    steps = [None, Fault.CUT_AFTER, Fault.SILENCE]
    fake.brokers[1].fault_of = lambda api: steps.pop(0) if api is ApiKey.FETCH and steps else None
    room = Room({partition: 1000})
    with fake.client() as cluster, Fetcher(cluster, {partition: 0}, room=room) as fetcher:
        for _ in range(100):
            fetcher.poll_each(1000)
    assert room.landed[0] == (partition, len(fake.partitions[partition].batches[0]))
    assert {size_bytes for _, size_bytes in room.landed[1:]} == {0}
    assert len(room.reserved) - len(room.landed) in {0, 1}, "at most one is in flight"


def test_fetcher_gives_a_failure_with_its_partition_and_goes_on_with_the_others() -> None:
    fake = FakeCluster()
    good, bad = fake.add_topic("t", 1, 1)
    fill(fake, good, 1)
    with fake.client() as cluster, Fetcher(cluster, {bad: 77, good: 0}) as fetcher:
        outcomes = [outcome for _ in range(3) for outcome in fetcher.poll_each(1000)]
    failures = [outcome for outcome in outcomes if isinstance(outcome, FetchFailure)]
    assert [(failure.partition, type(failure.error)) for failure in failures] == [(bad, OffsetOutOfRange)]
    assert [outcome.partition for outcome in outcomes if isinstance(outcome, FetchedPartition)] == [good]


def test_fetcher_forgets_a_failure_from_before_a_seek() -> None:
    fake = FakeCluster()
    good, bad = fake.add_topic("t", 1, 1)
    for partition in (good, bad):
        fill(fake, partition, 1)
    with fake.client() as cluster, Fetcher(cluster, {bad: 77, good: 0}) as fetcher:
        assert [each.partition for each in fetcher.poll_each(1000)] == [good], "the failure comes with the next poll"
        fetcher.seek(bad, 0)
        outcomes = [outcome for _ in range(3) for outcome in fetcher.poll_each(1000)]
    assert [type(outcome) for outcome in outcomes if outcome.partition == bad] == [FetchedPartition]


def test_a_fetch_by_id_reads_the_topic_that_has_it() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    fake.topic_ids["t"] = UUID(int=1000)
    fill(fake, partition, 2)
    with fake.client() as cluster:
        fetcher = Fetcher(cluster, {partition: 0}, {partition: 6}, topic_ids=fake.topic_ids)
        assert read_to_the_end(fetcher) == {partition: list(range(6))}
        assert not fetcher.has_read_by_name
    assert [version for api, version in fake.brokers[1].seen if api is ApiKey.FETCH] == [17]


def test_a_topic_recreated_during_the_reads_is_not_read_in_place_of_the_former() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    fake.topic_ids["t"] = UUID(int=1000)
    fill(fake, partition, 4)
    with fake.client() as cluster:
        limits = FetchLimits(partition_max_bytes=200)
        fetcher = Fetcher(cluster, {partition: 0}, {partition: 12}, limits=limits, topic_ids={"t": UUID(int=1000)})
        assert [offset for fetched in fetcher.poll(1000) for offset in offsets_in(fetched)] == [0, 1, 2]
        fake.recreate_topic("t", UUID(int=1001))
        fill(fake, partition, 40)
        with pytest.raises(TopicRecreated, match="has the id"):
            poll_often(fetcher)
        assert fetcher.is_finished


def test_another_id_is_doubted_for_a_while_since_a_broker_may_lag_behind() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    fake.topic_ids["t"] = UUID(int=1000)
    fill(fake, partition, 1)
    with fake.client() as cluster:
        fetcher = Fetcher(cluster, {partition: 0}, {partition: 3}, topic_ids={"t": UUID(int=1001)})
        assert fetcher.poll(500) == []
        fake.topic_ids["t"] = UUID(int=1001)
        assert read_to_the_end(fetcher) == {partition: [0, 1, 2]}


def test_a_broker_without_fetches_by_id_is_read_by_name_and_says_so() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    fake.topic_ids["t"] = UUID(int=1000)
    fake.brokers[1].versions[ApiKey.FETCH] = VersionRange(4, 12)
    fill(fake, partition, 1)
    with fake.client() as cluster:
        fetcher = Fetcher(cluster, {partition: 0}, {partition: 3}, topic_ids={"t": UUID(int=1000)})
        assert read_to_the_end(fetcher) == {partition: [0, 1, 2]}
        assert fetcher.has_read_by_name
