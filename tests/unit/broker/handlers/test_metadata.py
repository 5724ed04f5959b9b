from __future__ import annotations

import pytest

from ottla.broker.partitions.partition_table import Refusal
from ottla.coordination.broker_registry import BrokersView
from ottla.coordination.tree import ConnectionLoss, SessionLost, TreeError
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.schemas.metadata import (
    NO_AUTHORIZED_OPERATIONS,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.property.wire_samples import SAMPLE_UUID
from tests.unit.broker.handlers.small_broker import HOST, NODE_ID, PORT, SmallBroker
from tests.unit.broker.live_brokers import live
from tests.unit.broker.roles import resign

VERSIONS = range(13)


def named(*names: str, **fields: bool) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name=name) for name in names], **fields)


async def ask(broker: SmallBroker, version: int, request: MetadataRequest) -> MetadataResponse:
    return await broker.ask(ApiKey.METADATA, version, request, MetadataResponse)


@pytest.mark.parametrize("version", VERSIONS)
async def test_known_topic_is_shown_with_all_that_the_version_has(version: int) -> None:
    broker = SmallBroker()
    topic = broker.add_topic("orders", 2, leader_epoch=3)

    response = await ask(broker, version, named("orders"))

    epoch = 3 if version >= 7 else -1
    assert response.topics == [
        MetadataResponseTopic(
            name="orders",
            topic_id=topic.topic_id if version >= 10 else ZERO_UUID,
            partitions=[MetadataResponsePartition(0, i, NODE_ID, epoch, [NODE_ID], [NODE_ID]) for i in range(2)],
        )
    ]
    assert response.brokers == [MetadataResponseBroker(NODE_ID, HOST, PORT, "rack-1" if version >= 1 else None)]
    assert response.controller_id == (NODE_ID if version >= 1 else -1)
    assert response.cluster_id == (broker.cluster_id if version >= 2 else None)


@pytest.mark.parametrize("version", VERSIONS)
async def test_all_topics_are_told_for_null_and_before_version_1_for_an_empty_list(version: int) -> None:
    broker = SmallBroker()
    broker.add_topic("b")
    broker.add_topic("a")
    response = await ask(broker, version, MetadataRequest([] if version == 0 else None))
    assert [topic.name for topic in response.topics] == ["a", "b"]


@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_no_topics_are_told_for_an_empty_list(version: int) -> None:
    broker = SmallBroker()
    broker.add_topic("a")
    assert (await ask(broker, version, MetadataRequest([]))).topics == []


@pytest.mark.parametrize("version", VERSIONS)
async def test_unknown_topic_is_made_and_told_at_once(version: int) -> None:
    broker = SmallBroker()
    response = await ask(broker, version, named("new"))
    assert [new.name for new, _ in broker.created] == ["new"]
    assert response.topics[0].error_code == ErrorCode.NONE
    assert len(response.topics[0].partitions) == 1


@pytest.mark.parametrize("version", VERSIONS[4:])
async def test_unknown_topic_is_not_made_when_the_request_forbids_it(version: int) -> None:
    broker = SmallBroker()
    response = await ask(broker, version, named("new", allow_auto_topic_creation=False))
    assert broker.created == []
    assert response.topics == [MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "new")]


async def test_unknown_topic_is_not_made_when_the_broker_forbids_it() -> None:
    broker = SmallBroker(auto_create_topics_enable="false")
    response = await ask(broker, 12, named("new"))
    assert response.topics == [MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "new")]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a" * 250, "tab\t", "\u0430scii-look-alike"])
async def test_illegal_name_is_refused_and_not_made(name: str) -> None:
    broker = SmallBroker()
    response = await ask(broker, 12, named(name))
    assert broker.created == []
    assert response.topics == [MetadataResponseTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, name)]


async def test_refusal_to_make_a_topic_is_passed_on() -> None:
    broker = SmallBroker()
    broker.refusal = RequestError(ErrorCode.KAFKA_STORAGE_ERROR, "no disk")
    response = await ask(broker, 12, named("new"))
    assert response.topics == [MetadataResponseTopic(ErrorCode.KAFKA_STORAGE_ERROR, "new")]


@pytest.mark.parametrize("error", [SessionLost("/brokers"), ConnectionLoss("/brokers")])
async def test_clients_ask_again_for_a_topic_that_could_not_be_created_while_the_tree_is_away(error: TreeError) -> None:
    broker = SmallBroker()
    broker.refusal = error
    response = await ask(broker, 12, named("new"))
    assert response.topics == [MetadataResponseTopic(ErrorCode.LEADER_NOT_AVAILABLE, "new")]


async def test_topic_that_is_named_twice_is_told_once() -> None:
    broker = SmallBroker()
    broker.add_topic("a")
    assert len((await ask(broker, 12, named("a", "a"))).topics) == 1


async def test_topic_is_found_by_its_id() -> None:
    broker = SmallBroker()
    topic = broker.add_topic("orders")
    request = MetadataRequest([MetadataRequestTopic(topic.topic_id), MetadataRequestTopic(SAMPLE_UUID)])
    response = await ask(broker, 12, request)
    assert response.topics[0].name == "orders"
    assert response.topics[1] == MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, SAMPLE_UUID)


@pytest.mark.parametrize("version", [10, 11])
async def test_ids_are_refused_before_version_12(version: int) -> None:
    broker = SmallBroker()
    topic = broker.add_topic("orders")
    response = await ask(broker, version, MetadataRequest([MetadataRequestTopic(topic.topic_id)]))
    assert response.topics == [MetadataResponseTopic(ErrorCode.INVALID_REQUEST, "", topic.topic_id)]


async def test_partition_that_could_not_be_opened_has_no_leader() -> None:
    broker = SmallBroker()
    broker.add_topic("orders")
    broker.partitions.remove(TopicPartition("orders", 0))
    broker.partitions.refuse(TopicPartition("orders", 0), Refusal(SAMPLE_UUID, ErrorCode.KAFKA_STORAGE_ERROR))
    (partition,) = (await ask(broker, 12, named("orders"))).topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert partition.offline_replicas == [NODE_ID]


@pytest.mark.parametrize("version", [8, 9, 10])
async def test_authorized_operations_are_told_when_asked_for(version: int) -> None:
    broker = SmallBroker()
    broker.add_topic("a")
    request = named("a", include_topic_authorized_operations=True, include_cluster_authorized_operations=True)
    response = await ask(broker, version, request)
    # The bits that Apache Kafka 4.1 answers without an authorizer.
    assert response.topics[0].topic_authorized_operations == 0b1101_1111_1000
    assert response.cluster_authorized_operations == 0b1_1111_1010_0000
    plain = await ask(broker, version, named("a"))
    assert plain.topics[0].topic_authorized_operations == NO_AUTHORIZED_OPERATIONS
    assert plain.cluster_authorized_operations == NO_AUTHORIZED_OPERATIONS


async def test_leader_that_is_not_live_is_not_told() -> None:
    broker = SmallBroker()
    broker.add_topic("orders", leader_epoch=4)
    broker.place("orders", replicas=(6, 7), leader=6, in_sync=(6,))
    broker.brokers.live = live(NODE_ID, 7)
    (partition,) = (await ask(broker, 12, named("orders"))).topics[0].partitions
    assert partition == MetadataResponsePartition(ErrorCode.LEADER_NOT_AVAILABLE, 0, -1, 4, [6, 7], [6], [6])


async def test_broker_that_may_have_been_replaced_does_not_name_itself_the_leader() -> None:
    broker = SmallBroker()
    broker.add_topic("orders", leader_epoch=4)
    broker.place("orders", replicas=(NODE_ID, 7), leader=NODE_ID, in_sync=(NODE_ID, 7))
    broker.brokers.live = live(NODE_ID, 7)
    assert (await ask(broker, 12, named("orders"))).topics[0].partitions[0].leader_id == NODE_ID
    broker.brokers.may_lead = False
    answer = await ask(broker, 12, named("orders"))
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert {each.node_id for each in answer.brokers} == {NODE_ID, 7}, "it still answers, and names the others"
    assert answer.topics[0].error_code == 0, "kafka-python takes a topic with an error for deleted, and rebalances"


async def test_broker_whose_session_has_ended_names_only_the_others() -> None:
    broker = SmallBroker()
    broker.add_topic("orders", leader_epoch=4)
    broker.place("orders", replicas=(NODE_ID, 7), leader=NODE_ID, in_sync=(NODE_ID, 7))
    broker.brokers.live = live(NODE_ID, 7)
    broker.brokers.may_lead, broker.brokers.is_replaced = False, True
    answer = await ask(broker, 12, named("orders"))
    assert ([each.node_id for each in answer.brokers], answer.controller_id) == ([7], 7)
    answer = await ask(broker, 12, MetadataRequest([]))
    assert {each.node_id for each in answer.brokers} == {NODE_ID, 7}, "a client that connects, or a tool"
    broker.brokers.live = live(NODE_ID)
    answer = await ask(broker, 12, named("orders"))
    assert ([each.node_id for each in answer.brokers], answer.controller_id) == ([NODE_ID], NODE_ID)


async def test_broker_that_registered_again_and_has_not_read_so_is_no_leader() -> None:
    broker = SmallBroker()
    broker.is_sole = False
    broker.add_topic("orders", leader_epoch=4)
    broker.place("orders", replicas=(NODE_ID, 7), leader=NODE_ID, in_sync=(NODE_ID, 7))
    broker.brokers.live = live(NODE_ID, 7)
    assert (await ask(broker, 12, named("orders"))).topics[0].partitions[0].leader_id == NODE_ID
    partition = broker.partitions.find("orders", 0)
    assert partition is not None
    resign(partition)
    (answered,) = (await ask(broker, 12, named("orders"))).topics[0].partitions
    assert (answered.error_code, answered.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


async def test_broker_that_registered_anew_is_no_leader_before_the_next_election() -> None:
    broker = SmallBroker()
    broker.is_sole = False
    broker.add_topic("orders", leader_epoch=4)
    broker.place("orders", replicas=(NODE_ID, 7), leader=7, in_sync=(NODE_ID, 7))
    broker.brokers.live = live(NODE_ID, 7)
    assert (await ask(broker, 12, named("orders"))).topics[0].partitions[0].leader_id == 7
    registered = broker.brokers.live.by_id[NodeId(7)]
    anew = registered._replace(broker_epoch=registered.broker_epoch + 1)
    broker.brokers.live = BrokersView(2, {**broker.brokers.live.by_id, NodeId(7): anew})
    (partition,) = (await ask(broker, 12, named("orders"))).topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


async def test_leader_elsewhere_is_told_with_its_address() -> None:
    broker = SmallBroker()
    broker.add_topic("orders")
    broker.place("orders", replicas=(6, 7), leader=6, in_sync=(6, 7))
    broker.brokers.live = live(NODE_ID, 6, 7)
    answer = await ask(broker, 12, named("orders"))
    (partition,) = answer.topics[0].partitions
    assert partition == MetadataResponsePartition(ErrorCode.NONE, 0, 6, 0, [6, 7], [6, 7], [])
    assert {each.node_id: each.host for each in answer.brokers} == {
        NODE_ID: HOST,
        6: "broker-6.example",
        7: "broker-7.example",
    }
