"""Changes of in-sync replicas: when each led partition is looked at, and what becomes of what it proposes.

A partition decides what should change (replication/replica.py); here it is polled, at once when it reports a change and
from time to time because followers also leave by falling behind, and its changes are written to the tree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.broker.replicas.state_writer import Propose
from ottla.coordination.state_changes import StateChange
from ottla.model.partition_state import ChangeOutcome, ChangeResult
from ottla.replication.leadership import InSyncChange
from ottla.replication.replica import Role
from ottla.runtime.clock import Clock
from ottla.runtime.loop_offload import Timers

# Looked at in one turn of the loop; each takes some microseconds.
LOOKS_PER_TURN: Final = 200
# When a follower may have fallen behind, it is noticed within half of that time again.
LOOKS_PER_LAG_TIME: Final = 2


class LoopCalls(Timers, Protocol):
    """The part of an event loop that this module needs."""

    def call_soon(self, callback: Callable[[], object]) -> asyncio.Handle: ...


class InSyncChanges:
    """`propose` writes a change to the tree, and calls back with its outcome."""

    def __init__(
        self, partitions: PartitionTable, propose: Propose, clock: Clock, loop: LoopCalls, lag_time_max_ms: int
    ) -> None:
        self._partitions = partitions
        self._propose = propose
        self._clock = clock
        self._loop = loop
        self._period_ms = max(lag_time_max_ms // LOOKS_PER_LAG_TIME, 1)
        self._due: dict[Partition, None] = {}
        self._turn: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._looked_ms = 0
        self._is_stopped = False
        # Changes that this broker has written, for metrics.
        self.shrinks_count = 0
        self.expansions_count = 0

    def start(self) -> None:
        """Look at all partitions periodically from now on."""
        self._looked_ms = self._clock.monotonic_ms()
        self._arm()

    def stop(self) -> None:
        """Propose nothing more; changes under way are not awaited."""
        self._is_stopped = True
        self._due.clear()
        for handle in (self._turn, self._timer):
            if handle is not None:
                handle.cancel()
        self._turn = self._timer = None

    def look_at(self, partition: Partition) -> None:
        """Its in-sync replicas may have to change: ask it at the end of this turn of the loop."""
        if self._is_stopped:
            return
        self._due[partition] = None
        if self._turn is None:
            self._turn = self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._turn = None
        now_ms = self._clock.monotonic_ms()
        for partition in list(islice(self._due, LOOKS_PER_TURN)):
            del self._due[partition]
            change = partition.propose(now_ms) if partition.is_served else None
            if change is not None:
                self._write(partition, change)
        if self._due:
            self._turn = self._loop.call_soon(self._look)

    def _write(self, partition: Partition, change: InSyncChange) -> None:
        node = partition.node
        assert node is not None, "a partition leads by a node"
        written = StateChange(partition.topic_partition, partition.topic_id, change.expected_version, change.state)

        def on_outcome(outcome: ChangeOutcome) -> None:
            if outcome.result is ChangeResult.APPLIED:
                self._count(len(node.state.in_sync), len(change.state.in_sync))
            if partition.is_served:
                now_ms = self._clock.monotonic_ms()
                partition.on_outcome(change, outcome.result, outcome.version, now_ms)
                # Meanwhile another change may have come to be due.
                self.look_at(partition)

        self._propose(written, on_outcome)

    def _count(self, count_before: int, count_after: int) -> None:
        self.shrinks_count += count_after < count_before
        self.expansions_count += count_after > count_before

    def _arm(self) -> None:
        self._timer = self._loop.call_later(self._period_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        now_ms = self._clock.monotonic_ms()
        was_paused = now_ms - self._looked_ms > 2 * self._period_ms
        self._looked_ms = now_ms
        self._arm()
        if was_paused:
            # The process stood still, and the fetches that came meanwhile are yet to be read.
            return
        for partition in self._partitions:
            if partition.role is Role.LEADER and partition.node is not None and len(partition.node.replicas) > 1:
                self.look_at(partition)
