"""Every library reads the records of each: all codecs, keys, headers, empty, null and large values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from ottla.testing.broker import RunningBroker
from tests.interop import aiokafka_client, confluent_client, kafka_python_client, kcat_client
from tests.interop.expected_records import CODECS, Sent, records_to_send
from tests.interop.stored_batches import assert_stored_with

pytestmark = pytest.mark.interop

Produce = Callable[[str, str, Sequence[Sent], str], list[int]]
Consume = Callable[[str, str, int], list[Sent]]

WRITERS: dict[str, Produce] = {
    "confluent": confluent_client.produce,
    "kafka-python": kafka_python_client.produce,
    "aiokafka": aiokafka_client.produce,
}
READERS: dict[str, Consume] = {
    "confluent": confluent_client.consume,
    "kafka-python": kafka_python_client.consume,
    "aiokafka": aiokafka_client.consume,
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", WRITERS)
def test_every_library_reads_the_records_of_one(
    broker: RunningBroker, topic: str, now_ms: int, writer: str, codec: str
) -> None:
    sent = records_to_send(1, now_ms, with_null_headers=writer != "kafka-python")
    offsets = WRITERS[writer](broker.bootstrap, topic, sent, codec)
    assert offsets == list(range(len(sent)))
    assert_stored_with(broker.data_dir, topic, codec)
    for reader, consume in READERS.items():
        assert consume(broker.bootstrap, topic, len(sent)) == sent, reader


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", WRITERS)
def test_kcat_reads_the_records_of_a_library(bootstrap: str, topic: str, now_ms: int, writer: str, codec: str) -> None:
    sent = records_to_send(2, now_ms, with_null_headers=writer != "kafka-python")
    WRITERS[writer](bootstrap, topic, sent, codec)
    assert kcat_client.consume(bootstrap, topic) == list(enumerate(sent))
