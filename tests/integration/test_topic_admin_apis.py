"""CreatePartitions, AlterConfigs, DescribeLogDirs and their kin over raw requests: on Apache Kafka and here alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigResource, ConfigSource, ResourceType
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.wire.address import parse_bootstrap
from ottla.client.wire.cluster import Cluster
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas import alter_configs, alter_partition_reassignments, elect_leaders
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
from ottla.protocol.schemas.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.records.builder import build_batch
from ottla.records.record import Record
from tests.eventually import eventually
from tests.integration.conftest import NewTopicName
from tests.integration.raw_peer import RawPeer

R = TypeVar("R")
Ask = Callable[[ApiKey, int, object, type[R]], R]
TOPIC = 2


@pytest.fixture
def ask(bootstrap: str) -> Ask[R]:
    def exchange(api: ApiKey, version: int, request: object, response_class: type[R]) -> R:
        with RawPeer(parse_bootstrap(bootstrap)[0]) as peer:
            peer.ask(api, version, request)
            _, response = peer.answer(api, version)
        assert isinstance(response, response_class)
        return response

    return exchange


def grow(
    ask: Ask[CreatePartitionsResponse], *topics: CreatePartitionsTopic, validate_only: bool = False, version: int = 3
) -> list[int]:
    request = CreatePartitionsRequest(list(topics), 10_000, validate_only)
    response = ask(ApiKey.CREATE_PARTITIONS, version, request, CreatePartitionsResponse)
    assert {each.name for each in response.results} == {each.name for each in topics}
    codes = {each.name: each.error_code for each in response.results}
    return [codes[name] for name in dict.fromkeys(topic.name for topic in topics)]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_added_partitions_are_listed_and_accept_records(
    ask: Ask[CreatePartitionsResponse], cluster: Cluster, new_topic: NewTopicName, version: int
) -> None:
    topic = new_topic(2)
    assert grow(ask, CreatePartitionsTopic(topic, 4), version=version) == [0]
    eventually(lambda: len(Admin(cluster).describe_topics([topic])[0].partitions) == 4)
    with RawProducer(cluster) as producer:
        batch = build_batch([Record(0, 1_700_000_000_000, b"k", b"v")])
        producer.send(TopicPartition(topic, 3), batch, 1)
        producer.flush()


@pytest.mark.parametrize(
    ("count", "assigned", "code"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (0, None, ErrorCode.INVALID_PARTITIONS),
        (-1, None, ErrorCode.INVALID_PARTITIONS),
        (2, [["here"]], ErrorCode.INVALID_PARTITIONS),
        (3, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [["here"], ["here"]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[77]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [["here", "here"]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [["here"]], ErrorCode.NONE),
    ],
)
def test_invalid_growth_is_refused_with_the_protocols_code(
    ask: Ask[CreatePartitionsResponse],
    cluster: Cluster,
    new_topic: NewTopicName,
    count: int,
    assigned: list[list[int | str]] | None,
    code: ErrorCode,
) -> None:
    topic = new_topic(2)
    (here,) = Admin(cluster).describe_topics([topic])[0].partitions[0].replicas
    assignments = None
    if assigned is not None:
        assignments = [
            CreatePartitionsAssignment([node if isinstance(node, int) else here for node in nodes])
            for nodes in assigned
        ]
    assert grow(ask, CreatePartitionsTopic(topic, count, assignments), validate_only=True) == [code]
    assert len(Admin(cluster).describe_topics([topic])[0].partitions) == 2


def test_growth_answers_for_each_topic_and_refuses_a_duplicate(
    ask: Ask[CreatePartitionsResponse], new_topic: NewTopicName
) -> None:
    one, other = new_topic(), new_topic()
    wanted = [CreatePartitionsTopic(name, 2) for name in (one, "no-such-topic", "", other)]
    assert grow(ask, *wanted) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert grow(ask, CreatePartitionsTopic(one, 3), CreatePartitionsTopic(one, 4)) == [ErrorCode.INVALID_REQUEST]


def alter(
    ask: Ask[alter_configs.AlterConfigsResponse],
    name: str,
    *configs: tuple[str, str | None],
    resource_type: int = TOPIC,
    validate_only: bool = False,
    version: int = 2,
) -> int:
    rows = [alter_configs.AlterableConfig(*config) for config in configs]
    request = alter_configs.AlterConfigsRequest(
        [alter_configs.AlterConfigsResource(resource_type, name, rows)], validate_only
    )
    response = ask(ApiKey.ALTER_CONFIGS, version, request, alter_configs.AlterConfigsResponse)
    (result,) = response.responses
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return result.error_code


@pytest.mark.parametrize("version", [0, 1, 2])
def test_alter_configs_replaces_all_settings_of_a_topic(
    ask: Ask[alter_configs.AlterConfigsResponse], cluster: Cluster, new_topic: NewTopicName, version: int
) -> None:
    topic = new_topic(max_message_bytes="4000")
    assert alter(ask, topic, ("retention.ms", "5"), validate_only=True, version=version) == 0
    assert own_settings(cluster, topic) == {"retention.ms": "-1", "max.message.bytes": "4000"}
    assert alter(ask, topic, ("retention.ms", "777"), version=version) == 0
    eventually(lambda: own_settings(cluster, topic) == {"retention.ms": "777"})
    assert alter(ask, topic, version=version) == 0
    eventually(lambda: own_settings(cluster, topic) == {})


def own_settings(cluster: Cluster, topic: str) -> dict[str, str | None]:
    found = Admin(cluster).describe_configs(ConfigResource(ResourceType.TOPIC, topic))
    return {name: entry.value for name, entry in found.items() if entry.source is ConfigSource.DYNAMIC_TOPIC}


@pytest.mark.parametrize(
    ("name", "configs", "resource_type", "code"),
    [
        (None, [("retention.ms", "x")], TOPIC, ErrorCode.INVALID_CONFIG),
        (None, [("no.such.setting", "1")], TOPIC, ErrorCode.INVALID_CONFIG),
        (None, [("retention.ms", None)], TOPIC, ErrorCode.INVALID_REQUEST),
        (None, [("retention.ms", "1"), ("retention.ms", "2")], TOPIC, ErrorCode.INVALID_REQUEST),
        ("no-such-topic", [("retention.ms", "1")], TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("0", [("a", "1")], 8, ErrorCode.INVALID_REQUEST),
        ("0", [("a", "1")], 9, ErrorCode.INVALID_REQUEST),
        ("99", [("log.retention.ms", "1")], 4, ErrorCode.INVALID_REQUEST),
    ],
)
def test_alter_configs_refuses_with_the_protocols_code(
    ask: Ask[alter_configs.AlterConfigsResponse],
    new_topic: NewTopicName,
    name: str | None,
    configs: list[tuple[str, str | None]],
    resource_type: int,
    code: ErrorCode,
) -> None:
    assert alter(ask, name or new_topic(), *configs, resource_type=resource_type) == code


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_log_directory_lists_the_sizes_of_local_partitions(
    ask: Ask[DescribeLogDirsResponse], cluster: Cluster, new_topic: NewTopicName, version: int
) -> None:
    topic = new_topic(2)
    batch, larger = (build_batch([Record(0, 1_700_000_000_000, b"k", b"v" * size)]) for size in (100, 300))
    with RawProducer(cluster) as producer:
        producer.send(TopicPartition(topic, 0), batch, 1)
        producer.send(TopicPartition(topic, 1), larger, 1)
        producer.flush()
    wanted = [DescribableLogDirTopic(topic, [0, 1, 99, -1]), DescribableLogDirTopic("no-such-topic", [0])]
    response = ask(ApiKey.DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(wanted), DescribeLogDirsResponse)
    (directory,) = response.results
    assert (response.error_code, directory.error_code) == (0, 0)
    assert directory.log_dir.startswith("/")
    assert (directory.total_bytes > directory.usable_bytes > 0) is (version >= 4)
    (found,) = directory.topics
    sizes = {each.partition_index: each.partition_size for each in found.partitions}
    assert (found.name, sizes) == (topic, {0: len(batch), 1: len(larger)})
    assert {(each.offset_lag, each.is_future_key) for each in found.partitions} == {(0, False)}
    everything = ask(ApiKey.DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(None), DescribeLogDirsResponse)
    assert topic in {each.name for each in everything.results[0].topics}
    nothing = ask(ApiKey.DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest([]), DescribeLogDirsResponse)
    assert nothing.results[0].topics == []


@pytest.mark.parametrize("version", [0, 1, 2])
def test_election_of_the_only_replica_is_not_needed(
    ask: Ask[elect_leaders.ElectLeadersResponse], new_topic: NewTopicName, version: int
) -> None:
    topic = new_topic(2)
    wanted = [elect_leaders.TopicPartitions(topic, [0, 1, 9]), elect_leaders.TopicPartitions("no-such-topic", [0])]
    request = elect_leaders.ElectLeadersRequest(0, wanted)
    response = ask(ApiKey.ELECT_LEADERS, version, request, elect_leaders.ElectLeadersResponse)
    found = {
        (each.topic, result.partition_id): result.error_code
        for each in response.replica_election_results
        for result in each.partition_result
    }
    assert response.error_code == 0
    assert found == {
        (topic, 0): ErrorCode.ELECTION_NOT_NEEDED,
        (topic, 1): ErrorCode.ELECTION_NOT_NEEDED,
        (topic, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("no-such-topic", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_election_of_an_unknown_type_is_refused(
    ask: Ask[elect_leaders.ElectLeadersResponse], new_topic: NewTopicName
) -> None:
    request = elect_leaders.ElectLeadersRequest(7, [elect_leaders.TopicPartitions(new_topic(), [0])])
    response = ask(ApiKey.ELECT_LEADERS, 2, request, elect_leaders.ElectLeadersResponse)
    assert response.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [0, 1])
def test_only_broker_keeps_its_replicas(
    ask: Ask[alter_partition_reassignments.AlterPartitionReassignmentsResponse],
    bootstrap: str,
    new_topic: NewTopicName,
    version: int,
) -> None:
    topic = new_topic(2)
    with Cluster(bootstrap) as cluster:
        (here,) = Admin(cluster).describe_cluster().brokers
    wanted = [(0, [here]), (1, [here, here + 1]), (2, [here])]
    partitions = [alter_partition_reassignments.ReassignablePartition(*each) for each in wanted]
    partitions.append(alter_partition_reassignments.ReassignablePartition(3, None))
    topics = [
        alter_partition_reassignments.ReassignableTopic(topic, partitions),
        alter_partition_reassignments.ReassignableTopic("no-such-topic", partitions[:1]),
        alter_partition_reassignments.ReassignableTopic(
            topic, [alter_partition_reassignments.ReassignablePartition(0, None)]
        ),
    ]
    request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(1_000, topics=topics)
    response = ask(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        version,
        request,
        alter_partition_reassignments.AlterPartitionReassignmentsResponse,
    )
    codes = [[each.error_code for each in found.partitions] for found in response.responses]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [
        [ErrorCode.NONE, ErrorCode.INVALID_REPLICA_ASSIGNMENT, unknown, unknown],
        [unknown],
        [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS],
    ]


def test_no_reassignment_is_under_way_at_a_single_broker(ask: Ask[ListPartitionReassignmentsResponse]) -> None:
    request = ListPartitionReassignmentsRequest(1_000, None)
    response = ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, request, ListPartitionReassignmentsResponse)
    assert (response.error_code, response.topics) == (0, [])
