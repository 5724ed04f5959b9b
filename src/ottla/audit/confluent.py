"""Counts what brokers acknowledge to a producer of confluent-kafka, and tells it by that producer."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, TypeAlias

from ottla.audit.count import AUDIT_TOPIC, PRODUCER, AuditMessage, key_bytes, to_json
from ottla.audit.producers import INTERVAL_MS
from ottla.audit.tally import Tally
from ottla.model.windows import DEFAULT_WINDOW_MS
from ottla.runtime.clock import SystemClock

OnDelivery: TypeAlias = Callable[[Any, Any], object]
# librdkafka: so long a flush waits without another word.
_FOREVER_S: Final = -1.0


class KafkaProducer(Protocol):
    """What is used of `confluent_kafka.Producer`."""

    def produce(self, topic: str, *args: Any, **kwargs: Any) -> None: ...
    def poll(self, timeout: float = ..., /) -> int: ...
    def flush(self, timeout: float = ..., /) -> int: ...
    def __len__(self) -> int: ...


class ConfluentProducer:
    """A `confluent_kafka.Producer` that counts, by topic and event-time window, what brokers acknowledge to it.

    with ConfluentProducer(confluent_kafka.Producer({"bootstrap.servers": "localhost:9092"})) as producer:
        producer.produce("page-views", b"/jobs")

    `produce`, `poll` and `flush` are the producer's, and so is everything else.  The counts go to `audit_topic` by the
    same producer: at `produce` and `poll` when `interval_ms` have passed, and at `flush` and `close`.  A delivery
    counts when its report is served, by `poll` or `flush`; what a killed process has not told is missing in its counts,
    so they are never too high.  Threads may share it, as the producer.
    """

    def __init__(
        self,
        producer: KafkaProducer,
        *,
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
        """Flush, tell the counts, and flush them; the count of messages that are left."""
        return self._flush(timeout, has_ended=False)

    def close(self, timeout: float = _FOREVER_S) -> int:
        """`flush`, and tell that nothing will follow.  The producer itself can still be used; it counts no more."""
        return self._flush(timeout, has_ended=True)

    def _flush(self, timeout: float, *, has_ended: bool) -> int:
        left_count = self._producer.flush(timeout)
        if left_count:
            return left_count
        self._publish(has_ended=has_ended)
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
            self._publish(has_ended=False)

    def _publish(self, *, has_ended: bool) -> None:
        self._due_s = time.monotonic() + self._interval_s
        with self._lock:
            messages = self._tally.unsent(self._clock.now_ms(), has_ended=has_ended)
        for message in messages:
            try:
                self._producer.produce(
                    self._audit_topic, to_json(message), key_bytes(message), on_delivery=partial(self._on_told, message)
                )
            except BufferError:  # the queue is full of messages: counts can wait
                return

    def _on_told(self, told: AuditMessage, error: Any, _: Any) -> None:
        if error is None:
            with self._lock:
                self._tally.confirm([told])
