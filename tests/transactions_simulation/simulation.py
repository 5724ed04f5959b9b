"""One run: producers, a coordinator and partitions under faults, then without; the seed decides all."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.transactions.commands import IdCommand
from ottla.transactions.settings import TransactionSettings
from ottla.transactions.transaction import Transaction, TransactionState
from ottla.transactions.transaction_records import transaction_record
from tests.seeds.search import Violation
from tests.seeds.simulator import Simulator
from tests.simulation.timeline import Timeline
from tests.transactions_simulation.checks import Checks
from tests.transactions_simulation.coordinator import START_WALL_MS, CoordinatorPartition
from tests.transactions_simulation.offsets_partition import OffsetsPartition
from tests.transactions_simulation.partition import DataPartition
from tests.transactions_simulation.plan import FAULTS_MS, Plan
from tests.transactions_simulation.producer import Deliver, SimulatedProducer

DELAY_MS: Final = 6
LATE_MS: Final = 3_000
# Of the answer to a partition's leader.
SLOW_MS: Final = 1_000
# After the faults: what was late has arrived, then producers have time for some transactions.
HEALED_MS: Final = LATE_MS + 5_000
# T7: within the longest time-out of a transaction and this.
SETTLED_MS: Final = 70_000


# Between two offsets that an operator sets, at most; the first of them.
OPERATION_MS: Final = 300
OPERATED: Final = 1_000_000


class Outcome(NamedTuple):
    """What a run did."""

    seed: int
    events_count: int
    transactions_count: int
    committed_count: int
    calls_count: int
    digest: str


class Simulation:
    def __init__(self, seed: int, plan: Plan | None = None, *, traces: bool = False) -> None:
        self.seed = seed
        self.plan = Plan.of_seed(seed) if plan is None else plan
        self.chance = random.Random(seed)
        self.lines: list[str] | None = [] if traces else None
        self.timeline = Timeline()
        self.settings = TransactionSettings()
        self.checks = Checks(self)
        self._is_over = self._is_settling = False
        self._connections_count = 0
        self._next_producer_id = 1_000
        self._operations_count = 0
        self.partitions: dict[TopicPartition, DataPartition] = {
            name: DataPartition(self, name)
            for name in (TopicPartition("t", number) for number in range(self.plan.partitions_count))
        }
        self.data_partitions = list(self.partitions)
        self.offsets = OffsetsPartition(self) if self.plan.commits_offsets else None
        if self.offsets is not None:
            self.partitions[self.offsets.name] = self.offsets
            self._operate(self.offsets)
        self.coordinator = CoordinatorPartition(self)
        self._names = [f"tx{number}" for number in range(self.plan.ids_count)]
        if self.plan.first_epoch:
            self._start_near_the_last_epoch()
        self.producers = {name: SimulatedProducer(self, name) for name in self._names}
        self.all_producers = list(self.producers.values())

    def trace(self, text: str, *arguments: object) -> None:
        if self.lines is not None:
            self.lines.append(f"{self.timeline.now:10.1f}  {text % arguments}")

    def draws(self, share: float) -> bool:
        return not self._is_over and share > 0 and self.chance.random() < share

    @property
    def may_be_fenced(self) -> bool:
        """Whether another producer may take an id over, or an init that another one sent long before."""
        return bool({"take_over", "lost_requests"} & set(self.plan.fault_kinds))

    def stalls(self) -> bool:
        return "stall" in self.plan.fault_kinds and self.draws(0.05)

    def new_producer_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id

    def next_connection(self) -> int:
        """Its place in the order in which brokers accept connections."""
        self._connections_count += 1
        return self._connections_count

    def _start_near_the_last_epoch(self) -> None:
        serving = self.coordinator.serving
        for name in self._names:
            transaction = Transaction(
                self.new_producer_id(),
                self.plan.first_epoch,
                self.plan.timeout_ms,
                TransactionState.EMPTY,
                updated_ms=START_WALL_MS,
            )
            record = transaction_record(name, transaction)
            serving.records.append(record)
            serving.shard.replay(*record)
        serving.shard.loaded(self.coordinator.moment, len(serving.records))
        self.coordinator.replicate(serving)

    def _operate(self, offsets: OffsetsPartition) -> None:
        """An operator sets an offset now and then, also while transactions are open."""
        self._operations_count += 1
        offsets.commit_plain(OPERATED + self._operations_count)
        if not self._is_over:
            self.timeline.after(self.chance.random() * OPERATION_MS, self._operate, offsets)

    def send(self, deliver: Deliver, on_answer: Callable[[Any], None], *, late_ms: float) -> None:
        """A request and its answer, each of which may be lost; a lost request may arrive within `late_ms`."""
        answers_count = 0

        def answer(found: Any) -> None:
            nonlocal answers_count
            answers_count += 1
            if answers_count > 1:
                raise Violation("T13: a call has two answers")
            if not ("lost_answers" in self.plan.fault_kinds and self.draws(self.plan.lost_share)):
                self.timeline.after(self.chance.random() * DELAY_MS, on_answer, found)

        self.checks.calls_count += 1
        if "lost_requests" in self.plan.fault_kinds and self.draws(self.plan.lost_share):
            if late_ms:
                self.timeline.after(self.chance.random() * late_ms, deliver, lambda found: None)
            return
        self.timeline.after(self.chance.random() * DELAY_MS, deliver, answer)

    def to_coordinator(self, command: IdCommand) -> Deliver:
        # Where the epoch stays, nothing in a request says of which transaction it is, and the order of connections is
        # that of one broker (docs/decisions/0018-late-ends-and-moved-coordinators.md).
        addressed = None if self.plan.advances_epoch else self.coordinator.serving
        return lambda answer: self.coordinator.submit(command, answer, addressed)

    def query_coordinator(self, command: IdCommand, on_answer: Callable[[ErrorCode | None], None]) -> None:
        """A partition leader's question, which has its answer, or None after a time."""
        answers: list[object] = []
        slow_ms = self.chance.random() * SLOW_MS if "lost_requests" in self.plan.fault_kinds and self.draws(0.1) else 0

        def once(found: ErrorCode | None) -> None:
            if not answers:
                answers.append(found)
                on_answer(found)

        self.send(
            self.to_coordinator(command), lambda found: self.timeline.after(slow_ms, once, found), late_ms=LATE_MS
        )
        self.timeline.after(1_200, once, None)

    def run(self) -> Outcome:
        """Raises `Violation`."""
        try:
            return self._run()
        except (AssertionError, LookupError, ValueError, OttlaError) as error:
            raise Violation(f"a part broke: {type(error).__name__}: {error}") from error

    def _run(self) -> Outcome:
        self._next_fault()
        self.timeline.run_until(FAULTS_MS)
        self._is_over = True
        self.trace("everything is repaired")
        for partition in self.partitions.values():
            partition.elect()
        if self.coordinator.zombie is not None:
            self.coordinator.zombie.stop()
        self.coordinator.resume(self.coordinator.serving)
        self.timeline.run_until(FAULTS_MS + LATE_MS)
        commits = {name: producer.commits_count for name, producer in self.producers.items()}
        self.timeline.run_until(FAULTS_MS + HEALED_MS)
        for name, producer in self.producers.items():
            if producer.commits_count == commits[name]:
                raise Violation(f"T7: {name} commits nothing, although nothing fails any more")
            producer.stop()
        self.timeline.run_until(FAULTS_MS + HEALED_MS + self.plan.timeout_ms + SETTLED_MS)
        self.checks.at_end()
        attempted = self.checks.attempted
        return Outcome(
            self.seed,
            self.timeline.events_count,
            len(attempted),
            sum(each.answered is True for each in attempted),
            self.checks.calls_count,
            self._digest(),
        )

    def _next_fault(self) -> None:
        if self.plan.fault_kinds and not self._is_over:
            self.timeline.after(self.chance.expovariate(1 / self.plan.fault_interval_ms), self._strike)

    def _strike(self) -> None:
        if self._is_over:
            return
        kind = self.chance.choice(self.plan.fault_kinds)
        if kind == "move_coordinator":
            self.coordinator.move()
        elif kind == "suspend_coordinator":
            self.coordinator.suspend()
        elif kind == "move_leader":
            self.partitions[self.chance.choice(list(self.partitions))].lose_leader()
        elif kind == "take_over" and self.chance.random() < 0.3:
            name = self.chance.choice(self._names)
            self.trace("another producer takes %s over", name)
            self.producers[name].is_replaced = True
            self.producers[name] = SimulatedProducer(self, name)
            self.all_producers.append(self.producers[name])
        self._next_fault()

    def _digest(self) -> str:
        """Equal for equal runs."""
        logs = [[entry.content for entry in found.entries] for found in self.partitions.values()]
        content = repr((self.timeline.events_count, self.timeline.now, logs, self.lines))
        return hashlib.sha256(content.encode()).hexdigest()[:16]


SIMULATOR: Final = Simulator[Plan]("./dev sim --transactions", Simulation, Plan.of_seed)
