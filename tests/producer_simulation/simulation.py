"""One run: a user that sends, under faults, then without; the seed decides all."""

from __future__ import annotations

import hashlib
import random
from typing import Final, NamedTuple

from ottla.client.producing.produce_requests import BatchResult, DeliveryStatus
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from tests.producer_simulation.checks import Checks, Sent
from tests.producer_simulation.cluster import NOBODY, SimulatedPartition
from tests.producer_simulation.link import NOTICE_MS
from tests.producer_simulation.plan import FAULTS_MS, Plan
from tests.producer_simulation.producer import REQUEST_MS, SimulatedProducer
from tests.seeds.search import Violation
from tests.seeds.simulator import Simulator
from tests.simulation.timeline import Timeline

# Of unsettled batches: the user waits then.
OPEN_MAX: Final = 30
LEADERLESS_MS: Final = 400
LAG_MS: Final = 300
# After the faults: one request that hangs still, a pause, and a request more.
HEALED_MS: Final = 3 * REQUEST_MS


class Outcome(NamedTuple):
    """What a run did."""

    seed: int
    events_count: int
    batches_count: int
    acknowledged_count: int
    requests_count: int
    stops_count: int
    # Batches whose content was refused after a broker had answered that it does not lead.
    refused_after_moves_count: int
    digest: str


class Simulation:
    """One user with a producer, brokers, and what goes wrong."""

    # A batch in flight when its time is over is settled by its answer, or when that is overdue.
    settle_slack_ms: Final = 2 * REQUEST_MS

    def __init__(self, seed: int, plan: Plan | None = None, *, traces: bool = False) -> None:
        self.seed = seed
        self.plan = Plan.of_seed(seed) if plan is None else plan
        self.chance = random.Random(seed)
        self.lines: list[str] | None = [] if traces else None
        self.timeline = Timeline()
        self.checks = Checks(self)
        self.partitions = {
            partition: SimulatedPartition(self, partition, self.chance.randrange(self.plan.brokers_count))
            for partition in (TopicPartition("t", number) for number in range(self.plan.partitions_count))
        }
        self.stops_count = self._runs_count = 0
        self._runs: dict[TopicPartition, int] = dict.fromkeys(self.partitions, 0)
        self._halted: set[TopicPartition] = set()
        self._producers_count = 0
        self._is_over = False
        # What metadata that lags said at the time.
        self._known_leaders = {each: found.leader for each, found in self.partitions.items()}
        self.producer = self._new_producer()

    def trace(self, text: str, *arguments: object) -> None:
        if self.lines is not None:
            self.lines.append(f"{self.timeline.now:10.1f}  {text % arguments}")

    def draws(self, share: float) -> bool:
        return not self._is_over and share > 0 and self.chance.random() < share

    def leaders(self) -> dict[TopicPartition, int]:
        """The answer to a request for metadata."""
        now = {each: found.leader for each, found in self.partitions.items()}
        if "lagging_metadata" in self.plan.fault_kinds and not self._is_over and self.chance.random() < 0.5:
            return dict(self._known_leaders)
        return now

    def run(self) -> Outcome:
        """Raises `Violation`."""
        try:
            return self._run()
        except (AssertionError, LookupError, ValueError, OttlaError) as error:
            raise Violation(f"a part broke: {type(error).__name__}: {error}") from error

    def _run(self) -> Outcome:
        self._send()
        self._next_fault()
        self.timeline.run_until(FAULTS_MS)
        self._is_over = True
        self.trace("everything is repaired")
        for found in self.partitions.values():
            if found.leader == NOBODY:
                found.move(self.chance.randrange(self.plan.brokers_count))
        for link in self.producer.links.values():
            # The others are given up when their request is overdue.
            link.is_hanging = link.is_hanging and link.waiting_count > 0
        end_ms = FAULTS_MS + self.plan.delivery_timeout_ms + self.settle_slack_ms + HEALED_MS
        self.timeline.run_until(FAULTS_MS + HEALED_MS)
        last = [self._send_to(each, ("last",)) for each in self.partitions]
        self.timeline.run_until(end_ms + HEALED_MS)
        self.checks.at_end()
        for sent in last:
            if sent.settled[DeliveryStatus.ACKNOWLEDGED] != 1:
                raise Violation(f"P7: {sent.values} is not acknowledged, although nothing fails any more")
        return Outcome(
            self.seed,
            self.timeline.events_count,
            len(self.checks.sent),
            self.checks.acknowledged_count,
            self.checks.requests_count,
            self.stops_count,
            self.checks.refused_after_moves_count,
            self._digest(),
        )

    def _new_producer(self) -> SimulatedProducer:
        self._producers_count += 1
        return SimulatedProducer(self, 1000 + self._producers_count)

    def _send(self) -> None:
        if self._is_over:
            return
        if sum(self.checks.open_counts.values()) < OPEN_MAX:
            marks = []
            for _ in range(self.chance.choice((1, 1, 2, 3, 5))):
                draw = self.chance.random()
                is_poison = draw < self.plan.poison_share
                is_large = draw > 1 - self.plan.large_share
                marks.append("poison" if is_poison else "large" if is_large else "")
            self._send_to(self.chance.choice(list(self.partitions)), tuple(marks))
        self.timeline.after(self.chance.expovariate(1 / self.plan.send_interval_ms), self._send)

    def _send_to(self, partition: TopicPartition, marks: tuple[str, ...]) -> Sent:
        number = len(self.checks.sent)
        values = tuple(f"{number}.{at}{mark}" for at, mark in enumerate(marks))
        run = (self.producer.producer_id, self._runs[partition])
        sent = Sent(partition, values, self.timeline.now, run)
        self.checks.on_sent(sent)
        self.trace("send %s to %s", values, partition)
        self.producer.send(partition, values)
        return sent

    def on_result(self, producer: SimulatedProducer, result: BatchResult) -> None:
        self.trace("result of %s: %s at %d, %s", result.tag, result.status.name, result.base_offset, result.error)
        self.checks.on_result(result)
        if producer is self.producer and producer.is_stopped:
            self.trace("the producer has stopped: %s", producer.machine.stopped)
            self.stops_count += 1
            self._halted.clear()
            self.producer = self._new_producer()
        elif self.plan.halts_on_refusal and result.status is DeliveryStatus.REFUSED:
            self._halted.add(result.partition)
            self.timeline.after(0, self._resume, producer, result.partition)

    def _resume(self, producer: SimulatedProducer, partition: TopicPartition) -> None:
        """The user sends again to a partition that has halted, when all before is settled."""
        if producer is not self.producer or producer.is_stopped or partition not in self._halted:
            return
        if self.checks.open_counts[partition]:
            self.timeline.after(5, self._resume, producer, partition)
            return
        self._halted.discard(partition)
        self._runs[partition] += 1
        producer.machine.resume(partition)

    def _next_fault(self) -> None:
        if self.plan.fault_kinds and not self._is_over:
            delay_ms = self.chance.expovariate(1 / self.plan.fault_interval_ms)
            self.timeline.after(delay_ms, self._strike)

    def _strike(self) -> None:
        if self._is_over:
            return
        kind = self.chance.choice(self.plan.fault_kinds)
        partition = self.partitions[self.chance.choice(list(self.partitions))]
        links = list(self.producer.links.values())
        if kind in {"cut", "late_requests"} and links:
            link = self.chance.choice(links)
            self.trace("the connection to broker %d is cut", link.broker)
            link.cut()
            self.timeline.after(self.chance.random() * NOTICE_MS, self.producer.on_cut, link)
        elif kind == "hang" and links:
            self.chance.choice(links).is_hanging = True
        elif kind in {"move_leader", "lagging_metadata"}:
            self._known_leaders = {each: found.leader for each, found in self.partitions.items()}
            partition.move(self.chance.randrange(self.plan.brokers_count))
        elif kind == "leaderless" and partition.leader != NOBODY:
            partition.move(NOBODY)
            self.timeline.after(self.chance.random() * LEADERLESS_MS, self._elect, partition)
        self._next_fault()

    def _elect(self, partition: SimulatedPartition) -> None:
        if partition.leader == NOBODY:
            partition.move(self.chance.randrange(self.plan.brokers_count))

    def _digest(self) -> str:
        """Equal for equal runs."""
        logs = [found.values() for found in self.partitions.values()]
        content = repr((self.timeline.events_count, self.timeline.now, logs, self.lines))
        return hashlib.sha256(content.encode()).hexdigest()[:16]


SIMULATOR: Final = Simulator[Plan]("./dev sim --producer", Simulation, Plan.of_seed)
