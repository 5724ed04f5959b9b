"""Offsets of places in logs, looked up without waiting: one leader that does not answer costs the others nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.client.fetching.offsets import IsolationLevel, OffsetAnswer, offset_answers, offset_request
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.connection import Connection, Sent
from ottla.client.wire.errors import BrokerRefused, CallTimedOut, ClientError, ConnectionLost
from ottla.client.wire.retrying import Deadline
from ottla.model.error_code import ErrorCode
from ottla.model.errors import WireError
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import encode_request
from ottla.protocol.schemas.list_offsets import ListOffsetsResponse


class FoundOffsets(NamedTuple):
    """The answers to all questions of one partition, in their order; or why there are none."""

    partition: TopicPartition
    answers: Sequence[OffsetAnswer] | ClientError


@dataclass(slots=True)
class _Wanted:
    """`answers` to the first of its questions."""

    questions: Sequence[int]
    answers: list[OffsetAnswer] = field(default_factory=list)

    @property
    def next_question(self) -> int:
        return self.questions[len(self.answers)]


@dataclass(slots=True, eq=False)
class _Flight:
    """A request to a leader without a response so far."""

    connection: Connection
    sent: Sent
    asked: dict[TopicPartition, _Wanted]
    within: Deadline


class OffsetLookUps:
    """The questions of a partition, see `offsets`, are sent one after the other: each after the answer before it.

    The loop calls `poll` in each round, and waits for `streams` beside its own, at most `wait_ms`.  One request at a
    time is in flight to each leader.  A failure is reported and not repeated.
    """

    def __init__(self, cluster: Cluster, isolation: IsolationLevel) -> None:
        self._cluster = cluster
        self._isolation = isolation
        self._wanted: dict[TopicPartition, _Wanted] = {}
        self._flights: dict[int, _Flight] = {}
        self._opening: list[Connection] = []
        self._found: list[FoundOffsets] = []

    def ask(self, partition: TopicPartition, *questions: int) -> None:
        """In place of what was asked of this partition before."""
        self._wanted[partition] = _Wanted(questions)

    def drop(self, partition: TopicPartition) -> None:
        """Its answers are not needed any more."""
        self._wanted.pop(partition, None)
        self._found = [each for each in self._found if each.partition != partition]

    def streams(self) -> list[Connection]:
        """What to wait for; then `poll`."""
        connections = [*self._opening, *(flight.connection for flight in self._flights.values())]
        return [each for each in connections if each.is_open]

    def wait_ms(self, limit_ms: float) -> float:
        """How long to wait for the streams; at most `limit_ms`."""
        steps_ms = [each.opening_wait_ms for each in self._opening]
        late_ms = [flight.within.remaining_ms for flight in self._flights.values()]
        return min([limit_ms, *steps_ms, *late_ms])

    def poll(self) -> list[FoundOffsets]:
        """What has been found since the last call; sends what can be sent."""
        for leader_id, flight in list(self._flights.items()):
            self._land(leader_id, flight)
        self._opening = []
        if self._wanted:
            self._send()
            for leader_id, flight in list(self._flights.items()):
                if not flight.connection.is_open:  # a look-up of a leader has closed it
                    self._land(leader_id, flight)
        found, self._found = self._found, []
        return found

    def _send(self) -> None:
        look_ups = self._cluster.look_ups
        look_ups.poll()
        while True:
            self._opening = []
            in_flight = [flight.asked for flight in self._flights.values()]
            groups: dict[int, dict[TopicPartition, _Wanted]] = {}
            for partition, wanted in list(self._wanted.items()):
                if any(asked.get(partition) is wanted for asked in in_flight):
                    continue
                try:
                    leader = look_ups.leader(partition)
                except ClientError as error:
                    self._fail(partition, wanted, error)
                    continue
                if leader is not None:
                    groups.setdefault(leader.leader_id, {})[partition] = wanted
            for leader_id, group in groups.items():
                if leader_id not in self._flights:
                    self._take_off(leader_id, group)
            if not look_ups.poll():
                return

    def _take_off(self, leader_id: int, group: dict[TopicPartition, _Wanted]) -> None:
        try:
            connection = self._cluster.poll_broker(leader_id)
            if connection is None:
                opening = self._cluster.opening(leader_id)
                if opening is not None:
                    self._opening.append(opening)
                return
            questions = {partition: wanted.next_question for partition, wanted in group.items()}
            at_least, request = offset_request(questions, self._isolation)
            version = connection.version_of(ApiKey.LIST_OFFSETS, at_least=at_least)
            within = self._cluster.retrying.deadline(self._cluster.options.request_timeout_ms)
            body = [encode_request(ApiKey.LIST_OFFSETS, version, request)]
            sent = connection.send(ApiKey.LIST_OFFSETS, version, body, within)
        except ClientError as error:
            for partition, wanted in group.items():
                self._fail(partition, wanted, error)
            return
        self._flights[leader_id] = _Flight(connection, sent, group, within)

    def _land(self, leader_id: int, flight: _Flight) -> None:
        connection = flight.connection
        try:
            body = connection.try_response(flight.sent)
            if body is None:
                if not flight.within.has_passed:
                    return
                late = CallTimedOut(f"{connection.address} did not answer LIST_OFFSETS in time")
                connection.close(late)
                raise late
            response = connection.decode(flight.sent.api, flight.sent.version, body, ListOffsetsResponse)
            answers = offset_answers(response)
        except (ClientError, WireError) as error:
            del self._flights[leader_id]
            lost = error if isinstance(error, ClientError) else ConnectionLost(f"{connection.address}: {error}")
            for partition, wanted in flight.asked.items():
                self._fail(partition, wanted, lost)
            return
        del self._flights[leader_id]
        missing = BrokerRefused(ErrorCode.UNKNOWN_SERVER_ERROR, str(connection.address), "it left a partition out")
        for partition, wanted in flight.asked.items():
            answer = answers.get(partition, missing)
            if isinstance(answer, ClientError):
                self._fail(partition, wanted, answer)
            elif self._wanted.get(partition) is wanted:
                wanted.answers.append(answer)
                if len(wanted.answers) == len(wanted.questions):
                    del self._wanted[partition]
                    self._found.append(FoundOffsets(partition, wanted.answers))

    def _fail(self, partition: TopicPartition, wanted: _Wanted, error: ClientError) -> None:
        self._cluster.forget([partition.topic])
        if self._wanted.get(partition) is wanted:
            del self._wanted[partition]
            self._found.append(FoundOffsets(partition, error))
