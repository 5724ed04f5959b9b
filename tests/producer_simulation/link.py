"""One connection of a producer to a broker: requests and answers in order, until it is cut or hangs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.client.producing.produce_requests import ProduceAnswer
from ottla.model.identifiers import TopicPartition

if TYPE_CHECKING:
    from tests.producer_simulation.simulation import Simulation

DELAY_MS: Final = 6
ANSWER_MS: Final = 1
# The producer notices a cut after this at most, and a late request of a cut connection arrives after this at most.
NOTICE_MS: Final = 40
LATE_MS: Final = 300

Answers = Mapping[TopicPartition, ProduceAnswer]
Request = Sequence[tuple[TopicPartition, bytes]]


class _Exchange:
    """A request on its way: its answers are complete when every batch has one."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.answers: dict[TopicPartition, ProduceAnswer] = {}
        self.is_delivered = False


class Link:
    def __init__(self, simulation: Simulation, broker: int, on_answer: Callable[[Link, Answers], None]) -> None:
        self.broker = broker
        self.is_cut = False
        self.is_hanging = False
        self._simulation = simulation
        self._on_answer = on_answer
        self._exchanges: list[_Exchange] = []
        self._arrives_ms = 0.0
        self._waiting_count = 0

    def send(self, request: Request) -> None:
        exchange = _Exchange(request)
        self._exchanges.append(exchange)
        self._waiting_count += 1
        timeline = self._simulation.timeline
        # A later request does not overtake an earlier one.
        self._arrives_ms = max(self._arrives_ms, timeline.now + self._simulation.chance.random() * DELAY_MS)
        timeline.after(self._arrives_ms - timeline.now, self._deliver, exchange)

    @property
    def waiting_count(self) -> int:
        """The requests whose answers were not received."""
        return self._waiting_count

    def cut(self) -> None:
        """What was sent may arrive later all the same, when the plan says so; no answer comes back."""
        if self.is_cut:
            return
        self.is_cut = True
        lost = [exchange for exchange in self._exchanges if not exchange.is_delivered]
        if "late_requests" in self._simulation.plan.fault_kinds:
            late_ms = self._simulation.chance.random() * LATE_MS
            for number, exchange in enumerate(lost):
                self._simulation.timeline.after(late_ms + number * 1e-3, self._arrive, exchange)

    def _deliver(self, exchange: _Exchange) -> None:
        if not self.is_cut:
            self._arrive(exchange)

    def _arrive(self, exchange: _Exchange) -> None:
        exchange.is_delivered = True
        for partition, batch in exchange.request:
            self._simulation.partitions[partition].produce(self.broker, batch, self._answering(exchange, partition))

    def _answering(self, exchange: _Exchange, partition: TopicPartition) -> Callable[[ProduceAnswer], None]:
        def answer(found: ProduceAnswer) -> None:
            exchange.answers[partition] = found
            self._send_answers()

        return answer

    def _send_answers(self) -> None:
        """In the order of the requests."""
        while self._exchanges and len(self._exchanges[0].answers) == len(self._exchanges[0].request):
            answers = self._exchanges.pop(0).answers
            self._simulation.timeline.after(ANSWER_MS, self._receive, answers)

    def _receive(self, answers: Answers) -> None:
        if not self.is_cut and not self.is_hanging:
            self._waiting_count -= 1
            self._on_answer(self, answers)
