"""The connections of a producer, one to each leader, with several requests in flight on each."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ottla.client.producing.produce_queue import PendingBatch
from ottla.client.producing.produce_requests import ACKS_NONE, ProduceAnswer, produce_body, read_answers
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.client.wire.deadline import Deadline
from ottla.client.wire.errors import BrokerRefused, CallTimedOut, ClientError
from ottla.model.error_code import ErrorCode
from ottla.model.errors import WireError
from ottla.protocol.api import ApiKey

# The first version with every codec (KIP-110).
_VERSION_MIN: Final = 7

Outcome: TypeAlias = tuple[PendingBatch, ProduceAnswer | ClientError | WireError]


@dataclass(slots=True)
class _Flight:
    """A request in flight."""

    batches: Sequence[PendingBatch]
    deadline: Deadline


@dataclass(slots=True)
class _Lane:
    connection: Connection
    flights: deque[_Flight]

    def fileno(self) -> int:
        return self.connection.fileno()

    def has_buffered(self) -> bool:
        return self.connection.has_buffered()


class ProduceLanes:
    """Sends requests and returns the outcome of every batch: a response, or why there is none."""

    def __init__(self, cluster: Cluster, acks: int, max_in_flight: int) -> None:
        self._cluster = cluster
        self._acks = acks
        self._max_in_flight = max_in_flight
        self._pool = cluster.new_pool()
        self._lanes: dict[int, _Lane] = {}
        self._outcomes: list[Outcome] = []

    def close(self) -> None:
        self._lanes.clear()
        self._pool.close()

    def has_room(self, leader_id: int) -> bool:
        """Whether one more request may go to this broker now; connects.  Raises what `send` would before sending.

        Nothing is sent while outcomes are unprocessed: after a lost connection its batches come first, and a new
        connection would carry later ones past them.
        """
        if self._outcomes:
            return False
        lane = self._lanes.get(leader_id)
        if lane is None or not lane.flights:
            deadline = self._cluster.retrying.deadline(self._cluster.options.request_timeout_ms)
            connection = self._cluster.connect_broker(leader_id, deadline, self._pool)
            connection.version_of(ApiKey.PRODUCE, at_least=_VERSION_MIN)
            self._lanes[leader_id] = _Lane(connection, deque())
            return True
        return len(lane.flights) < self._max_in_flight

    def send(self, leader_id: int, batches: Sequence[PendingBatch]) -> None:
        """Send one request, after `has_room` returned True.  `wait` returns its outcome."""
        lane = self._lanes[leader_id]
        timeout_ms = self._cluster.options.request_timeout_ms
        deadline = self._cluster.retrying.deadline(timeout_ms)
        version = lane.connection.version_of(ApiKey.PRODUCE)
        body = produce_body(version, self._acks, timeout_ms, batches)
        lane.flights.append(_Flight(batches, deadline))
        try:
            lane.connection.send(ApiKey.PRODUCE, version, body, deadline, expects_response=self._acks != ACKS_NONE)
        except ClientError as error:
            self._lose(lane, error)
            return
        if self._acks == ACKS_NONE:
            self._outcomes += [(batch, ProduceAnswer(None, -1, -1)) for batch in lane.flights.pop().batches]

    def wait(self, timeout_ms: float) -> list[Outcome]:
        """The outcomes so far, or the first to arrive within `timeout_ms`."""
        busy = [lane for lane in self._lanes.values() if lane.flights]
        if busy:
            overdue_ms = min(lane.flights[0].deadline.remaining_ms for lane in busy)
            for lane in self._cluster.wait(busy, 0 if self._outcomes else min(timeout_ms, overdue_ms)):
                self._receive(lane)
            for lane in busy:
                if lane.flights and lane.flights[0].deadline.has_passed:
                    self._lose(lane, CallTimedOut(f"{lane.connection.address} did not answer a produce in time"))
        elif not self._outcomes and timeout_ms > 0:
            self._cluster.retrying.sleep_ms(timeout_ms)
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def _receive(self, lane: _Lane) -> None:
        while True:
            flight = lane.flights[0]
            try:
                sent, body = lane.connection.receive(flight.deadline)
                answers = read_answers(lane.connection, sent.version, body)
            except (ClientError, WireError) as error:
                self._lose(lane, error)
                return
            lane.flights.popleft()
            for batch in flight.batches:
                missing = BrokerRefused(ErrorCode.UNKNOWN_SERVER_ERROR, str(batch.partition), "no response for it")
                self._outcomes.append((batch, answers.get(batch.partition, missing)))
            if not lane.flights or not lane.has_buffered():
                return

    def _lose(self, lane: _Lane, error: ClientError | WireError) -> None:
        """The connection has failed: its requests will not be answered."""
        lane.connection.close()
        for flight in lane.flights:
            self._outcomes += [(batch, error) for batch in flight.batches]
        lane.flights.clear()
