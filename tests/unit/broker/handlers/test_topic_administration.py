"""CreatePartitions, AlterConfigs, DescribeLogDirs, ElectLeaders, reassignments: what they ask of the broker, and its
refusals."""

from __future__ import annotations

from collections.abc import Sequence
from time import process_time

import pytest

from ottla.coordination.configs import ConfigEntity
from ottla.coordination.topics_view import Move, TopicsView
from ottla.coordination.tree import ConnectionLoss, SessionLost
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, RequestError
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from ottla.protocol.schemas.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.schemas.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.protocol.schemas.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.protocol.schemas.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from ottla.protocol.schemas.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from ottla.storage.errors import DirectoryOffline
from tests.unit.broker.handlers.small_broker import NODE_ID, SmallBroker, codes

TOPIC, BROKER = 2, 4


async def grow(broker: SmallBroker, *topics: CreatePartitionsTopic, validate_only: bool = False) -> list[int]:
    request = CreatePartitionsRequest(list(topics), 1_000, validate_only)
    return codes(await broker.ask(ApiKey.CREATE_PARTITIONS, 3, request, CreatePartitionsResponse))


async def test_each_topic_is_grown_by_itself_as_asked_for() -> None:
    broker = SmallBroker()
    assigned = [CreatePartitionsAssignment([NODE_ID])]
    wanted = [CreatePartitionsTopic("a", 3), CreatePartitionsTopic("b", 2, assigned)]
    assert await grow(broker, *wanted, validate_only=True) == [0, 0]
    assert broker.grown == [("a", 3, None, True), ("b", 2, [[NODE_ID]], True)]


async def test_topic_that_is_there_twice_is_answered_once_and_not_grown() -> None:
    broker = SmallBroker()
    twice = [CreatePartitionsTopic("a", 3), CreatePartitionsTopic("a", 4), CreatePartitionsTopic("b", 2)]
    assert await grow(broker, *twice) == [ErrorCode.INVALID_REQUEST, 0]
    assert [name for name, *_ in broker.grown] == ["b"]


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (RequestError(ErrorCode.INVALID_PARTITIONS, "no"), ErrorCode.INVALID_PARTITIONS),
        (DirectoryOffline("gone"), ErrorCode.KAFKA_STORAGE_ERROR),
        # Clients ask another broker, or this one again.
        (SessionLost("/brokers/topics/a"), ErrorCode.NOT_CONTROLLER),
        (ConnectionLoss("/brokers/topics/a"), ErrorCode.REQUEST_TIMED_OUT),
    ],
)
async def test_refusal_becomes_the_topics_error(refusal: OttlaError, code: ErrorCode) -> None:
    broker = SmallBroker()
    broker.refusal = refusal
    assert await grow(broker, CreatePartitionsTopic("a", 3)) == [code]


async def alter(broker: SmallBroker, *resources: AlterConfigsResource, validate_only: bool = False) -> list[int]:
    request = AlterConfigsRequest(list(resources), validate_only)
    return codes(await broker.ask(ApiKey.ALTER_CONFIGS, 2, request, AlterConfigsResponse))


async def test_settings_of_a_topic_are_replaced_as_a_whole() -> None:
    broker = SmallBroker()
    broker.add_topic("a")
    resource = AlterConfigsResource(TOPIC, "a", [AlterableConfig("retention.ms", " 5 ")])
    assert await alter(broker, resource, validate_only=True) == [0]
    assert broker.replaced == []
    assert await alter(broker, resource, AlterConfigsResource(TOPIC, "a b")) == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert broker.replaced == [(ConfigEntity.topic("a"), {"retention.ms": "5"})]


async def test_resource_that_is_there_twice_is_refused_once() -> None:
    broker = SmallBroker()
    broker.add_topic("a")
    twice = [AlterConfigsResource(TOPIC, "a"), AlterConfigsResource(TOPIC, "a")]
    assert await alter(broker, *twice) == [ErrorCode.INVALID_REQUEST]
    assert broker.replaced == []


@pytest.mark.parametrize(("name", "is_known"), [("", True), (str(NODE_ID), True), ("99", False)])
async def test_brokers_take_an_empty_change_only(name: str, is_known: bool) -> None:
    broker = SmallBroker()
    change = AlterConfigsResource(BROKER, name, [AlterableConfig("log.retention.ms", "1")])
    nothing = AlterConfigsResource(BROKER, name)
    assert await alter(broker, change) == [ErrorCode.INVALID_REQUEST]
    assert await alter(broker, nothing) == [0 if is_known else ErrorCode.INVALID_REQUEST]


async def describe(broker: SmallBroker, topics: list[DescribableLogDirTopic] | None) -> DescribeLogDirsResponse:
    return await broker.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics), DescribeLogDirsResponse)


async def test_directory_names_the_partitions_that_are_here_once() -> None:
    broker = SmallBroker()
    broker.add_topic("a", 2)
    broker.append("a", 1)
    wanted = [
        DescribableLogDirTopic("a", [0, 0, 7]),
        DescribableLogDirTopic("a", [0]),
        DescribableLogDirTopic("b", [0]),
    ]
    (directory,) = (await describe(broker, wanted)).results
    assert (directory.log_dir, directory.total_bytes, directory.usable_bytes) == ("/data", 1000, 400)
    ((name, partitions),) = [(topic.name, topic.partitions) for topic in directory.topics]
    assert (name, [each.partition_index for each in partitions]) == ("a", [0])
    assert partitions[0].partition_size == broker.partition("a").size_bytes > 0


async def test_directory_that_is_out_of_use_says_so() -> None:
    broker = SmallBroker()
    broker.add_topic("a")
    broker.log_directory.is_online = False
    (directory,) = (await describe(broker, None)).results
    assert (directory.error_code, directory.log_dir, directory.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, "/data", [])


async def test_log_that_takes_no_records_any_more_is_left_out() -> None:
    broker = SmallBroker()
    broker.add_topic("a", 2)
    broker.fail_log("a", 1)
    for wanted in (None, [DescribableLogDirTopic("a", [0, 1])]):
        (directory,) = (await describe(broker, wanted)).results
        assert [each.partition_index for each in directory.topics[0].partitions] == [0]


async def test_election_for_a_log_that_could_not_be_opened_finds_no_leader() -> None:
    broker = SmallBroker()
    broker.add_topic("a", 2)
    broker.partitions.remove(broker.partition("a", 1).topic_partition)
    request = ElectLeadersRequest(0, [TopicPartitions("a", [0, 1, 2, -1])])
    response = await broker.ask(ApiKey.ELECT_LEADERS, 2, request, ElectLeadersResponse)
    assert [each.error_code for each in response.replica_election_results[0].partition_result] == [
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


class HeldElections:
    """The answers of elections, by partition index, and what was asked for."""

    def __init__(self, codes: dict[int, ErrorCode]) -> None:
        self.codes = codes
        self.asked: list[tuple[list[TopicPartition], bool, int]] = []

    async def elect(self, wanted: Sequence[TopicPartition], *, is_unclean: bool, timeout_ms: int) -> list[ErrorCode]:
        self.asked.append((list(wanted), is_unclean, timeout_ms))
        return [self.codes[each.partition] for each in wanted]


async def elections_of(
    broker: SmallBroker, wanted: list[TopicPartitions] | None, election_type: int = 0
) -> list[tuple[str, int, int]]:
    """(topic, partition, error code) of each result."""
    request = ElectLeadersRequest(election_type, wanted, timeout_ms=1_234)
    response = await broker.ask(ApiKey.ELECT_LEADERS, 2, request, ElectLeadersResponse)
    return [
        (topic.topic, each.partition_id, each.error_code)
        for topic in response.replica_election_results
        for each in topic.partition_result
    ]


@pytest.mark.parametrize("election_type", [0, 1])
async def test_election_for_all_partitions_names_those_where_something_happened(election_type: int) -> None:
    broker = SmallBroker()
    broker.add_topic("a", 3)
    codes = {0: ErrorCode.NONE, 1: ErrorCode.ELECTION_NOT_NEEDED, 2: ErrorCode.REQUEST_TIMED_OUT}
    broker.elections = held = HeldElections(codes)
    found = [("a", index, code) for index, code in codes.items()]
    assert await elections_of(broker, None, election_type) == [found[0], found[2]]
    assert await elections_of(broker, [TopicPartitions("a", [2, 1])], election_type) == [found[2], found[1]]
    everything = [TopicPartition("a", index) for index in (0, 1, 2)]
    assert held.asked == [(everything, bool(election_type), 1_234), (everything[:0:-1], bool(election_type), 1_234)]


async def test_election_for_all_partitions_of_a_broker_by_itself_names_those_that_it_cannot_lead() -> None:
    broker = SmallBroker()
    broker.add_topic("a", 2)
    assert await elections_of(broker, None) == []
    broker.partitions.remove(broker.partition("a", 1).topic_partition)
    assert await elections_of(broker, None) == [("a", 1, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]


async def test_each_partition_is_reassigned_by_itself_as_asked_for() -> None:
    broker = SmallBroker()
    broker.add_topic("a")
    wanted = ReassignableTopic("a", [ReassignablePartition(0, [1, 2]), ReassignablePartition(9, None)])
    request = AlterPartitionReassignmentsRequest(1_000, allow_replication_factor_change=False, topics=[wanted])
    response = await broker.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, request, AlterPartitionReassignmentsResponse)
    (topic,) = response.responses
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [
        (0, ErrorCode.NONE),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert broker.reassigned == [("a", {0: [1, 2]}, False)]


async def test_topic_that_cannot_be_reassigned_says_so_for_each_partition() -> None:
    broker = SmallBroker()
    broker.refusal = RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no")
    wanted = ReassignableTopic("a", [ReassignablePartition(0, [1]), ReassignablePartition(1, [1])])
    request = AlterPartitionReassignmentsRequest(1_000, topics=[wanted])
    response = await broker.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request, AlterPartitionReassignmentsResponse)
    found = [each.error_code for each in response.responses[0].partitions]
    assert found == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


async def test_topic_of_many_entries_takes_no_longer_than_one_with_their_partitions() -> None:
    broker = SmallBroker()
    broker.add_topic("a", 3)

    async def took_s(partitions_of_entry: int) -> float:
        starts = range(0, 40_000, partitions_of_entry)
        topics = [ListPartitionReassignmentsTopics("a", list(range(at, at + partitions_of_entry))) for at in starts]
        request = ListPartitionReassignmentsRequest(1_000, topics)
        began_s = process_time()
        await broker.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, request, ListPartitionReassignmentsResponse)
        return process_time() - began_s

    few, many = [min([await took_s(size) for _ in range(3)]) for size in (40_000, 20)]
    assert many < 20 * few, (many, few)


async def test_only_moves_under_way_are_listed() -> None:
    broker = SmallBroker()
    topic = broker.add_topic("a", 3)
    moving = topic.partitions[1]._replace(
        replicas=(NodeId(7), NODE_ID), move=Move(adding=(NodeId(7),), removing=(NODE_ID,))
    )
    partitions = (topic.partitions[0], moving, topic.partitions[2])
    broker.topics = TopicsView.of(9, {**broker.topics.by_name, "a": topic._replace(partitions=partitions)})
    for topics in (
        None,
        [ListPartitionReassignmentsTopics("a", [0, 1, 9]), ListPartitionReassignmentsTopics("b", [0])],
    ):
        request = ListPartitionReassignmentsRequest(1_000, topics)
        response = await broker.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, request, ListPartitionReassignmentsResponse)
        (found,) = response.topics
        (row,) = found.partitions
        assert (found.name, row.partition_index) == ("a", 1)
        assert (row.replicas, row.adding_replicas, row.removing_replicas) == ([7, NODE_ID], [7], [NODE_ID])
    request = ListPartitionReassignmentsRequest(1_000, [ListPartitionReassignmentsTopics("a", [0])])
    response = await broker.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, request, ListPartitionReassignmentsResponse)
    assert response.topics == []
