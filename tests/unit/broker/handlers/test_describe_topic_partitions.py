"""DescribeTopicPartitions: pages of topics' partitions."""

from __future__ import annotations

import pytest

from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tests.unit.broker.handlers.small_broker import NODE_ID, SmallBroker

MultilineFact = list[tuple[str | None, int, list[int]]]


def with_topics(**settings: str) -> SmallBroker:
    broker = SmallBroker(**settings)
    broker.add_topic("b", 3)
    broker.add_topic("a", 2)
    return broker


async def ask(
    broker: SmallBroker, *names: str, limit: int = 2_000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], limit, cursor)
    return await broker.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request, DescribeTopicPartitionsResponse)


def told(answer: DescribeTopicPartitionsResponse) -> MultilineFact:
    return [
        (topic.name, topic.error_code, [each.partition_index for each in topic.partitions]) for topic in answer.topics
    ]


async def test_all_topics_are_told_by_name_when_none_is_named() -> None:
    broker = with_topics()
    answer = await ask(broker)
    assert told(answer) == [("a", 0, [0, 1]), ("b", 0, [0, 1, 2])]
    assert answer.next_cursor is None
    assert answer.topics[0].topic_id == broker.topics.by_name["a"].topic_id
    first = answer.topics[0].partitions[0]
    assert (first.leader_id, first.replica_nodes, first.isr_nodes) == (NODE_ID, [NODE_ID], [NODE_ID])
    assert (first.eligible_leader_replicas, first.last_known_elr, first.offline_replicas) == ([], [], [])


async def test_named_topics_are_told_once_each_with_the_errors_of_those_that_are_not_there() -> None:
    assert told(await ask(with_topics(), "b", "no such", "a", "nowhere", "b")) == [
        ("a", 0, [0, 1]),
        ("b", 0, [0, 1, 2]),
        ("no such", ErrorCode.INVALID_TOPIC_EXCEPTION, []),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
    ]


@pytest.mark.parametrize("names", [(), ("a", "b")])
@pytest.mark.parametrize("limit", [-1, 0, 1, 2, 3, 4, 5])
async def test_pages_hold_each_partition_once_and_no_more_than_the_limit(names: tuple[str, ...], limit: int) -> None:
    broker, seen, cursor, pages = with_topics(), list[tuple[str | None, int]](), None, 0
    while cursor is not None or pages == 0:
        answer = await ask(broker, *names, limit=limit, cursor=cursor)
        page = [(name, index) for name, _, indexes in told(answer) for index in indexes]
        assert 0 < len(page) <= max(limit, 1)
        seen, cursor, pages = seen + page, answer.next_cursor, pages + 1
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)]
    assert pages == -(-5 // max(limit, 1))


async def test_a_page_is_no_larger_than_the_brokers_setting() -> None:
    answer = await ask(with_topics(max_request_partition_size_limit="3"))
    assert told(answer) == [("a", 0, [0, 1]), ("b", 0, [0])]
    assert answer.next_cursor == Cursor("b", 1)


@pytest.mark.parametrize("cursor", [Cursor("a", -1), Cursor("c", 0), Cursor("", 0)])
async def test_cursor_that_leads_nowhere_is_refused_for_each_topic(cursor: Cursor) -> None:
    assert told(await ask(with_topics(), "b", "a", cursor=cursor)) == [
        ("b", ErrorCode.INVALID_REQUEST, []),
        ("a", ErrorCode.INVALID_REQUEST, []),
    ]


async def test_cursor_behind_the_last_partition_goes_on_with_the_next_topic() -> None:
    assert told(await ask(with_topics(), cursor=Cursor("a", 7))) == [("a", 0, []), ("b", 0, [0, 1, 2])]


async def test_cursor_of_a_topic_that_is_gone_goes_on_behind_it_when_all_are_asked_for() -> None:
    assert told(await ask(with_topics(), cursor=Cursor("aa", 1))) == [("b", 0, [0, 1, 2])]
