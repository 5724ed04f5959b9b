"""kafka-python 3: with and without idempotence, administration."""

from __future__ import annotations

import pytest
from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.admin import ACLResourcePatternType as PatternType
from kafka.errors import SecurityDisabledError

from ottla.testing.broker import RunningBroker
from tests.interop.expected_records import records_to_send
from tests.interop.kafka_python_client import consume, produce
from tests.interop.stored_batches import stored_batches

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_kafka_python_reads_the_records_that_it_sent(
    broker: RunningBroker, topic: str, now_ms: int, idempotent: bool
) -> None:
    sent = records_to_send(6, now_ms, with_null_headers=False)
    offsets = produce(broker.bootstrap, topic, sent, "none", enable_idempotence=idempotent)
    assert offsets == list(range(len(sent)))
    assert consume(broker.bootstrap, topic, len(sent)) == sent
    assert {header.producer_id >= 0 for header in stored_batches(broker.data_dir, topic)} == {idempotent}


def test_kafka_python_describes_the_cluster(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        assert topic in admin.list_topics()
        assert len(admin.describe_cluster()["brokers"]) == 1
    finally:
        admin.close()


def test_kafka_python_gets_an_error_that_there_is_no_authorizer(bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    allowed = "User:ada", "*", ACLOperation.READ, ACLPermissionType.ALLOW
    wanted = ACLFilter(*allowed, ResourcePatternFilter(ResourceType.TOPIC, "orders", PatternType.LITERAL))
    try:
        with pytest.raises(SecurityDisabledError, match="No Authorizer is configured on the broker"):
            admin.describe_acls(wanted)
        created = admin.create_acls([ACL(*allowed, ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL))])
        assert created == {"succeeded": [], "failed": [SecurityDisabledError]}
        [(_, _, error)] = admin.delete_acls([wanted])
        assert error is SecurityDisabledError
    finally:
        admin.close()
