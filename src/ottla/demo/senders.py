"""Three client libraries behind one small interface, each counted by the audit as it can be."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol
from uuid import uuid4

from ottla.audit import AuditTopic, Tally
from ottla.audit.count import PRODUCER
from ottla.client.wire.errors import CallTimedOut
from ottla.demo.events import Event
from ottla.demo.services import CONFLUENT, KAFKA_PYTHON, OTTLA, Service
from ottla.model.errors import OttlaError
from ottla.model.windows import DEFAULT_WINDOW_MS
from ottla.runtime.clock import SystemClock

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message
    from kafka.producer.future import RecordMetadata

    from ottla.client.producing.delivery import Delivery, Receipt

LINGER_MS: Final = 20
FLUSH_WITHIN_S: Final = 60.0
# The wait for a full queue to drain before the next attempt.
FULL_QUEUE_WAIT_S: Final = 0.05


class NotAcknowledged(OttlaError):
    """The broker refused events, or did not acknowledge them in time."""


class Sender(Protocol):
    """`acknowledged_count` is for the display: what the audit is told it counts by itself."""

    acknowledged_count: int

    def send(self, event: Event) -> None: ...

    def poll(self, timeout_s: float) -> None:
        """Process delivery reports."""
        ...

    def finish(self) -> None:
        """Wait for every report, and tell the audit.  Raises `NotAcknowledged`, `ClientError`."""
        ...


def open_sender(service: Service, bootstrap: str) -> Sender:
    return _SENDERS[service.client](service, bootstrap)


class _OttlaSender:
    def __init__(self, service: Service, bootstrap: str) -> None:
        from ottla import Producer
        from ottla.audit import ProducerAudit

        self.acknowledged_count = 0
        self._problems: Counter[str] = Counter()
        # In the order of sending: one that is done waits here for those before it.
        self._under_way: deque[Delivery[Receipt]] = deque()
        self._producer = Producer(bootstrap, client_id=service.name, compression=service.codec, linger_ms=LINGER_MS)
        self._audit = ProducerAudit(self._producer)

    def send(self, event: Event) -> None:
        delivery = self._producer.send(event.topic, event.value, key=event.key, timestamp_ms=event.timestamp_ms)
        self._under_way.append(delivery)

    def poll(self, timeout_s: float) -> None:
        while self._under_way and self._under_way[0].is_done:
            self._take(self._under_way.popleft())

    def finish(self) -> None:
        unanswered = 0
        try:
            self._producer.flush(FLUSH_WITHIN_S * 1_000)
        except CallTimedOut:
            unanswered = sum(not each.is_done for each in self._under_way)
        self.poll(0)
        _raise_unless_clean(self._problems, unanswered)
        self._audit.close(FLUSH_WITHIN_S * 1_000)
        self._producer.close()

    def _take(self, delivery: Delivery[Receipt]) -> None:
        error = delivery.error()
        if error is not None:
            self._problems[str(error)] += 1
            return
        self.acknowledged_count += 1


class _ConfluentSender:
    def __init__(self, service: Service, bootstrap: str) -> None:
        import confluent_kafka

        from ottla.audit import ConfluentProducer

        self.acknowledged_count = 0
        self._problems: Counter[str] = Counter()
        settings = {
            "bootstrap.servers": bootstrap,
            "client.id": service.name,
            "enable.idempotence": True,
            "compression.type": service.codec,
            "linger.ms": LINGER_MS,
        }
        self._producer = ConfluentProducer(confluent_kafka.Producer(settings))

    def send(self, event: Event) -> None:
        while True:
            try:
                self._producer.produce(
                    event.topic, event.value, event.key, timestamp=event.timestamp_ms, on_delivery=self._on_delivery
                )
                return
            except BufferError:
                self._producer.poll(FULL_QUEUE_WAIT_S)

    def poll(self, timeout_s: float) -> None:
        self._producer.poll(timeout_s)

    def finish(self) -> None:
        unanswered = self._producer.close(FLUSH_WITHIN_S)
        _raise_unless_clean(self._problems, unanswered)

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._problems[str(error)] += 1
        else:
            self.acknowledged_count += 1


class _KafkaPythonSender:
    """The audit has no wrapper for this library: so its reports go into a tally, which is told at the end."""

    def __init__(self, service: Service, bootstrap: str) -> None:
        from kafka import KafkaProducer

        self._bootstrap = bootstrap
        self._clock = SystemClock()
        self._tally = Tally(PRODUCER, DEFAULT_WINDOW_MS, uuid4)
        self.acknowledged_count = 0
        self._problems: Counter[str] = Counter()
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            client_id=service.name,
            acks="all",
            compression_type=service.codec,
            linger_ms=LINGER_MS,
        )

    def send(self, event: Event) -> None:
        future = self._producer.send(event.topic, event.value, event.key, timestamp_ms=event.timestamp_ms)
        future.add_callback(self._on_success).add_errback(self._on_error)

    def poll(self, timeout_s: float) -> None:
        """Its own thread processes the reports."""

    def finish(self) -> None:
        self._producer.flush(FLUSH_WITHIN_S)
        self._producer.close(FLUSH_WITHIN_S)
        _raise_unless_clean(self._problems, 0)
        with AuditTopic(self._bootstrap) as topic:
            topic.publish(self._tally.unsent(self._clock.now_ms(), has_ended=True))

    # The producer's thread alone calls these two.

    def _on_success(self, report: RecordMetadata) -> None:
        self._tally.add(report.topic, [report.timestamp], self._clock.now_ms())
        self.acknowledged_count += 1

    def _on_error(self, error: BaseException) -> None:
        self._problems[str(error)] += 1


_SENDERS: Final[Mapping[str, Callable[[Service, str], Sender]]] = {
    OTTLA: _OttlaSender,
    CONFLUENT: _ConfluentSender,
    KAFKA_PYTHON: _KafkaPythonSender,
}


def _raise_unless_clean(problems: Counter[str], unanswered: int) -> None:
    if problems:
        reason, count = problems.most_common(1)[0]
        raise NotAcknowledged(f"{problems.total()} events were not acknowledged; {count} of them: {reason}")
    if unanswered:
        raise NotAcknowledged(f"{unanswered} events had no answer within {FLUSH_WITHIN_S:.0f} s")
