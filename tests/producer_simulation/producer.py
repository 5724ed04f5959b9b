"""Drives a `ProduceMachine` over simulated connections, as `RawProducer` does over real ones."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NoReturn

from ottla.client.producing.produce_machine import ProduceFlight, ProduceMachine, ProducerIdentity
from ottla.client.producing.produce_queue import PendingBatch
from ottla.client.producing.produce_requests import UNKNOWN_OUTCOME
from ottla.client.producing.settings import ProducerOptions
from ottla.client.wire.errors import BrokerRefused, CallTimedOut, ClientError, ConnectionLost
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.retrying import Backoff, Retrying
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import build_batch
from ottla.records.record import Record, decode_batch
from tests.producer_simulation.cluster import NOBODY
from tests.producer_simulation.link import Answers, Link
from tests.simulation.timeline import Timeline

if TYPE_CHECKING:
    from tests.producer_simulation.simulation import Simulation

REQUEST_MS: Final = 300
# What `SimulatedPartition` answers to the content of a batch.
CONTENT_REFUSED: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD})


class SimulatedClock:
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def now_ms(self) -> int:
        return int(self._timeline.now)

    def monotonic_ms(self) -> int:
        return int(self._timeline.now)

    def boottime_ms(self) -> int:
        return int(self._timeline.now)


def _never(seconds: float) -> NoReturn:
    raise AssertionError(f"the machine sleeps for {seconds} s")


class SeededRetrying(Retrying):
    """Its pauses follow from the seed."""

    def __init__(self, clock: SimulatedClock, chance: random.Random) -> None:
        super().__init__(ClientOptions(retry_backoff_ms=10, retry_backoff_max_ms=100), clock, _never)
        self._chance = chance

    def backoff(self) -> Backoff:
        return Backoff(10, 100, self._chance.uniform)


def halves(partition: TopicPartition, batch: bytearray) -> list[bytearray]:
    records = decode_batch(memoryview(batch))
    middle = len(records) // 2
    return [build_batch(part) for part in (records[:middle], records[middle:])]


class SimulatedProducer:
    """One producer; another one takes its place when it stops, as `SendEngine` does it."""

    def __init__(self, simulation: Simulation, producer_id: int) -> None:
        plan = simulation.plan
        self.producer_id = producer_id
        options = ProducerOptions(
            idempotent=plan.is_idempotent,
            max_in_flight=plan.max_in_flight,
            request_bytes_max=plan.request_bytes_max,
            delivery_timeout_ms=plan.delivery_timeout_ms,
            halts_on_refusal=plan.halts_on_refusal,
        )
        self._simulation = simulation
        self._retrying = SeededRetrying(SimulatedClock(simulation.timeline), simulation.chance)
        identity = ProducerIdentity(producer_id, 0) if plan.is_idempotent else None
        self.machine = ProduceMachine(options, self._retrying, REQUEST_MS, halves, identity)
        self.links: dict[int, Link] = {}
        # What became of the attempts, apart from what the machine keeps: batches of which one had an unknown outcome,
        # and batches that a broker refused since it did not lead.
        self.unanswered: set[PendingBatch] = set()
        self.not_led: set[PendingBatch] = set()
        self._flights: dict[int, deque[ProduceFlight]] = {}
        # The leaders as the last metadata said.
        self._leaders: Mapping[TopicPartition, int] = {}
        self._looks_at_ms = float("inf")

    def refused_content(self, flight: ProduceFlight, answers: Answers) -> list[PendingBatch]:
        """The batches of a request whose content was refused."""
        errors = ((batch, answers[batch.partition].error) for batch in flight.batches)
        return [batch for batch, error in errors if error is not None and error.code in CONTENT_REFUSED]

    def send(self, partition: TopicPartition, values: tuple[str, ...]) -> None:
        batch = build_batch([Record(0, 1000, None, value.encode()) for value in values])
        give_up = self._retrying.deadline(self._simulation.plan.delivery_timeout_ms)
        self.machine.add(partition, batch, values, give_up)
        self.pump()

    def pump(self) -> None:
        """What `RawProducer._step` does without its wait."""
        machine = self.machine
        machine.on_time()
        while machine.stopped is None:
            if machine.take_stale_topics() or not self._leaders:
                self._leaders = self._simulation.leaders()
            groups: dict[int, list[TopicPartition]] = {}
            for partition in machine.sendable():
                leader = self._leaders[partition]
                if leader == NOBODY:
                    machine.cannot_send(partition, BrokerRefused(ErrorCode.LEADER_NOT_AVAILABLE, str(partition)))
                else:
                    groups.setdefault(leader, []).append(partition)
            if not sum(self._send_request(leader, group) for leader, group in groups.items()):
                break
        for result in machine.take_results():
            self._simulation.on_result(self, result)
        if machine.pending_count:
            self._look_again()

    def _send_request(self, leader: int, partitions: list[TopicPartition]) -> bool:
        if not self.machine.has_room(leader):
            return False
        link = self.links.get(leader)
        if link is None or (link.is_cut and self.machine.oldest(leader) is None):
            link = self.links[leader] = Link(self._simulation, leader, self._on_answer)
        flight = self.machine.take_request(leader, partitions)
        if flight is None:
            return False
        self._flights.setdefault(leader, deque()).append(flight)
        self._simulation.checks.on_request(self, leader, flight)
        link.send([(batch.partition, bytes(batch.batch)) for batch in flight.batches])
        return True

    def _on_answer(self, link: Link, answers: Answers) -> None:
        if self.links.get(link.broker) is link and self.machine.oldest(link.broker) is not None:
            flight = self._flights[link.broker].popleft()
            for batch in flight.batches:
                error = answers[batch.partition].error
                if error is not None and error.code in UNKNOWN_OUTCOME:
                    self.unanswered.add(batch)
                elif error is not None and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    self.not_led.add(batch)
            self.machine.on_answer(link.broker, answers)
            self._simulation.checks.on_answer(self, flight, answers)
            self.pump()

    def _lost(self, link: Link, error: ClientError) -> None:
        del self.links[link.broker]
        for flight in self._flights.pop(link.broker, ()):
            self.unanswered.update(flight.batches)
        self.machine.on_lost(link.broker, error)

    def on_cut(self, link: Link) -> None:
        """The producer notices that a connection is gone."""
        if self.links.get(link.broker) is link:
            self._lost(link, ConnectionLost("the connection was cut"))
            self.pump()

    def _look_again(self) -> None:
        """At the next retry, expiry or overdue answer."""
        delay_ms = max(1.0, self.machine.next_try_ms(50))
        now_ms = self._simulation.timeline.now
        if self._looks_at_ms <= now_ms or now_ms + delay_ms < self._looks_at_ms:
            self._looks_at_ms = now_ms + delay_ms
            self._simulation.timeline.after(delay_ms, self._look, self._looks_at_ms)

    def _look(self, at_ms: float) -> None:
        if at_ms != self._looks_at_ms:
            return
        for link in list(self.links.values()):
            oldest = self.machine.oldest(link.broker)
            if oldest is not None and oldest.deadline.has_passed:
                link.cut()
                self._lost(link, CallTimedOut("no answer in time"))
        self._looks_at_ms = float("inf")
        self.pump()

    @property
    def is_stopped(self) -> bool:
        return self.machine.stopped is not None
