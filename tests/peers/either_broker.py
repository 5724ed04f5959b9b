"""A fresh broker of either kind, Ottla or Apache Kafka, with the same interface and settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum

from ottla.testing.broker import RunningBroker
from tests.peers.apache_kafka import ApacheKafka


class BrokerKind(StrEnum):
    OTTLA = "ottla"
    APACHE_KAFKA = "apache-kafka"


@contextmanager
def either_broker(kind: BrokerKind, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Its `host:port`.  Both take Kafka's names of settings.

    Raises KafkaUnavailable where Apache Kafka is requested and unavailable.
    """
    if kind is BrokerKind.OTTLA:
        with RunningBroker(settings=settings) as ottla:
            yield ottla.bootstrap
    else:
        with ApacheKafka(settings) as apache_kafka:
            yield apache_kafka.bootstrap
