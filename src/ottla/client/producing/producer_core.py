"""One producer below its interfaces: `producer` and `aio_producer` wait in their own ways, and share this."""

from __future__ import annotations

import atexit
import logging
import os
import random
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Generic, Literal, TypeAlias

from typing_extensions import TypeVar

from ottla.client.producing.accumulator import Accumulator, Run
from ottla.client.producing.delivery import Acknowledged, BatchDelivery, Failures, MessageDelivery, SetDelivery
from ottla.client.producing.errors import MessagesNotDelivered, ProducerClosed
from ottla.client.producing.producer_monitor import ProducerMonitor
from ottla.client.producing.send_engine import SendEngine
from ottla.client.producing.send_steps import MessageStep, SendStep, SetStep, TopicStep
from ottla.client.producing.serializing import MessageSerializer, SerializedMessages
from ottla.client.producing.settings import (
    BATCH_BYTES,
    BATCH_COUNT_MAX,
    BUFFER_BYTES,
    DELIVERY_TIMEOUT_MS,
    LINGER_MS,
    MAX_BLOCK_MS,
    MAX_IN_FLIGHT,
    MAX_REQUEST_BYTES,
    METADATA_MAX_AGE_MS,
    REQUEST_TIMEOUT_MS,
    Partitioner,
    ProducerSettings,
    acks_of,
    codec_of,
)
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import CallTimedOut
from ottla.client.wire.security.given import given_security
from ottla.client.wire.security.settings import ClientSecurity
from ottla.client.wire.transport import Readable, wait_readable
from ottla.client.wire.waiting import Waiting
from ottla.client.wire.wake_up import WakeUp
from ottla.observe.text import safe_line
from ottla.runtime.clock import SystemClock

R = TypeVar("R", bound=Readable)


class WokenWaits:
    """`wait` and `sleep` are those of a `Cluster`: they end early when `wake_up` rings, also when it rang before."""

    def __init__(self, wake_up: WakeUp) -> None:
        self._wake_up = wake_up

    def wait(self, streams: Iterable[R], timeout_ms: float) -> list[R]:
        """As `transport.wait_readable`."""
        waited = list(streams)
        every: list[Readable] = [*waited, self._wake_up]
        ready = {stream.fileno() for stream in wait_readable(every, timeout_ms)}
        if self._wake_up.fileno() in ready:
            self._wake_up.clear()
        return [stream for stream in waited if stream.fileno() in ready]

    def sleep(self, seconds: float) -> None:
        self.wait((), seconds * 1000)


# After an abandoned close the thread may still be in a call to a broker; it ends when that call ends.
_ABANDONED_JOIN_S: Final = 1.0
# So many closed batches may wait for the producer's thread before a user's thread lets it run; and for how long.
_READY_MAX: Final = 1
_YIELD_S: Final = 0.01
# A producer whose brokers stay away says so again after this.
_WARN_AGAIN_MS: Final = 60_000

log = logging.getLogger(__name__)


def _warn(bootstrap: str | Sequence[str], line: str) -> None:
    """As text, not as an event: programs without a logging configuration show the message alone."""
    addresses = bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)
    log.warning("producer of %s: %s", safe_line(addresses), line)


class ProducerCore:
    """The monitor, the accumulator and the thread of one producer, which runs until `finish` and the last outcome."""

    def __init__(
        self, bootstrap: str | Sequence[str], settings: ProducerSettings, choose: Callable[[Sequence[int]], int]
    ) -> None:
        self.settings = settings
        self.monitor = ProducerMonitor()
        self._wake_up = WakeUp()
        waits = WokenWaits(self._wake_up)
        clock = SystemClock()
        try:
            waiting = Waiting(partial(_warn, bootstrap), clock, again_after_ms=_WARN_AGAIN_MS)
            cluster = Cluster(
                bootstrap,
                settings.client_options(),
                dial=waiting.dial,
                clock=clock,
                wait=waits.wait,
                sleep=waits.sleep,
                on_wait=waiting.on_wait,
            )
        except BaseException:  # an address that is none
            self._wake_up.close()
            raise
        self.accumulator = Accumulator(settings, self.monitor, clock, choose, self._wake)
        self._failures = Failures()
        self._engine = SendEngine(cluster, settings, self.monitor, self.accumulator, self._failures, self._wake_up.ring)
        self._is_forked = False
        self._thread = threading.Thread(target=self._run, name="ottla-producer", daemon=True)
        self._thread.start()
        _OPEN.add(self)

    @property
    def is_closed(self) -> bool:
        return self.monitor.refusal is not None

    def topic_step(self, messages: SerializedMessages) -> TopicStep:
        """Gives the count of the topic's partitions, at least as many as an explicit partition needs."""
        least = 1 if messages.partition is None else messages.partition + 1
        return TopicStep(messages.topic, least, self.monitor, self.accumulator, self._engine.look_up)

    def message_step(self, messages: SerializedMessages, partition: int | None) -> SendStep[MessageDelivery]:
        message = (partition, messages.values[0], messages.keys[0], messages.headers)
        return MessageStep(
            messages.topic,
            self.topic_step(messages),
            self.accumulator,
            *message,
            messages.timestamp_ms,
            messages.total_bytes,
        )

    def set_step(self, messages: SerializedMessages, runs: Sequence[Run]) -> SendStep[SetDelivery]:
        known = self.topic_step(messages)
        return SetStep(messages.topic, known, self.accumulator, runs, messages.headers, messages.timestamp_ms)

    def yield_to_sender(self) -> None:
        """With the lock, by a user's thread that is not the only one to compute.

        A thread that closes batches faster than they are taken lets the producer's thread run, for a bounded time: that
        would wait for the interpreter's lock at each system call, while the buffer fills up.
        """
        if self.accumulator.ready_count >= _READY_MAX:
            self.monitor.yield_now(_YIELD_S)

    def begin_flush(self) -> Sequence[BatchDelivery]:
        """Everything is sent now; what has no outcome yet."""
        with self.monitor.lock:
            self.accumulator.close_all()
            return [batch.batch_delivery for batch in self.accumulator.unsettled]

    def on_acknowledged(self, call: Callable[[Acknowledged], object]) -> None:
        self._engine.on_acknowledged(call)

    def take_failures(self) -> MessagesNotDelivered | None:
        """The failures that no delivery has reported; each is returned once."""
        with self.monitor.lock:
            return self._failures.take()

    def finish(self) -> None:
        """Take nothing more, send everything, end the thread."""
        with self.monitor.lock:
            self.monitor.refuse(ProducerClosed("the producer is closed"))
            if not self._is_forked:
                self._engine.finish()
            self.monitor.announce()

    def join(self, timeout_s: float | None) -> bool:
        """Wait for the end of the thread, after `finish`; False when it has not come in time.

        In a forked child there is nothing to wait for: the messages are the parent's.
        """
        if self._is_forked:
            return True
        self.monitor.check_waiter()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def abandon(self, waited_ms: float) -> None:
        """The end, now: what is under way fails with what is known of it."""
        self._engine.abandon(CallTimedOut(f"the producer was closed, which waited for {waited_ms:g} ms"))
        self._thread.join(_ABANDONED_JOIN_S)

    def orphan(self) -> None:
        """For a finalizer: the thread sends what is left and ends."""
        if not self._is_forked:
            self._engine.orphan()

    def end_with_the_process(self, wait_ms: int) -> None:
        """Send what is left, within `wait_ms`; raises what was not delivered.  Called again after an interrupt."""
        began_s = time.monotonic()
        self.finish()
        # After an interrupted join Python takes a thread that runs for one that has ended (bpo-45274).
        if not (wait_ms > 0 and self.join(wait_ms / 1000)):
            self.abandon(round((time.monotonic() - began_s) * 1000))
        lost = self.take_failures()
        if lost is not None:
            raise lost

    def in_a_forked_child(self) -> None:
        self._is_forked = True
        self.monitor.forked(ProducerClosed("the process was forked: a producer belongs to the process that made it"))
        self.accumulator.forget_everything()

    def _wake(self) -> None:
        self._engine.wake()

    def _run(self) -> None:
        try:
            self._engine.run()
        finally:
            _OPEN.discard(self)
            self._wake_up.close()


# The end of a process waits so long for each producer that was not closed.
EXIT_WAIT_MS: Final = 10_000
# The producers of this process, for its end and for its forks.
_OPEN: Final[weakref.WeakSet[ProducerCore]] = weakref.WeakSet()


def _at_exit() -> None:
    errors: list[Exception] = []
    try:
        _end_all(EXIT_WAIT_MS, errors)
    except KeyboardInterrupt:
        # The user does not want to wait.  Losses are reported wherever the interrupt came.
        _end_all(0, errors)
    if errors:
        # Python prints it, as for every error at the end of a process.
        raise errors[0]


def _end_all(wait_ms: int, errors: list[Exception]) -> None:
    for core in list(_OPEN):
        try:
            core.end_with_the_process(wait_ms)
        except Exception as error:  # noqa: BLE001 - the others are ended, too
            errors.append(error)


def _after_fork() -> None:
    for core in list(_OPEN):
        core.in_a_forked_child()
    _OPEN.clear()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)


KeyT = TypeVar("KeyT", default=bytes)
ValueT = TypeVar("ValueT", default=bytes)

Acks: TypeAlias = Literal["all", "1", "0", "-1", 1, 0, -1]
Compression: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]


class ProducerApi(Generic[KeyT, ValueT]):
    """`bootstrap`: "host:port,host:port" or a sequence of such.  Settings: see `ottla.Producer`."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] = "localhost:9092",
        *,
        acks: Acks = "all",
        enable_idempotence: bool | None = None,
        compression: Compression | None = "none",
        compression_level: int | None = None,
        linger_ms: float = LINGER_MS,
        batch_bytes: int = BATCH_BYTES,
        batch_count_max: int = BATCH_COUNT_MAX,
        buffer_bytes: int = BUFFER_BYTES,
        max_block_ms: float = MAX_BLOCK_MS,
        delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        max_in_flight: int = MAX_IN_FLIGHT,
        metadata_max_age_ms: int = METADATA_MAX_AGE_MS,
        allow_auto_create_topics: bool = True,
        client_id: str = "ottla-producer",
        key_serializer: Callable[[KeyT], bytes | None] | None = None,
        value_serializer: Callable[[ValueT], bytes | None] | None = None,
        partitioner: Partitioner | None = None,
        security: ClientSecurity | Mapping[str, object] | None = None,
    ) -> None:
        settings = ProducerSettings(
            acks=acks_of(acks),
            enable_idempotence=enable_idempotence,
            compression=codec_of(compression),
            compression_level=compression_level,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            batch_count_max=batch_count_max,
            buffer_bytes=buffer_bytes,
            max_block_ms=max_block_ms,
            delivery_timeout_ms=delivery_timeout_ms,
            request_timeout_ms=request_timeout_ms,
            max_request_bytes=max_request_bytes,
            max_in_flight=max_in_flight,
            metadata_max_age_ms=metadata_max_age_ms,
            allow_auto_create_topics=allow_auto_create_topics,
            client_id=client_id,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            security=given_security(security),
        )
        chance = random.Random()
        self._serializer = MessageSerializer(settings, SystemClock().now_ms, chance.choice)
        # What the short way of `send` is for.
        self._is_plain = settings.is_plain
        self._core = ProducerCore(bootstrap, settings, chance.choice)
        self._bootstrap = bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)
        # What the short way looks at, each message.
        self._monitor = self._core.monitor
        self._keyless = self._core.accumulator.keyless

    @property
    def bootstrap(self) -> str:
        """The addresses that it was given: "host:port,host:port"."""
        return self._bootstrap

    @property
    def security(self) -> ClientSecurity:
        """The security of its connections, for other clients of the same cluster."""
        return self._core.settings.security

    def on_acknowledged(self, call: Callable[[Acknowledged], object]) -> None:
        """`call` for each batch of messages that is stored from now on; `ottla.audit` counts by it.

        On the producer's thread, which must not be held up, and before the messages' senders get their receipts.
        """
        self._core.on_acknowledged(call)

    def __repr__(self) -> str:
        end = ", closed" if self._core.is_closed else ""
        return f"<{type(self).__name__} to {self._bootstrap}{end}>"

    def _raise_failures(self) -> None:
        failures = self._core.take_failures()
        if failures is not None:
            raise failures

    def __del__(self) -> None:
        core = getattr(self, "_core", None)  # missing after a setting that was refused
        if core is not None and not core.is_closed:
            name = repr(self)  # before its thread, which closes it now, can have done so
            core.orphan()
            # At last: where warnings are errors it raises.
            warnings.warn(f"{name} was not closed", ResourceWarning, stacklevel=1, source=self)
