"""One producer below its interface: `producer` and `aio_producer` wait in their own ways, and share this."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from ottla.client.producing import live
from ottla.client.producing.accumulator import Accumulator, Run
from ottla.client.producing.delivery import MessageDelivery, SetDelivery
from ottla.client.producing.errors import MessagesNotDelivered, ProducerClosed
from ottla.client.producing.offer import MessageOffer, Offer, SetOffer, TopicOffer
from ottla.client.producing.prepared import Prepared
from ottla.client.producing.producer_monitor import ProducerMonitor
from ottla.client.producing.send_engine import SendEngine
from ottla.client.producing.settings import ProducerSettings
from ottla.client.producing.settlement import Acknowledged, Failures, Settlement
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import CallTimedOut
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
        live.add(self)

    @property
    def is_closed(self) -> bool:
        return self.monitor.refusal is not None

    def topic_offer(self, prepared: Prepared) -> TopicOffer:
        """Gives the count of the topic's partitions, at least as many as an explicit partition needs."""
        least = 1 if prepared.partition is None else prepared.partition + 1
        return TopicOffer(prepared.topic, least, self.monitor, self.accumulator, self._engine.look_up)

    def message_offer(self, prepared: Prepared, partition: int | None) -> Offer[MessageDelivery]:
        message = (partition, prepared.values[0], prepared.keys[0], prepared.headers)
        return MessageOffer(
            prepared.topic,
            self.topic_offer(prepared),
            self.accumulator,
            *message,
            prepared.timestamp_ms,
            prepared.total_bytes,
        )

    def set_offer(self, prepared: Prepared, runs: Sequence[Run]) -> Offer[SetDelivery]:
        known = self.topic_offer(prepared)
        return SetOffer(prepared.topic, known, self.accumulator, runs, prepared.headers, prepared.timestamp_ms)

    def yield_to_sender(self) -> None:
        """With the lock, by a user's thread that is not the only one to compute.

        A thread that closes batches faster than they are taken lets the producer's thread run, for a bounded time: that
        would wait for the interpreter's lock at each system call, while the buffer fills up.
        """
        if self.accumulator.ready_count >= _READY_MAX:
            self.monitor.yield_now(_YIELD_S)

    def begin_flush(self) -> Sequence[Settlement]:
        """Everything is sent now; what has no outcome yet."""
        with self.monitor.lock:
            self.accumulator.close_all()
            return [batch.settlement for batch in self.accumulator.unsettled]

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
            live.discard(self)
            self._wake_up.close()
