"""A simulated broker: successive processes, a session with a lease, views of the tree, elections, and its disk."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ottla.coordination.generations import NO_GENERATION, HeldGeneration, SeenGeneration
from ottla.coordination.reassignment import Reassigned
from ottla.coordination.topics_view import PartitionNode, Topic
from ottla.model.identifiers import NodeId
from ottla.model.partition_state import ChangeResult, PartitionState, ReplicaIncarnation
from ottla.replication.replica import Role
from tests.seeds.search import Violation
from tests.simulation.network import TREE
from tests.simulation.partition import SimulatedPartition
from tests.simulation.scale import (
    ELECTION_PATIENCE_MS,
    LEASE_MARGIN_MS,
    MOVE_MS,
    PING_MS,
    REQUEST_TIMEOUT_MS,
    SESSION_MS,
    VIEW_POLL_MS,
)
from tests.simulation.tree import Answer, Session
from tests.simulation.values import PartitionLog

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

NO_EPOCH = -1
Outcome = Callable[..., None]


class Disk:
    """The state on disk between two processes: logs, checkpointed high watermarks, and which records it still has."""

    def __init__(self, partitions_count: int, directory_id: UUID, *, is_os_policy: bool) -> None:
        self.logs = [PartitionLog(is_stable_at_once=is_os_policy) for _ in range(partitions_count)]
        self.high_watermarks = [0] * partitions_count
        # All records reported in this broker epoch or a later one are still here; None: none are.
        self.complete_from: int | None = None
        # Whether the last process' end lost reported records.
        self.has_just_lost = False
        self.directory_id = directory_id
        self.generation = NO_GENERATION
        # A copy of an earlier time, put back, that its broker has not recognised yet.
        self.is_copy = False

    def held(self) -> HeldGeneration:
        return HeldGeneration(self.directory_id, self.generation, self.complete_from is not None)

    def copy(self) -> Disk:
        """A copy of the present state, also of a running process."""
        copied = deepcopy(self)
        copied.is_copy = True
        return copied

    def accept_stale(self, directory_id: UUID) -> None:
        """The effect of `ottla cluster rejoin`."""
        self.directory_id = directory_id
        self.complete_from = None
        self.is_copy = False

    def cut_power(self, chance: random.Random) -> None:
        """A part of the unflushed records is left: a write may be torn, or none of it may have reached the disk."""
        for log in self.logs:
            end_offset = log.flushed_end + int(chance.random() * (log.log_end_offset - log.flushed_end + 1))
            if end_offset < log.stable_end:
                self.complete_from = None
                self.has_just_lost = True
            log.truncate_to(end_offset)

    def holds(self, broker_epoch: int) -> bool:
        """Whether the records reported in a life of the broker are still here, according to its disk."""
        return not self.is_copy and self.complete_from is not None and broker_epoch >= self.complete_from


class SimulatedBroker:
    """One node.  `life` counts its processes: messages for an earlier one are dropped."""

    def __init__(self, simulation: Simulation, node_id: NodeId) -> None:
        self.simulation = simulation
        self.node_id = node_id
        self._directories_count = 0
        self.disk = self._new_disk()
        self.disk.complete_from = 0
        self.life = 0
        self.is_up = False
        self.is_paused = False
        self.is_disk_full = False
        self.is_disk_stuck = False
        # Whether its disk was stuck or full so long that it leaves the in-sync replicas.
        self.gives_way = False
        self.broker_epoch = NO_EPOCH
        self.partitions: list[SimulatedPartition] = []
        self.former_session: int | None = None
        self.is_stopping = False
        self._session = -1
        self._lease_until_ms = 0.0
        self._deferred: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._live: Mapping[NodeId, int] = {}
        self._min_in_sync = 1
        self._is_reading = False
        # Clocks run at slightly different rates; the lease's margin is for that.
        self._clock_rate = 0.98 + 0.04 * simulation.chance.random()

    def _new_disk(self) -> Disk:
        plan = self.simulation.plan
        return Disk(plan.partitions_count, self._new_directory_id(), is_os_policy=plan.is_os_policy)

    def _new_directory_id(self) -> UUID:
        self._directories_count += 1
        return UUID(int=self.node_id << 64 | self._directories_count)

    def start(self) -> None:
        """A new process opens the disk."""
        assert not self.is_up
        self.life += 1
        self.is_up = True
        self.is_paused = False
        self.is_stopping = False
        self.is_disk_full = self.is_disk_stuck = self.gives_way = False
        self.broker_epoch = NO_EPOCH
        self._lease_until_ms = 0.0
        self._live = {}
        self._is_reading = False
        disk = self.disk
        for log in disk.logs:
            log.reopen()
        self.partitions = [
            SimulatedPartition(self, index, log, disk.high_watermarks[index]) for index, log in enumerate(disk.logs)
        ]
        self.simulation.trace("broker %d: starts, log ends %s", self.node_id, [log.log_end_offset for log in disk.logs])
        self._connect()
        self.after(VIEW_POLL_MS, self._poll)
        if self.simulation.plan.counts_generations:
            self.after(MOVE_MS, self._move_from_time_to_time)

    def crash(self, *, is_power_cut: bool) -> None:
        """The process ends.  A power cut also loses unflushed records, or the last of them."""
        self.is_up = False
        self.is_paused = False
        self._deferred.clear()
        self.former_session = self._session
        for partition in self.partitions:
            self.simulation.checks.on_unanswered(partition.forget_waiting())
        disk = self.disk
        chance = self.simulation.chance
        for partition in self.partitions:
            if chance.random() < 0.5:
                disk.high_watermarks[partition.index] = partition.replica.high_watermark
        disk.has_just_lost = False
        if is_power_cut:
            disk.cut_power(chance)
        self.broker_epoch = NO_EPOCH
        self.partitions = []
        self.simulation.trace(
            "broker %d: %s, log ends %s",
            self.node_id,
            "power cut" if is_power_cut else "crash",
            [log.log_end_offset for log in disk.logs],
        )

    def replace_disk(self) -> None:
        """The stopped broker gets an empty disk."""
        self.disk = self._new_disk()
        self.simulation.trace("broker %d: a new disk", self.node_id)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        """Messages and timers of the pause are handled now, in any order."""
        self.is_paused = False
        deferred, self._deferred = self._deferred, []
        self.simulation.chance.shuffle(deferred)
        for call, arguments in deferred:
            self.simulation.timeline.after(self.simulation.chance.random(), call, *arguments)

    def now_ms(self) -> int:
        return int(self.simulation.timeline.now * self._clock_rate)

    def after(self, delay_ms: float, call: Callable[..., None], *arguments: Any) -> None:
        """A timer of this process."""
        self.simulation.timeline.after(delay_ms, self._run, self.life, call, arguments)

    def _run(self, life: int, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if life != self.life or not self.is_up:
            return
        if self.is_paused:
            self._deferred.append((self._run, (life, call, arguments)))
            return
        call(*arguments)

    def deliver(self, life: int, call: Callable[..., None], index: int, *arguments: Any) -> None:
        """A message for one of the partitions."""
        if life != self.life or not self.is_up:
            return
        if self.is_paused:
            self._deferred.append((self.deliver, (life, call, index, *arguments)))
            return
        call(self.partitions[index], *arguments)

    def has_lease(self) -> bool:
        """Whether this broker's session cannot have ended."""
        return self.simulation.kinds.has_lease(self._lease_until_ms, self.now_ms())

    def is_registered(self) -> bool:
        return self.broker_epoch != NO_EPOCH

    @property
    def session(self) -> int:
        return self._session

    def _connect(self) -> None:
        former = self.former_session if self.simulation.plan.closes_former_session else None
        sent_ms = self.now_ms()
        life = self.life
        is_answered = False

        def replied(answer: Answer) -> None:
            nonlocal is_answered
            if not is_answered and life == self.life and self.is_up and not self.is_paused:
                is_answered = True
                self._on_connected(answer.number, sent_ms)

        def again() -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                self._connect()

        self.simulation.network.send(self.node_id, TREE, self.simulation.tree.connect, self.node_id, former, replied)
        self.after(REQUEST_TIMEOUT_MS, again)

    def _on_connected(self, session: int, sent_ms: int) -> None:
        self._session = self.former_session = session
        self._extend_lease(sent_ms)
        self._ping(session)
        self._register()

    def _extend_lease(self, sent_ms: int) -> None:
        self._lease_until_ms = max(self._lease_until_ms, sent_ms + SESSION_MS - LEASE_MARGIN_MS)

    def _ping(self, session: int) -> None:
        if session != self._session:
            return
        self._request(self.simulation.tree.ping, lambda answer: None, lambda: None, is_read=True)
        self.after(PING_MS, self._ping, session)

    def _request(
        self,
        work: Callable[[Session], Answer],
        done: Callable[[Answer], None],
        is_lost: Callable[[], None],
        *,
        is_read: bool,
    ) -> None:
        """Send a request in the present session: calls `done` with the answer, or `is_lost` when none came in time."""
        session, life, sent_ms = self._session, self.life, self.now_ms()
        is_over = False

        def replied(answer: Answer) -> None:
            nonlocal is_over
            if life != self.life or not self.is_up:
                return
            if self.is_paused:
                self._deferred.append((replied, (answer,)))
                return
            if session != self._session:
                return
            if answer.is_expired:
                is_over = True
                self._on_session_lost()
                return
            self._extend_lease(sent_ms)
            if not is_over:
                is_over = True
                done(answer)

        def timed_out() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                is_lost()

        tree = self.simulation.tree
        self.simulation.network.send(
            self.node_id, TREE, lambda: tree.on_request(self.node_id, session, work, replied, is_read=is_read)
        )
        self.after(REQUEST_TIMEOUT_MS, timed_out)

    def _on_session_lost(self) -> None:
        """All leadership is given up; another session starts."""
        self.simulation.trace("broker %d: its session is lost", self.node_id)
        self._session = -1
        self._lease_until_ms = 0.0
        self.broker_epoch = NO_EPOCH
        self._is_reading = False
        for partition in self.partitions:
            partition.is_writing = False
            if partition.node is not None:
                partition.on_view(partition.node, self._live, self._min_in_sync)
        if not self.is_stopping:
            self._connect()

    def _register(self) -> None:
        session = self._session
        if session == -1 or self.is_registered():
            return
        tree = self.simulation.tree

        def later() -> None:
            self._register_later(session)

        def register(after: SeenGeneration, version: int) -> None:
            self._request(
                lambda own: tree.register(own, after, version),
                lambda answer: self._on_registered(answer, after),
                later,
                is_read=False,
            )

        if self.simulation.plan.counts_generations:
            self._request(
                tree.read_generation, lambda answer: self._on_generation(answer, register), later, is_read=True
            )
        else:
            self._request(tree.register, self._on_registered, later, is_read=False)

    def _on_generation(self, answer: Answer, write: Callable[[SeenGeneration, int], None]) -> None:
        """Judge the directory, then move its generation and the tree's by `write`."""
        kinds, held = self.simulation.kinds, self.disk.held()
        if kinds.is_stale(held, answer.generation):
            if not self.disk.is_copy:
                raise Violation(f"R5a: the newest directory of broker {self.node_id} is refused: {held}, {answer}")
            self.simulation.trace("broker %d: its directory is stale: %s, %s", self.node_id, held, answer.generation)
            # An operator accepts it.
            self.disk.accept_stale(self._new_directory_id())
            self.after(PING_MS, self._register_later, self._session)
            return
        generation = kinds.next_generation(held, answer.generation)
        if kinds.moves_directory_first:
            self.disk.generation = generation
        write(SeenGeneration(self.disk.directory_id, generation), answer.number)

    def _move_from_time_to_time(self) -> None:
        if self.is_registered():
            tree = self.simulation.tree

            def move(after: SeenGeneration, version: int) -> None:
                self._request(
                    lambda own: tree.move_generation(own, after, version),
                    lambda answer: self._on_moved(answer, after),
                    lambda: None,
                    is_read=False,
                )

            self._request(
                tree.read_generation, lambda answer: self._on_generation(answer, move), lambda: None, is_read=True
            )
        self.after(MOVE_MS, self._move_from_time_to_time)

    def _on_moved(self, answer: Answer, after: SeenGeneration) -> None:
        if answer.is_done:
            self.disk.generation = max(self.disk.generation, after.generation)

    def _register_later(self, session: int) -> None:
        if session == self._session:
            self._register()

    def _on_registered(self, answer: Answer, after: SeenGeneration | None = None) -> None:
        if not answer.is_done:
            # The former session's node is still there.
            self.after(PING_MS, self._register_later, self._session)
            return
        self.broker_epoch = answer.number
        if after is not None:
            self._on_moved(answer, after)
            self.disk.is_copy = False
        if self.disk.complete_from is None:
            # From now on it reports the records of this disk.
            self.disk.complete_from = answer.number
        self.simulation.trace("broker %d: registered with epoch %d", self.node_id, answer.number)
        self._read(is_synced=True)

    def on_watch(self, life: int) -> None:
        if life != self.life or not self.is_up:
            return
        if self.is_paused:
            self._deferred.append((self.on_watch, (life,)))
            return
        if self.is_registered():
            self._read(is_synced=False)

    def _poll(self) -> None:
        if self.is_registered():
            self._read(is_synced=False)
        for partition in self.partitions:
            if partition.replica.role is not Role.LEADER:
                partition.fetch()
        self.after(VIEW_POLL_MS, self._poll)

    def _read(self, *, is_synced: bool) -> None:
        if self._is_reading and not is_synced:
            return
        self._is_reading = True
        tree = self.simulation.tree
        self._request(
            lambda session: tree.read(session, is_synced=is_synced), self._on_read, self._on_read_lost, is_read=True
        )

    def _on_read_lost(self) -> None:
        self._is_reading = False

    def _on_read(self, answer: Answer) -> None:
        self._is_reading = False
        if not self.is_registered():
            return
        self._min_in_sync = answer.min_in_sync
        if self.node_id not in answer.live or answer.live[self.node_id] != self.broker_epoch:
            # The view of the brokers is older than this broker's registration.
            self._live = {**answer.live, self.node_id: self.broker_epoch}
        else:
            self._live = answer.live
        for partition, node in zip(self.partitions, answer.partitions, strict=True):
            partition.on_view(node, self._live, self._min_in_sync)
            self._after_view(partition)

    def _after_view(self, partition: SimulatedPartition) -> None:
        """This broker's writes after it saw a state: itself in or out, an election, a change of the in-sync set."""
        if not self.is_registered() or partition.node is None:
            return
        if self._reaffirm(partition) or self._elect(partition) or self._end_move(partition):
            return
        partition.propose()
        if partition.replica.role is not Role.LEADER:
            partition.fetch()

    def _reaffirm(self, partition: SimulatedPartition) -> bool:
        node = partition.node
        assert node is not None
        own = ReplicaIncarnation(self.node_id, self.broker_epoch)
        members = [member for member in (*node.state.in_sync, *node.state.eligible) if member.node_id == self.node_id]
        holds = self.simulation.kinds.holds
        is_complete = all(member == own or holds(self.disk, member) for member in members)
        is_last = not any(
            member.node_id != self.node_id and member.is_current(self._live)
            for member in (*node.state.in_sync, *node.state.eligible)
        )
        if is_complete and not partition.is_usable:
            if is_last and not self.simulation.plan.allows_unclean:
                # Its records are still there, and no other life is known to have them: the next process will continue.
                return False
            is_complete = False
        after = self.simulation.kinds.reaffirmed(node.state, own, is_complete=is_complete)
        if self.gives_way and is_complete:
            over = node.state if after is None else after
            left = self.simulation.kinds.given_way(
                over, own, self._live, min(self._min_in_sync, node.replicas_count_min)
            )
            after = after if left is None else left
        if after is None:
            return False
        if not after.has_current_leader(self._live):
            topic = self._topic(node._replace(state=after))
            for due in self._due_elections(topic):
                if due.rank == 0 and is_complete and own.node_id == due.change.state.leader:
                    after = due.change.state
        self._write_state(partition, node, after)
        return True

    def _topic(self, node: PartitionNode) -> Topic:
        return Topic("t", self.simulation.topic_id, (node,))

    def _due_elections(self, topic: Topic) -> list[Any]:
        own = ReplicaIncarnation(self.node_id, self.broker_epoch)
        rules = self.simulation.kinds.election_rules(
            self._min_in_sync, allows_unclean=self.simulation.plan.allows_unclean
        )
        return self.simulation.kinds.due(topic, topic.partitions, own, self._live, rules)

    def _elect(self, partition: SimulatedPartition) -> bool:
        node = partition.node
        assert node is not None
        if not partition.is_usable or self.is_stopping:
            return False
        for due in self._due_elections(self._topic(node)):
            if due.rank == 0 or partition.impatient_version == node.state_version:
                self._write_state(partition, node, due.change.state)
                return True
            if partition.patience_version != node.state_version:
                partition.patience_version = node.state_version
                self.after(ELECTION_PATIENCE_MS * due.rank, self._elect_late, partition, node.state_version)
        return False

    def _end_move(self, partition: SimulatedPartition) -> bool:
        """Remove the replicas that must leave, once all others are in sync."""
        node = partition.node
        assert node is not None
        own = ReplicaIncarnation(self.node_id, self.broker_epoch)
        if not node.is_moving or not node.state.is_led_by(own):
            return False
        after = self.simulation.kinds.completed(
            node, self._live, lambda each: min(self._min_in_sync, each.replicas_count_min)
        )
        if after is not None:
            self._write_state(partition, node, after.state, after)
        return after is not None

    def _elect_late(self, partition: SimulatedPartition, version: int) -> None:
        node = partition.node
        if self.is_registered() and node is not None and node.state_version == version:
            partition.impatient_version = version
            self._elect(partition)

    def _write_state(
        self, partition: SimulatedPartition, node: PartitionNode, state: PartitionState, moved: Reassigned | None = None
    ) -> None:
        if partition.is_writing:
            return
        partition.is_writing = True
        self.simulation.trace(
            "broker %d: partition %d writes %s over version %d",
            self.node_id,
            partition.index,
            state,
            node.state_version,
        )
        self.write(partition.index, node.state_version, state, self._on_state_written, partition, moved=moved)

    def _on_state_written(self, outcome: ChangeResult, version: int, partition: SimulatedPartition) -> None:
        partition.is_writing = False

    def write(
        self,
        index: int,
        expected_version: int,
        state: PartitionState,
        outcome: Outcome,
        *context: Any,
        moved: Reassigned | None = None,
    ) -> None:
        """Compare-and-set, then a read that is newer than its outcome."""
        tree, life, session = self.simulation.tree, self.life, self._session

        def done(answer: Answer) -> None:
            if answer.is_done:
                outcome(ChangeResult.APPLIED, answer.number, *context)
                self._on_applied(index, state, answer.number, moved)
            else:
                outcome(ChangeResult.STALE, -1, *context)
                self._read(is_synced=True)

        def is_lost() -> None:
            if life == self.life and session == self._session:
                outcome(ChangeResult.UNKNOWN, -1, *context)
                self._read(is_synced=True)

        self._request(
            lambda session: tree.write(session, index, expected_version, state, moved), done, is_lost, is_read=False
        )

    def _on_applied(self, index: int, state: PartitionState, version: int, moved: Reassigned | None) -> None:
        partition = self.partitions[index]
        if partition.node is not None and version > partition.node.state_version:
            node = partition.node._replace(state=state, state_version=version)
            if moved is not None:
                node = node._replace(replicas=moved.replicas, move=moved.move)
            partition.on_view(node, self._live, self._min_in_sync)
            self._after_view(partition)

    def look_again(self) -> None:
        """A part of this broker's state changed: act on its present view and the new state."""
        for partition in self.partitions:
            if partition.node is not None:
                partition.on_view(partition.node, self._live, self._min_in_sync)
                self._after_view(partition)

    def prefer(self) -> None:
        """Move leadership to the first assigned replicas, where they are in sync."""
        for partition in self.partitions:
            node = partition.node
            if node is not None and self.is_registered():
                after = self.simulation.kinds.preferred(node.replicas, node.state, self._live, self._min_in_sync)
                if after is not None:
                    self._write_state(partition, node, after)

    def shrink(self, node_id: NodeId) -> None:
        """Take a replica out of the in-sync sets, as the leader of each partition would."""
        for partition in self.partitions:
            node = partition.node
            if node is None or not self.is_registered() or node.state.leader == node_id:
                continue
            members = tuple(member for member in node.state.in_sync if member.node_id != node_id)
            if members and members != node.state.in_sync:
                min_in_sync = min(self._min_in_sync, node.replicas_count_min)
                self._write_state(partition, node, node.state.with_in_sync(members, node.replicas, min_in_sync))

    def stop(self) -> None:
        """Move leadership away, then flush and end the session."""
        self.is_stopping = True
        for partition in self.partitions:
            node = partition.node
            if node is None or node.state.leader != self.node_id or not self.is_registered():
                continue
            after = self.simulation.kinds.elected(
                node.replicas, node.state, self._live, self._min_in_sync, excluded={self.node_id}
            )
            if after is not None:
                self._write_state(partition, node, after)
        self.after(self.simulation.chance.random() * 200, self._end_stop)

    def _end_stop(self) -> None:
        for log in self.disk.logs:
            if not self.is_disk_stuck:
                log.flush()
        session = self._session
        self.crash(is_power_cut=False)
        if session != -1:
            self.simulation.network.send(self.node_id, TREE, self.simulation.tree.close, session)
