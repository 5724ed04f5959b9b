"""The state of a reader of partitions: what goes into the next fetches, and how far each partition was read.  Pure.

Events go in (`seek`, an answer, a lost connection), requests, records and failures come out.  The machine knows no
sockets and does not wait: `Fetcher` drives it over connections.  Its time is that of the clock of `retrying`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID

from ottla.client.fetching.fetch_requests import (
    BatchTooLarge,
    FetchedPartition,
    FetchLimits,
    FetchOutcome,
    FetchPosition,
    checked_room,
)
from ottla.client.wire.errors import BrokerRefused, ClientError, TopicRecreated
from ottla.client.wire.retrying import Deadline, Postponed, Retrying
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.protocol.schema import ZERO_UUID


class FetchRoom(Protocol):
    """How much may be fetched ahead."""

    def reserve(self, partition: TopicPartition) -> int:
        """The bytes that a fetch may bring of this partition now; 0: it is left out until there is room.

        One batch may be larger.
        """
        ...

    def on_landed(self, partition: TopicPartition, size_bytes: int) -> None:
        """The fetch has ended, and brought so many bytes that the next `poll` gives."""
        ...


class FetchFailure(NamedTuple):
    """The partition cannot be read from `offset` on; it is skipped until `seek`."""

    partition: TopicPartition
    offset: int
    error: OttlaError


class FetchTarget(NamedTuple):
    """What the metadata says of a partition to fetch; a topic id of zeros: by name."""

    leader_epoch: int
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class FetchFlight:
    """A fetch in flight to a leader.  After `deadline` its answer is not expected any more."""

    positions: Mapping[TopicPartition, FetchPosition]
    deadline: Deadline


class FetchMachine:
    """One fetch at a time is in flight to each leader.  `ends` are exclusive; `request_ms` is the time of one request.

    `recreated_wait_ms`: so long another id of a topic may be a lagging broker's.
    """

    def __init__(
        self,
        retrying: Retrying,
        limits: FetchLimits,
        ends: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, UUID],
        room: FetchRoom | None,
        *,
        request_ms: float,
        recreated_wait_ms: float,
    ) -> None:
        self._retrying = retrying
        self._limits = limits
        self._ends = dict(ends)
        self._topic_ids = dict(topic_ids)
        self._room = room
        self._request_ms = request_ms
        self._recreated_wait_ms = recreated_wait_ms
        # Until when another id of a topic may be a lagging broker's.
        self._doubts: dict[str, Deadline] = {}
        # In the order of requests: partitions that just returned records come last.
        self._positions: dict[TopicPartition, int] = {}
        self._flights: dict[int, FetchFlight] = {}
        self._postponed = Postponed[TopicPartition](retrying)
        # Of partitions whose next batch is larger than a fetch may bring.
        self._rooms_bytes: dict[TopicPartition, int] = {}
        self._failures: list[FetchFailure] = []
        self._stale_topics: set[str] = set()

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset of each partition, without those that have reached their end or failed."""
        return self._positions

    @property
    def is_finished(self) -> bool:
        return not self._positions and not self._failures

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read this partition from `offset` on: a new one, a failed one, or one that skips."""
        self.drop(partition)
        if offset < self._ends.get(partition, offset + 1):
            self._positions[partition] = offset

    def drop(self, partition: TopicPartition) -> None:
        """Stop reading this partition; a failure that was not taken yet counts no more."""
        self._positions.pop(partition, None)
        self._failures = [failure for failure in self._failures if failure.partition != partition]
        self._postponed.clear(partition)
        if self._doubts and not any(each.topic == partition.topic for each in self._positions):
            self._doubts.pop(partition.topic, None)  # a later `seek` may find another broker that lags behind

    def fetchable(self) -> list[TopicPartition]:
        """The partitions that may go into a fetch now, if their leader has none in flight."""
        flying = {partition for flight in self._flights.values() for partition in flight.positions}
        return [each for each in self._positions if each not in flying and self._postponed.may_try(each)]

    def is_by_id(self, topic: str) -> bool:
        """Whether the topic is read only while it has the id that the caller gave."""
        return self._topic_ids.get(topic, ZERO_UUID) != ZERO_UUID

    def checked_id(self, partition: TopicPartition, found: UUID) -> UUID:
        """The id to fetch by, where the metadata has `found`; all zeros: by name, since the brokers know no ids.

        Raises TopicRecreated, at first as one that is retriable.
        """
        expected = self._topic_ids[partition.topic]
        if found in (expected, ZERO_UUID):
            self._doubts.pop(partition.topic, None)
            return found
        doubt = self._doubts.setdefault(partition.topic, self._retrying.deadline(self._recreated_wait_ms))
        error = TopicRecreated(partition, expected, found)
        error.is_retriable = not doubt.has_passed
        raise error

    def take_request(self, leader_id: int, targets: Mapping[TopicPartition, FetchTarget]) -> FetchFlight | None:
        """A fetch of those that have room, which is in flight from now on; None when none has, or one is in flight."""
        if leader_id in self._flights:
            return None
        positions: dict[TopicPartition, FetchPosition] = {}
        for partition, (leader_epoch, topic_id) in targets.items():
            room_bytes = self._limits.partition_max_bytes if self._room is None else self._room.reserve(partition)
            if room_bytes > 0:
                room_bytes = self._rooms_bytes.get(partition, room_bytes)
                positions[partition] = FetchPosition(self._positions[partition], room_bytes, leader_epoch, topic_id)
        if not positions:
            return None
        deadline = self._retrying.deadline(self._request_ms + self._limits.max_wait_ms)
        flight = self._flights[leader_id] = FetchFlight(positions, deadline)
        return flight

    def next_try_ms(self, limit_ms: float) -> float:
        """The time until a postponed partition may be retried; at most `limit_ms`."""
        return self._postponed.next_try_ms(limit_ms)

    def take_stale_topics(self) -> set[str]:
        """The topics whose metadata must be refreshed before the next request."""
        stale, self._stale_topics = self._stale_topics, set()
        return stale

    def take_failure(self) -> FetchFailure | None:
        """The oldest failure that was not taken yet."""
        return self._failures.pop(0) if self._failures else None

    def on_answer(self, leader_id: int, outcomes: Mapping[TopicPartition, FetchOutcome]) -> list[FetchedPartition]:
        """The leader has answered its fetch: the records, without those of partitions that were moved meanwhile."""
        flight = self._flights.pop(leader_id)
        fetched: list[FetchedPartition] = []
        for partition, asked in flight.positions.items():
            if self._positions.get(partition) != asked.offset:
                continue  # the caller has called `seek` or `drop` meanwhile
            outcome = outcomes.get(partition)
            if isinstance(outcome, FetchedPartition):
                self._postponed.clear(partition)
                if outcome.records:
                    self._advance(outcome)
                    fetched.append(outcome)
            else:
                self._refused(partition, outcome)
        self._landed(flight, fetched)
        return fetched

    def on_lost(self, leader_id: int, error: ClientError) -> None:
        """The fetch will not be answered, or could not be sent."""
        flight = self._flights.pop(leader_id)
        self._landed(flight, [])
        self._failed(flight.positions, error)

    def cannot_fetch(self, partition: TopicPartition, error: ClientError) -> None:
        """Its leader is not known, or it is another topic."""
        self._failed([partition], error)

    def _landed(self, flight: FetchFlight, fetched: Iterable[FetchedPartition]) -> None:
        if self._room is not None:
            sizes_bytes = {each.partition: len(each.records) for each in fetched}
            for partition in flight.positions:
                self._room.on_landed(partition, sizes_bytes.get(partition, 0))

    def _advance(self, fetched: FetchedPartition) -> None:
        assert fetched.next_offset > fetched.fetch_offset, "a fetch with records advances"
        self._rooms_bytes.pop(fetched.partition, None)
        self.seek(fetched.partition, fetched.next_offset)

    def _refused(self, partition: TopicPartition, outcome: OttlaError | None) -> None:
        if isinstance(outcome, BatchTooLarge):
            try:
                self._rooms_bytes[partition] = checked_room(outcome, self._limits)
            except ClientError as error:
                self._failed([partition], error)
            return
        missing = BrokerRefused(ErrorCode.UNKNOWN_SERVER_ERROR, str(partition), "the answer leaves it out")
        self._failed([partition], outcome or missing)

    def _failed(self, partitions: Iterable[TopicPartition], error: OttlaError) -> None:
        """Postpone retriable failures; drop other partitions, and keep the error for the caller."""
        may_get_better = isinstance(error, ClientError) and error.is_retriable
        for partition in partitions:
            self._stale_topics.add(partition.topic)
            if may_get_better and not self._postponed.is_hopeless(partition):
                self._retrying.on_wait(error)
                self._postponed.postpone(partition)
            elif partition in self._positions:
                failure = FetchFailure(partition, self._positions[partition], error)
                self.drop(partition)
                self._failures.append(failure)
