"""APIs of groups over the wire's bytes: what each version has, lacks and means."""

from __future__ import annotations

import logging
from typing import TypeVar

import pytest

from ottla.coordination.broker_registry import BrokersView
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.group_partition import partition_of
from ottla.model.identifiers import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, NodeId
from ottla.observe.events import EventFormatter
from ottla.protocol.api import API_VERSIONS, ApiKey
from ottla.protocol.schemas.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.protocol.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.schemas.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.schemas.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.schemas.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.protocol.schemas.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.protocol.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from ottla.protocol.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.unit.broker.handlers.small_broker import HOST, PORT, SmallBroker, codes
from tests.unit.broker.live_brokers import live

R = TypeVar("R")
OFFSETS_PARTITIONS = 2


@pytest.fixture
def broker() -> SmallBroker:
    """With the topic "t" of two partitions, and that of the groups; groups do not delay their first generation."""
    made = SmallBroker(group_initial_rebalance_delay_ms="0")
    made.add_topic("t", 2)
    made.add_topic(OFFSETS_TOPIC, OFFSETS_PARTITIONS)
    return made


def versions(api: ApiKey) -> pytest.MarkDecorator:
    lowest, highest = API_VERSIONS[api]
    return pytest.mark.parametrize("version", range(lowest, highest + 1))


def commit_request(group_id: str, *offsets: tuple[str, int, int]) -> OffsetCommitRequest:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for topic, index, offset in offsets:
        topics.setdefault(topic, []).append(OffsetCommitRequestPartition(index, offset))
    return OffsetCommitRequest(group_id, topics=[OffsetCommitRequestTopic(*topic) for topic in topics.items()])


async def commit(broker: SmallBroker, group_id: str, *offsets: tuple[str, int, int]) -> None:
    answer = await broker.ask(ApiKey.OFFSET_COMMIT, 9, commit_request(group_id, *offsets), OffsetCommitResponse)
    assert set(codes(answer)) == {0}


def join_request(group_id: str, member_id: str = "", metadata: bytes = b"m") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id, 10_000, 20_000, member_id, None, "consumer", [JoinGroupRequestProtocol("range", metadata)]
    )


async def stable_member(broker: SmallBroker, group_id: str) -> str:
    """The id of the only member of a group in its first generation."""
    joined = await broker.ask(ApiKey.JOIN_GROUP, 3, join_request(group_id), JoinGroupResponse)
    assert joined.error_code == 0
    assignments = [SyncGroupRequestAssignment(joined.member_id, b"all")]
    synced = await broker.ask(
        ApiKey.SYNC_GROUP,
        5,
        SyncGroupRequest(group_id, 1, joined.member_id, None, "consumer", "range", assignments),
        SyncGroupResponse,
    )
    assert (synced.error_code, synced.assignment, synced.protocol_name) == (0, b"all", "range")
    return joined.member_id


@versions(ApiKey.FIND_COORDINATOR)
async def test_this_broker_coordinates_every_group(broker: SmallBroker, version: int) -> None:
    request = FindCoordinatorRequest(coordinator_keys=["g"]) if version >= 4 else FindCoordinatorRequest("g")
    answer = await broker.ask(ApiKey.FIND_COORDINATOR, version, request, FindCoordinatorResponse)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id, found.host, found.port) == (0, broker.node_id, HOST, PORT)


@versions(ApiKey.FIND_COORDINATOR)
async def test_coordinator_is_the_leader_of_the_groups_partition(broker: SmallBroker, version: int) -> None:
    broker.place(OFFSETS_TOPIC, replicas=(6, 7), leader=6, in_sync=(6, 7))
    broker.brokers.live = live(broker.node_id, 6, 7)
    request = FindCoordinatorRequest(coordinator_keys=["g"]) if version >= 4 else FindCoordinatorRequest("g")
    answer = await broker.ask(ApiKey.FIND_COORDINATOR, version, request, FindCoordinatorResponse)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id, found.host) == (0, 6, "broker-6.example")


async def test_no_coordinator_is_named_while_the_groups_partition_has_no_live_leader(broker: SmallBroker) -> None:
    broker.place(OFFSETS_TOPIC, replicas=(6, 7), leader=6, in_sync=(6, 7))
    broker.brokers.live = live(broker.node_id, 7)
    answer = await broker.ask(ApiKey.FIND_COORDINATOR, 2, FindCoordinatorRequest("g"), FindCoordinatorResponse)
    assert (answer.error_code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


async def test_broker_that_registered_again_coordinates_nothing_before_the_next_election(broker: SmallBroker) -> None:
    broker.is_sole = False
    broker.place(OFFSETS_TOPIC, replicas=(6, 7), leader=6, in_sync=(6, 7))
    broker.brokers.live = live(broker.node_id, 6, 7)
    again = broker.brokers.live.by_id[NodeId(6)]._replace(broker_epoch=9)
    broker.brokers.live = BrokersView(2, {**broker.brokers.live.by_id, NodeId(6): again})
    answer = await broker.ask(ApiKey.FIND_COORDINATOR, 2, FindCoordinatorRequest("g"), FindCoordinatorResponse)
    assert (answer.error_code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


async def test_first_search_for_a_coordinator_makes_the_topic() -> None:
    broker = SmallBroker()
    for _ in range(2):
        answer = await broker.ask(ApiKey.FIND_COORDINATOR, 2, FindCoordinatorRequest("g"), FindCoordinatorResponse)
        assert answer.error_code == 0
    ((made, is_trial),) = broker.created
    assert (made.name, made.partitions_count, is_trial) == (OFFSETS_TOPIC, 50, False)
    assert broker.groups.exists


async def test_coordinator_is_not_available_when_the_topic_cannot_be_made() -> None:
    broker = SmallBroker()
    broker.refusal = RequestError(ErrorCode.KAFKA_STORAGE_ERROR, "no room on the disk")
    answer = await broker.ask(ApiKey.FIND_COORDINATOR, 2, FindCoordinatorRequest("g"), FindCoordinatorResponse)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert answer.error_message is not None
    assert "no room" in answer.error_message


@pytest.mark.parametrize("key_type", [2, 9])
async def test_only_groups_and_transactional_ids_have_coordinators(key_type: int) -> None:
    broker = SmallBroker()
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a", "b"])
    answer = await broker.ask(ApiKey.FIND_COORDINATOR, 6, request, FindCoordinatorResponse)
    code = ErrorCode.INVALID_REQUEST
    assert [(each.key, each.error_code) for each in answer.coordinators] == [("a", code), ("b", code)]
    assert broker.created == []


async def test_topic_of_transactions_is_created_with_the_first_request_for_a_coordinator() -> None:
    broker = SmallBroker()
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["a", "b"])
    answer = await broker.ask(ApiKey.FIND_COORDINATOR, 6, request, FindCoordinatorResponse)
    assert [(each.key, each.error_code) for each in answer.coordinators] == [("a", 0), ("b", 0)]
    ((made, _),) = broker.created
    assert made.name == TRANSACTIONS_TOPIC


async def test_metadata_makes_the_groups_topic_as_it_must_be() -> None:
    broker = SmallBroker()
    wanted = MetadataRequest([MetadataRequestTopic(name=OFFSETS_TOPIC)])
    answer = await broker.ask(ApiKey.METADATA, 9, wanted, MetadataResponse)
    assert answer.topics[0].is_internal
    ((made, _),) = broker.created
    assert made.config["cleanup.policy"] == "compact"


@versions(ApiKey.JOIN_GROUP)
async def test_joining_follows_the_version(broker: SmallBroker, version: int) -> None:
    answer = await broker.ask(ApiKey.JOIN_GROUP, version, join_request("g"), JoinGroupResponse)
    assert answer.member_id.startswith("a-client-")
    if version >= 4:
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        request = join_request("g", answer.member_id)
        answer = await broker.ask(ApiKey.JOIN_GROUP, version, request, JoinGroupResponse)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
    assert answer.leader == answer.member_id
    assert [member.metadata for member in answer.members] == [b"m"]


async def test_member_without_bounds_is_refused(broker: SmallBroker) -> None:
    request = join_request("g", metadata=b"x" * (1 << 20) + b"x")
    answer = await broker.ask(ApiKey.JOIN_GROUP, 3, request, JoinGroupResponse)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_sync_names_its_protocol_from_version_5_on(broker: SmallBroker) -> None:
    request = SyncGroupRequest("g", 1, "m")
    answer = await broker.ask(ApiKey.SYNC_GROUP, 5, request, SyncGroupResponse)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    answer = await broker.ask(ApiKey.SYNC_GROUP, 4, request, SyncGroupResponse)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@versions(ApiKey.HEARTBEAT)
async def test_heartbeat_knows_its_members(broker: SmallBroker, version: int) -> None:
    member_id = await stable_member(broker, "g")
    for asked, code in [(member_id, 0), ("nobody", ErrorCode.UNKNOWN_MEMBER_ID)]:
        answer = await broker.ask(ApiKey.HEARTBEAT, version, HeartbeatRequest("g", 1, asked), HeartbeatResponse)
        assert answer.error_code == code


@versions(ApiKey.LEAVE_GROUP)
async def test_leaving_tells_of_the_member_where_the_version_can(broker: SmallBroker, version: int) -> None:
    member_id = await stable_member(broker, "g")
    for asked, code in [("nobody", ErrorCode.UNKNOWN_MEMBER_ID), (member_id, 0)]:
        many = version >= 3
        request = LeaveGroupRequest("g", "" if many else asked, [MemberIdentity(asked)] if many else [])
        answer = await broker.ask(ApiKey.LEAVE_GROUP, version, request, LeaveGroupResponse)
        assert codes(answer) == ([0, code] if many else [code])


@versions(ApiKey.OFFSET_COMMIT)
async def test_commit_answers_each_partition_by_itself(broker: SmallBroker, version: int) -> None:
    request = commit_request("g", ("t", 0, 5), ("t", 2, 5), ("t", -1, 5), ("unknown", 0, 5), ("t", 1, 6))
    answer = await broker.ask(ApiKey.OFFSET_COMMIT, version, request, OffsetCommitResponse)
    told = {(topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert told == {("t", 0): 0, ("t", 2): unknown, ("t", -1): unknown, ("unknown", 0): unknown, ("t", 1): 0}


async def test_commit_of_nothing_that_exists_reaches_no_group(broker: SmallBroker) -> None:
    await broker.ask(ApiKey.OFFSET_COMMIT, 8, commit_request("g", ("unknown", 0, 5)), OffsetCommitResponse)
    answer = await broker.ask(ApiKey.LIST_GROUPS, 4, ListGroupsRequest(), ListGroupsResponse)
    assert answer.groups == []


@versions(ApiKey.OFFSET_FETCH)
async def test_fetch_tells_what_is_committed_and_what_is_not(broker: SmallBroker, version: int) -> None:
    await commit(broker, "g", ("t", 1, 42))
    wanted = [OffsetFetchRequestTopic("t", [0, 1])]
    if version >= 8:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=wanted)])
    else:
        request = OffsetFetchRequest("g", wanted)
    answer = await broker.ask(ApiKey.OFFSET_FETCH, version, request, OffsetFetchResponse)
    topics = answer.groups[0].topics if version >= 8 else answer.topics
    assert [(each.partition_index, each.committed_offset) for each in topics[0].partitions] == [(0, -1), (1, 42)]
    assert set(codes(answer)) == {0}


@pytest.mark.parametrize("version", range(2, 10))
async def test_fetch_of_everything_tells_everything(broker: SmallBroker, version: int) -> None:
    await commit(broker, "g", ("t", 1, 42))
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g")]) if version >= 8 else OffsetFetchRequest("g")
    answer = await broker.ask(ApiKey.OFFSET_FETCH, version, request, OffsetFetchResponse)
    (topic,) = answer.groups[0].topics if version >= 8 else answer.topics
    assert [(each.partition_index, each.committed_offset) for each in topic.partitions] == [(1, 42)]


async def test_fetch_takes_groups_of_several_shards_in_their_order(broker: SmallBroker) -> None:
    group_ids = [f"g{number}" for number in range(6)]
    assert {partition_of(each, OFFSETS_PARTITIONS) for each in group_ids} == {0, 1}
    for number, group_id in enumerate(group_ids):
        await commit(broker, group_id, ("t", 0, number))
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(each) for each in group_ids])
    answer = await broker.ask(ApiKey.OFFSET_FETCH, 9, request, OffsetFetchResponse)
    assert [(each.group_id, each.topics[0].partitions[0].committed_offset) for each in answer.groups] == list(
        zip(group_ids, range(6), strict=True)
    )


async def test_failed_fetch_stands_in_every_place_that_a_client_of_the_version_may_look_at() -> None:
    broker = SmallBroker()
    code = ErrorCode.NOT_COORDINATOR
    wanted = [OffsetFetchRequestTopic("t", [0, 1])]
    for version, of_request in [(1, ErrorCode.NONE), (2, code), (3, code), (7, code)]:
        answer = await broker.ask(ApiKey.OFFSET_FETCH, version, OffsetFetchRequest("g", wanted), OffsetFetchResponse)
        assert answer.error_code == of_request
        (topic,) = answer.topics
        found = [(each.partition_index, each.committed_offset, each.error_code) for each in topic.partitions]
        assert found == [(0, -1, code), (1, -1, code)]
    answer = await broker.ask(ApiKey.OFFSET_FETCH, 2, OffsetFetchRequest("g", None), OffsetFetchResponse)
    assert (answer.error_code, answer.topics) == (code, []), "who asks for all names none"
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=wanted)])
    answer = await broker.ask(ApiKey.OFFSET_FETCH, 8, request, OffsetFetchResponse)
    assert [each.error_code for each in answer.groups] == [code]


async def test_offsets_are_deleted_but_for_topics_that_do_not_exist(broker: SmallBroker) -> None:
    await commit(broker, "g", ("t", 0, 1), ("t", 1, 2))
    topics = [
        OffsetDeleteRequestTopic("unknown", [OffsetDeleteRequestPartition(0)]),
        OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)]),
    ]
    answer = await broker.ask(ApiKey.OFFSET_DELETE, 0, OffsetDeleteRequest("g", topics), OffsetDeleteResponse)
    told = {topic.name: [each.error_code for each in topic.partitions] for topic in answer.topics}
    assert told == {"t": [0], "unknown": [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]}
    fetched = await broker.ask(ApiKey.OFFSET_FETCH, 7, OffsetFetchRequest("g"), OffsetFetchResponse)
    assert [each.partition_index for topic in fetched.topics for each in topic.partitions] == [1]
    nobody = await broker.ask(ApiKey.OFFSET_DELETE, 0, OffsetDeleteRequest("none", topics), OffsetDeleteResponse)
    assert (nobody.error_code, nobody.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


@versions(ApiKey.DESCRIBE_GROUPS)
async def test_group_that_is_not_there_is_dead_and_an_error_from_version_6_on(
    broker: SmallBroker, version: int
) -> None:
    member_id = await stable_member(broker, "g")
    request = DescribeGroupsRequest(["g", "none"])
    answer = await broker.ask(ApiKey.DESCRIBE_GROUPS, version, request, DescribeGroupsResponse)
    found, missing = answer.groups
    assert (found.error_code, found.group_state, found.protocol_data) == (0, "Stable", "range")
    (member,) = found.members
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "a-client", "/192.0.2.1")
    assert (member.member_metadata, member.member_assignment) == (b"m", b"all")
    assert missing.group_state == "Dead"
    assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)


async def test_authorized_operations_are_told_when_asked_for(broker: SmallBroker) -> None:
    for asked, operations in [(False, -(2**31)), (True, sum(1 << bit for bit in (3, 6, 8, 10, 11)))]:
        request = DescribeGroupsRequest(["g"], asked)
        answer = await broker.ask(ApiKey.DESCRIBE_GROUPS, 5, request, DescribeGroupsResponse)
        assert answer.groups[0].authorized_operations == operations


@versions(ApiKey.LIST_GROUPS)
async def test_groups_of_all_shards_are_listed(broker: SmallBroker, version: int) -> None:
    for number in range(6):
        await commit(broker, f"g{number}", ("t", 0, 1))
    answer = await broker.ask(ApiKey.LIST_GROUPS, version, ListGroupsRequest(), ListGroupsResponse)
    assert sorted(each.group_id for each in answer.groups) == [f"g{number}" for number in range(6)]


async def test_groups_are_filtered_by_state_and_kind(broker: SmallBroker) -> None:
    await commit(broker, "without-members", ("t", 0, 1))
    await stable_member(broker, "with-members")
    for request, found in [
        (ListGroupsRequest(["Stable"]), ["with-members"]),
        (ListGroupsRequest(["Empty"], ["classic"]), ["without-members"]),
        (ListGroupsRequest(types_filter=["consumer"]), []),
    ]:
        answer = await broker.ask(ApiKey.LIST_GROUPS, 5, request, ListGroupsResponse)
        assert [each.group_id for each in answer.groups] == found


@versions(ApiKey.DELETE_GROUPS)
async def test_groups_without_members_are_deleted(broker: SmallBroker, version: int) -> None:
    await commit(broker, "empty", ("t", 0, 1))
    await stable_member(broker, "busy")
    request = DeleteGroupsRequest(["empty", "busy", "none", "empty"])
    answer = await broker.ask(ApiKey.DELETE_GROUPS, version, request, DeleteGroupsResponse)
    told = [(each.group_id, each.error_code) for each in answer.results]
    assert told == [("empty", 0), ("busy", ErrorCode.NON_EMPTY_GROUP), ("none", ErrorCode.GROUP_ID_NOT_FOUND)]


@versions(ApiKey.CONSUMER_GROUP_HEARTBEAT)
async def test_only_member_gets_everything_at_once(broker: SmallBroker, version: int) -> None:
    member_id = "" if version == 0 else "own-id"
    request = ConsumerGroupHeartbeatRequest(
        "g", member_id, 0, rebalance_timeout_ms=60_000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    answer = await broker.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, request, ConsumerGroupHeartbeatResponse)
    assert (answer.error_code, answer.heartbeat_interval_ms) == (0, 5_000)
    assert answer.member_id == "own-id" if version else answer.member_id
    assert answer.assignment is not None
    topic_id = broker.topics.by_name["t"].topic_id
    assert [(each.topic_id, each.partitions) for each in answer.assignment.topic_partitions] == [(topic_id, [0, 1])]

    described = await broker.ask(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        version,
        ConsumerGroupDescribeRequest(["g", "none"]),
        ConsumerGroupDescribeResponse,
    )
    found, missing = described.groups
    assert (found.error_code, found.group_state, found.assignor_name) == (0, "Stable", "uniform")
    (member,) = found.members
    assert (member.client_host, member.member_type) == ("/192.0.2.1", 1 if version else -1)
    assert [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions] == [("t", [0, 1])]
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_refused_member_is_told_why(broker: SmallBroker) -> None:
    request = ConsumerGroupHeartbeatRequest("g", "unknown", 5)
    answer = await broker.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request, ConsumerGroupHeartbeatResponse)
    assert answer.error_code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
    assert answer.error_message


async def test_join_of_the_other_protocol_is_refused_and_logged(
    broker: SmallBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.broker.groups.coordinator")
    await stable_member(broker, "classic")
    joins = ConsumerGroupHeartbeatRequest(
        "classic", "own-id", 0, rebalance_timeout_ms=60_000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    answer = await broker.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joins, ConsumerGroupHeartbeatResponse)
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    joins.group_id = "consumer"
    assert codes(await broker.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joins, ConsumerGroupHeartbeatResponse)) == [0]
    refused = await broker.ask(ApiKey.JOIN_GROUP, 3, join_request("consumer"), JoinGroupResponse)
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    joins.member_epoch = 9
    joins.group_id = "classic"
    await broker.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joins, ConsumerGroupHeartbeatResponse)
    lines = [EventFormatter().format(record) for record in caplog.records]
    assert len(lines) == 2
    assert "group.join_refused group=classic" in lines[0]
    assert 'reason="the members use group.protocol=classic"' in lines[0]
    assert "group.join_refused group=consumer" in lines[1]
