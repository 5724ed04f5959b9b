"""A broker runs out of descriptors while it creates a topic: the topic is served once descriptors are free."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused
from ottla.client.wire.metadata import PartitionInfo
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import OFFSETS_TOPIC
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.schemas.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.schemas.produce import ProduceResponse
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually
from tests.integration.raw_peer import FETCH_VERSION, PRODUCE_VERSION, RawPeer, produce_frame

PARTITIONS = 40
# Less than the partitions need, enough for the clients.
DESCRIPTORS_LEFT = 25
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with RunningBroker(settings={"offsets.topic.num.partitions": str(PARTITIONS)}) as running:
        yield running


@contextmanager
def few_descriptors(broker: RunningBroker) -> Iterator[None]:
    """The broker may open a few more files only."""
    _, hard = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    opened = max(int(name) for name in os.listdir(f"/proc/{broker.pid}/fd")) + 1
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (opened + DESCRIPTORS_LEFT, hard))
    try:
        yield
    finally:
        if broker.is_running:
            resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (hard, hard))


def partitions_of(cluster: Cluster, topic: str) -> list[PartitionInfo]:
    cluster.forget([topic])
    (described,) = Admin(cluster).describe_topics([topic])
    return list(described.partitions.values())


def is_served(cluster: Cluster, topic: str) -> bool:
    return {each.error_code for each in partitions_of(cluster, topic)} == {ErrorCode.NONE}


def produce_and_fetch_errors(broker: RunningBroker, topic: str) -> list[int]:
    with RawPeer(broker) as peer:
        peer.send(produce_frame(topic, 1))
        _, produced = peer.answer(ApiKey.PRODUCE, PRODUCE_VERSION)
        wanted = FetchTopic(topic, partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1_000)])
        peer.ask(ApiKey.FETCH, FETCH_VERSION, FetchRequest(max_wait_ms=0, min_bytes=0, topics=[wanted]))
        _, fetched = peer.answer(ApiKey.FETCH, FETCH_VERSION)
    assert isinstance(produced, ProduceResponse)
    assert isinstance(fetched, FetchResponse)
    return [
        produced.responses[0].partition_responses[0].error_code,
        fetched.responses[0].partitions[0].error_code,
    ]


def coordinator_error(broker: RunningBroker) -> ErrorCode:
    with RawPeer(broker) as peer:
        peer.ask(ApiKey.FIND_COORDINATOR, 2, FindCoordinatorRequest(key="g"))
        _, found = peer.answer(ApiKey.FIND_COORDINATOR, 2)
    assert isinstance(found, FindCoordinatorResponse)
    return ErrorCode(found.error_code)


def produce_all(broker: RunningBroker, topic: str) -> list[KafkaError | None]:
    """Send one record to each partition and wait for the acknowledgements; librdkafka retries for 30 s."""
    errors: list[KafkaError | None] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        errors.append(error)

    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 30_000, "log_level": 0})
    for index in range(PARTITIONS):
        producer.produce(topic, b"value", partition=index, on_delivery=on_delivery)
    assert producer.flush(40) == 0
    return errors


def test_topic_is_served_without_a_restart_and_can_be_deleted_meanwhile(broker: RunningBroker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        admin = Admin(cluster)
        admin.create_topic("before")
        assert is_served(cluster, "before")
        with few_descriptors(broker):
            for name in ("wanted", "unwanted"):
                with pytest.raises(BrokerRefused, match="is in the tree") as refusal:
                    admin.create_topic(name, PARTITIONS)
                assert refusal.value.code is STORAGE_ERROR
            assert {each.error_code for each in partitions_of(cluster, "wanted")} == {ErrorCode.LEADER_NOT_AVAILABLE}
            assert produce_and_fetch_errors(broker, "wanted") == [STORAGE_ERROR, STORAGE_ERROR]
            assert produce_and_fetch_errors(broker, "before") == [0, 0], "others are served on"
            # Between two attempts, no partition is half created.
            eventually(lambda: not [name for name in os.listdir(broker.data_dir) if "wanted" in name])
            assert admin.delete_topics(["unwanted"]) == {"unwanted": None}
        assert produce_all(broker, "wanted") == [None] * PARTITIONS
        assert is_served(cluster, "wanted")
        assert {each.name for each in admin.list_topics()} == {"before", "wanted"}
        broker.kill()
        broker.start()
        eventually(lambda: is_served(cluster, "wanted"), within_s=30)
        with pytest.raises(BrokerRefused) as refusal:
            admin.create_topic("wanted")
        assert refusal.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


def test_groups_work_once_their_topic_can_be_created(broker: RunningBroker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("t")
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "log_level": 0})
        try:
            with few_descriptors(broker):
                # The first FindCoordinator request creates the groups' topic.
                assert coordinator_error(broker) is ErrorCode.COORDINATOR_NOT_AVAILABLE
                assert coordinator_error(broker) is ErrorCode.COORDINATOR_NOT_AVAILABLE
                assert not is_served(cluster, OFFSETS_TOPIC)
            consumer.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
            (committed,) = consumer.committed([TopicPartition("t", 0)], timeout=30)
            assert committed.offset == 7
        finally:
            consumer.close()
