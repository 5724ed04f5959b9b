"""Three client libraries behind one small interface: send events, and count acknowledgements."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from ottla.client.errors import CallTimedOut
from ottla.demo.counts import Bucket, Counts
from ottla.demo.day import HOUR_MS
from ottla.demo.events import Event
from ottla.demo.services import CONFLUENT, KAFKA_PYTHON, OTTLA, Service
from ottla.model.errors import OttlaError

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
    """`acknowledged` counts delivery reports by the record's own timestamp, and nothing else.

    Read it only after `flush`, since a library's own thread may write it; `acknowledged_count` at any time.
    """

    acknowledged: Counts
    acknowledged_count: int

    def send(self, event: Event) -> None: ...

    def poll(self, timeout_s: float) -> None:
        """Process delivery reports."""
        ...

    def flush(self) -> None:
        """Wait for every report.  Raises `NotAcknowledged`."""
        ...


def open_sender(service: Service, bootstrap: str) -> Sender:
    return _SENDERS[service.client](service, bootstrap)


class _OttlaSender:
    def __init__(self, service: Service, bootstrap: str) -> None:
        from ottla import Producer

        self.acknowledged: Counts = Counter()
        self.acknowledged_count = 0
        self._problems: Counter[str] = Counter()
        # In the order of sending: one that is done waits here for those before it.
        self._under_way: deque[Delivery[Receipt]] = deque()
        self._producer = Producer(bootstrap, client_id=service.name, compression=service.codec, linger_ms=LINGER_MS)

    def send(self, event: Event) -> None:
        delivery = self._producer.send(event.topic, event.value, key=event.key, timestamp_ms=event.timestamp_ms)
        self._under_way.append(delivery)

    def poll(self, timeout_s: float) -> None:
        while self._under_way and self._under_way[0].is_done:
            self._take(self._under_way.popleft())

    def flush(self) -> None:
        unanswered = 0
        try:
            self._producer.flush(FLUSH_WITHIN_S * 1_000)
        except CallTimedOut:
            unanswered = sum(not each.is_done for each in self._under_way)
        self.poll(0)
        _raise_unless_clean(self._problems, unanswered)
        self._producer.close()

    def _take(self, delivery: Delivery[Receipt]) -> None:
        error = delivery.error()
        if error is not None:
            self._problems[str(error)] += 1
            return
        receipt = delivery.wait()
        self.acknowledged[Bucket(receipt.topic, receipt.timestamp_ms // HOUR_MS)] += 1
        self.acknowledged_count += 1


class _ConfluentSender:
    def __init__(self, service: Service, bootstrap: str) -> None:
        from confluent_kafka import Producer

        self.acknowledged: Counts = Counter()
        self.acknowledged_count = 0
        self._problems: Counter[str] = Counter()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": service.name,
                "enable.idempotence": True,
                "compression.type": service.codec,
                "linger.ms": LINGER_MS,
            }
        )

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

    def flush(self) -> None:
        unanswered = self._producer.flush(FLUSH_WITHIN_S)
        _raise_unless_clean(self._problems, unanswered)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._problems[str(error)] += 1
        else:
            topic = message.topic()
            assert topic is not None, "a report names its topic"
            self.acknowledged[Bucket(topic, message.timestamp()[1] // HOUR_MS)] += 1
            self.acknowledged_count += 1


class _KafkaPythonSender:
    def __init__(self, service: Service, bootstrap: str) -> None:
        from kafka import KafkaProducer

        self.acknowledged: Counts = Counter()
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

    def flush(self) -> None:
        self._producer.flush(FLUSH_WITHIN_S)
        self._producer.close(FLUSH_WITHIN_S)
        _raise_unless_clean(self._problems, 0)

    # The producer's thread alone calls these two.

    def _on_success(self, report: RecordMetadata) -> None:
        self.acknowledged[Bucket(report.topic, report.timestamp // HOUR_MS)] += 1
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
