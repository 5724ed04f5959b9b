"""Counts the messages that brokers acknowledge to an ottla producer, and publishes the counts from a thread."""

from __future__ import annotations

import logging
import threading
import uuid
from types import TracebackType
from typing import Any, Final

from ottla.audit.count import PRODUCER, AuditMessage
from ottla.audit.tally import Tally
from ottla.audit.topic import publish
from ottla.client.producing.delivery import Acknowledged
from ottla.client.producing.errors import MessagesNotDelivered
from ottla.client.producing.producer import Producer
from ottla.client.producing.producer_api import ProducerApi
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.client.wire.options import ClientOptions
from ottla.model.errors import ConfigError
from ottla.model.own_names import AUDIT_TOPIC
from ottla.model.windows import DEFAULT_WINDOW_MS
from ottla.observe.events import fields
from ottla.runtime.clock import SystemClock

log = logging.getLogger(__name__)

INTERVAL_MS: Final = 10_000


def warn_of_uncounted(records: int) -> None:
    if records:
        log.warning("audit.records_not_counted", extra=fields(records=records))


class AcknowledgedCounts:
    """The counts of one producer, of either face: added on its thread, published on another."""

    def __init__(
        self, producer: ProducerApi[Any, Any], *, tier: str, window_ms: int, interval_ms: float, audit_topic: str
    ) -> None:
        if not interval_ms > 0:
            raise ConfigError(f"interval_ms is {interval_ms}", hint="counts are published every so many ms")
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._tally = Tally(tier, window_ms, uuid.uuid4)
        self._audit_topic = audit_topic
        self._interval_s = interval_ms / 1000
        self._cluster = Cluster(producer.bootstrap, ClientOptions(security=producer.security))
        # One publication at a time: the thread's, or the caller's.
        self._publishing = threading.Lock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ottla-audit", daemon=True)
        producer.on_acknowledged(self._on_acknowledged)
        self._thread.start()

    def publish(self, *, has_ended: bool = False, timeout_ms: float | None = None) -> None:
        """Publish the counts of acknowledged messages.  Raises ClientError; the counts are kept then."""
        with self._publishing:
            with self._lock:
                messages = self._tally.unsent(self._clock.now_ms(), has_ended=has_ended)
                uncounted_records = self._tally.newly_uncounted()
            warn_of_uncounted(uncounted_records)
            if messages:
                publish(self._cluster, messages, self._audit_topic, timeout_ms=timeout_ms)
                self._confirm(messages)

    def end(self, timeout_ms: float | None = None, *, has_ended: bool) -> None:
        """Publish the rest; `has_ended`: and report the end of the counts."""
        if not self._ending.is_set():
            self._ending.set()
            self._thread.join()
            try:
                self.publish(has_ended=has_ended, timeout_ms=timeout_ms)
            finally:
                self._cluster.close()

    def _on_acknowledged(self, batch: Acknowledged) -> None:
        if batch.topic != self._audit_topic:
            with self._lock:
                self._tally.add(batch.topic, batch.event_times_ms, self._clock.now_ms())

    def _confirm(self, messages: list[AuditMessage]) -> None:
        with self._lock:
            self._tally.confirm(messages)

    def _run(self) -> None:
        while not self._ending.wait(self._interval_s):
            try:
                self.publish()
            except ClientError as error:
                log.warning("audit.not_published", extra=fields(topic=self._audit_topic, error=str(error)))


class ProducerAudit:
    """Counts, by topic and event-time window, the messages that brokers acknowledge to `producer`.

    with ottla.Producer("localhost:9092") as producer, ProducerAudit(producer):
        producer.send("page-views", b"/jobs")

    The counts go to the topic `audit_topic` every `interval_ms`, at `publish`, and at `close`, which flushes the
    producer first.  A message counts when it is acknowledged, so a count is never too high.  A process that is killed
    has not published the last `interval_ms` at most, and a message whose acknowledgement was lost is not counted
    although it may be stored: then later tiers have more records than this one, never fewer.

    tier         how the counts are named
    window_ms    the windows' size; an hour's comparison needs a part of an hour
    interval_ms  how often counts are published

    Raises ConfigError for a setting that cannot be used.
    """

    def __init__(
        self,
        producer: Producer[Any, Any],
        *,
        tier: str = PRODUCER,
        window_ms: int = DEFAULT_WINDOW_MS,
        interval_ms: float = INTERVAL_MS,
        audit_topic: str = AUDIT_TOPIC,
    ) -> None:
        self._producer = producer
        self._counts = AcknowledgedCounts(
            producer, tier=tier, window_ms=window_ms, interval_ms=interval_ms, audit_topic=audit_topic
        )

    def __enter__(self) -> ProducerAudit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def publish(self, timeout_ms: float | None = None) -> None:
        """Publish the counts of acknowledged messages now.  Raises ClientError; the counts are kept then."""
        self._counts.publish(timeout_ms=timeout_ms)

    def close(self, timeout_ms: float | None = None) -> None:
        """Flush the producer, publish the rest, and report the end of the counts.  Raises the errors of `flush`.

        When it raises that not everything is settled, the counter ends without a last report: messages that
        are acknowledged later are not counted, so the counts must not look complete.
        """
        has_ended = False
        try:
            self._producer.flush(timeout_ms)
            has_ended = True
        except MessagesNotDelivered:
            # All are settled: acknowledged and counted, or failed.
            has_ended = True
            raise
        finally:
            self._counts.end(timeout_ms, has_ended=has_ended)
