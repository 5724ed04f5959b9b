"""What a few bytes about groups may make the broker keep, or answer."""

from __future__ import annotations

import pytest

from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import OFFSETS_TOPIC
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.protocol.schemas.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from tests.unit.broker.handlers.small_broker import SmallBroker
from tests.unit.broker.handlers.test_groups import commit

MIB = 1 << 20


@pytest.fixture
def broker() -> SmallBroker:
    made = SmallBroker(group_initial_rebalance_delay_ms="0")
    made.add_topic("t", 2)
    made.add_topic(OFFSETS_TOPIC, 2)
    return made


def joining(
    *protocols: JoinGroupRequestProtocol, protocol_type: str = "consumer", reason: str = ""
) -> JoinGroupRequest:
    return JoinGroupRequest("g", 10_000, 20_000, "", "static", protocol_type, list(protocols), reason)


@pytest.mark.parametrize(
    "request_of_too_much",
    [
        joining(JoinGroupRequestProtocol("range", b"x" * MIB)),
        joining(*[JoinGroupRequestProtocol("x" * 30_000, b"")] * 40),
        joining(*[JoinGroupRequestProtocol("range", b"")] * 10_000),
    ],
    ids=["in a protocol's metadata", "in the names of protocols", "in the number of protocols"],
)
async def test_member_that_says_too_much_is_refused(broker: SmallBroker, request_of_too_much: JoinGroupRequest) -> None:
    answer = await broker.ask(ApiKey.JOIN_GROUP, 9, request_of_too_much, JoinGroupResponse)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_long_reason_is_cut_where_it_is_kept(broker: SmallBroker) -> None:
    request = joining(JoinGroupRequestProtocol("range", b""), reason="because " * 4_000)
    joined = await broker.ask(ApiKey.JOIN_GROUP, 9, request, JoinGroupResponse)
    assert joined.error_code == 0
    request.member_id = joined.member_id
    await broker.ask(ApiKey.JOIN_GROUP, 9, request, JoinGroupResponse)
    request.protocols = [JoinGroupRequestProtocol("range", b"news")]
    await broker.ask(ApiKey.JOIN_GROUP, 9, request, JoinGroupResponse)
    shard = next(shard for shard in broker.groups._shards._shards if shard is not None and len(shard.shard))
    told = str(shard.shard.history("g"))
    assert "because because" in told
    assert len(told) < 5_000


async def test_group_that_is_named_many_times_is_described_once(broker: SmallBroker) -> None:
    asked = DescribeGroupsRequest(["g", "h", "g", "g"])
    answer = await broker.ask(ApiKey.DESCRIBE_GROUPS, 5, asked, DescribeGroupsResponse)
    assert [group.group_id for group in answer.groups] == ["g", "h"]
    asked_of_consumers = ConsumerGroupDescribeRequest(["g", "h", "g"])
    described = await broker.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, asked_of_consumers, ConsumerGroupDescribeResponse)
    assert [group.group_id for group in described.groups] == ["g", "h"]


async def test_partition_that_is_named_many_times_is_fetched_once(broker: SmallBroker) -> None:
    await commit(broker, "g", ("t", 1, 42))
    topics = [OffsetFetchRequestTopic("t", [1, 0, 1]), OffsetFetchRequestTopic("t", [1])]
    old = await broker.ask(ApiKey.OFFSET_FETCH, 7, OffsetFetchRequest("g", topics), OffsetFetchResponse)
    many = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)])
    new = await broker.ask(ApiKey.OFFSET_FETCH, 8, many, OffsetFetchResponse)
    for found in (old.topics, new.groups[0].topics):
        ((topic, partitions),) = [(each.name, each.partitions) for each in found]
        assert (topic, [(each.partition_index, each.committed_offset) for each in partitions]) == (
            "t",
            [(1, 42), (0, -1)],
        )


async def test_group_whose_offsets_are_asked_for_twice_is_refused_once(broker: SmallBroker) -> None:
    await commit(broker, "g", ("t", 1, 42))
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)] * 2)
    answer = await broker.ask(ApiKey.OFFSET_FETCH, 8, request, OffsetFetchResponse)
    assert [(group.error_code, len(group.topics)) for group in answer.groups] == [
        (ErrorCode.INVALID_REQUEST, 0),
    ]
