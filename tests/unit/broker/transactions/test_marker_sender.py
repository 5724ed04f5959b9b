"""Markers on their way: to whom they go, when they are sent again, and when not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from ottla.broker.transactions.marker_sender import RETRY_MS, Marker, MarkerRequests, MarkerSender
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.protocol.schemas.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.transactions.decisions import Identity
from ottla.transactions.end_markers import EndMarkers
from tests.unit.broker.turned_loop import TurnedLoop

HERE, THERE = NodeId(1), NodeId(2)
A, B = TopicPartition("a", 0), TopicPartition("b", 3)


class Owner:
    def __init__(self) -> None:
        self.is_over = False
        self.written: list[TopicPartition] = []
        self.has_written = asyncio.Event()

    def marker_written(self, transactional_id: str, producer: Identity, partition: TopicPartition) -> None:
        assert (transactional_id, producer) == ("t", (7, 2))
        self.written.append(partition)
        self.has_written.set()


class Surroundings:
    """Leaders, the partitions here, and another broker, as the test sets them."""

    def __init__(self) -> None:
        self.loop = TurnedLoop()
        self.leaders: dict[TopicPartition, NodeId] = {A: HERE, B: HERE}
        self.here: list[tuple[TopicPartition, EndMarkers, Callable[[ErrorCode], None]]] = []
        self.there: list[Marker] = []
        self.requests: MarkerRequests | None = None
        self.owner = Owner()
        self.sender = MarkerSender(HERE, self, self, cast(asyncio.AbstractEventLoop, self.loop), self._peers)

    def _peers(self, requests: MarkerRequests) -> Surroundings:
        self.requests = requests
        return self

    def leader_of(self, partition: TopicPartition) -> NodeId | None:
        return self.leaders.get(partition)

    async def refresh(self) -> None:
        raise AssertionError("every partition is in the view")

    def write(self, partition: TopicPartition, markers: EndMarkers, on_done: Callable[[ErrorCode], None]) -> None:
        self.here.append((partition, markers, on_done))

    def send(self, node_id: NodeId, item: Marker) -> None:
        assert node_id == THERE
        self.there.append(item)

    def decide(self, *partitions: TopicPartition, coordinator_epoch: int = 5) -> None:
        self.sender.write(markers(*partitions, coordinator_epoch=coordinator_epoch), self.owner)
        self.loop.turn()

    def answer_there(self, *codes: ErrorCode) -> None:
        """Another broker answers what it has received, with a code for each marker."""
        assert self.requests is not None
        sent, self.there = self.there, []
        self.requests.on_answer(sent, response(sent, codes))


def markers(*partitions: TopicPartition, coordinator_epoch: int = 5) -> EndMarkers:
    return EndMarkers("t", 7, 2, True, False, coordinator_epoch, frozenset(partitions))


def response(sent: Sequence[Marker], codes: Sequence[ErrorCode]) -> WriteTxnMarkersResponse:
    topics = [
        WritableTxnMarkerTopicResult(
            each.partition.topic, [WritableTxnMarkerPartitionResult(each.partition.partition, code)]
        )
        for each, code in zip(sent, codes, strict=True)
    ]
    return WriteTxnMarkersResponse([WritableTxnMarkerResult(7, topics)])


def test_marker_of_a_partition_led_here_is_a_plain_call_after_the_decision() -> None:
    around = Surroundings()
    around.sender.write(markers(A), around.owner)
    assert not around.here, "a shard is not called while it decides"
    around.loop.turn()
    [(partition, written, on_done)] = around.here
    assert (partition, written) == (A, markers(A))
    assert not around.owner.written
    on_done(ErrorCode.NONE)
    assert around.owner.written == [A]
    assert not len(around.sender)


def test_markers_that_are_requested_again_have_one_request_in_flight() -> None:
    around = Surroundings()
    around.decide(A)
    around.decide(A)
    [(_, _, on_done)] = around.here
    on_done(ErrorCode.NONE)
    assert around.owner.written == [A]
    around.loop.advance(RETRY_MS / 1000)
    assert len(around.here) == 1


def test_answer_counts_for_every_shard_that_has_requested_the_marker() -> None:
    around = Surroundings()
    around.decide(A)
    reloaded = Owner()
    around.sender.write(markers(A), reloaded)
    around.loop.turn()
    around.here[0][2](ErrorCode.NONE)
    assert around.owner.written == reloaded.written == [A]


def test_refused_marker_is_sent_again_to_the_leader_of_that_moment() -> None:
    around = Surroundings()
    around.decide(A)
    around.here[0][2](ErrorCode.NOT_LEADER_OR_FOLLOWER)
    around.leaders[A] = THERE
    around.loop.advance(RETRY_MS / 1000)
    assert [each.partition for each in around.there] == [A]
    around.answer_there(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    around.loop.advance(RETRY_MS / 1000)
    around.answer_there(ErrorCode.NONE)
    assert around.owner.written == [A]


def test_marker_without_a_leader_waits_until_roles_change() -> None:
    around = Surroundings()
    around.leaders[A] = NodeId(-1)
    around.decide(A)
    assert not around.here
    around.leaders[A] = HERE
    around.sender.on_leaders_changed()
    assert len(around.here) == 1


def test_request_that_was_not_answered_is_made_again() -> None:
    around = Surroundings()
    around.leaders = {A: THERE, B: THERE}
    around.decide(A, B)
    assert around.requests is not None
    sent, around.there = around.there, []
    around.requests.on_failed(sent, OttlaError("no answer in time"))
    around.loop.advance(RETRY_MS / 1000)
    around.answer_there(ErrorCode.NONE, ErrorCode.NONE)
    assert sorted(around.owner.written) == [A, B]


def test_replaced_coordinator_sends_its_marker_no_more() -> None:
    around = Surroundings()
    around.decide(A)
    around.here[0][2](ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    around.loop.advance(RETRY_MS / 1000)
    assert len(around.here) == 1
    assert not len(around.sender)
    assert not around.owner.written


def test_refusal_of_an_earlier_epoch_does_not_end_the_marker_of_the_newer_one() -> None:
    around = Surroundings()
    around.decide(A, coordinator_epoch=5)
    around.decide(A, coordinator_epoch=7)
    around.here[0][2](ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    around.loop.advance(RETRY_MS / 1000)
    assert [each[1].coordinator_epoch for each in around.here] == [5, 7]


def test_marker_of_a_shard_that_is_over_is_dropped_before_the_next_attempt() -> None:
    around = Surroundings()
    around.decide(A)
    around.owner.is_over = True
    around.here[0][2](ErrorCode.NOT_ENOUGH_REPLICAS)
    around.loop.advance(RETRY_MS / 1000)
    assert len(around.here) == 1
    assert not len(around.sender)


def test_one_request_has_the_markers_of_all_partitions_of_a_transaction() -> None:
    around = Surroundings()
    around.leaders = {A: THERE, B: THERE}
    around.decide(A, B)
    assert around.requests is not None
    request: Any = around.requests.request_of(around.there)
    assert isinstance(request, WriteTxnMarkersRequest)
    [marker] = request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 2, True)
    assert (marker.coordinator_epoch, marker.transaction_version) == (5, 1)
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("a", [0]), ("b", [3])]


async def test_partition_that_is_deleted_needs_no_marker() -> None:
    class Deleted(Surroundings):
        refreshed_count = 0

        async def refresh(self) -> None:
            self.refreshed_count += 1

    around = Deleted()
    around.leaders = {}
    sender = MarkerSender(HERE, around, around, asyncio.get_running_loop())
    sender.write(markers(A), around.owner)
    await asyncio.wait_for(around.owner.has_written.wait(), 10)
    assert around.owner.written == [A]
    assert around.refreshed_count == 1
    await sender.stop()
