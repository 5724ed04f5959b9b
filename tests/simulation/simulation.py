"""One run: a cluster under faults, then healed, until it is whole again.  Everything follows from the seed."""

from __future__ import annotations

import hashlib
import random
from typing import Final, NamedTuple
from uuid import UUID

from ottla.coordination.topics_view import PartitionNode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import LeaderEpoch, NodeId
from ottla.model.partition_state import NO_LEADER, PartitionState, ReplicaIncarnation
from ottla.replication.replica import Role
from tests.seeds.search import Violation
from tests.seeds.simulator import Simulator
from tests.simulation.broker import SimulatedBroker
from tests.simulation.checks import Checks
from tests.simulation.faults import Faults
from tests.simulation.kinds import Kinds
from tests.simulation.network import Network
from tests.simulation.partition import ACKS_ALL, ACKS_LEADER
from tests.simulation.plan import Plan
from tests.simulation.producers import Producer
from tests.simulation.scale import CONVERGENCE_MS
from tests.simulation.timeline import Timeline
from tests.simulation.tree import SimulatedTree

CHECK_MS: Final = 250


class Outcome(NamedTuple):
    """The counts of a run."""

    seed: int
    events_count: int
    acknowledged_count: int
    elections_count: int
    # Partitions that no replica may lead, since each one may lack committed records: reported, never served.
    leaderless_count: int
    converged_ms: float
    digest: str


class Simulation:
    """A cluster of brokers, a tree, producers, and faults."""

    def __init__(
        self, seed: int, plan: Plan | None = None, kinds: Kinds | None = None, *, traces: bool = False
    ) -> None:
        self.seed = seed
        self.plan = Plan.of_seed(seed) if plan is None else plan
        self.kinds = Kinds() if kinds is None else kinds
        self.chance = random.Random(seed)
        self.lines: list[str] | None = [] if traces else None
        self.topic_id = UUID(int=seed)
        self.timeline = Timeline()
        self.network = Network(self.timeline, self.chance)
        self.tree = SimulatedTree(self, self.chance)
        self.checks = Checks(self)
        self.brokers = [SimulatedBroker(self, NodeId(number)) for number in range(1, self.plan.brokers_count + 1)]
        self.tree.begin(tuple(self._first_partitions()), {}, self.plan.min_in_sync)
        self.faults = Faults(self)
        self.producers = [
            Producer(self, 3 * index + kind, index, acks, is_idempotent=is_idempotent)
            for index in range(self.plan.partitions_count)
            for kind, (acks, is_idempotent) in enumerate(
                ((ACKS_ALL, True), (ACKS_ALL, False), (ACKS_LEADER, False)), start=1
            )
        ]

    def _first_partitions(self) -> list[PartitionNode]:
        """All brokers made a controlled stop in an earlier life."""
        nodes = [broker.node_id for broker in self.brokers]
        partitions: list[PartitionNode] = []
        for index in range(self.plan.partitions_count):
            turned = nodes[index % len(nodes) :] + nodes[: index % len(nodes)]
            replicas = tuple(turned[: self.plan.replicas_count])
            members = tuple(ReplicaIncarnation(node_id, 0) for node_id in replicas)
            partitions.append(PartitionNode(index, replicas, PartitionState(NO_LEADER, LeaderEpoch(0), members), 0))
        return partitions

    def broker(self, node_id: int) -> SimulatedBroker:
        return self.brokers[node_id - 1]

    def trace(self, text: str, *arguments: object) -> None:
        if self.lines is not None:
            self.lines.append(f"{self.timeline.now:10.1f}  {text % arguments}")

    def run(self) -> Outcome:
        """Raises `Violation`."""
        try:
            return self._run()
        except (AssertionError, LookupError, ValueError, OttlaError) as error:
            raise Violation(f"a part broke: {type(error).__name__}: {error}") from error

    def _run(self) -> Outcome:
        for broker in self.brokers:
            self.timeline.after(self.chance.random() * 50, broker.start)
        for producer in self.producers:
            self.timeline.after(self.chance.random() * 100, producer.send)
        self._check_from_now_on()
        self.timeline.run_until(600)
        self.faults.begin()
        self.timeline.run_until(600 + self.plan.faults_ms)
        self.trace("everything is repaired")
        self.faults.end()
        for producer in self.producers:
            producer.is_stopped = True
        healed_ms = self.timeline.now
        if not self.timeline.run_until(healed_ms + CONVERGENCE_MS, self.is_whole):
            raise Violation(f"P12: not whole {CONVERGENCE_MS} ms after the faults: {self._what_is_open()}")
        converged_ms = self.timeline.now - healed_ms
        self.checks.check_all()
        self.checks.check_answers()
        self.checks.check_end()
        return Outcome(
            self.seed,
            self.timeline.events_count,
            sum(producer.acknowledged_count for producer in self.producers),
            self.checks.elections_count,
            sum(self._is_given_up(partition) for partition in self.tree.now.partitions),
            converged_ms,
            self._digest(),
        )

    def _check_from_now_on(self) -> None:
        self.checks.check_all()
        self.timeline.after(CHECK_MS, self._check_from_now_on)

    def is_whole(self) -> bool:
        return not self._what_is_open()

    def _what_is_open(self) -> str:
        """The first condition that the healed cluster does not meet yet."""
        now = self.tree.now
        if any(broker.broker_epoch != now.live.get(broker.node_id) for broker in self.brokers):
            return "a broker is not registered"
        given_up: set[int] = set()
        for node in now.partitions:
            index, state = node.partition_index, node.state
            if self._is_given_up(node):
                given_up.add(index)
                continue
            if node.is_moving:
                return f"partition {index} is still being moved: {node}"
            if not state.has_current_leader(now.live):
                return f"partition {index} has no leader: {state}"
            if len(state.current_in_sync(now.live)) != len(node.replicas) or state.eligible:
                return f"not every replica of partition {index} is in sync: {state}"
            leader = self.broker(state.leader)
            partition = leader.partitions[index]
            if partition.replica.role is not Role.LEADER:
                return f"broker {state.leader} does not know that it leads partition {index}"
            if partition.replica.high_watermark != partition.log.log_end_offset:
                return f"not all of partition {index} is committed: {partition.replica.high_watermark}"
            for node_id in node.replicas:
                log = self.broker(node_id).disk.logs[index]
                if (
                    log.log_end_offset != partition.log.log_end_offset
                    or -1 != log.last_epoch() != partition.log.last_epoch()
                ):
                    return f"broker {node_id} has another log of partition {index} than its leader"
        for producer in self.producers:
            if producer.index not in given_up and not producer.is_idle:
                return f"a producer of partition {producer.index} waits for {producer.value}"
        if any(partition.has_waiting for broker in self.brokers for partition in broker.partitions):
            return "a request is not answered"
        return ""

    def is_replicated(self) -> bool:
        """Whether every replica of every partition is in sync in its present life, and works."""
        now = self.tree.now
        return all(partition.is_usable for broker in self.brokers for partition in broker.partitions) and all(
            len(node.state.current_in_sync(now.live)) == len(node.replicas)
            and all(self.broker(member.node_id).disk.holds(member.broker_epoch) for member in node.state.in_sync)
            for node in now.partitions
        )

    def _is_given_up(self, node: PartitionNode) -> bool:
        """No replica is known to hold every committed record: only an operator may choose one."""
        if not self.plan.may_lose_disks or self.plan.allows_unclean or node.state.in_sync or node.state.eligible:
            return False
        return not self.plan.bounds_losses or self._allowed_one_in_sync()

    def _allowed_one_in_sync(self) -> bool:
        """Whether `min.insync.replicas` was 1 at any time.

        The in-sync set may then shrink to a member that has just lost its records and is still registered, and a
        member that leaves is not eligible: one loss is enough (P3' allows one less than the minimum).
        """
        return any(view.min_in_sync == 1 for view in self.tree.history)

    def _digest(self) -> str:
        """A hash that is equal for equal runs: of the final state, and of the trace when there is one."""
        content = repr(
            (
                self.timeline.events_count,
                self.timeline.now,
                [[(log.epochs, log.records) for log in broker.disk.logs] for broker in self.brokers],
                self.tree.now,
                self.lines,
            )
        )
        return hashlib.sha256(content.encode()).hexdigest()[:16]


SIMULATOR: Final = Simulator[Plan]("./dev sim", Simulation, Plan.of_seed)
