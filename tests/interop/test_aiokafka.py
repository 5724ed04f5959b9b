"""aiokafka: idempotence."""

from __future__ import annotations

import pytest

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
