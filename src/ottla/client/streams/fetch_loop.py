"""The thread that fetches for all streams of a connector; the only one that has connections to the leaders."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Final

from ottla.client.fetching.fetch_machine import FetchFailure
from ottla.client.fetching.fetch_requests import FetchedPartition, FetchLimits
from ottla.client.fetching.fetcher import Fetcher
from ottla.client.fetching.offset_look_ups import FoundOffsets, OffsetLookUps
from ottla.client.fetching.offsets import EARLIEST, LATEST
from ottla.client.streams.consume_machine import FetchOrder
from ottla.client.streams.engine import StreamsEngine
from ottla.client.streams.errors import NoPosition
from ottla.client.streams.settings import StreamSettings
from ottla.client.wire.client_log import CONSUMER
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.destination.destination import Bootstrap
from ottla.client.wire.errors import CallTimedOut, ClientError, OffsetOutOfRange, UnknownTopic
from ottla.client.wire.request_metrics import RequestMeter
from ottla.client.wire.retrying import Postponed, Retrying
from ottla.client.wire.waiting import WARN_AGAIN_MS, Waiting, warns_on
from ottla.client.wire.wake_up import WakeUp
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NO_OFFSET, TopicPartition


class PostponedOrders:
    """Pauses grow with each failure of a partition, until it succeeds or is ordered again."""

    def __init__(self, retrying: Retrying) -> None:
        self._pauses = Postponed[TopicPartition](retrying)
        self._orders: dict[TopicPartition, FetchOrder] = {}

    def postpone(self, partition: TopicPartition, order: FetchOrder) -> None:
        self._pauses.postpone(partition)
        self._orders[partition] = order

    def succeeded(self, partition: TopicPartition) -> None:
        self._pauses.clear(partition)

    def drop(self, partition: TopicPartition) -> None:
        """It is ordered again, or not any more."""
        self._pauses.clear(partition)
        self._orders.pop(partition, None)

    def take_due(self) -> dict[TopicPartition, FetchOrder]:
        due = [partition for partition in self._orders if self._pauses.may_try(partition)]
        return {partition: self._orders.pop(partition) for partition in due}

    def wait_ms(self, limit_ms: float) -> float:
        """The time until one is due; at most `limit_ms`, 0 when one has become so since `take_due`."""
        left_ms = self._pauses.next_try_ms(limit_ms)
        return 0 if any(map(self._pauses.may_try, self._orders)) else left_ms


# It looks around so often when nothing wakes it.
_POLL_MS: Final = 60_000
_DAMAGED: Final = "seek() past the damage, or let `ottla log repair DIR` make the rest readable"
_NAMED_PLACES: Final = frozenset({EARLIEST, LATEST})


class _Closing(Exception):
    """The loop is to end."""


class FetchLoop:
    """`run` is the thread's whole life; `close` is for the others.  A `FetchRoom`: the room is that of the streams."""

    def __init__(
        self, engine: StreamsEngine, bootstrap: Bootstrap, settings: StreamSettings, wake: WakeUp, *, name: str
    ) -> None:
        """`wake` rings when the engine has orders; the thread closes it.  `name` of the consumer, for logs."""
        self._engine = engine
        self._wake = wake
        self._first_contact_ms = settings.connection_timeout_ms
        self._is_closing = threading.Event()
        # An unknown topic is looked up again later: the others do not wait for it.
        options = replace(
            settings.client_options(), unknown_topic_wait_ms=0, metadata_max_age_ms=settings.metadata_max_age_ms
        )
        waiting = Waiting(warns_on(CONSUMER, name), again_after_ms=WARN_AGAIN_MS)
        self._cluster = Cluster(bootstrap, options, dial=waiting.dial, sleep=self._sleep, on_wait=waiting.on_wait)
        self._postponed = PostponedOrders(self._cluster.retrying)
        self._places = OffsetLookUps(self._cluster, settings.isolation_level)
        self._fetcher = Fetcher(
            self._cluster,
            {},
            limits=FetchLimits(
                max_bytes=settings.fetch_max_bytes,
                partition_max_bytes=settings.max_partition_fetch_bytes,
                min_bytes=settings.fetch_min_bytes,
                max_wait_ms=settings.fetch_max_wait_ms,
            ),
            room=self,
            wake=self._wake,
            beside=self._places,
            isolation=settings.isolation_level,
        )
        self._orders: dict[TopicPartition, FetchOrder] = {}
        # Partitions whose offset is not in the log, of which the range is looked up.
        self._out_of_range: dict[TopicPartition, OffsetOutOfRange] = {}
        self._thread = threading.Thread(target=self.run, name="ottla-fetch", daemon=True)

    @property
    def meter(self) -> RequestMeter:
        return self._cluster.meter

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """End the thread; one that waits for a broker that hangs is left running: it holds nothing but its sockets."""
        self._is_closing.set()
        self._wake.ring()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def run(self) -> None:
        try:
            self._make_contact()
            while not self._is_closing.is_set():
                self.turn()
        except _Closing:
            pass
        except OttlaError as error:
            self._engine.on_failure(error)
        except Exception as error:  # noqa: BLE001 (it is logged)
            CONSUMER.exception("the thread that fetches has failed")
            self._engine.on_failure(OttlaError(f"the fetch thread failed: {type(error).__name__}: {error}"))
        finally:
            self._fetcher.close()
            self._cluster.close()
            self._wake.close()

    def _make_contact(self) -> None:
        """Raises what keeps it from any broker: at first that is a mistake, more likely than an outage."""
        try:
            self._cluster.refresh([], deadline=self._cluster.retrying.deadline(self._first_contact_ms))
        except CallTimedOut as error:
            raise error.__cause__ or error from None

    def turn(self) -> None:
        """Follow the orders, look up offsets, and pass on what was fetched."""
        self._wake.clear()
        with self._engine.locked() as machine:
            orders = machine.take_orders()
        for partition, order in orders.items():
            self._follow(partition, order)
        for partition, due in self._postponed.take_due().items():
            self._begin(partition, due)
        for found in self._places.poll():
            self._on_found(found)
        for outcome in self._fetcher.poll_each(self._postponed.wait_ms(_POLL_MS)):
            present = self._orders.get(outcome.partition)
            if isinstance(outcome, FetchedPartition):
                self._postponed.succeeded(outcome.partition)
                with self._engine.locked() as machine:
                    machine.on_fetched(outcome, None if present is None else present.token)
                if present is not None and not outcome.is_end_known:
                    self._stop_after(outcome, present)
            elif present is not None:
                self._on_failure(outcome, present)

    def reserve(self, partition: TopicPartition) -> int:
        with self._engine.locked() as machine:
            return machine.reserve(partition)

    def on_landed(self, partition: TopicPartition, size_bytes: int) -> None:
        with self._engine.locked() as machine:
            machine.on_landed(partition, size_bytes)

    def _follow(self, partition: TopicPartition, order: FetchOrder | None) -> None:
        self._fetcher.drop(partition)
        self._postponed.drop(partition)
        self._places.drop(partition)
        self._orders.pop(partition, None)
        self._out_of_range.pop(partition, None)
        if order is not None:
            self._begin(partition, order)

    def _begin(self, partition: TopicPartition, order: FetchOrder) -> None:
        self._orders[partition] = order
        if order.question in _NAMED_PLACES:
            self._places.ask(partition, order.question)
        elif order.question is not None:
            # A time after all messages is the end, as it was before the question for the time: nothing is left out.
            self._places.ask(partition, LATEST, order.question)
        else:
            self._fetcher.seek(partition, order.offset)

    def _on_found(self, found: FoundOffsets) -> None:
        partition, answers = found
        order = self._orders[partition]
        out_of_range = self._out_of_range.pop(partition, None)
        if out_of_range is not None:
            log_range = None if isinstance(answers, ClientError) else range(answers[0].offset, answers[1].offset)
            with self._engine.locked() as machine:
                machine.on_out_of_range(out_of_range, order.token, log_range)
        elif isinstance(answers, ClientError):
            self._on_failure(FetchFailure(partition, order.offset, answers), order)
        else:
            offset = answers[-1].offset if answers[-1].offset != NO_OFFSET else answers[0].offset
            self._postponed.succeeded(partition)
            with self._engine.locked() as machine:
                machine.on_place(partition, order.token, offset)

    def _on_failure(self, failure: FetchFailure, order: FetchOrder) -> None:
        partition, offset, error = failure
        if isinstance(error, OffsetOutOfRange):
            self._on_out_of_range(error, order, offset)
        elif isinstance(error, UnknownTopic) or (isinstance(error, ClientError) and error.is_retriable):
            # A topic may be made, a leader be elected, a broker come back.
            if isinstance(error, ClientError):
                self._cluster.retrying.on_wait(error)
            self._postponed.postpone(partition, order._replace(offset=offset))
        else:
            self._give_up(partition, order, offset, error)

    def _on_out_of_range(self, error: OffsetOutOfRange, order: FetchOrder, offset: int) -> None:
        partition = error.partition
        with self._engine.locked() as machine:
            may_reset = machine.may_reset(partition, order.token)
        if not may_reset:
            self._postponed.postpone(partition, order._replace(offset=offset))
            return
        self._out_of_range[partition] = error
        self._places.ask(partition, EARLIEST, LATEST)

    def _give_up(self, partition: TopicPartition, order: FetchOrder, offset: int, error: OttlaError) -> None:
        with self._engine.locked() as machine:
            machine.on_unreadable(partition, order.token, offset, error)

    def _stop_after(self, fetched: FetchedPartition, order: FetchOrder) -> None:
        """Its last batch points out of the log, from where reading would continue as `auto_offset_reset` says."""
        partition = fetched.partition
        self._fetcher.drop(partition)
        text = f"{partition}: a damaged batch says that it ends at offset {fetched.next_offset - 1}"
        error = NoPosition(f"{text}; the log ends at {fetched.high_watermark}", hint=_DAMAGED)
        self._give_up(partition, order, fetched.next_offset, error)

    def _sleep(self, pause_s: float) -> None:
        """As `time.sleep`, but for the end of the loop."""
        if self._is_closing.wait(pause_s):
            raise _Closing
