"""DescribeProducers."""

from __future__ import annotations

from ottla.broker.partitions.waiting_requests import ACKS_ALL
from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.describe_producers import (
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicRequest,
    DescribeProducersTopicResponse,
    ProducerState,
)
from ottla.records.builder import build_batch
from ottla.records.end_marker import EndMarker
from ottla.records.header import HEADER
from ottla.records.record import Record
from tests.unit.broker.handlers.small_broker import SmallBroker
from tests.unit.broker.roles import resign

OPEN, ENDED, MARKED = 7, 8, 9


def with_producers() -> SmallBroker:
    """One with an open transaction at offset 0, one that has ended, and one of which only a marker is known."""
    broker = SmallBroker()
    broker.add_topic("t")
    partition, now_ms = broker.partition("t"), broker.clock.now_ms()
    for producer_id in (OPEN, ENDED):
        batch = build_batch(
            [Record(0, 1, None, b"v")] * 2,
            producer_id=producer_id,
            producer_epoch=2,
            base_sequence=0,
            is_transactional=True,
        )
        guard = partition.guard(producer_id, 2, 0)
        partition.append(memoryview(batch), HEADER.unpack_from(batch), ACKS_ALL, now_ms, guard)
    partition.append_marker(EndMarker(True, 5), ENDED, 2, now_ms, advances_epoch=False)
    partition.append_marker(EndMarker(False, 6), MARKED, 1, now_ms, advances_epoch=True)
    return broker


async def describe(broker: SmallBroker, *wanted: tuple[str, list[int]]) -> list[DescribeProducersTopicResponse]:
    request = DescribeProducersRequest([DescribeProducersTopicRequest(*each) for each in wanted])
    response = await broker.ask(ApiKey.DESCRIBE_PRODUCERS, 0, request, DescribeProducersResponse)
    return response.topics


async def test_producers_of_a_partition_are_described_with_their_open_transactions() -> None:
    broker = with_producers()
    now_ms = broker.clock.now_ms()
    ((answer,),) = [topic.partitions for topic in await describe(broker, ("t", [0]))]
    assert answer == DescribeProducersPartitionResponse(
        0,
        active_producers=[
            ProducerState(OPEN, 2, 1, now_ms, -1, 0),
            ProducerState(ENDED, 2, 1, now_ms, 5, -1),
            ProducerState(MARKED, 1, -1, now_ms, 6, -1),
        ],
    )


async def test_partition_that_is_not_here_or_led_elsewhere_is_refused_alone() -> None:
    broker = with_producers()
    broker.add_topic("other")
    resign(broker.partition("other"))
    answers = await describe(broker, ("t", [9]), ("other", [0]), ("none", [0]), ("t", [0]))
    found = {(topic.name, each.partition_index): each.error_code for topic in answers for each in topic.partitions}
    assert found == {
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", 0): ErrorCode.NONE,
        ("other", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


async def test_partition_that_is_named_often_is_described_once() -> None:
    answers = await describe(with_producers(), ("t", [0, 0]), ("t", [0]))
    assert [len(topic.partitions) for topic in answers] == [1]
