"""The shards of one internal topic: one for each partition that this broker leads.

A shard is loaded when this broker starts to lead its partition in a leader epoch, and unloaded when that ends.  While
only the lease is over it stays loaded and refuses everything.
One timer serves the deadlines of all shards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Final, Generic, TypeVar, cast

from ottla.broker.partitions.coordinator_log import CoordinatorLog
from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.broker.shards.loading import Loader, ShardLoading
from ottla.broker.shards.served_shard import S, ServedShard, ShardEvents
from ottla.broker.tree.broker_lifecycle import BrokerLifecycle, LeaseWatch
from ottla.coordination.topics_view import Topic
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.group_partition import partition_of
from ottla.observe.events import fields
from ottla.replication.replica import Role
from ottla.runtime.clock import Clock, Moment

log = logging.getLogger(__name__)

# Deadlines of shards are served for at most this long, then other callbacks of the loop run.
TIMER_TURN_S: Final = 0.002
# When the lease is found to be over, deadlines are compared again after this time.
UNCERTAIN_RETRY_MS: Final = 50
T = TypeVar("T")


class Gathering(Generic[T]):
    """One answer assembled from several replies, which arrive in any order, at once or later.

    Calls `on_all` with `count` replies in the order of their places, once the last of them has arrived.
    """

    __slots__ = ("_missing", "_on_all", "_replies")

    def __init__(self, count: int, on_all: Callable[[list[T]], None]) -> None:
        self._replies: list[T | None] = [None] * count
        self._missing = count
        self._on_all = on_all
        if not count:
            on_all([])

    def place(self, index: int) -> Callable[[T], None]:
        """Takes the reply of this place."""

        def take(reply: T) -> None:
            self._replies[index] = reply
            self._missing -= 1
            if not self._missing:
                self._on_all(cast("list[T]", self._replies))

        return take


class ShardSources:
    """What shards are served from: the partitions, the clock, the loop, and this broker among others.

    `lifecycle`: None when this is the only broker.  `lease_watch`: is checked once the lease is over; None where no
    session could end.
    """

    __slots__ = ("clock", "is_flushing", "lease_watch", "lifecycle", "loop", "now_s", "partitions")

    def __init__(
        self,
        partitions: PartitionTable,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        is_flushing: Callable[[], bool],
        now_s: Callable[[], float] = perf_counter,
        lifecycle: BrokerLifecycle | None = None,
        lease_watch: LeaseWatch | None = None,
    ) -> None:
        self.partitions: Final = partitions
        self.clock: Final = clock
        self.loop: Final = loop
        self.is_flushing: Final = is_flushing
        self.now_s: Final = now_s
        self.lifecycle: Final = lifecycle
        self.lease_watch: Final = lease_watch


class ShardTable(Generic[S]):
    """Every method runs on the event loop's thread and none waits.

    `new_shard`: an empty shard over the log of a partition that is led.
    `on_serving`: the shard decides from now on.
    """

    def __init__(
        self,
        events: ShardEvents,
        topic_name: str,
        new_shard: Callable[[Partition, CoordinatorLog], S],
        load_bytes_max: int,
        sources: ShardSources,
        on_serving: Callable[[S, Moment], None] | None = None,
    ) -> None:
        self._events: Final = events
        self._topic_name: Final = topic_name
        self._new_shard: Final = new_shard
        self._load_bytes_max: Final = load_bytes_max
        self._partitions: Final = sources.partitions
        self._clock: Final = sources.clock
        self._loop: Final = sources.loop
        self._lifecycle: Final = sources.lifecycle
        self._lease_watch: Final = sources.lease_watch
        self._on_serving: Final = on_serving
        self._loader: Final = Loader(events.loaded, sources.loop, sources.is_flushing, sources.now_s)
        self._topic: Topic | None = None
        # By partition; None where this broker does not lead it.
        self._shards: list[ServedShard[S] | None] = []
        self._reload: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = 0
        # The shard whose deadlines were served last.
        self._turn_of = 0
        self._is_stopped = False
        self._is_offline = False

    @property
    def topic_exists(self) -> bool:
        """Whether the tree has the topic."""
        return bool(self._shards)

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped

    def state_of(self, key: str) -> ErrorCode:
        """NONE when this broker decides commands of this key now, else the error that its clients get."""
        shard = self._shard_of(key)
        return ErrorCode.NOT_COORDINATOR if shard is None or self._is_uncertain() else shard.error

    def find(self, key: str) -> ServedShard[S] | ErrorCode:
        """The shard that decides commands of this key now, or the error that its clients get.

        Call `arm_for` with the shard after a command was submitted to it.
        """
        is_uncertain = self._is_uncertain()
        if is_uncertain:
            self._notice_uncertain()
        shard = self._shard_of(key)
        error = ErrorCode.NOT_COORDINATOR if shard is None or is_uncertain else shard.error
        return error if shard is None or error else shard

    def at(self, index: int) -> ServedShard[S] | None:
        """The shard of a partition; None where this broker does not lead it."""
        return self._shards[index] if index < len(self._shards) else None

    def led(self) -> list[ServedShard[S]]:
        """All shards, with those that only answer an error."""
        return [shard for shard in self._shards if shard is not None]

    def deciding(self) -> Iterator[S]:
        """The shards that decide now."""
        for served in list(self._shards):
            if served is not None and not served.error:
                yield served.shard

    def moment(self) -> Moment:
        return Moment(self._clock.now_ms(), self._clock.monotonic_ms())

    def follow(self, topic: Topic | None) -> None:
        """Load the shards whose partitions this broker started to lead, unload those that it no longer leads, or leads
        in a new epoch.  A shard whose partition is only suspended stays loaded, and continues when that ends.

        None: the tree does not have the topic.
        """
        if self._is_stopped:
            return
        self._topic = topic
        count = 0 if topic is None else len(topic.partitions)
        led = [self._led_partition(index) for index in range(count)]
        # The same, without those that are suspended.
        serving = [None if each is None or each.is_suspended_leader else each for each in led]
        for index, shard in enumerate(self._shards):
            if shard is not None and not shard.serves(led[index] if index < count else None):
                # First: its answers may lead to calls of this shard.
                self._shards[index] = None
                self._unload(shard)
        self._shards = [*self._shards[:count], *[None] * (count - len(self._shards))]
        for index, partition in enumerate(serving):
            shard = self._shards[index]
            if partition is None:
                if shard is not None:
                    shard.suspend()
            elif shard is None:
                shard = self._shards[index] = ServedShard(
                    self._events, partition, self._new_shard, self._on_moved, self._on_lost
                )
                self._load(shard)
            elif shard.is_suspended:
                self._resume(shard)

    def on_directory_offline(self) -> None:
        """The disk failed: no command can be decided any more, since none can be logged."""
        self._is_offline = True
        self._loader.stop()
        for shard in self._shards:
            if shard is not None:
                shard.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def stop(self) -> None:
        """Answer everything that is parked: its clients find another coordinator, or this broker after its restart."""
        self._is_stopped = True
        self._loader.stop()
        if self._timer is not None:
            self._timer.cancel()
        for shard in self._shards:
            if shard is not None:
                shard.fail(ErrorCode.NOT_COORDINATOR)

    def _is_uncertain(self) -> bool:
        """Whether another broker may coordinate already."""
        return self._lifecycle is not None and self._lifecycle.is_uncertain(self._clock.boottime_ms())

    def _notice_uncertain(self) -> None:
        """Suspend the shards now, before a command is refused or a deadline passes.  The lease may be extended before
        the timer of `LeaseWatch` comes, and only a suspended shard restarts the sessions of its members.
        """
        if self._lease_watch is not None:
            self._lease_watch.check()

    def _led_partition(self, index: int) -> Partition | None:
        """The partition, if the tree has this broker as its leader; also while the lease is over."""
        partition = self._partitions.find(self._topic_name, index)
        if partition is None or not (partition.role is Role.LEADER or partition.is_suspended_leader):
            return None
        return partition

    def _load(self, served: ServedShard[S]) -> None:
        partition = served.partition
        if self._is_offline:
            served.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        if partition.log_end_offset == partition.log_start_offset:
            self._on_loaded(served, None)
            return
        served.loading = ShardLoading(partition, served.shard, self._load_bytes_max)
        self._loader.add(served.loading, lambda error: self._on_loaded(served, error))

    def _unload(self, served: ServedShard[S]) -> None:
        """Answer its parked requests, and drop its state: another broker, or a later load, reads it from the log."""
        if served.loading is not None:
            self._loader.discard(served.loading)
        served.fail(ErrorCode.NOT_COORDINATOR)
        facts = fields(partition=served.name, leader_epoch=served.leader_epoch)
        log.info(self._events.unloaded, extra=facts)

    def _on_loaded(self, served: ServedShard[S], error: OttlaError | OSError | None) -> None:
        if error is not None:
            served.loading = None
            log.error(self._events.not_loaded, extra=fields(partition=served.name, error=str(error)))
            served.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        moment = self.moment()
        served.loaded(moment)
        self._serve(served, moment)

    def _resume(self, served: ServedShard[S]) -> None:
        moment = self.moment()
        served.resume(moment)
        self._serve(served, moment)

    def _serve(self, served: ServedShard[S], moment: Moment) -> None:
        """It decides from now on, unless it still has an error."""
        if not served.error:
            if self._on_serving is not None:
                self._on_serving(served.shard, moment)
            self.arm_for(served)

    def _on_moved(self, served: ServedShard[S]) -> None:
        """Its stable end moved: replies were sent, and deadlines may have started."""
        if not served.error:
            self.arm_for(served)

    def _on_lost(self) -> None:
        """Appends of a shard were given up.

        Another broker leads its partition; or this one still does, and what it appended is in the log: then the shard
        is loaded again.
        """
        if self._reload is None and not self._is_stopped:
            self._reload = self._loop.call_soon(self._reload_lost)

    def _reload_lost(self) -> None:
        self._reload = None
        self.follow(self._topic)

    def _shard_of(self, key: str) -> ServedShard[S] | None:
        shards = self._shards
        return shards[partition_of(key, len(shards))] if shards else None

    def arm_for(self, served: ServedShard[S]) -> None:
        """The deadlines of one shard may be others now."""
        due_ms = served.shard.next_due_ms()
        if due_ms is not None and (self._timer is None or due_ms < self._timer_due_ms):
            self._arm_at(due_ms)

    def arm(self) -> None:
        """The deadlines of all shards may be others now."""
        due: Sequence[int] = [
            due_ms
            for shard in self._shards
            if shard is not None and not shard.error and (due_ms := shard.shard.next_due_ms()) is not None
        ]
        if due:
            self._arm_at(min(due))

    def _arm_at(self, due_ms: int) -> None:
        if self._is_stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = due_ms
        delay_ms = max(due_ms - self._clock.monotonic_ms(), 1)
        self._timer = self._loop.call_later(delay_ms / 1000, self._on_timer)

    def on_clock_moved(self) -> None:
        """Deadlines may have come that the timer waits for."""
        if self._timer is not None:
            self._timer.cancel()
            self._on_timer()

    def _on_timer(self) -> None:
        self._timer = None
        if self._is_uncertain():
            # Commands are refused, so no deadline may pass meanwhile.
            try:
                self._notice_uncertain()
            finally:
                self._arm_at(self._clock.monotonic_ms() + UNCERTAIN_RETRY_MS)
            return
        moment = self.moment()
        pause_at_s = self._loop.time() + TIMER_TURN_S
        try:
            for _ in self._shards:
                # Before it is called: if one shard fails, the others' deadlines continue.
                self._turn_of = (self._turn_of + 1) % len(self._shards)
                shard = self._shards[self._turn_of]
                if shard is not None and not shard.error:
                    shard.shard.on_time(moment)
                if self._loop.time() >= pause_at_s:
                    # Offset expiry, for example, is due in all shards at the same time.
                    break
        finally:
            self.arm()
