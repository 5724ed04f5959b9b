"""The tree: registrations and owners of sessions, offset nodes under compare-and-set, watches, reads that lag.

Operations of one session are in order.  A watch is called once, perhaps late; the changed nodes are read then.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.consumers.effects import Write, WriteKind
from ottla.consumers.partition_nodes import NO_NODE, ClaimId, OffsetNode, OwnerNode, PartitionNodes
from ottla.consumers.share import GroupView, StreamId
from ottla.model.identifiers import TopicPartition
from tests.consumers_simulation.scale import LATENCY_MS, SESSION_MS

if TYPE_CHECKING:
    from tests.consumers_simulation.simulation import Simulation


class Owner(NamedTuple):
    """An owner node, and for the checks the claim that created it."""

    stream: StreamId
    session_id: int
    claim: ClaimId | None


class Seen(NamedTuple):
    """The group at one time, and the count of operators' offset changes by then."""

    view: GroupView
    sets_count: int


class Session:
    """A session as the tree sees it."""

    __slots__ = ("heard_at_ms", "is_open", "on_watch", "seen", "session_id", "was_closed_early")

    def __init__(self, session_id: int, now_ms: float) -> None:
        self.session_id = session_id
        self.heard_at_ms = now_ms
        self.is_open = True
        # Closed by an operator, early: no lease can account for that.
        self.was_closed_early = False
        self.on_watch: Callable[[], None] | None = None
        # The newest view that it has read.
        self.seen = 0


class SimulatedTree:
    """One group's part of the tree."""

    def __init__(self, simulation: Simulation, chance: random.Random) -> None:
        self._simulation = simulation
        self._chance = chance
        self.sessions: dict[int, Session] = {}
        self.consumers: dict[str, tuple[int, Mapping[str, int]]] = {}
        self.partitions_counts: dict[str, int] = {}
        self.views = [Seen(GroupView({}, {}), 0)]
        self.owners: dict[TopicPartition, Owner] = {}
        self.offsets: dict[TopicPartition, OffsetNode] = {}
        self.is_away = False
        self.late_watch_ms = 0.0
        self.lag_changes_max = 0

    def connect(self) -> int:
        session_id = len(self.sessions) + 1
        self.sessions[session_id] = Session(session_id, self._simulation.timeline.now)
        self._simulation.timeline.after(SESSION_MS, self._expire_if_silent, session_id)
        return session_id

    def hear(self, session_id: int) -> bool:
        """A request of a session arrives; returns whether the session is open."""
        session = self.sessions[session_id]
        session.heard_at_ms = self._simulation.timeline.now
        return session.is_open

    def close(self, session_id: int, *, is_early: bool = False) -> None:
        session = self.sessions[session_id]
        if not session.is_open:
            return
        self._simulation.trace("tree: session %d ends", session_id)
        session.is_open = False
        session.was_closed_early = is_early
        session.on_watch = None
        self.owners = {partition: owner for partition, owner in self.owners.items() if owner.session_id != session_id}
        consumers = {name: each for name, each in self.consumers.items() if each[0] != session_id}
        if consumers != self.consumers:
            self.consumers = consumers
            self._change()

    def _expire_if_silent(self, session_id: int) -> None:
        session = self.sessions[session_id]
        if not session.is_open:
            return
        now = self._simulation.timeline.now
        if self.is_away:
            # ZooKeeper without a leader expires no session, and gives each its whole time-out afterwards.
            session.heard_at_ms = now
        silent_ms = now - session.heard_at_ms
        if silent_ms >= SESSION_MS:
            self.close(session_id)
        else:
            self._simulation.timeline.after(SESSION_MS - silent_ms + 1, self._expire_if_silent, session_id)

    def register(self, session_id: int, consumer_id: str, topics: Mapping[str, int]) -> bool:
        """Create the consumer's node; also true when this session has it."""
        found = self.consumers.get(consumer_id)
        if found is not None:
            return found[0] == session_id
        self.consumers = {**self.consumers, consumer_id: (session_id, topics)}
        self._change()
        return True

    def read_group(self, session_id: int, on_watch: Callable[[], None], *, is_synced: bool) -> Seen:
        """The view, perhaps an older one, but none older than one that the session has read or written."""
        session = self.sessions[session_id]
        newest = len(self.views) - 1
        lag = 0 if is_synced else int(self._chance.random() * (self.lag_changes_max + 1))
        session.seen = max(session.seen, newest - lag)
        session.on_watch = on_watch
        if session.seen < newest:
            self._call_watch(session)
        return self.views[session.seen]

    def add_partitions(self, topic: str, count: int) -> None:
        self.partitions_counts = {**self.partitions_counts, topic: count}
        self._change()

    def _change(self) -> None:
        view = GroupView({name: topics for name, (_, topics) in self.consumers.items()}, self.partitions_counts)
        self._show(Seen(view, self.views[-1].sets_count))

    def _show(self, seen: Seen) -> None:
        self.views.append(seen)
        for session in self.sessions.values():
            self._call_watch(session)

    def _call_watch(self, session: Session) -> None:
        on_watch, session.on_watch = session.on_watch, None
        if on_watch is not None:
            self._simulation.timeline.after(LATENCY_MS + self._chance.random() * self.late_watch_ms, on_watch)

    def read_nodes(
        self, session_id: int, partitions: tuple[TopicPartition, ...]
    ) -> dict[TopicPartition, PartitionNodes]:
        nodes: dict[TopicPartition, PartitionNodes] = {}
        for partition in partitions:
            owner = self.owners.get(partition)
            node = None if owner is None else OwnerNode(owner.stream, owner.session_id == session_id)
            nodes[partition] = PartitionNodes(node, self.offsets.get(partition))
        return nodes

    def write(self, session_id: int, write: Write) -> bool:
        """A transaction: all operations or none."""
        partition = write.partition
        before = self.offsets.get(partition)
        owner = self.owners.get(partition)
        if (NO_NODE if before is None else before.version) != write.expected_version:
            return False
        if write.kind is WriteKind.CLAIM:
            if owner is not None:
                return False
            self.owners[partition] = Owner(write.stream, session_id, write.claim)
        elif write.kind is WriteKind.RELEASE:
            if owner is None:
                return False
            del self.owners[partition]
        after = OffsetNode(write.offset, write.claim, write.expected_version + 1)
        self.offsets[partition] = after
        self._simulation.checks.on_written(write, before, after, owner)
        return True

    def reset_offset(self, partition: TopicPartition, offset: int) -> None:
        """An operator's: over any version, by no claim; every consumer's watch is called."""
        before = self.offsets[partition]
        self.offsets[partition] = OffsetNode(offset, None, before.version + 1)
        self._show(Seen(self.views[-1].view, self.views[-1].sets_count + 1))

    def heal(self) -> None:
        self.is_away = False
        self.late_watch_ms = 5.0
        self.lag_changes_max = 0
