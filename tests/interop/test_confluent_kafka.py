"""confluent-kafka 2 (librdkafka): idempotence, every kind of acks, administration."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the names exist, the stubs lack them
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from ottla.testing.broker import RunningBroker
from tests.interop.confluent_client import consume, produce
from tests.interop.expected_records import CODECS, records_to_send
from tests.interop.stored_batches import assert_stored_with, stored_batches

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka_sends_idempotently(broker: RunningBroker, topic: str, now_ms: int, codec: str) -> None:
    sent = records_to_send(3, now_ms)
    assert produce(broker.bootstrap, topic, sent, codec, **{"enable.idempotence": True}) == list(range(len(sent)))
    assert consume(broker.bootstrap, topic, len(sent)) == sent
    assert_stored_with(broker.data_dir, topic, codec)
    assert all(header.producer_id >= 0 for header in stored_batches(broker.data_dir, topic))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_confluent_kafka_sends_with_every_kind_of_acks(bootstrap: str, topic: str, now_ms: int, acks: str) -> None:
    sent = records_to_send(4, now_ms, with_large=False)
    offsets = produce(bootstrap, topic, sent, "none", acks=acks)
    assert offsets == ([] if acks == "0" else list(range(len(sent))))
    assert consume(bootstrap, topic, len(sent)) == sent


def test_confluent_kafka_administers_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic("confluent-admin", 3, 1, config={"retention.ms": "1234567"})
    for future in admin.create_topics([new]).values():
        future.result(10)
    assert len(admin.list_topics(timeout=120).topics["confluent-admin"].partitions) == 3
    resource = ConfigResource(ResourceType.TOPIC, "confluent-admin")
    (described,) = admin.describe_configs([resource]).values()
    assert described.result(10)["retention.ms"].value == "1234567"
    for future in admin.delete_topics(["confluent-admin"]).values():
        future.result(10)
    assert "confluent-admin" not in admin.list_topics(timeout=120).topics


def test_confluent_kafka_sets_and_unsets_settings_of_a_consumer_group(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    name, group = "consumer.session.timeout.ms", "confluent-configs"

    def alter(operation: AlterConfigOpType, value: str | None) -> None:
        change = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[change])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(10)

    def value() -> str:
        (described,) = admin.describe_configs([ConfigResource(ResourceType.GROUP, group)]).values()
        return str(described.result(10)[name].value)

    assert value() == "45000"
    alter(AlterConfigOpType.SET, "50000")
    assert value() == "50000"
    alter(AlterConfigOpType.DELETE, None)
    assert value() == "45000"


def test_confluent_kafka_gets_an_error_that_there_is_no_authorizer(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    rule = ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:ada", "*"
    allowed = AclOperation.READ, AclPermissionType.ALLOW
    # librdkafka ignores the error of this response from any broker.
    assert admin.describe_acls(AclBindingFilter(*rule, *allowed)).result(60) == []
    futures = [
        *admin.create_acls([AclBinding(*rule, *allowed)]).values(),
        *admin.delete_acls([AclBindingFilter(*rule, *allowed)]).values(),
    ]
    for future in futures:
        with pytest.raises(KafkaException) as refused:
            future.result(60)
        assert refused.value.args[0].name() == "SECURITY_DISABLED"
        assert "No Authorizer is configured" in refused.value.args[0].str()
