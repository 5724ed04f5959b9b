"""What must hold after each step and at the end of a run: P1 to P8 of docs/producer.md."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.client.producing.produce_machine import ProduceFlight
from ottla.client.producing.produce_requests import BatchResult, DeliveryStatus
from ottla.model.identifiers import TopicPartition
from tests.seeds.search import Violation

if TYPE_CHECKING:
    from tests.producer_simulation.link import Answers
    from tests.producer_simulation.producer import SimulatedProducer
    from tests.producer_simulation.simulation import Simulation


@dataclass(eq=False)
class Sent:
    """A batch of the user, and what became of its records."""

    partition: TopicPartition
    values: tuple[str, ...]
    sent_ms: float
    # Batches of one producer and one run between two halts are stored without a gap.
    run: tuple[int, int]
    settled: Counter[DeliveryStatus] = field(default_factory=Counter)

    @property
    def open_count(self) -> int:
        """The records without a result."""
        return len(self.values) - self.settled.total()


class Checks:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.sent: dict[tuple[str, ...], Sent] = {}
        self.open_counts: defaultdict[TopicPartition, int] = defaultdict(int)
        self.acknowledged_count = self.requests_count = self.refused_after_moves_count = 0

    def on_sent(self, sent: Sent) -> None:
        self.sent[sent.values] = sent
        self.open_counts[sent.partition] += 1

    def on_request(self, producer: SimulatedProducer, leader: int, flight: ProduceFlight) -> None:
        self.requests_count += 1
        plan = self._simulation.plan
        partitions = [batch.partition for batch in flight.batches]
        if len(set(partitions)) != len(partitions):
            raise Violation(f"P6: a request has two batches of one partition: {partitions}")
        size_bytes = sum(len(batch.batch) for batch in flight.batches)
        if len(flight.batches) > 1 and size_bytes > plan.request_bytes_max:
            raise Violation(f"P6: a request of {size_bytes} bytes, at most {plan.request_bytes_max} are allowed")
        link = producer.links[leader]
        if link.waiting_count >= plan.max_in_flight:
            raise Violation(f"P6: {link.waiting_count + 1} requests are in flight to broker {leader}")

    def on_answer(self, producer: SimulatedProducer, flight: ProduceFlight, answers: Answers) -> None:
        for batch in producer.refused_content(flight, answers):
            self.refused_after_moves_count += batch in producer.not_led and batch not in producer.unanswered
            stopped = producer.machine.stopped
            if stopped is None or stopped.__cause__ is not answers[batch.partition].error:
                continue
            of_partition = [each for each in producer.unanswered if each.partition == batch.partition]
            if self._simulation.plan.halts_on_refusal:
                # All of the partition would be refused, but these may be stored.
                of_partition += [
                    each for each in producer.not_led if each.partition == batch.partition and each.order < batch.order
                ]
                is_explained = bool(of_partition)
            else:
                is_explained = batch in of_partition
            if not is_explained:
                raise Violation(f"P8: the content of {batch.tag} was refused, and batches of every partition failed")

    def on_result(self, result: BatchResult) -> None:
        assert isinstance(result.tag, tuple)
        sent = self.sent[result.tag]
        if not sent.open_count:
            raise Violation(f"P5: {sent.values} has another result: {result.status.name}")
        sent.settled[result.status] += result.records_count
        if sent.open_count < 0:
            raise Violation(f"P5: {sent.values} has results for {sent.settled.total()} records")
        waited_ms = self._simulation.timeline.now - sent.sent_ms
        if waited_ms > self._simulation.plan.delivery_timeout_ms + self._simulation.settle_slack_ms:
            raise Violation(f"P7: {sent.values} was settled after {waited_ms:.0f} ms only")
        if result.status is DeliveryStatus.ACKNOWLEDGED:
            self.acknowledged_count += 1
            found = self._simulation.partitions[sent.partition].values_at(result.base_offset, result.records_count)
            if not set(found) <= set(sent.values) or len(found) != result.records_count:
                raise Violation(f"P1: {sent.values} was acknowledged at {result.base_offset}, there is {found}")
        if not sent.open_count:
            self.open_counts[sent.partition] -= 1

    def at_end(self) -> None:
        for sent in self.sent.values():
            if sent.open_count:
                raise Violation(f"P7: {sent.values} has no result at the end")
        self._check_logs()
        if self._simulation.plan.halts_on_refusal:
            self._check_gaps()

    def _check_logs(self) -> None:
        plan = self._simulation.plan
        counts: Counter[str] = Counter()
        for partition in self._simulation.partitions.values():
            counts.update(partition.values())
        for sent in self.sent.values():
            stored_count = sum(value in counts for value in sent.values)
            if stored_count < sent.settled[DeliveryStatus.ACKNOWLEDGED]:
                raise Violation(f"P1: {sent.values} was acknowledged and is not in the log")
            if plan.is_idempotent and stored_count > len(sent.values) - sent.settled[DeliveryStatus.REFUSED]:
                raise Violation(f"P4: {sent.values} was refused, and is in the log")
        if not plan.is_idempotent:
            return
        twice = [value for value, count in counts.items() if count > 1]
        if twice:
            raise Violation(f"P2: {twice} is stored twice")
        order = {value: number for number, value in enumerate(value for sent in self.sent for value in sent)}
        for partition in self._simulation.partitions.values():
            of_producer: defaultdict[int, list[int]] = defaultdict(list)
            for stored in partition.log:
                of_producer[stored.producer_id] += [order[value] for value in stored.values]
            for numbers in of_producer.values():
                if numbers != sorted(numbers):
                    raise Violation(f"P3: {partition.partition} has not the order of sending: {partition.values()}")

    def _check_gaps(self) -> None:
        stored = {value for partition in self._simulation.partitions.values() for value in partition.values()}
        refused: dict[tuple[TopicPartition, tuple[int, int]], Sent] = {}
        for sent in self.sent.values():
            key = (sent.partition, sent.run)
            if key in refused and stored.intersection(sent.values):
                raise Violation(f"P3: {sent.values} is stored after {refused[key].values} was refused")
            if sent.settled[DeliveryStatus.REFUSED]:
                refused.setdefault(key, sent)
