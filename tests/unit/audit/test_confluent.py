"""`ConfluentProducer` on a producer that delivers at once: its log events for counts that cannot be sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.audit import ConfluentProducer
from ottla.model.own_names import AUDIT_TOPIC

WINDOW_MS = 600_000


class Delivered:
    """A producer whose messages arrive at once, on a cluster that has these topics."""

    def __init__(self, *topics: str, audit_error: Exception | None = None) -> None:
        self.topics = topics
        self.audit_error = audit_error
        self.produced: list[str] = []

    def produce(self, topic: str, *_: Any, on_delivery: Any, timestamp: int = 0, **__: Any) -> None:
        if topic == AUDIT_TOPIC and self.audit_error is not None:
            raise self.audit_error
        self.produced.append(topic)
        on_delivery(None, SimpleNamespace(topic=lambda: topic, timestamp=lambda: (1, timestamp)))

    def poll(self, _: float = -1.0, /) -> int:
        return 0

    def flush(self, _: float = -1.0, /) -> int:
        return 0

    def list_topics(self, *, timeout: float = -1.0) -> Any:
        return SimpleNamespace(topics=dict.fromkeys(self.topics), brokers={1: None})

    def __len__(self) -> int:
        return 0


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [vars(record)["ottla_facts"] for record in caplog.records if record.getMessage() == event]


def test_records_that_are_left_out_for_want_of_memory_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    producer = ConfluentProducer(Delivered("clicks"), interval_ms=1e9)
    for number in range(30_500):
        producer.produce("clicks", timestamp=number * WINDOW_MS)
        if number % 10_000 == 0:
            producer.flush()
    producer.flush()
    left_out = sum(each["records"] for each in told(caplog, "audit.records_not_counted"))
    assert left_out == 500, "of three instances with 10,000 windows each"
    producer.flush()
    producer.produce("clicks", timestamp=30_499 * WINDOW_MS)
    producer.flush()
    assert sum(each["records"] for each in told(caplog, "audit.records_not_counted")) == 501


def test_error_of_telling_never_comes_out_of_the_callers_produce(caplog: pytest.LogCaptureFixture) -> None:
    kafka = Delivered("clicks", AUDIT_TOPIC, audit_error=RuntimeError("no transaction"))
    producer = ConfluentProducer(kafka, interval_ms=1e-6)
    producer.flush()
    producer.produce("clicks", timestamp=1)
    producer.poll(0)
    assert kafka.produced == ["clicks"]
    assert told(caplog, "audit.not_published")[-1]["error"] == "no transaction"
