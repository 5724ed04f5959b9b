"""A connector below its interfaces: the settings, the choice of a membership, the streams, their threads, the close."""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, Generic

from typing_extensions import Unpack

from ottla.client.groups.subscription import Subscription
from ottla.client.membership.kafka_group.membership import kafka_group_membership
from ottla.client.membership.kafka_group.options import AUTO, KafkaGroupOptions
from ottla.client.membership.membership import Event, Membership
from ottla.client.membership.rebalance_log import RebalanceLog
from ottla.client.streams.consumer_metrics import ConsumerMetrics
from ottla.client.streams.engine import StreamsEngine
from ottla.client.streams.errors import ConsumerClosed
from ottla.client.streams.fetch_loop import FetchLoop
from ottla.client.streams.message_run import Deserializers, message_runs
from ottla.client.streams.settings import ConnectorArguments, KeyT, StreamSettings, ValueT, stream_settings
from ottla.client.streams.stream_buffer import Prefetched, StreamBuffer
from ottla.client.wire.client_log import CONSUMER
from ottla.client.wire.destination.arguments import destination_and_security
from ottla.client.wire.destination.destination import Bootstrap, Destination
from ottla.client.wire.other_clients import check_names, refuse_mapping
from ottla.client.wire.request_metrics import RequestMeter
from ottla.client.wire.wake_up import WakeUp
from ottla.consumers.effects import Committed, Released
from ottla.consumers.share import StreamId
from ottla.model.errors import ConfigError, OttlaError
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from ottla.runtime.clock import Clock, SystemClock


class Timekeeper:
    """The thread that commits by the clock, and that reports statistics."""

    def __init__(
        self, engine: StreamsEngine, clock: Clock, due_earlier: threading.Event, report: Callable[[], float]
    ) -> None:
        """`due_earlier` is set when something is due earlier than it was.  `report` reports statistics that are due,
        and gives the moment of the next.
        """
        self._engine = engine
        self._report = report
        self._clock = clock
        self._due_earlier = due_earlier
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="ottla-commits", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._is_closing = True
        self._due_earlier.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._due_earlier.clear()
                next_ms = min(self._engine.on_time(), self._report())
                self._due_earlier.wait(max(0, next_ms - self._clock.monotonic_ms()) / 1000)
        except Exception as error:  # noqa: BLE001 (it is logged)
            CONSUMER.exception("the thread that commits by the clock has failed")
            self._engine.on_failure(OttlaError(f"the committing thread failed: {type(error).__name__}: {error}"))


# A thread that waits for a broker which does not answer gets so long to end; then it is left to itself.
CLOSE_TIMEOUT_MS: Final = 30_000
_FETCH_END_S: Final = 1.0
_LOCK_WAIT_S: Final = 1.0


class ConnectorCore:
    """`brokers` is asked for the brokers' addresses once, when streams are created.  `group` None: it has none;
    `group_meter` counts the requests of its member, where a broker coordinates it; `on_commit` receives what the group
    has committed.
    """

    def __init__(
        self,
        membership: Membership,
        brokers: Callable[[], Bootstrap],
        settings: StreamSettings,
        clock: Clock | None = None,
        *,
        group: str | None,
        group_meter: RequestMeter | None = None,
        on_commit: Callable[[Mapping[TopicPartition, int]], object] | None = None,
    ) -> None:
        self.settings = settings
        self.engine: StreamsEngine | None = None
        self.buffers: list[StreamBuffer] = []
        self._membership = membership
        self._brokers = brokers
        self._clock: Clock = clock or SystemClock()
        self._name = f"consumer {settings.client_id}" if group is None else f"consumer of group {group}"
        self._group_meter = group_meter
        self._on_commit = on_commit
        self._rebalances = None if group is None else RebalanceLog(group, self._clock)
        self._fetching: FetchLoop | None = None
        self._timekeeper: Timekeeper | None = None
        self._statistics_due_ms: float = math.inf
        self._is_closed = False
        # A handler of a signal may close what this thread closes already.
        self._ends = threading.RLock()

    def open(self, subscription: Subscription) -> Mapping[str, list[StreamBuffer]]:
        """Join the group: each topic's buffers; those of a filter are under ""."""
        self._check_may_open()
        counts = {"": subscription.filter_streams_count} if subscription.filter is not None else subscription.topics
        buffers = {
            topic: [self._new_buffer(f"{number} of {topic or 'a filter'}") for number in range(n)]
            for topic, n in counts.items()
        }

        def buffer_of(partition: TopicPartition, stream: StreamId) -> StreamBuffer:
            return buffers["" if subscription.filter is not None else partition.topic][stream.number]

        self._open(subscription, [buffer for each in buffers.values() for buffer in each], buffer_of)
        return buffers

    def open_one(self, subscription: Subscription, *, notifies: bool) -> StreamBuffer:
        """Join the group, or take what the user assigns: all partitions in one buffer.

        `notifies`: the user's code runs when partitions come and go.
        """
        self._check_may_open()
        buffer = self._new_buffer("all topics")
        buffer.notify(notifies=notifies)
        self._open(subscription, [buffer], lambda partition, stream: buffer)
        return buffer

    def _check_may_open(self) -> None:
        if self._is_closed:
            raise ConsumerClosed("the connector was closed")
        if self.engine is not None:
            raise ConfigError(
                "the streams of this connector were created before", hint="ask for all topics at once, or open another"
            )

    def _open(
        self,
        subscription: Subscription,
        buffers: list[StreamBuffer],
        buffer_of: Callable[[TopicPartition, StreamId], StreamBuffer],
    ) -> None:
        self.buffers = buffers
        brokers = self._brokers()
        # What wakes the two threads.
        ordered, due_earlier = WakeUp(), threading.Event()
        engine = StreamsEngine(
            self._membership,
            self.settings,
            self.buffers,
            buffer_of,
            self._clock,
            on_orders=ordered.ring,
            on_due=due_earlier.set,
        )
        self._fetching = FetchLoop(engine, brokers, self.settings, ordered, name=self._name)
        self._timekeeper = Timekeeper(engine, self._clock, due_earlier, self._report_statistics)
        self._statistics_due_ms = self._clock.monotonic_ms() + self.settings.statistics_interval_ms
        self.engine = engine
        self._membership.join(subscription, self._on_events)
        self._fetching.start()
        self._timekeeper.start()

    def metrics(self) -> ConsumerMetrics:
        """What was counted since the streams were created."""
        assert self._fetching is not None, "there are streams"
        meters = [self._fetching.meter] + ([] if self._group_meter is None else [self._group_meter])
        return self.opened().metrics(RequestMeter.snapshot(meters))

    def _report_statistics(self) -> float:
        """By the timekeeper."""
        call = self.settings.on_statistics
        if call is None:
            return math.inf
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._statistics_due_ms:
            self._statistics_due_ms = now_ms + self.settings.statistics_interval_ms
            try:
                call(self.metrics())
            except Exception:  # noqa: BLE001 (it is logged)
                CONSUMER.exception("on_statistics has failed")
        return self._statistics_due_ms

    def _on_events(self, events: Sequence[Event]) -> None:
        """By the membership's thread."""
        if self._rebalances is not None:
            self._rebalances.on_events(events)
        self.opened().on_events(events)
        if self._on_commit is not None:
            committed = {
                each.partition: each.offset
                for each in events
                if isinstance(each, Committed | Released) and each.offset != NO_OFFSET
            }
            if committed:
                self._on_commit(committed)

    @property
    def is_over(self) -> bool:
        """It was closed, or is another process's."""
        return self._is_closed or (self.engine is not None and not self.engine.is_of_this_process)

    def opened(self) -> StreamsEngine:
        if self.engine is None:
            raise ConfigError("no streams were created", hint="create_message_streams comes first")
        return self.engine

    def close(self, timeout_ms: int, closer: int, notify: Callable[[], None] | None = None) -> None:
        """Commit what was passed, give everything back, end the threads.  A second call does nothing.

        `notify` runs the user's code for the partitions that are given back; without it none runs.
        """
        if self.engine is not None and not self.engine.is_of_this_process:
            return
        if self.engine is not None and not self._can_lock(self.engine):
            # The process does not end before this thread has.
            threading.Thread(target=self.close, args=(timeout_ms, closer, notify), name="ottla-close").start()
            return
        with self._ends:
            if self._is_closed:
                return
            self._is_closed = True
            if self.engine is None:
                self._membership.close()
                return
            try:
                self._leave(self.engine, timeout_ms, closer, notify)
            finally:
                self._membership.close()
                assert self._timekeeper is not None
                self._timekeeper.close()
                assert self._fetching is not None
                self._fetching.close(_FETCH_END_S)

    def _leave(self, engine: StreamsEngine, timeout_ms: int, closer: int, notify: Callable[[], None] | None) -> None:
        """Until the group has everything back, and the user's code was notified; its first error is raised then."""
        first: Exception | None = None
        until_s = time.monotonic() + timeout_ms / 1000
        if notify is None:
            for buffer in self.buffers:
                buffer.notify(notifies=False)
        engine.begin_close(closer)
        while True:
            with engine.lock:
                engine.news.wait_for(
                    lambda: engine.has_left or (notify is not None and self._has_changes()),
                    max(0.0, until_s - time.monotonic()),
                )
                has_changes = self._has_changes()
            if notify is None or not has_changes:
                break
            try:
                notify()
            except Exception as error:  # noqa: BLE001 (the group must get everything back all the same)
                first = first or error
        if first is not None:
            raise first

    def _has_changes(self) -> bool:
        return any(buffer.has_changes for buffer in self.buffers)

    @staticmethod
    def _can_lock(engine: StreamsEngine) -> bool:
        """No thread holds the lock for long, except a frame of this thread that a signal handler has interrupted."""
        if not engine.lock.acquire(timeout=_LOCK_WAIT_S):
            return False
        engine.lock.release()
        return True

    def _new_buffer(self, name: str) -> StreamBuffer:
        settings = self.settings
        deserializers = Deserializers(settings.key_deserializer, settings.value_deserializer)
        open_batch = partial(message_runs, deserializers=deserializers, check_crc=settings.check_crcs)
        return StreamBuffer(
            name, Prefetched(settings.stream_buffer_bytes, settings.max_partition_fetch_bytes), open_batch
        )


class ConnectorHold:
    """Held by a connector's interface and by its streams, and by nothing of the connector itself.

    Its threads would keep what was dropped alive: a member of the group whose messages no code reads.  So when the
    last of these is gone the connector is closed, by a thread: this may be any moment of any thread, with any lock.
    """

    __slots__ = ("core", "name")

    def __init__(self, core: ConnectorCore, name: str) -> None:
        self.core: Final = core
        self.name: Final = name

    def __del__(self) -> None:
        if self.core.is_over:
            return
        closing = threading.Thread(
            target=self.core.close, args=(CLOSE_TIMEOUT_MS, threading.get_ident()), name="ottla-close", daemon=True
        )
        with suppress(RuntimeError):  # the process ends, and its threads with it
            closing.start()
        # At last: where warnings are errors it raises.
        warnings.warn(f"{self.name} was not closed", ResourceWarning, stacklevel=1, source=self)


def core_of(
    destination: Destination | None, zookeeper: str | None, group: str, settings: StreamSettings
) -> ConnectorCore:
    """Exactly one of `destination` and `zookeeper` is given.  Raises ConfigError."""
    if not isinstance(group, str) or not group:
        raise ConfigError(f"{group!r} is not a group", hint="its name is a text")
    if zookeeper is not None:
        if settings.group_protocol != AUTO:
            raise ConfigError(
                f"group_protocol is {settings.group_protocol!r}, with ZooKeeper",
                hint="it is of groups that brokers coordinate: leave it out",
            )
        # Imported late: most users have no ZooKeeper.
        from ottla.client.membership.tree.brokers import brokers_of_tree
        from ottla.client.membership.tree.membership import TreeMembership, TreeOptions
        from ottla.coordination.zookeeper.security import client_security

        of_zookeeper = client_security(settings.of_zookeeper)
        of_tree = TreeOptions(
            connection_timeout_ms=settings.connection_timeout_ms,
            client_id=settings.client_id,
            security=of_zookeeper,
        )
        if settings.session_timeout_ms is not None:
            of_tree = replace(of_tree, session_timeout_ms=settings.session_timeout_ms)
        return ConnectorCore(
            TreeMembership(zookeeper, group, of_tree),
            lambda: brokers_of_tree(
                zookeeper,
                security=of_zookeeper,
                timeout_ms=settings.connection_timeout_ms,
                protocol=settings.security.protocol,
            ),
            settings,
            group=group,
        )
    assert destination is not None
    if settings.of_zookeeper:
        raise ConfigError(
            "zookeeper_digest or zookeeper_security was given, but no ZooKeeper", hint="it goes with zookeeper=..."
        )
    of_group = KafkaGroupOptions(protocol=settings.group_protocol)
    if settings.session_timeout_ms is not None:
        of_group = replace(
            of_group,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=max(1, min(of_group.heartbeat_interval_ms, settings.session_timeout_ms // 3)),
        )
    membership = kafka_group_membership(destination, group, of_group, settings.client_options())
    return ConnectorCore(membership, lambda: destination, settings, group=group, group_meter=membership.meter)


class ConnectorApi(Generic[KeyT, ValueT]):
    """See `ConsumerConnector` for the settings."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        *,
        zookeeper: str | None = None,
        group: str,
        **settings: Unpack[ConnectorArguments[KeyT, ValueT]],
    ) -> None:
        name = type(self).__name__
        known = {"bootstrap", "zookeeper", "group", *ConnectorArguments.__annotations__}
        if isinstance(bootstrap, Mapping):
            refuse_mapping(name, bootstrap, known)
        check_names(name, settings, known)
        destination: Destination | None = None
        if zookeeper is None:
            destination, settings["security"] = destination_and_security(bootstrap, settings.get("security"))
        elif bootstrap is not None:
            raise ConfigError(
                "a connector takes either brokers or a ZooKeeper",
                hint='bootstrap="localhost:9092", or zookeeper="localhost:2181/ottla"',
            )
        self._core: ConnectorCore = core_of(destination, zookeeper, group, stream_settings(settings))
        self._name = f"{name} of group {group!r}"
        self._hold = ConnectorHold(self._core, self._name)

    def __repr__(self) -> str:
        return f"<{self._name}, {len(self._core.buffers)} streams>"

    def metrics(self) -> ConsumerMetrics:
        """What was counted since the streams were created: messages, batches, positions, requests, errors."""
        self._core.opened()
        return self._core.metrics()

    @property
    def blocked_reason(self) -> str | None:
        """Why a rebalance does not end: who holds what; None while there is no such."""
        return None if self._core.engine is None else self._core.engine.blocked_reason
