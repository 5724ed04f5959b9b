"""A process of the demo: one service of the site produces its day with its client library, counted by the audit."""

from __future__ import annotations

import mmap
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from ottla.audit import AuditTopic, Tally
from ottla.audit.count import PRODUCER
from ottla.demo.events import CONFLUENT, KAFKA_PYTHON, OTTLA, SERVICES, Event, Service, events_of, shares_of
from ottla.demo.processes import Produced, Report, Task, run_task
from ottla.model.errors import OttlaError
from ottla.model.limits import MINUTE_MS
from ottla.model.windows import DEFAULT_WINDOW_MS
from ottla.runtime.clock import SystemClock

if TYPE_CHECKING:
    from kafka.producer.future import RecordMetadata

LINGER_MS: Final = 20
FLUSH_WITHIN_S: Final = 60.0
# The wait for a full queue to drain before the next attempt.
FULL_QUEUE_WAIT_S: Final = 0.05
REPORT_EVERY_S: Final = 0.1
# The count of events between two checks of time and progress.
CHECK_EVERY: Final = 64
WAIT_S: Final = 0.002

# How far a service may be ahead of the slowest one: large enough that none waits for the scheduler, far smaller than
# the lateness limit.
LEAD_MS_MAX: Final = 15 * MINUTE_MS
_ENDED: Final = (1 << 63) - 1


def steps_path(scratch: str) -> Path:
    return Path(scratch) / "steps"


def prepare_steps(path: Path) -> None:
    """No service has started."""
    path.write_bytes(bytes(8 * len(SERVICES)))


class InStep:
    """One service's view of a small shared file, by which all services advance through the day in step.

    So consumers see one day and not four.  Each slot has one writer; eight aligned bytes are written and read at once.
    """

    def __init__(self, path: Path, place: int) -> None:
        with path.open("r+b") as file:
            self._moments = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
        self._place = place

    def reached(self, moment_ms: int) -> None:
        self._moments[self._place] = moment_ms

    def ended(self) -> None:
        """No service waits for this one any more."""
        self.reached(_ENDED)

    @property
    def limit_ms(self) -> int:
        """Events that arrive from here on must wait, exclusive."""
        return min(self._moments) + LEAD_MS_MAX


class NotAcknowledged(OttlaError):
    """The broker refused events, or did not acknowledge them in time."""


class Sender:
    """A client library behind a small interface; `acknowledged_count` is for the display, the audit counts itself."""

    def __init__(self) -> None:
        self.acknowledged_count = 0
        self._problems: Counter[str] = Counter()

    def send(self, event: Event) -> None:
        raise NotImplementedError

    def poll(self, timeout_s: float) -> None:
        """Process delivery reports, where no thread of the library does."""

    def finish(self) -> None:
        """Wait for every report, and publish the audit's counts.  Raises `NotAcknowledged`, `ClientError`."""
        raise NotImplementedError

    def _count(self, error: object) -> None:
        """Called once for each event, by one thread."""
        if error is None:
            self.acknowledged_count += 1
        else:
            self._problems[str(error)] += 1

    def _check(self, unanswered_count: int = 0) -> None:
        if self._problems:
            reason, count = self._problems.most_common(1)[0]
            raise NotAcknowledged(f"{self._problems.total()} events were not acknowledged; {count} of them: {reason}")
        if unanswered_count:
            raise NotAcknowledged(f"{unanswered_count} events had no answer within {FLUSH_WITHIN_S:.0f} s")


class _OttlaSender(Sender):
    def __init__(self, service: Service, bootstrap: str) -> None:
        from ottla import Producer
        from ottla.audit import ProducerAudit

        super().__init__()
        self._producer = Producer(bootstrap, client_id=service.name, compression=service.codec, linger_ms=LINGER_MS)
        self._audit = ProducerAudit(self._producer)

    def send(self, event: Event) -> None:
        sent = self._producer.send(event.topic, event.value, key=event.key, timestamp_ms=event.timestamp_ms)
        sent.add_done_callback(lambda delivery: self._count(delivery.error()))

    def finish(self) -> None:
        self._producer.flush(FLUSH_WITHIN_S * 1_000)
        self._check()
        self._audit.close(FLUSH_WITHIN_S * 1_000)
        self._producer.close()


class _ConfluentSender(Sender):
    def __init__(self, service: Service, bootstrap: str) -> None:
        import confluent_kafka

        from ottla.audit import ConfluentProducer

        super().__init__()
        settings = {
            "bootstrap.servers": bootstrap,
            "client.id": service.name,
            "enable.idempotence": True,
            "compression.type": service.codec,
            "linger.ms": LINGER_MS,
        }
        self._producer = ConfluentProducer(confluent_kafka.Producer(settings))

    def send(self, event: Event) -> None:
        topic, value, key = event.topic, event.value, event.key
        while True:
            try:
                self._producer.produce(
                    topic, value, key, timestamp=event.timestamp_ms, on_delivery=lambda error, _: self._count(error)
                )
                return
            except BufferError:
                self._producer.poll(FULL_QUEUE_WAIT_S)

    def poll(self, timeout_s: float) -> None:
        self._producer.poll(timeout_s)

    def finish(self) -> None:
        self._check(self._producer.close(FLUSH_WITHIN_S))


class _KafkaPythonSender(Sender):
    """The audit has no wrapper for this library: its reports go into a tally, which is published at the end."""

    def __init__(self, service: Service, bootstrap: str) -> None:
        from kafka import KafkaProducer

        super().__init__()
        self._bootstrap = bootstrap
        self._clock = SystemClock()
        self._tally = Tally(PRODUCER, DEFAULT_WINDOW_MS, uuid4)
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            client_id=service.name,
            acks="all",
            compression_type=service.codec,
            linger_ms=LINGER_MS,
        )

    def send(self, event: Event) -> None:
        future = self._producer.send(event.topic, event.value, event.key, timestamp_ms=event.timestamp_ms)
        future.add_callback(self._on_success).add_errback(self._count)

    def finish(self) -> None:
        self._producer.flush(FLUSH_WITHIN_S)
        self._producer.close(FLUSH_WITHIN_S)
        self._check()
        with AuditTopic(self._bootstrap) as topic:
            topic.publish(self._tally.unsent(self._clock.now_ms(), has_ended=True))

    def _on_success(self, report: RecordMetadata) -> None:
        self._tally.add(report.topic, [report.timestamp], self._clock.now_ms())
        self._count(None)


_SENDERS: Final = {OTTLA: _OttlaSender, CONFLUENT: _ConfluentSender, KAFKA_PYTHON: _KafkaPythonSender}


def produce(task: Task, report: Report) -> None:
    clock = SystemClock()
    place, service = next((place, each) for place, each in enumerate(SERVICES) if each.name == task.service)
    sender = _SENDERS[service.client](service, task.bootstrap)
    step = InStep(steps_path(task.scratch), place)
    began_ms, limit_ms, report_at_s = clock.monotonic_ms(), 0, time.monotonic()
    count = shares_of(task.events_count)[service.name]
    for sent_count, event in enumerate(events_of(service.name, count, task.seed, task.day_start_ms)):
        if event.arrival_ms >= limit_ms or sent_count % CHECK_EVERY == 0:
            step.reached(event.arrival_ms)
            sender.poll(0)
            while event.arrival_ms >= (limit_ms := step.limit_ms):
                sender.poll(WAIT_S)
                time.sleep(WAIT_S)
            if time.monotonic() >= report_at_s:
                report(Produced(sender.acknowledged_count, began_ms))
                report_at_s = time.monotonic() + REPORT_EVERY_S
        sender.send(event)
    step.ended()
    sender.finish()
    report(Produced(sender.acknowledged_count, began_ms, clock.monotonic_ms()))


if __name__ == "__main__":
    run_task(produce)
