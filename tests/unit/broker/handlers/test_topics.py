"""CreateTopics and DeleteTopics."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.broker.context import NewTopic
from ottla.broker.handlers.create_topics import PARTITIONS_OF_REQUEST_MAX
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.topic_settings import TOPIC_SETTINGS
from ottla.protocol.api import ApiKey
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.schemas.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.schemas.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.storage.errors import DirectoryOffline
from tests.property.wire_samples import SAMPLE_UUID
from tests.unit.broker.handlers.small_broker import NODE_ID, SmallBroker

CREATE_VERSIONS = range(2, 8)
DELETE_VERSIONS = range(1, 7)


async def create(
    broker: SmallBroker, version: int, *topics: CreatableTopic, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(list(topics), validate_only=validate_only)
    return (await broker.ask(ApiKey.CREATE_TOPICS, version, request, CreateTopicsResponse)).topics


@pytest.mark.parametrize("version", CREATE_VERSIONS)
async def test_topic_is_made_and_described(version: int) -> None:
    broker = SmallBroker()
    wanted = CreatableTopic("orders", 3, 1, configs=[CreatableTopicConfig("retention.ms", "1000")])

    (result,) = await create(broker, version, wanted)

    assert broker.created == [(NewTopic("orders", 3, 1, None, {"retention.ms": "1000"}), False)]
    assert (result.name, result.error_code, result.error_message) == ("orders", ErrorCode.NONE, None)
    assert result.topic_id == (broker.topics.by_name["orders"].topic_id if version >= 7 else ZERO_UUID)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        assert result.configs is not None
        by_name = {config.name: config for config in result.configs}
        assert by_name.keys() == TOPIC_SETTINGS.keys()
        assert (by_name["retention.ms"].value, by_name["retention.ms"].config_source) == ("1000", 1)
        assert (by_name["segment.bytes"].value, by_name["segment.bytes"].config_source) == ("1073741824", 5)


@pytest.mark.parametrize("version", CREATE_VERSIONS)
async def test_assignment_is_passed_on(version: int) -> None:
    broker = SmallBroker()
    assignments = [CreatableReplicaAssignment(1, [NODE_ID]), CreatableReplicaAssignment(0, [NODE_ID])]
    await create(broker, version, CreatableTopic("t", assignments=assignments))
    assert broker.created[0][0].assignment == {0: [NODE_ID], 1: [NODE_ID]}


@pytest.mark.parametrize("version", CREATE_VERSIONS)
async def test_refusal_is_told_with_its_code_and_reason(version: int) -> None:
    broker = SmallBroker()
    broker.refusal = RequestError(ErrorCode.INVALID_CONFIG, "no such setting", hint="did you mean retention.ms?")
    (result,) = await create(broker, version, CreatableTopic("t"))
    assert result == CreatableTopicResult(
        "t",
        error_code=ErrorCode.INVALID_CONFIG,
        error_message="no such setting; did you mean retention.ms?",
        configs=[] if version >= 5 else None,
    )


async def test_failed_disk_is_told_and_other_topics_are_not_touched() -> None:
    broker = SmallBroker()
    broker.refusal = DirectoryOffline("the log directory is offline")
    results = await create(broker, 7, CreatableTopic("a"), CreatableTopic("b"))
    assert [result.error_code for result in results] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2


async def test_existing_topic_is_told_and_the_others_are_made() -> None:
    broker = SmallBroker()
    broker.add_topic("old")
    results = await create(broker, 7, CreatableTopic("old"), CreatableTopic("new"))
    assert [(r.name, r.error_code) for r in results] == [("old", ErrorCode.TOPIC_ALREADY_EXISTS), ("new", 0)]


@pytest.mark.parametrize("version", CREATE_VERSIONS)
async def test_name_that_occurs_twice_is_refused_once(version: int) -> None:
    broker = SmallBroker()
    results = await create(broker, version, CreatableTopic("a"), CreatableTopic("b"), CreatableTopic("a"))
    assert [(r.name, r.error_code) for r in results] == [("a", ErrorCode.INVALID_REQUEST), ("b", 0)]
    assert [new.name for new, _ in broker.created] == ["b"]


async def test_partition_that_is_assigned_twice_is_refused() -> None:
    broker = SmallBroker()
    twice = [CreatableReplicaAssignment(0, [NODE_ID]), CreatableReplicaAssignment(0, [NODE_ID])]
    (result,) = await create(broker, 7, CreatableTopic("t", assignments=twice))
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert broker.created == []


async def test_last_one_holds_when_a_setting_is_given_twice() -> None:
    broker = SmallBroker()
    twice = [CreatableTopicConfig("retention.ms", "1"), CreatableTopicConfig("retention.ms", "2")]
    await create(broker, 7, CreatableTopic("t", configs=twice))
    assert broker.created[0][0].config == {"retention.ms": "2"}


async def test_offsets_topic_made_by_hand_is_compacted_unless_it_is_asked_otherwise() -> None:
    for given, policy in ([], "compact"), ([CreatableTopicConfig("cleanup.policy", "delete")], "delete"):
        broker = SmallBroker()
        await create(broker, 7, CreatableTopic("__consumer_offsets", 1, 1, configs=given))
        assert broker.created[0][0].config["cleanup.policy"] == policy


@pytest.mark.parametrize("version", CREATE_VERSIONS)
async def test_nothing_is_made_when_it_is_only_validated(version: int) -> None:
    broker = SmallBroker()
    (result,) = await create(broker, version, CreatableTopic("t"), validate_only=True)
    assert [validate_only for _, validate_only in broker.created] == [True]
    assert (result.error_code, result.topic_id) == (0, ZERO_UUID)


async def test_too_many_partitions_in_one_request_are_refused() -> None:
    broker = SmallBroker()
    results = await create(broker, 7, CreatableTopic("a", PARTITIONS_OF_REQUEST_MAX), CreatableTopic("b", 1))
    assert [result.error_code for result in results] == [ErrorCode.POLICY_VIOLATION] * 2
    assert broker.created == []


async def delete(broker: SmallBroker, version: int, *names: str) -> list[DeletableTopicResult]:
    if version >= 6:
        request = DeleteTopicsRequest([DeleteTopicState(name) for name in names])
    else:
        request = DeleteTopicsRequest(topic_names=list(names))
    return (await broker.ask(ApiKey.DELETE_TOPICS, version, request, DeleteTopicsResponse)).responses


@pytest.mark.parametrize("version", DELETE_VERSIONS)
async def test_topic_is_deleted_by_name(version: int) -> None:
    broker = SmallBroker()
    topic = broker.add_topic("orders")
    results = await delete(broker, version, "orders")
    assert broker.deleted == [("orders", topic.topic_id)]
    assert results == [DeletableTopicResult("orders", topic.topic_id if version >= 6 else ZERO_UUID)]


@pytest.mark.parametrize("version", DELETE_VERSIONS)
async def test_unknown_name_is_told(version: int) -> None:
    (result,) = await delete(SmallBroker(), version, "orders")
    assert (result.name, result.error_code) == ("orders", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize("version", DELETE_VERSIONS)
async def test_topic_that_is_given_twice_is_not_deleted(version: int) -> None:
    broker = SmallBroker()
    broker.add_topic("orders")
    (result,) = await delete(broker, version, "orders", "orders")
    assert (result.name, result.error_code) == ("orders", ErrorCode.INVALID_REQUEST)
    assert broker.deleted == []


@pytest.mark.parametrize("version", DELETE_VERSIONS)
async def test_nothing_is_deleted_when_deletion_is_disabled(version: int) -> None:
    broker = SmallBroker(delete_topic_enable="false")
    broker.add_topic("orders")
    (result,) = await delete(broker, version, "orders")
    assert result.error_code == (ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST)
    assert broker.deleted == []


async def delete_states(broker: SmallBroker, *states: DeleteTopicState) -> list[DeletableTopicResult]:
    response = await broker.ask(ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest(list(states)), DeleteTopicsResponse)
    return response.responses


async def test_topic_is_deleted_by_id() -> None:
    broker = SmallBroker()
    topic = broker.add_topic("orders")
    assert await delete_states(broker, DeleteTopicState(None, topic.topic_id)) == [
        DeletableTopicResult("orders", topic.topic_id)
    ]
    assert broker.deleted == [("orders", topic.topic_id)]


async def test_same_topic_by_name_and_by_id_is_not_deleted() -> None:
    broker = SmallBroker()
    topic = broker.add_topic("orders")
    states = DeleteTopicState("orders"), DeleteTopicState(None, topic.topic_id)
    assert [r.error_code for r in await delete_states(broker, *states)] == [ErrorCode.INVALID_REQUEST]
    assert broker.deleted == []


@pytest.mark.parametrize(
    ("name", "topic_id", "code"),
    [
        (None, SAMPLE_UUID, ErrorCode.UNKNOWN_TOPIC_ID),
        ("orders", SAMPLE_UUID, ErrorCode.INVALID_REQUEST),
        (None, ZERO_UUID, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_ill_given_topic_is_refused(name: str | None, topic_id: UUID, code: ErrorCode) -> None:
    broker = SmallBroker()
    broker.add_topic("orders")
    (result,) = await delete_states(broker, DeleteTopicState(name, topic_id))
    assert (result.name, result.topic_id, result.error_code) == (name, topic_id, code)
