from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest

from ottla.client.fetching.fetch_machine import FetchFlight, FetchMachine, FetchRoom, FetchTarget
from ottla.client.fetching.fetch_requests import BatchTooLarge, FetchedPartition, FetchLimits, FetchOutcome
from ottla.client.wire.errors import BrokerRefused, ConnectionLost, OffsetOutOfRange, TopicRecreated
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.retrying import Retrying
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.schema import ZERO_UUID
from ottla.testing.fake_clock import FakeClock

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BY_ID = UUID(int=1)
LEADER = 1
LIMITS = FetchLimits(partition_max_bytes=100, batch_bytes_max=1_000, max_wait_ms=500)


class Room(FetchRoom):
    """Counts the bytes that have landed."""

    def __init__(self, room_bytes: Mapping[TopicPartition, int]) -> None:
        self.room_bytes = dict(room_bytes)
        self.landed: list[tuple[TopicPartition, int]] = []

    def reserve(self, partition: TopicPartition) -> int:
        return self.room_bytes[partition]

    def on_landed(self, partition: TopicPartition, size_bytes: int) -> None:
        self.landed.append((partition, size_bytes))


class Reader:
    def __init__(self, *, room: FetchRoom | None = None, ends: Mapping[TopicPartition, int] | None = None) -> None:
        self.clock = FakeClock()
        self.machine = FetchMachine(
            Retrying(ClientOptions(), self.clock),
            LIMITS,
            ends or {},
            {"by-id": BY_ID},
            room,
            request_ms=1_000,
            recreated_wait_ms=5_000,
        )

    def fetch(self, leader_id: int = LEADER) -> FetchFlight | None:
        targets = {partition: FetchTarget(3, ZERO_UUID) for partition in self.machine.fetchable()}
        return self.machine.take_request(leader_id, targets)

    def answer(self, outcomes: Mapping[TopicPartition, FetchOutcome]) -> list[TopicPartition]:
        return [each.partition for each in self.machine.on_answer(LEADER, outcomes)]


def records(partition: TopicPartition, offset: int, next_offset: int, size_bytes: int = 10) -> FetchedPartition:
    return FetchedPartition(partition, offset, next_offset, 99, 99, 0, memoryview(bytes(size_bytes)))


def test_a_leader_has_one_fetch_in_flight() -> None:
    reader = Reader()
    reader.machine.seek(T0, 5)
    flight = reader.fetch()
    assert flight is not None
    assert [(each, position.offset) for each, position in flight.positions.items()] == [(T0, 5)]
    reader.machine.seek(T1, 0)
    assert reader.machine.fetchable() == [T1]
    assert reader.fetch() is None
    assert reader.fetch(LEADER + 1) is not None


def test_a_partition_continues_after_its_records_up_to_its_end() -> None:
    reader = Reader(ends={T0: 8})
    reader.machine.seek(T0, 5)
    reader.fetch()
    assert reader.answer({T0: records(T0, 5, 7)}) == [T0]
    assert reader.machine.positions == {T0: 7}
    reader.fetch()
    assert reader.answer({T0: records(T0, 7, 9)}) == [T0]
    assert reader.machine.is_finished


def test_records_of_a_partition_that_was_moved_meanwhile_are_left_out() -> None:
    room = Room({T0: 50, T1: 50})
    reader = Reader(room=room)
    reader.machine.seek(T0, 5)
    reader.machine.seek(T1, 0)
    reader.fetch()
    reader.machine.seek(T0, 30)
    assert reader.answer({T0: records(T0, 5, 7), T1: records(T1, 0, 1)}) == [T1]
    assert reader.machine.positions == {T0: 30, T1: 1}
    assert room.landed == [(T0, 0), (T1, 10)]


def test_a_partition_without_room_is_left_out() -> None:
    reader = Reader(room=Room({T0: 0, T1: 50}))
    reader.machine.seek(T0, 5)
    reader.machine.seek(T1, 0)
    flight = reader.fetch()
    assert flight is not None
    assert {each: position.max_bytes for each, position in flight.positions.items()} == {T1: 50}


def test_a_lost_connection_postpones_all_partitions_of_its_fetch() -> None:
    reader = Reader()
    reader.machine.seek(T0, 5)
    reader.machine.seek(T1, 0)
    reader.fetch()
    reader.machine.on_lost(LEADER, ConnectionLost("cut"))
    assert reader.machine.fetchable() == []
    assert reader.machine.take_stale_topics() == {"t"}
    assert reader.machine.take_failure() is None
    reader.clock.advance(60_000)
    assert reader.machine.fetchable() == [T0, T1]


def test_a_partition_that_cannot_be_read_is_reported_once_and_left() -> None:
    reader = Reader()
    reader.machine.seek(T0, 5)
    reader.fetch()
    assert reader.answer({T0: OffsetOutOfRange(T0, 5)}) == []
    assert not reader.machine.is_finished
    failure = reader.machine.take_failure()
    assert failure is not None
    assert (failure.partition, failure.offset) == (T0, 5)
    assert reader.machine.take_failure() is None
    assert reader.machine.is_finished


def test_a_partition_that_the_answer_leaves_out_has_failed() -> None:
    reader = Reader()
    reader.machine.seek(T0, 5)
    reader.fetch()
    assert reader.answer({}) == []
    failure = reader.machine.take_failure()
    assert failure is not None
    assert str(failure.error) == "t-0: the answer leaves it out"
    assert reader.machine.fetchable() == []


def test_a_batch_that_is_larger_than_a_fetch_gets_its_room_once() -> None:
    reader = Reader()
    reader.machine.seek(T0, 5)
    reader.fetch()
    reader.answer({T0: BatchTooLarge(T0, 700)})
    flight = reader.fetch()
    assert flight is not None
    assert flight.positions[T0].max_bytes == 700
    reader.answer({T0: records(T0, 5, 7)})
    flight = reader.fetch()
    assert flight is not None
    assert flight.positions[T0].max_bytes == LIMITS.partition_max_bytes


def test_another_topic_of_the_name_is_refused_when_no_broker_can_lag_any_more() -> None:
    reader = Reader()
    place = TopicPartition("by-id", 0)
    assert reader.machine.checked_id(place, BY_ID) == BY_ID
    for waited_ms, is_retriable in ((0, True), (5_001, False)):
        reader.clock.advance(waited_ms)
        with pytest.raises(TopicRecreated) as raised:
            reader.machine.checked_id(place, UUID(int=2))
        assert raised.value.is_retriable == is_retriable


def test_a_refusal_that_passes_is_tried_again() -> None:
    reader = Reader()
    reader.machine.seek(T0, 5)
    reader.fetch()
    reader.answer({T0: BrokerRefused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "t-0")})
    assert reader.machine.positions == {T0: 5}
    assert 0 < reader.machine.next_try_ms(60_000) < 60_000


def test_another_id_is_doubted_again_when_the_topic_is_read_again() -> None:
    reader = Reader()
    partition = TopicPartition("by-id", 0)
    for _ in range(2):
        reader.machine.seek(partition, 0)
        with pytest.raises(TopicRecreated) as doubted:
            reader.machine.checked_id(partition, UUID(int=2))
        assert doubted.value.is_retriable
        reader.machine.drop(partition)
        reader.clock.advance(60_000)
