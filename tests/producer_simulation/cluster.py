"""The brokers of a run: a log for each partition, the rules for sequence numbers, leaders that change.

A leader appends a batch at once and answers when its followers have it.  A leader that is replaced in between answers
NOT_LEADER_OR_FOLLOWER, as Ottla's and Apache Kafka's brokers do, whether the next leader has the batch or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.client.producing.produce_requests import ProduceAnswer
from ottla.client.wire.errors import BrokerRefused
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.records.header import read_header
from ottla.records.record import decode_batch

if TYPE_CHECKING:
    from tests.producer_simulation.simulation import Simulation

REMEMBERED_MAX: Final = 5
REPLICATION_MS: Final = 8
NOBODY: Final = -1


@dataclass(eq=False)
class Stored:
    """A batch in the log.  `is_replicated`: every later leader has it."""

    producer_id: int
    first: int
    last: int
    base_offset: int
    values: tuple[str, ...]
    is_replicated: bool = False
    answer: Callable[[ProduceAnswer], None] | None = None


class SimulatedPartition:
    def __init__(self, simulation: Simulation, partition: TopicPartition, leader: int) -> None:
        self.partition = partition
        self.leader = leader
        self.log: list[Stored] = []
        self._simulation = simulation

    @property
    def end(self) -> int:
        return self.log[-1].base_offset + len(self.log[-1].values) if self.log else 0

    def produce(self, broker: int, batch: bytes, answer: Callable[[ProduceAnswer], None]) -> None:
        """`answer` is called once, now or when the batch is replicated."""
        simulation = self._simulation
        values = tuple((record.value or b"").decode() for record in decode_batch(memoryview(batch)))
        header = read_header(batch)
        if broker != self.leader:
            answer(self._refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        elif any(value.endswith("large") for value in values) and len(values) > 1:
            answer(self._refusal(ErrorCode.MESSAGE_TOO_LARGE))
        elif any(value.endswith("poison") for value in values):
            answer(self._refusal(ErrorCode.INVALID_RECORD))
        elif simulation.draws(simulation.plan.refused_share):
            answer(self._refusal(ErrorCode.NOT_ENOUGH_REPLICAS))
        else:
            self._append(header.producer_id, header.base_sequence, values, answer)

    def _append(
        self, producer_id: int, first: int, values: tuple[str, ...], answer: Callable[[ProduceAnswer], None]
    ) -> None:
        last = first + len(values) - 1
        if producer_id >= 0:
            known = [each for each in self.log if each.producer_id == producer_id][-REMEMBERED_MAX:]
            for each in known:
                if (each.first, each.last) == (first, last):
                    self._answer_when_replicated(each, answer)
                    return
            if known and first != known[-1].last + 1:
                answer(self._refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
                return
        stored = Stored(producer_id, first, last, self.end, values)
        self.log.append(stored)
        self._simulation.trace("%s: %s stored at %d, sequence %d", self.partition, values, stored.base_offset, first)
        self._answer_when_replicated(stored, answer)
        self._simulation.timeline.after(self._simulation.chance.random() * REPLICATION_MS, self._replicated, stored)

    def _answer_when_replicated(self, stored: Stored, answer: Callable[[ProduceAnswer], None]) -> None:
        if self._simulation.draws(self._simulation.plan.unknown_share):
            answer(self._refusal(ErrorCode.REQUEST_TIMED_OUT))
        elif stored.is_replicated:
            answer(ProduceAnswer(None, stored.base_offset, -1))
        else:
            former = stored.answer

            def answer_all(found: ProduceAnswer) -> None:
                if former is not None:
                    former(found)
                answer(found)

            stored.answer = answer_all

    def _replicated(self, last: Stored) -> None:
        if last not in self.log:
            return
        for stored in self.log[: self.log.index(last) + 1]:
            stored.is_replicated = True
            found, stored.answer = stored.answer, None
            if found is not None:
                found(ProduceAnswer(None, stored.base_offset, -1))

    def move(self, leader: int) -> None:
        """Another broker leads, or none; batches that were not replicated may be lost with the former leader."""
        self._simulation.trace("%s: led by %d", self.partition, leader)
        self.leader = leader
        unsure = [stored for stored in self.log if not stored.is_replicated]
        kept_count = self._simulation.chance.randint(0, len(unsure))
        for stored in unsure[kept_count:]:
            self.log.remove(stored)
            self._simulation.trace("%s: %s is lost with its leader", self.partition, stored.values)
        for stored in unsure:
            found, stored.answer = stored.answer, None
            if found is not None:
                found(self._refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        for stored in unsure[:kept_count]:
            stored.is_replicated = True

    def _refusal(self, code: ErrorCode) -> ProduceAnswer:
        return ProduceAnswer(BrokerRefused(code, str(self.partition)), -1, -1)

    def values(self) -> list[str]:
        return [value for stored in self.log for value in stored.values]

    def values_at(self, offset: int, count: int) -> tuple[str, ...]:
        """What the log has at these offsets."""
        found = [
            value
            for stored in self.log
            for value in stored.values[
                max(0, offset - stored.base_offset) : max(0, offset + count - stored.base_offset)
            ]
        ]
        return tuple(found)
