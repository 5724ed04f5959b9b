"""The tree: states under compare-and-set, registrations, sessions that expire; responses get lost, are late, or lag.

A snapshot is immutable, and every one is kept, so that a read can return a past state as a ZooKeeper server that
lags does.  A session never reads an older snapshot than it has read before.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.coordination.generations import NO_VERSION, SeenGeneration
from ottla.coordination.reassignment import Reassigned
from ottla.coordination.topics_view import PartitionNode
from ottla.model.identifiers import NodeId
from ottla.model.partition_state import PartitionState
from tests.simulation.network import TREE
from tests.simulation.scale import SESSION_MS

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class Snapshot(NamedTuple):
    """The whole tree after one change."""

    change_id: int
    partitions: tuple[PartitionNode, ...]
    live: Mapping[NodeId, int]
    min_in_sync: int


class Answer(NamedTuple):
    """The tree's response to a request; `is_expired` when the session is over."""

    is_done: bool
    is_expired: bool = False
    number: int = 0
    partitions: tuple[PartitionNode, ...] = ()
    live: Mapping[NodeId, int] = {}
    min_in_sync: int = 0
    generation: SeenGeneration | None = None


EXPIRED = Answer(is_done=False, is_expired=True)
REFUSED = Answer(is_done=False)
Replied = Callable[[Answer], None]


class Session:
    """A broker's session as the tree sees it."""

    __slots__ = ("has_expired", "heard_at_ms", "is_open", "node_id", "seen", "session_id")

    def __init__(self, session_id: int, node_id: NodeId, now_ms: float) -> None:
        self.session_id = session_id
        self.node_id = node_id
        self.heard_at_ms = now_ms
        self.is_open = True
        self.has_expired = False
        # Index of the newest snapshot that it has read, for each of the three parts that are read separately.
        self.seen = [0, 0, 0]


class SimulatedTree:
    """One tree for all brokers."""

    def __init__(self, simulation: Simulation, chance: random.Random) -> None:
        self._simulation = simulation
        self._chance = chance
        self.history: list[Snapshot] = []
        self.sessions: dict[int, Session] = {}
        self.owners: dict[NodeId, int] = {}
        # (generation of the directory, version of its node) of each broker.
        self.generations: dict[NodeId, tuple[SeenGeneration, int]] = {}
        # Faults: how often an answer is lost, how often a request is applied late, how far reads lag.
        self.lost_answers = 0.0
        self.late_requests = 0.0
        self.lag_changes_max = 0
        self.is_away = False

    @property
    def now(self) -> Snapshot:
        return self.history[-1]

    def begin(self, partitions: tuple[PartitionNode, ...], live: Mapping[NodeId, int], min_in_sync: int) -> None:
        self.history.append(Snapshot(100, partitions, live, min_in_sync))

    def on_request(
        self, sender: NodeId, session_id: int, work: Callable[[Session], Answer], replied: Replied, *, is_read: bool
    ) -> None:
        """A request arrives.  A write may be delayed, so that it is applied after its sender has given it up."""
        if self.is_away:
            return
        if not is_read and self.late_requests and self._chance.random() < self.late_requests:
            delay_ms = self._chance.random() * 900
            self._simulation.timeline.after(delay_ms, self._perform, sender, session_id, work, replied)
            return
        self._perform(sender, session_id, work, replied)

    def _perform(self, sender: NodeId, session_id: int, work: Callable[[Session], Answer], replied: Replied) -> None:
        session = self.sessions.get(session_id)
        if session is None or not session.is_open:
            answer = EXPIRED
        else:
            session.heard_at_ms = self._simulation.timeline.now
            answer = work(session)
        if not self.lost_answers or self._chance.random() >= self.lost_answers:
            self._simulation.network.send(TREE, sender, replied, answer)

    def connect(self, sender: NodeId, former: int | None, replied: Replied) -> None:
        """Open a session; a `former` one of the same broker is closed first when its id is given."""
        if self.is_away:
            return
        if former is not None:
            self.close(former)
        session_id = len(self.sessions) + 1
        self.sessions[session_id] = Session(session_id, sender, self._simulation.timeline.now)
        self._simulation.timeline.after(SESSION_MS, self._expire_if_silent, session_id)
        self._simulation.network.send(TREE, sender, replied, Answer(is_done=True, number=session_id))

    def ping(self, session: Session) -> Answer:
        return Answer(is_done=True)

    def read(self, session: Session, *, is_synced: bool) -> Answer:
        """The three registries, each read separately and maybe from the past."""
        newest = len(self.history) - 1
        picks: list[Snapshot] = []
        for part in range(3):
            index = newest
            if not is_synced and self.lag_changes_max:
                index = max(session.seen[part], newest - int(self._chance.random() * (self.lag_changes_max + 1)))
            session.seen[part] = index
            picks.append(self.history[index])
        return Answer(
            is_done=True, partitions=picks[0].partitions, live=picks[1].live, min_in_sync=picks[2].min_in_sync
        )

    def write(
        self,
        session: Session,
        index: int,
        expected_version: int,
        state: PartitionState,
        moved: Reassigned | None = None,
    ) -> Answer:
        """Compare-and-set of one partition's state, or of its replicas with it: `number` is the new version."""
        partition = self.now.partitions[index]
        if partition.state_version != expected_version:
            return REFUSED
        self.change_state(index, state, session.node_id, moved)
        session.seen[0] = len(self.history) - 1
        return Answer(is_done=True, number=expected_version + 1)

    def read_generation(self, session: Session) -> Answer:
        """`number` is the node's version."""
        seen, version = self.generations.get(session.node_id, (None, NO_VERSION))
        return Answer(is_done=True, number=version, generation=seen)

    def move_generation(self, session: Session, after: SeenGeneration, expected_version: int) -> Answer:
        """Compare-and-set."""
        if self.generations.get(session.node_id, (None, NO_VERSION))[1] != expected_version:
            return REFUSED
        self.generations[session.node_id] = (after, expected_version + 1)
        return Answer(is_done=True)

    def register(
        self, session: Session, after: SeenGeneration | None = None, expected_version: int = NO_VERSION
    ) -> Answer:
        """Create the broker's ephemeral node, and move its generation with it: `number` is its broker epoch."""
        if session.node_id in self.owners:
            is_own = self.owners[session.node_id] == session.session_id
            return Answer(is_done=is_own, number=self.now.live[session.node_id])
        if after is not None and not self.move_generation(session, after, expected_version).is_done:
            return REFUSED
        self.owners[session.node_id] = session.session_id
        broker_epoch = self.now.change_id + 1
        self._change(live={**self.now.live, session.node_id: broker_epoch})
        return Answer(is_done=True, number=broker_epoch)

    def change_state(self, index: int, state: PartitionState, writer: int, moved: Reassigned | None = None) -> None:
        before = self.now.partitions[index]
        after = before._replace(state=state, state_version=before.state_version + 1)
        if moved is not None:
            after = after._replace(replicas=moved.replicas, move=moved.move)
        partitions = list(self.now.partitions)
        partitions[index] = after
        self._change(partitions=tuple(partitions))
        self._simulation.checks.on_tree_state(before, after, writer)

    def change_min_in_sync(self, min_in_sync: int) -> None:
        self._change(min_in_sync=min_in_sync)

    def close(self, session_id: int) -> None:
        """The session ends, and its registrations with it."""
        session = self.sessions.get(session_id)
        if session is None or not session.is_open:
            return
        session.is_open = False
        if self.owners.get(session.node_id) == session_id:
            del self.owners[session.node_id]
            live = dict(self.now.live)
            del live[session.node_id]
            self._change(live=live)

    def expire_early(self, session_id: int) -> None:
        """An operator closes a session early: no lease can account for that."""
        session = self.sessions.get(session_id)
        if session is not None and session.is_open:
            self.close(session_id)

    def has_ended(self, session_id: int) -> bool:
        """Whether the session's time is over."""
        session = self.sessions.get(session_id)
        return session is None or session.has_expired

    def _expire_if_silent(self, session_id: int) -> None:
        session = self.sessions[session_id]
        if not session.is_open:
            return
        if self.is_away:
            # ZooKeeper without a leader expires no session, and gives each its whole time-out afterwards.
            session.heard_at_ms = self._simulation.timeline.now
        silent_ms = self._simulation.timeline.now - session.heard_at_ms
        if silent_ms >= SESSION_MS:
            self._simulation.trace("tree: the session of broker %d expires", session.node_id)
            session.has_expired = True
            self.close(session_id)
        else:
            self._simulation.timeline.after(SESSION_MS - silent_ms + 1, self._expire_if_silent, session_id)

    def _change(
        self,
        partitions: tuple[PartitionNode, ...] | None = None,
        live: Mapping[NodeId, int] | None = None,
        min_in_sync: int | None = None,
    ) -> None:
        now = self.now
        self.history.append(
            Snapshot(
                now.change_id + 1,
                now.partitions if partitions is None else partitions,
                now.live if live is None else live,
                now.min_in_sync if min_in_sync is None else min_in_sync,
            )
        )
        # Every session has a watch; a watch may be late, and coalesces.
        for broker in self._simulation.brokers:
            self._simulation.network.send(TREE, broker.node_id, broker.on_watch, broker.life)

    def heal(self) -> None:
        self.lost_answers = self.late_requests = 0.0
        self.lag_changes_max = 0
        self.is_away = False
