"""The invariants after each step: I1 to I12 of docs/replication.md, checked on the state that the step touched.

`committed`: all that any leader's high watermark ever covered: it may be read, and producers got acknowledgements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordination.topics_view import PartitionNode
from ottla.model.partition_state import NO_LEADER, ReplicaIncarnation
from ottla.replication.replica import Role
from tests.seeds.search import Violation
from tests.simulation.partition import ACKS_ALL, SimulatedPartition, Waiting
from tests.simulation.values import PartitionLog, Value

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class Checks:
    """The observed acknowledgements and commits of a run."""

    def __init__(self, simulation: Simulation) -> None:
        count = simulation.plan.partitions_count
        self._simulation = simulation
        # After an unclean election the log may contradict committed records: the user has chosen that.
        self._is_clean = not simulation.plan.allows_unclean
        self.committed: list[list[Value]] = [[] for _ in range(count)]
        self.acknowledged: list[dict[Value, int]] = [{} for _ in range(count)]
        self._names: dict[tuple[int, int, int], Value] = {}
        self._leaders: dict[tuple[int, int], tuple[int, int]] = {}
        self._requests = self._answers = self._unanswered = 0
        self.elections_count = 0

    def on_tree_state(self, before: PartitionNode, after: PartitionNode, writer: int) -> None:
        state = after.state
        if state.leader != NO_LEADER and state.leader not in state.in_sync_nodes():
            raise Violation(f"I3: the leader of {after} is not in sync")
        if state.leader_epoch < before.state.leader_epoch:
            raise Violation(f"I9: the leader epoch fell from {before.state} to {state}, by {writer}")
        if state.leader not in (before.state.leader, NO_LEADER) and state.leader_epoch == before.state.leader_epoch:
            raise Violation(f"I9: two leaders in epoch {state.leader_epoch}: {before.state} and {state}, by {writer}")
        if not self._is_clean:
            return
        known = (*before.state.in_sync, *before.state.eligible)
        for member in (*state.in_sync, *state.eligible):
            if member not in known:
                self._check_member(after.partition_index, member, 0, f"joined by a write of {writer}")

    def on_leader(self, partition: SimulatedPartition) -> None:
        broker, index, log = partition.broker, partition.index, partition.log
        epoch = partition.replica.leader_epoch
        self.elections_count += 1
        leader = (broker.node_id, broker.broker_epoch)
        if self._leaders.setdefault((index, epoch), leader) != leader:
            raise Violation(f"I9: {leader} leads in epoch {epoch} of {self._leaders[index, epoch]}")
        # A replica that learns late of its election does not lead when another was elected meanwhile.
        is_over = self._simulation.tree.now.partitions[index].state.leader_epoch > epoch
        if self._is_clean and not is_over:
            self._check_log(index, log, 0, f"I11: broker {broker.node_id} leads in epoch {epoch}")

    def on_append(self, partition: SimulatedPartition, offset: int) -> None:
        value = partition.log.record(offset)
        key = (partition.index, partition.replica.leader_epoch, offset)
        if self._names.setdefault(key, value) != value:
            raise Violation(f"I6: {key} names {self._names[key]} and {value}, at broker {partition.broker.node_id}")

    def on_high_watermark(self, partition: SimulatedPartition) -> None:
        replica, log, index = partition.replica, partition.log, partition.index
        high_watermark = replica.high_watermark
        if not log.log_start_offset <= high_watermark <= log.stable_end:
            raise Violation(f"I5: high watermark {high_watermark} of broker {partition.broker.node_id}")
        if not self._is_clean or high_watermark == partition.checked_end:
            return
        committed = self.committed[index]
        begin, partition.checked_end = partition.checked_end, high_watermark
        if high_watermark > len(committed):
            if replica.role is not Role.LEADER:
                raise Violation(f"I5: a follower's high watermark {high_watermark} is above {len(committed)}")
            former_end = len(committed)
            if log.log_start_offset > former_end:
                raise Violation(f"I5: the log starts at {log.log_start_offset}, {former_end} records are committed")
            committed += log.records[former_end - log.log_start_offset : high_watermark - log.log_start_offset]
            state = self._simulation.tree.now.partitions[index].state
            for member in (*state.in_sync, *state.eligible):
                self._check_member(index, member, former_end, f"committed by broker {partition.broker.node_id}")
            if begin < former_end:
                self._check_log(index, log, begin, "P5: shown", former_end)
        elif begin < high_watermark:
            self._check_log(index, log, begin, f"P5: shown by broker {partition.broker.node_id}", high_watermark)

    def on_truncated(self, partition: SimulatedPartition, end_offset: int, high_watermark: int) -> None:
        log = partition.log
        self._simulation.trace(
            "broker %d: partition %d is cut from %d to %d",
            partition.broker.node_id,
            partition.index,
            end_offset,
            log.log_end_offset,
        )
        if self._is_clean and log.log_end_offset < high_watermark:
            raise Violation(
                f"I8: broker {partition.broker.node_id} cut to {log.log_end_offset} below its high watermark"
                f" {high_watermark}"
            )

    def on_acknowledged(self, partition: SimulatedPartition, waiting: Waiting) -> None:
        index, value, offset = partition.index, waiting.send.value, waiting.offset
        if self._simulation.tree.has_ended(partition.broker.session):
            raise Violation(f"S12: broker {partition.broker.node_id} acknowledged after its session had ended")
        if waiting.send.acks != ACKS_ALL or not self._is_clean:
            return
        committed = self.committed[index]
        if offset >= len(committed) or committed[offset] != value:
            raise Violation(f"P3: {value} was acknowledged at {offset}, which is not committed")
        first = self.acknowledged[index].setdefault(value, offset)
        # Retention may have deleted the first one, which a replica that started later never had.
        if first != offset and first >= partition.log.log_start_offset:
            raise Violation(f"P10: {value} was acknowledged at {first} and at {offset}")

    def on_request(self) -> None:
        self._requests += 1

    def on_answer(self) -> None:
        self._answers += 1

    def on_unanswered(self, count: int) -> None:
        """The process ended, and its connections with it."""
        self._unanswered += count

    def check_all(self) -> None:
        """I2, I7 and the invariants of each part; checked a few times in each run."""
        for broker in self._simulation.brokers:
            for log in broker.disk.logs:
                log.check_invariants()
            for partition in broker.partitions:
                partition.replica.check_invariants()
        for index in range(self._simulation.plan.partitions_count):
            logs = [broker.disk.logs[index] for broker in self._simulation.brokers]
            for position, log in enumerate(logs):
                for other in logs[:position]:
                    self._check_matching(index, log, other)

    def _check_matching(self, index: int, log: PartitionLog, other: PartitionLog) -> None:
        """Two logs that have a record under the same epoch and offset are equal up to it (I2)."""
        starts = dict(other.epochs)
        begin = max(log.log_start_offset, other.log_start_offset)
        for epoch, start in reversed(log.epochs):
            if epoch not in starts:
                continue
            if start > begin and starts[epoch] > begin and starts[epoch] != start:
                raise Violation(f"I2: epoch {epoch} of partition {index} begins at {start} and at {starts[epoch]}")
            ends = [each.epoch_end_offset(epoch)[1] for each in (log, other)]
            end = min(*ends, log.log_end_offset, other.log_end_offset)
            if end <= begin:
                continue
            left = log.records[begin - log.log_start_offset : end - log.log_start_offset]
            right = other.records[begin - other.log_start_offset : end - other.log_start_offset]
            if left != right:
                raise Violation(f"I2: two logs of partition {index} differ below {end}, where both have epoch {epoch}")
            return

    def check_answers(self) -> None:
        if self._requests != self._answers + self._unanswered:
            raise Violation(f"I12: {self._requests} requests, {self._answers} answers, {self._unanswered} cut off")

    def check_end(self) -> None:
        """After convergence: each acknowledged value is stored once."""
        for index, acknowledged in enumerate(self.acknowledged):
            state = self._simulation.tree.now.partitions[index].state
            if state.leader == NO_LEADER or not self._is_clean:
                continue
            log = self._simulation.broker(state.leader).disk.logs[index]
            for value, offset in acknowledged.items():
                if offset >= log.log_start_offset and (offset >= log.log_end_offset or log.record(offset) != value):
                    raise Violation(f"P3: {value}, acknowledged at {offset}, is lost")
            if len(set(log.records)) != len(log.records):
                raise Violation(f"P10: partition {index} has a value twice")

    def _check_member(self, index: int, member: ReplicaIncarnation, begin: int, why: str) -> None:
        """A member of the in-sync or eligible set holds all that is committed, unless its disk is known not to (I1)."""
        disk = self._simulation.broker(member.node_id).disk
        if disk.holds(member.broker_epoch):
            self._check_log(index, disk.logs[index], begin, f"I1: {member}, {why}")

    def _check_log(self, index: int, log: PartitionLog, begin: int, why: str, end: int | None = None) -> None:
        """The log has the committed records from `begin` to `end`, except those that retention deleted."""
        committed = self.committed[index]
        end = len(committed) if end is None else end
        begin = max(begin, log.log_start_offset)
        found = log.records[begin - log.log_start_offset : max(end, begin) - log.log_start_offset]
        expected = committed[begin : max(end, begin)]
        if found != expected:
            place = next((k for k, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]), None)
            offset = begin + (len(found) if place is None else place)
            raise Violation(f"{why}: partition {index} lacks the committed record {offset} of {end}")
