from __future__ import annotations

import uuid

import pytest

from ottla.client.admin.admin import HIGH_WATERMARK, Admin, CreatedTopic, NewTopic
from ottla.client.admin.configs import ConfigChange, ConfigOperation, ConfigResource, ConfigSource, ResourceType
from ottla.client.fetching.fetch_requests import fetch_raw
from ottla.client.fetching.offsets import EARLIEST, list_offsets
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused, OffsetOutOfRange, UnknownBroker, UnknownTopic
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import build_batch
from ottla.records.record import Record
from tests.eventually import eventually
from tests.integration.conftest import NewTopicName


def name() -> str:
    return f"admin-{uuid.uuid4().hex[:10]}"


def test_create_topics_returns_the_result_of_each(cluster: Cluster, new_topic: NewTopicName) -> None:
    fresh, existing = name(), new_topic()
    outcomes = Admin(cluster).create_topics([NewTopic(fresh, 3), NewTopic(existing, 1), NewTopic("not a name")])
    created = outcomes[fresh]
    assert isinstance(created, CreatedTopic)
    assert (created.partitions_count, created.replication_factor) == (3, 1)
    for refused, code in (
        (existing, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("not a name", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ):
        outcome = outcomes[refused]
        assert isinstance(outcome, BrokerRefused)
        assert outcome.code is code
        assert outcome.hint
    assert cluster.partitions(fresh) == [0, 1, 2]


def test_create_topics_creates_nothing_when_it_only_validates(cluster: Cluster) -> None:
    topic = name()
    (outcome,) = Admin(cluster).create_topics([NewTopic(topic, 2)], validate_only=True).values()
    assert isinstance(outcome, CreatedTopic)
    assert topic not in [each.name for each in Admin(cluster).list_topics()]


def test_a_topic_is_listed_described_and_gone_when_deleted(cluster: Cluster, new_topic: NewTopicName) -> None:
    admin = Admin(cluster)
    topic = new_topic(2)
    eventually(lambda: topic in [each.name for each in admin.list_topics()])
    (described,) = admin.describe_topics([topic])
    assert described.topic_id.int
    assert list(described.partitions) == [0, 1]
    for info in described.partitions.values():
        assert info.leader_id in cluster.info.brokers
        assert info.leader_id in info.in_sync_replicas
    assert admin.delete_topics([topic, "no-such-topic"])[topic] is None
    eventually(lambda: topic not in [each.name for each in admin.list_topics()])
    with pytest.raises(UnknownTopic):
        cluster.topic(topic)


def test_delete_topics_reports_one_that_does_not_exist(cluster: Cluster) -> None:
    (refusal,) = Admin(cluster).delete_topics(["no-such-topic"]).values()
    assert refusal is not None
    assert refusal.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_alter_configs_changes_only_the_named_settings(cluster: Cluster, new_topic: NewTopicName) -> None:
    admin = Admin(cluster)
    resource = ConfigResource(ResourceType.TOPIC, new_topic(retention_ms="1000000", segment_bytes="2000000"))
    names = ["retention.ms", "segment.bytes", "max.message.bytes"]
    admin.alter_configs(
        resource,
        [
            ConfigChange("retention.ms", ConfigOperation.DELETE),
            ConfigChange("max.message.bytes", ConfigOperation.SET, "2000"),
        ],
    )
    found = admin.describe_configs(resource, names)
    assert {each.name: each.source is ConfigSource.DYNAMIC_TOPIC for each in found.values()} == {
        "retention.ms": False,
        "segment.bytes": True,
        "max.message.bytes": True,
    }
    assert found["segment.bytes"].value == "2000000"
    assert found["max.message.bytes"].value == "2000"
    assert found["retention.ms"].value == "604800000"


def test_alter_configs_refuses_an_invalid_value(cluster: Cluster, new_topic: NewTopicName) -> None:
    resource = ConfigResource(ResourceType.TOPIC, new_topic())
    with pytest.raises(BrokerRefused) as caught:
        Admin(cluster).alter_configs(resource, [ConfigChange("retention.ms", ConfigOperation.SET, "often")])
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_describe_configs_is_sent_to_the_named_broker(cluster: Cluster) -> None:
    admin = Admin(cluster)
    (node_id,) = admin.describe_cluster().brokers
    assert "log.segment.bytes" in admin.describe_configs(ConfigResource(ResourceType.BROKER, str(node_id)))
    with pytest.raises(UnknownBroker, match="7777"):
        admin.describe_configs(ConfigResource(ResourceType.BROKER, "7777"))


def test_describe_cluster_names_its_brokers(cluster: Cluster, bootstrap: str) -> None:
    info = Admin(cluster).describe_cluster()
    assert info.cluster_id
    assert [str(broker.address) for broker in info.brokers.values()] == [bootstrap]
    assert info.controller_id in info.brokers


def test_delete_records_moves_the_log_start(cluster: Cluster, new_topic: NewTopicName) -> None:
    partition = TopicPartition(new_topic(), 0)
    with RawProducer(cluster) as producer:
        for _ in range(4):
            producer.send(partition, build_batch([Record(0, 1000, None, b"x")] * 5))
        producer.flush()
    admin = Admin(cluster)
    assert admin.delete_records({partition: 7}) == {partition: 7}
    assert list_offsets(cluster, {partition: EARLIEST})[partition].offset == 7
    with pytest.raises(OffsetOutOfRange):
        fetch_raw(cluster, partition.topic, 0, 6)
    assert admin.delete_records({partition: HIGH_WATERMARK}) == {partition: 20}
    with pytest.raises(BrokerRefused) as caught:
        admin.delete_records({partition: 21})
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
