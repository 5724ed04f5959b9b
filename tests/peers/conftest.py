from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.apache_kafka import ApacheKafka
from tests.peers.kafka_jars import KafkaUnavailable


@pytest.fixture(scope="session")
def kafka() -> Iterator[ApacheKafka]:
    """One Apache Kafka for all tests of this folder; each test has its own topics."""
    try:
        with ApacheKafka() as broker:
            yield broker
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")
