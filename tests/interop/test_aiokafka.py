"""aiokafka: idempotence, administration."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from ottla.testing.broker import RunningBroker
from tests.interop.aiokafka_client import consume, produce
from tests.interop.expected_records import CODECS, records_to_send
from tests.interop.stored_batches import assert_stored_with, stored_batches

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_sends_idempotently(broker: RunningBroker, topic: str, now_ms: int, codec: str) -> None:
    sent = records_to_send(5, now_ms)
    assert produce(broker.bootstrap, topic, sent, codec, idempotent=True) == list(range(len(sent)))
    assert consume(broker.bootstrap, topic, len(sent)) == sent
    assert_stored_with(broker.data_dir, topic, codec)
    assert all(header.producer_id >= 0 for header in stored_batches(broker.data_dir, topic))


def test_aiokafka_administers_topics(bootstrap: str) -> None:
    asyncio.run(_administer(bootstrap))


async def _administer(bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic("aiokafka-admin", 2, 1, topic_configs={"retention.ms": "1234567"})])
        resource = ConfigResource(ConfigResourceType.TOPIC, "aiokafka-admin")
        (answer,) = await admin.describe_configs([resource])
        entries = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        assert entries["retention.ms"] == "1234567"
        await admin.create_partitions({"aiokafka-admin": NewPartitions(3)})
        (topic,) = await admin.describe_topics(["aiokafka-admin"])
        assert len(topic["partitions"]) == 3
        await admin.delete_topics(["aiokafka-admin"])
        assert "aiokafka-admin" not in await admin.list_topics()
    finally:
        await admin.close()
