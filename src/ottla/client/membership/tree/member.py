"""Carries out what a consumer of Algorithm 1 wants, on the event loop of its session with the tree."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Final

from ottla.client.consumer_registry.group_nodes import ConsumerNode, GroupPaths
from ottla.client.consumer_registry.group_reader import GroupReader
from ottla.client.consumer_registry.partition_registry import PartitionRegistry, in_requests, register
from ottla.client.membership.membership import Event, Failed, OnEvents
from ottla.client.wire.client_log import GROUP
from ottla.consumers.consumer import Consumer
from ottla.consumers.effects import (
    Blocked,
    Committed,
    Effect,
    Left,
    Lost,
    ReadGroup,
    ReadPartitions,
    Register,
    Released,
    Revoke,
    Settled,
    Start,
    Write,
)
from ottla.consumers.partition_nodes import ClaimId
from ottla.consumers.rebalance_pace import NEVER_MS
from ottla.coordination.tree import ConnectionLoss, SessionLost, SessionState, Tree
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import Clock


class ConsumerStopped(OttlaError):
    """A fault of this program ended the membership."""

    hint = "the log has the error; a new consumer continues from what was committed"

    def __init__(self, error: Exception) -> None:
        super().__init__(f"the consumer has stopped: {type(error).__name__}: {error}")


class TreeMember:
    """One consumer of a group, over all sessions of `tree`.

    `ended` is set when it has left, or cannot continue.  Its methods are called on the loop.
    """

    def __init__(
        self, tree: Tree, paths: GroupPaths, node: ConsumerNode, consumer: Consumer, clock: Clock, on_events: OnEvents
    ) -> None:
        self.ended: Final = asyncio.Event()
        self.has_left = False
        self._tree: Final = tree
        self._paths: Final = paths
        self._node: Final = node
        self._consumer: Final = consumer
        self._clock: Final = clock
        self._on_events: Final = on_events
        self._loop: Final = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writes: list[Write] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = NEVER_MS
        # Those of the present session.
        self._has_session = False
        self._reader = self._new_reader()
        self._partitions = self._new_partitions(self._reader)

    @property
    def hand_out_until_ms(self) -> int:
        """From any thread.  A lost session ends its lease at once.

        The lease of the next one counts after all claims were reported as lost.
        """
        return self._tree.lease.until_ms if self._has_session else 0

    def start(self) -> None:
        """`tree` has a session."""
        self._tree.add_session_listener(self._on_session_state)
        self._begin_session()

    def leave(self) -> None:
        self._carry_out(self._consumer.leave(self._now()))

    def commit(self, offsets: Iterable[tuple[TopicPartition, ClaimId, int]]) -> None:
        self._carry_out(self._consumer.commit(offsets))

    def on_stopped(self, partition: TopicPartition, claim: ClaimId, offset: int) -> None:
        self._carry_out(self._consumer.on_stopped(partition, claim, offset, self._now()))

    def stop(self) -> None:
        """End without leaving: everything counts as lost.  The session is still open, and the caller closes it."""
        if self._has_session:
            self._end_session()
        self._is_over()

    def on_bug(self, error: Exception) -> None:
        """An exception that no caller receives: the known state may be wrong now."""
        GROUP.error("consumer.bug", exc_info=error)
        self._fail(ConsumerStopped(error))

    def _on_session_state(self, state: SessionState) -> None:
        if self.ended.is_set():
            return
        if state is SessionState.LOST:
            if self._has_session:
                self._end_session()
        elif state is SessionState.CONNECTED:
            if self._has_session:
                self._carry_out(self._consumer.on_reconnected(self._now()))
            else:
                self._begin_session()

    def _begin_session(self) -> None:
        self._reader = self._new_reader()
        self._partitions = self._new_partitions(self._reader)
        effects = self._consumer.on_session(self._tree.session_id, self._tree.lease.until_ms, self._now())
        self._has_session = True
        self._carry_out(effects)

    def _end_session(self) -> None:
        self._has_session = False
        self._writes.clear()
        self._carry_out(self._consumer.on_session_lost())

    def _new_reader(self) -> GroupReader:
        return GroupReader(self._tree, self._paths, self._node.subscription, self._on_watch)

    def _new_partitions(self, reader: GroupReader) -> PartitionRegistry:
        return PartitionRegistry(self._tree, self._paths, reader.topic_id, self._clock.now_ms)

    def _on_watch(self) -> None:
        self._carry_out(self._consumer.on_change(self._now()))

    def _now(self) -> int:
        """The time, after the consumer has received the lease that its next event is judged by."""
        self._consumer.on_lease(self._tree.lease.until_ms)
        return self._clock.boottime_ms()

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        if self.ended.is_set():
            return
        events: list[Event] = []
        for effect in effects:
            match effect:
                case Register():
                    self._begin(self._register(effect))
                case ReadGroup():
                    self._begin(self._read_group(effect, self._reader))
                case ReadPartitions():
                    self._begin(self._read_partitions(effect, self._partitions))
                case Write():
                    self._queue(effect)
                case Left():
                    self.has_left = True
                case Start() | Revoke() | Released() | Lost() | Committed() | Settled() | Blocked():
                    events.append(effect)
        if events:
            self._tell(events)
        if self.has_left:
            self._is_over()
        elif not self.ended.is_set():
            self._set_timer()

    def _queue(self, write: Write) -> None:
        """Those of one turn of the loop go together; no two of them are of one partition."""
        if not self._writes:
            self._loop.call_soon(self._send_writes)
        self._writes.append(write)

    def _send_writes(self) -> None:
        writes, self._writes = self._writes, []
        if not self.ended.is_set():
            for part in in_requests(writes):
                self._begin(self._write(part, self._partitions))

    def _tell(self, events: Sequence[Event]) -> None:
        try:
            self._on_events(events)
        except Exception as error:  # noqa: BLE001 (it is logged)
            GROUP.exception("consumer.bug")
            self._fail(ConsumerStopped(error))

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        """Tasks begin in the order in which they are made, so their requests do, too."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or self.ended.is_set():
            return
        error = task.exception()
        if isinstance(error, OttlaError):
            self._fail(error)
        elif isinstance(error, Exception):
            self.on_bug(error)

    def _fail(self, error: OttlaError) -> None:
        """What no repetition would mend."""
        if self.ended.is_set():
            return
        lost = self._consumer.on_session_lost() if self._has_session else []
        self._has_session = False
        self._is_over()
        self._on_events([*(effect for effect in lost if isinstance(effect, Lost)), Failed(error)])

    def _is_over(self) -> None:
        self._has_session = False
        self.ended.set()
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()

    async def _register(self, effect: Register) -> None:
        outcome = await register(self._tree, self._paths, self._consumer.consumer_id, self._node)
        self._carry_out(self._consumer.on_registered(effect.request_id, outcome, self._now()))

    async def _read_group(self, effect: ReadGroup, reader: GroupReader) -> None:
        try:
            if effect.is_synced:
                await self._tree.sync()
            reading = await reader.read()
        except (ConnectionLoss, SessionLost):
            self._carry_out(self._consumer.on_read_failed(effect.request_id, self._now()))
            return
        self._carry_out(self._consumer.on_view(effect.request_id, reading.view, self._now()))
        if reading.offsets_were_set:
            self._carry_out(self._consumer.on_offsets_set(self._now()))
        if reading.is_passing:
            self._on_watch()

    async def _read_partitions(self, effect: ReadPartitions, partitions: PartitionRegistry) -> None:
        try:
            nodes = await partitions.read(effect.partitions)
        except (ConnectionLoss, SessionLost):
            self._carry_out(self._consumer.on_read_failed(effect.request_id, self._now()))
            return
        self._carry_out(self._consumer.on_nodes(effect.request_id, nodes, self._now()))

    async def _write(self, writes: Sequence[Write], partitions: PartitionRegistry) -> None:
        outcomes = await partitions.write(writes)
        now_ms = self._now()
        effects: list[Effect] = []
        for write, outcome in zip(writes, outcomes, strict=True):
            effects += self._consumer.on_written(write, outcome, now_ms)
        self._carry_out(effects)

    def _set_timer(self) -> None:
        due_ms = self._consumer.due_ms
        if due_ms == self._timer_due_ms:
            return
        self._timer_due_ms = due_ms
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_ms != NEVER_MS:
            delay_s = max(0, due_ms - self._clock.boottime_ms()) / 1000
            self._timer = self._loop.call_later(delay_s, self._on_time)

    def _on_time(self) -> None:
        self._timer_due_ms = NEVER_MS
        self._timer = None
        self._carry_out(self._consumer.on_time(self._now()))
