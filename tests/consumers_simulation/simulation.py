"""One run: a group under faults, then healed, until all is owned, read and committed.  The seed determines all."""

from __future__ import annotations

import hashlib
import random
from typing import Final, NamedTuple

from ottla.consumers.share import GroupView, share
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from tests.consumers_simulation.checks import Checks
from tests.consumers_simulation.consumer import SimulatedConsumer
from tests.consumers_simulation.faults import Faults
from tests.consumers_simulation.plan import Plan
from tests.consumers_simulation.scale import CONVERGENCE_MS, QUIET_MS, SEND_MS
from tests.consumers_simulation.tree import SimulatedTree
from tests.seeds.search import Violation
from tests.seeds.simulator import Simulator
from tests.simulation.timeline import Timeline

TOPICS: Final = ("orders", "views")
# After the first consumers have started.
FAULTS_BEGIN_MS: Final = 600


class Outcome(NamedTuple):
    """The counts of a run."""

    seed: int
    events_count: int
    handed_out_count: int
    claims_count: int
    settled_count: int
    blocked_count: int
    converged_ms: float
    digest: str


class Simulation:
    """One group of consumers, a tree, logs that grow, and faults."""

    def __init__(self, seed: int, plan: Plan | None = None, *, traces: bool = False) -> None:
        self.seed = seed
        self.plan = Plan.of_seed(seed) if plan is None else plan
        self.chance = random.Random(seed)
        self.lines: list[str] | None = [] if traces else None
        self.timeline = Timeline()
        self.tree = SimulatedTree(self, self.chance)
        self.checks = Checks(self)
        self.consumers: list[SimulatedConsumer] = []
        self.faults = Faults(self)
        self.log_ends: dict[TopicPartition, int] = {}
        self.lost_answers = 0.0
        self.settled_count = self.blocked_count = 0
        self._is_over = False
        for topic, count in zip(TOPICS, self.plan.partitions_counts, strict=False):
            self.add_partitions(topic, count)

    def trace(self, text: str, *arguments: object) -> None:
        if self.lines is not None:
            self.lines.append(f"{self.timeline.now:10.1f}  {text % arguments}")

    def add_partitions(self, topic: str, count: int) -> None:
        for partition in range(count):
            self.log_ends.setdefault(TopicPartition(topic, partition), 0)
        self.tree.add_partitions(topic, count)

    def start_consumer(self) -> None:
        topics = {topic: self.chance.choice((1, 1, 2)) for topic in self.tree.partitions_counts}
        if len(topics) > 1 and self.chance.random() < 0.3:
            del topics[self.chance.choice(sorted(topics))]
        consumer = SimulatedConsumer(self, len(self.consumers) + 1, topics)
        self.consumers.append(consumer)
        consumer.start()

    def run(self) -> Outcome:
        """Raises `Violation`."""
        try:
            return self._run()
        except (AssertionError, LookupError, ValueError, OttlaError) as error:
            raise Violation(f"a part broke: {type(error).__name__}: {error}") from error

    def _run(self) -> Outcome:
        for _ in range(self.plan.consumers_count):
            self.timeline.after(self.chance.random() * self.plan.start_ms, self.start_consumer)
        self._produce()
        self.timeline.run_until(FAULTS_BEGIN_MS)
        self.faults.begin()
        self.timeline.run_until(FAULTS_BEGIN_MS + self.plan.faults_ms)
        self.trace("everything is repaired")
        self.faults.end()
        self._is_over = True
        healed_ms = self.timeline.now
        if not self.timeline.run_until(healed_ms + CONVERGENCE_MS, lambda: not self._what_is_open()):
            raise Violation(f"G6: {CONVERGENCE_MS} ms after the faults: {self._what_is_open()}")
        return Outcome(
            self.seed,
            self.timeline.events_count,
            self.checks.handed_out_count,
            self.checks.claims_count,
            self.settled_count,
            self.blocked_count,
            self.timeline.now - healed_ms,
            self._digest(),
        )

    def _produce(self) -> None:
        """Half of the partitions get a last message after the faults: their owners have something to commit."""
        quiet_ms = FAULTS_BEGIN_MS + self.plan.faults_ms - QUIET_MS
        if self._is_over or self.timeline.now < quiet_ms:
            for partition in self.log_ends:
                self.log_ends[partition] += self.chance.randrange(2 if self._is_over else 3)
        if not self._is_over:
            self.timeline.after(SEND_MS, self._produce)

    def _what_is_open(self) -> str:
        """The first condition that the healed group does not meet yet."""
        running = {each.consumer_id: each for each in self.consumers if each.is_up}
        registered = self.tree.consumers.keys()
        if running.keys() != registered:
            return f"{sorted(running)} run, {sorted(registered)} are registered"
        view = GroupView({name: each.topics for name, each in running.items()}, self.tree.partitions_counts)
        for topic, count in view.partitions_counts.items():
            for index, stream in share(count, view.streams_of(topic)).items():
                partition = TopicPartition(topic, index)
                owner = self.tree.owners.get(partition)
                if owner is None or owner.stream != stream:
                    return f"{partition} must be owned by {stream}, not by {owner}"
                if not running[stream.consumer_id].may_hand_out(partition):
                    return f"{stream} does not hand out {partition}"
                end, asked_end = self.log_ends[partition], self.checks.asked_end[partition]
                if asked_end < end:
                    return f"of {partition} {asked_end} messages of {end} were handed out and asked past"
                offset = self.tree.offsets[partition].offset
                if end and offset != end:
                    return f"of {partition} {offset} is committed, not {end}"
        return next((f"{name} is not settled" for name, each in running.items() if not each.consumer.is_settled), "")

    def _digest(self) -> str:
        """A hash that is equal for equal runs: of the final state, and of the trace when there is one."""
        content = repr((self.timeline.events_count, self.timeline.now, self.tree.owners, self.tree.offsets, self.lines))
        return hashlib.sha256(content.encode()).hexdigest()[:16]


SIMULATOR: Final = Simulator[Plan]("./dev sim --consumers", Simulation, Plan.of_seed)
