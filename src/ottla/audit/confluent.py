"""Counts the messages that brokers acknowledge to a confluent-kafka producer, and publishes the counts with it."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, TypeAlias

from ottla.audit.count import PRODUCER, AuditMessage, Count, Report, key_bytes, to_json
from ottla.audit.producers import INTERVAL_MS, warn_of_uncounted
from ottla.audit.tally import Tally
from ottla.audit.topic import PARTITIONS_COUNT, REPLICAS_COUNT, TOPIC_CONFIGS, CountsNotSent
from ottla.model.own_names import AUDIT_TOPIC
from ottla.model.windows import DEFAULT_WINDOW_MS
from ottla.observe.events import fields
from ottla.runtime.clock import SystemClock

log = logging.getLogger(__name__)

OnDelivery: TypeAlias = Callable[[Any, Any], object]
# librdkafka: so long a flush waits without another word.
_FOREVER_S: Final = -1.0
_CALL_TIMEOUT_S: Final = 10.0


class KafkaProducer(Protocol):
    """The part of `confluent_kafka.Producer` that is used."""

    def produce(self, topic: str, *args: Any, **kwargs: Any) -> None: ...
    def poll(self, timeout: float = ..., /) -> int: ...
    def flush(self, timeout: float = ..., /) -> int: ...
    def list_topics(self, *, timeout: float = ...) -> Any: ...
    def __len__(self) -> int: ...


class ConfluentProducer:
    """A `confluent_kafka.Producer` that counts, by topic and event-time window, what brokers acknowledge to it.

    config = {"bootstrap.servers": "localhost:9092"}
    with ConfluentProducer(confluent_kafka.Producer(config), admin=AdminClient(config)) as producer:
        producer.produce("page-views", b"/jobs")

    `produce`, `poll` and `flush` are the producer's, and so is everything else.  The counts go to `audit_topic` by the
    same producer: at `produce` and `poll` when `interval_ms` have passed, and at `flush` and `close`.  A delivery
    counts when its report is served, by `poll` or `flush`; the unpublished counts of a killed process are missing,
    so counts are never too high.  Threads may share it, as the producer.

    `admin`, a `confluent_kafka.admin.AdminClient`, creates `audit_topic` in the background; without one nothing is
    published until the topic exists.  A failure to publish is logged, and tried again; it never fails a message.
    """

    def __init__(
        self,
        producer: KafkaProducer,
        *,
        admin: Any = None,
        tier: str = PRODUCER,
        window_ms: int = DEFAULT_WINDOW_MS,
        interval_ms: float = INTERVAL_MS,
        audit_topic: str = AUDIT_TOPIC,
    ) -> None:
        self._producer = producer
        self._tally = Tally(tier, window_ms, uuid.uuid4)
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._interval_s = interval_ms / 1000
        self._audit_topic = audit_topic
        self._due_s = time.monotonic() + self._interval_s
        # Sent and not confirmed; a report is sent when the counts that it covers are confirmed.
        self._counts: dict[bytes, AuditMessage] = {}
        self._reports: dict[bytes, AuditMessage] = {}
        self._topic = _CountsTopic(producer, admin, audit_topic)
        self._topic.look()

    def __enter__(self) -> ConfluentProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def __len__(self) -> int:
        return len(self._producer)

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Any = None,
        callback: OnDelivery | None = None,
    ) -> None:
        """As `confluent_kafka.Producer.produce`."""
        reported = partial(self._on_delivery, on_delivery or callback)
        more = {} if headers is None else {"headers": headers}
        self._producer.produce(
            topic, value, key, partition=partition, on_delivery=reported, timestamp=timestamp, **more
        )
        self._publish_if_due()

    def poll(self, timeout: float = _FOREVER_S) -> int:
        """As `confluent_kafka.Producer.poll`."""
        served = self._producer.poll(timeout)
        self._publish_if_due()
        return served

    def flush(self, timeout: float = _FOREVER_S) -> int:
        """Flush, publish the counts, and flush them; returns the count of messages that are left.

        Counts that could not be published are published by the next call, or by `close`.
        """
        return self._flush(timeout, has_ended=False)

    def close(self, timeout: float = _FOREVER_S) -> int:
        """`flush`, and report the end of the counts.  The producer itself can still be used; it counts no more.

        Raises CountsNotSent where the counts could not be published; the messages are delivered all the same.
        """
        left_count = self._flush(timeout, has_ended=True)
        if not left_count and self._has_unpublished():
            raise CountsNotSent(
                f"the counts were not stored in {self._audit_topic}", hint="the log says why; `close` tries again"
            )
        return left_count

    def _flush(self, timeout: float, *, has_ended: bool) -> int:
        left_count = self._producer.flush(timeout)
        if left_count:
            return left_count
        self._topic.wait(timeout)
        self._publish(has_ended=has_ended)
        left_count = self._producer.flush(timeout)
        if left_count:
            return left_count
        self._send_reports()
        return self._producer.flush(timeout)

    def _on_delivery(self, call: OnDelivery | None, error: Any, message: Any) -> None:
        if error is None:
            _, timestamp_ms = message.timestamp()
            with self._lock:
                self._tally.add(message.topic(), [timestamp_ms], self._clock.now_ms())
        if call is not None:
            call(error, message)

    def _publish_if_due(self) -> None:
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + self._interval_s
            self._topic.look()
            self._send_reports()
            self._publish(has_ended=False)

    def _publish(self, *, has_ended: bool) -> None:
        self._due_s = time.monotonic() + self._interval_s
        with self._lock:
            messages = {key_bytes(each): each for each in self._tally.unsent(self._clock.now_ms(), has_ended=has_ended)}
            self._counts = {key: each for key, each in messages.items() if isinstance(each, Count)}
            self._reports = {key: each for key, each in messages.items() if isinstance(each, Report)}
            counts = list(self._counts.values())
            uncounted_records = self._tally.newly_uncounted()
        warn_of_uncounted(uncounted_records)
        self._send(counts)

    def _send_reports(self) -> None:
        with self._lock:
            reports = [] if self._counts else list(self._reports.values())
        self._send(reports)

    def _send(self, messages: list[AuditMessage]) -> None:
        if not self._topic.is_there:
            return
        for message in messages:
            on_delivery = partial(self._on_sent, message)
            try:
                self._producer.produce(self._audit_topic, to_json(message), key_bytes(message), on_delivery=on_delivery)
            except BufferError:  # the queue is full of messages: counts can wait
                return
            except Exception as error:  # noqa: BLE001  the caller's message was taken: an error would have it sent again
                self._warn(error)
                return

    def _on_sent(self, message: AuditMessage, error: Any, _: Any) -> None:
        if error is not None:
            self._warn(error)
            return
        key = key_bytes(message)
        with self._lock:
            self._tally.confirm([message])
            for under_way in (self._counts, self._reports):
                if under_way.get(key) == message:
                    del under_way[key]

    def _has_unpublished(self) -> bool:
        with self._lock:
            return bool(self._counts or self._reports)

    def _warn(self, error: object) -> None:
        log.warning("audit.not_published", extra=fields(topic=self._audit_topic, error=str(error)))


class _CountsTopic:
    """Looks for the topic of counts, and creates it, on a thread: a caller's `produce` waits for no answer."""

    def __init__(self, producer: KafkaProducer, admin: Any, name: str) -> None:
        self._producer = producer
        self._admin = admin
        self._name = name
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.is_there = False

    def look(self) -> None:
        with self._lock:
            if not self.is_there and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._find_or_create, name="ottla-audit-topic", daemon=True)
                self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Until it is there, or could not be made."""
        self.look()
        if self._thread is not None:
            self._thread.join(None if timeout_s < 0 else timeout_s)

    def _find_or_create(self) -> None:
        try:
            found = self._producer.list_topics(timeout=_CALL_TIMEOUT_S)
            if self._name not in found.topics:
                if self._admin is None:
                    log.warning(
                        "audit.topic_missing", extra=fields(topic=self._name, hint="pass admin=AdminClient(config)")
                    )
                    return
                self._create(len(found.brokers))
            self.is_there = True
        except Exception as error:  # noqa: BLE001  after any error `look` tries again
            log.warning("audit.topic_not_made", extra=fields(topic=self._name, error=str(error)))

    def _create(self, brokers_count: int) -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.cimpl import NewTopic

        replicas_count = min(REPLICAS_COUNT, max(1, brokers_count))
        topic = NewTopic(self._name, PARTITIONS_COUNT, replicas_count, config=dict(TOPIC_CONFIGS))
        (created,) = self._admin.create_topics([topic], request_timeout=_CALL_TIMEOUT_S).values()
        try:
            created.result(2 * _CALL_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
