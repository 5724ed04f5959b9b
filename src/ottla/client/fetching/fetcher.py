"""Continuous reads from many partitions: the next fetch is in flight while the last one is decoded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Protocol
from uuid import UUID

from ottla.client.fetching.fetch import (
    BatchTooLarge,
    FetchedPartition,
    FetchLimits,
    FetchOutcome,
    FetchPosition,
    checked_room,
    receive_fetch,
    send_fetch,
)
from ottla.client.fetching.offsets import IsolationLevel
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.client.wire.deadline import Deadline
from ottla.client.wire.errors import BrokerRefused, CallTimedOut, ClientError, TopicRecreated
from ottla.client.wire.postponed import Postponed
from ottla.client.wire.transport import Readable
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


@dataclass(slots=True)
class _Flight:
    """A fetch in flight to a leader."""

    connection: Connection
    positions: Mapping[TopicPartition, FetchPosition]
    deadline: Deadline

    def fileno(self) -> int:
        return self.connection.fileno()

    def has_buffered(self) -> bool:
        return self.connection.has_buffered()


class Fetcher:
    """Fetches from `positions` on, up to `ends` (exclusive) where there is one.

    One fetch at a time is in flight to each leader, sent before `poll` returns the result of the one before: so at most
    twice `limits.max_bytes` for each leader are in memory, or what `room` allows.  No threads: responses wait in the
    socket until `poll`.  When `wake` can be read, `poll` and `poll_each` return without waiting on.

    A topic of `topic_ids` is read only while it has this id: TopicRecreated otherwise (after `unknown_topic_wait_ms`,
    since a broker may lag behind).  Brokers that know no fetches by id are trusted: see `has_read_by_name`.
    """

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int] | None = None,
        *,
        topic_ids: Mapping[str, UUID] | None = None,
        limits: FetchLimits | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        room: FetchRoom | None = None,
        wake: Readable | None = None,
    ) -> None:
        self._cluster = cluster
        self._room = room
        self._wake = wake
        self._pool = cluster.new_pool()
        self._limits = limits or FetchLimits()
        self._isolation = isolation
        self._ends = dict(ends or {})
        self._topic_ids = dict(topic_ids or {})
        # Until when another id of a topic may be a lagging broker's.
        self._doubts: dict[str, Deadline] = {}
        self._has_read_by_name = False
        # In the order of requests: partitions that just returned records come last.
        self._positions: dict[TopicPartition, int] = {}
        self._flights: dict[int, _Flight] = {}
        self._postponed = Postponed[TopicPartition](cluster.retrying)
        self._rooms: dict[TopicPartition, int] = {}
        self._failures: list[FetchFailure] = []
        for partition, offset in positions.items():
            self.seek(partition, offset)

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset of each partition, without those that have reached their end or failed."""
        return self._positions

    @property
    def has_read_by_name(self) -> bool:
        """Whether a fetch could not name its topics by id, so that a topic recreated meanwhile was not noticed."""
        return self._has_read_by_name

    @property
    def is_finished(self) -> bool:
        return not self._positions and not self._failures

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read this partition from `offset` on: a new one, a failed one, or one that skips."""
        self.drop(partition)
        if offset < self._ends.get(partition, offset + 1):
            self._positions[partition] = offset

    def drop(self, partition: TopicPartition) -> None:
        """Stop reading this partition; a failure that no `poll` has given yet counts no more."""
        self._positions.pop(partition, None)
        self._failures = [failure for failure in self._failures if failure.partition != partition]
        self._postponed.clear(partition)

    def close(self) -> None:
        self._flights.clear()
        self._pool.close()

    def __enter__(self) -> Fetcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[FetchedPartition]:
        """Everything up to the ends; without ends it never stops."""
        while not self.is_finished:
            yield from self.poll(self._limits.max_wait_ms)

    def poll(self, timeout_ms: float) -> list[FetchedPartition]:
        """Records that have arrived, or arrive within `timeout_ms`; may be empty.

        Raises the error of a partition that cannot be read further (OffsetOutOfRange, UnknownTopic, WireError,
        CallTimedOut after `call_timeout_ms` of retries); that partition is skipped from then on, until `seek`.
        """
        deadline = self._cluster.retrying.deadline(timeout_ms)
        while True:
            self._send()
            if self._failures:
                raise self._failures.pop(0).error
            fetched, is_woken = self._receive(deadline) if self._positions else ([], False)
            if fetched or is_woken or deadline.has_passed or self.is_finished:
                return fetched

    def poll_each(self, timeout_ms: float) -> list[FetchedPartition | FetchFailure]:
        """Like `poll`, but gives failures with their partitions, and waits also while it has no partition to read."""
        deadline = self._cluster.retrying.deadline(timeout_ms)
        while True:
            self._send()
            failures, self._failures = self._failures, []
            if failures:
                return [*failures]
            fetched, is_woken = self._receive(deadline)
            if fetched or is_woken or deadline.has_passed:
                return [*fetched]

    def _send(self) -> None:
        """Send a fetch to each leader that has none in flight, for all its partitions that have room."""
        flying = {partition for flight in self._flights.values() for partition in flight.positions}
        groups: dict[int, dict[TopicPartition, FetchPosition]] = {}
        for partition, offset in list(self._positions.items()):
            if partition in flying or not self._postponed.may_try(partition):
                continue
            try:
                leader = self._cluster.leader(partition)
                topic_id = self._checked_id(partition)
            except ClientError as error:
                self._failed([partition], error)
                continue
            if leader.leader_id in self._flights:
                continue
            room = self._limits.partition_max_bytes if self._room is None else self._room.reserve(partition)
            if room > 0:
                room = self._rooms.get(partition, room)
                position = FetchPosition(offset, room, leader.leader_epoch, topic_id)
                groups.setdefault(leader.leader_id, {})[partition] = position
        for leader_id, group in groups.items():
            self._take_off(leader_id, group)

    def _checked_id(self, partition: TopicPartition) -> UUID:
        """The id to fetch by; all zeros: by name.  Raises TopicRecreated, at first as one that is retriable."""
        expected = self._topic_ids.get(partition.topic, ZERO_UUID)
        if expected == ZERO_UUID:
            return ZERO_UUID
        found = self._cluster.topic(partition.topic).topic_id
        if found in (expected, ZERO_UUID):
            self._doubts.pop(partition.topic, None)
            return found
        wait_ms = self._cluster.options.unknown_topic_wait_ms
        doubt = self._doubts.setdefault(partition.topic, self._cluster.retrying.deadline(wait_ms))
        error = TopicRecreated(partition, expected, found)
        error.is_retriable = not doubt.has_passed
        raise error

    def _take_off(self, leader_id: int, group: Mapping[TopicPartition, FetchPosition]) -> None:
        wait_ms = self._cluster.options.request_timeout_ms + self._limits.max_wait_ms
        deadline = self._cluster.retrying.deadline(wait_ms)
        try:
            connection = self._cluster.connect_broker(leader_id, deadline, self._pool)
            is_by_id = send_fetch(connection, group, self._limits, self._isolation, deadline)
            self._has_read_by_name = self._has_read_by_name or not is_by_id
        except ClientError as error:
            self._landed(group, [])
            self._failed(group, error)
            return
        self._flights[leader_id] = _Flight(connection, group, deadline)

    def _receive(self, deadline: Deadline) -> tuple[list[FetchedPartition], bool]:
        """Wait for the first responses; each leader gets its next fetch before the caller gets them.

        Also: whether it was woken.
        """
        remaining_ms = self._postponed.next_try_ms(deadline.remaining_ms)
        wakes = [] if self._wake is None else [self._wake]
        if not self._flights and not wakes:
            self._cluster.retrying.sleep_ms(remaining_ms)
            return [], False
        ready = self._cluster.wait([*self._flights.values(), *wakes], remaining_ms)
        fetched: list[FetchedPartition] = []
        for leader_id, flight in list(self._flights.items()):
            if flight in ready:
                del self._flights[leader_id]
                landed = self._land(flight)
                self._landed(flight.positions, landed)
                fetched += landed
            elif flight.deadline.has_passed:
                del self._flights[leader_id]
                flight.connection.close()
                self._landed(flight.positions, [])
                self._failed(flight.positions, CallTimedOut(f"{flight.connection.address} did not answer a fetch"))
        if fetched:
            self._send()
        return fetched, self._wake in ready

    def _landed(self, partitions: Iterable[TopicPartition], fetched: Iterable[FetchedPartition]) -> None:
        if self._room is not None:
            sizes_bytes = {each.partition: len(each.records) for each in fetched}
            for partition in partitions:
                self._room.on_landed(partition, sizes_bytes.get(partition, 0))

    def _land(self, flight: _Flight) -> list[FetchedPartition]:
        try:
            outcomes = receive_fetch(flight.connection, flight.positions, self._limits, flight.deadline)
        except ClientError as error:
            self._failed(flight.positions, error)
            return []
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
        return fetched

    def _advance(self, fetched: FetchedPartition) -> None:
        assert fetched.next_offset > fetched.fetch_offset, "a fetch with records advances"
        self._rooms.pop(fetched.partition, None)
        self.seek(fetched.partition, fetched.next_offset)

    def _refused(self, partition: TopicPartition, outcome: FetchOutcome | None) -> None:
        if isinstance(outcome, BatchTooLarge):
            try:
                self._rooms[partition] = checked_room(outcome, self._limits)
            except ClientError as error:
                self._failed([partition], error)
            return
        assert not isinstance(outcome, FetchedPartition)
        missing = BrokerRefused(ErrorCode.UNKNOWN_SERVER_ERROR, str(partition), "the answer leaves it out")
        self._failed([partition], outcome or missing)

    def _failed(self, partitions: Iterable[TopicPartition], error: OttlaError) -> None:
        """Postpone retriable failures; drop other partitions, and keep the error for `poll`."""
        may_get_better = isinstance(error, ClientError) and error.is_retriable
        for partition in list(partitions):
            if may_get_better and not self._postponed.is_hopeless(partition):
                self._cluster.retrying.on_wait(error)
                self._postponed.postpone(partition)
            elif partition in self._positions:
                failure = FetchFailure(partition, self._positions[partition], error)
                self.drop(partition)
                self._failures.append(failure)
        self._cluster.forget({partition.topic for partition in partitions})
