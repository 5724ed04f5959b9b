"""Continuous reads from many partitions: the next fetch is in flight while the last one is decoded.  Blocking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol
from uuid import UUID

from ottla.client.fetching.fetch_machine import FetchFailure, FetchFlight, FetchMachine, FetchRoom, FetchTarget
from ottla.client.fetching.fetch_requests import FetchedPartition, FetchLimits, receive_fetch, send_fetch
from ottla.client.fetching.offsets import IsolationLevel
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.client.wire.connection_pool import LeaderConnection
from ottla.client.wire.errors import CallTimedOut, ClientError
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.transport import Readable
from ottla.model.identifiers import TopicPartition
from ottla.protocol.schema import ZERO_UUID


@dataclass(frozen=True, slots=True)
class _Leader(LeaderConnection):
    """A leader with a fetch in flight."""

    flight: FetchFlight


class LookUps(Protocol):
    """What its user polls, and the fetcher waits for beside its own."""

    def streams(self) -> list[Connection]: ...

    def wait_ms(self, limit_ms: float) -> float: ...


class Fetcher:
    """Fetches from `positions` on, up to `ends` (exclusive) where there is one.

    One fetch at a time is in flight to each leader, sent before `poll` returns the result of the one before: so at most
    twice `limits.max_bytes` for each leader are in memory, or what `room` allows.  No threads: responses wait in the
    socket until `poll`.  When `wake`, or a stream of `beside`, can be read, `poll` and `poll_each` return without
    waiting on.

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
        beside: LookUps | None = None,
    ) -> None:
        self._cluster = cluster
        self._beside = beside
        self._wake = wake
        self._pool = cluster.new_pool()
        self._limits = limits or FetchLimits()
        self._isolation = isolation
        self._has_read_by_name = False
        self._machine = FetchMachine(
            cluster.retrying,
            self._limits,
            ends or {},
            topic_ids or {},
            room,
            request_ms=cluster.options.request_timeout_ms,
            recreated_wait_ms=cluster.options.unknown_topic_wait_ms,
        )
        self._look_ups = cluster.look_ups
        self._leaders: dict[int, _Leader] = {}
        # Connections that are being opened, and that a partition waits for.
        self._opening: list[Connection] = []
        for partition, offset in positions.items():
            self.seek(partition, offset)

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset of each partition, without those that have reached their end or failed."""
        return self._machine.positions

    @property
    def has_read_by_name(self) -> bool:
        """Whether a fetch could not name its topics by id, so that a topic recreated meanwhile was not noticed."""
        return self._has_read_by_name

    @property
    def is_finished(self) -> bool:
        return self._machine.is_finished

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read this partition from `offset` on: a new one, a failed one, or one that skips."""
        self._machine.seek(partition, offset)

    def drop(self, partition: TopicPartition) -> None:
        """Stop reading this partition; a failure that no `poll` has given yet counts no more."""
        self._machine.drop(partition)

    def close(self) -> None:
        self._leaders.clear()
        self._opening.clear()
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
            failure = self._machine.take_failure()
            if failure is not None:
                raise failure.error
            fetched, is_woken = self._receive(deadline) if self.positions else ([], False)
            if fetched or is_woken or deadline.has_passed or self.is_finished:
                return fetched

    def poll_each(self, timeout_ms: float) -> list[FetchedPartition | FetchFailure]:
        """Like `poll`, but gives failures with their partitions, and waits also while it has no partition to read."""
        deadline = self._cluster.retrying.deadline(timeout_ms)
        while True:
            has_news = self._send()
            failures = list(iter(self._machine.take_failure, None))
            if failures:
                return [*failures]
            if has_news and self._beside is not None:
                return []  # it may have waited for the same topic
            fetched, is_woken = self._receive(deadline)
            if fetched or is_woken or deadline.has_passed:
                return [*fetched]

    def _send(self) -> bool:
        """Send a fetch to each leader that has none in flight, for all its partitions that have room.

        Nothing is waited for: leaders that must be looked up and connections that are opened are polled.  Whether the
        metadata of a topic has arrived, or its look-up failed.
        """
        has_news = self._look_ups.poll()
        while True:
            self._opening = []
            groups: dict[int, dict[TopicPartition, FetchTarget]] = {}
            for partition in self._machine.fetchable():
                try:
                    leader = self._look_ups.leader(partition)
                    if leader is None:
                        continue
                    topic_id = self._topic_id(partition)
                except ClientError as error:
                    self._machine.cannot_fetch(partition, error)
                    self._forget_stale_topics()
                    continue
                groups.setdefault(leader.leader_id, {})[partition] = FetchTarget(leader.leader_epoch, topic_id)
            for leader_id, group in groups.items():
                if leader_id not in self._leaders:
                    self._take_off(leader_id, group)
            if not self._look_ups.poll():
                return has_news
            has_news = True

    def _topic_id(self, partition: TopicPartition) -> UUID:
        if not self._machine.is_by_id(partition.topic):
            return ZERO_UUID
        topic = self._look_ups.topic(partition.topic)
        assert topic is not None, "its leader is known"
        return self._machine.checked_id(partition, topic.topic_id)

    def _take_off(self, leader_id: int, targets: Mapping[TopicPartition, FetchTarget]) -> None:
        """Send the next fetch of these partitions, if one has room.  Its time starts when its connection is open."""
        try:
            connection = self._cluster.poll_broker(leader_id, self._pool)
        except ClientError as error:
            for partition in targets:
                self._machine.cannot_fetch(partition, error)
            self._forget_stale_topics()
            return
        if connection is None:
            opening = self._cluster.opening(leader_id, self._pool)
            if opening is not None:
                self._opening.append(opening)
            return
        flight = self._machine.take_request(leader_id, targets)
        if flight is None:
            return
        try:
            is_by_id = send_fetch(connection, flight.positions, self._limits, self._isolation, flight.deadline)
        except ClientError as error:
            self._lose(leader_id, error)
            return
        self._has_read_by_name = self._has_read_by_name or not is_by_id
        self._leaders[leader_id] = _Leader(leader_id, connection, flight)

    def _receive(self, deadline: Deadline) -> tuple[list[FetchedPartition], bool]:
        """Wait for the first responses; each leader gets its next fetch before the caller gets them.

        Also: whether it was woken.
        """
        fetched: list[FetchedPartition] = []
        remaining_ms = self._machine.next_try_ms(deadline.remaining_ms)
        wakes = [] if self._wake is None else [self._wake]
        beside = [] if self._beside is None else self._beside.streams()
        polled = [*self._opening, *self._look_ups.streams(), *beside]
        if not self._leaders and not wakes and not polled:
            self._cluster.retrying.sleep_ms(remaining_ms)
            return [], False
        if polled:
            steps_ms = [each.opening_wait_ms for each in self._opening]
            remaining_ms = min([self._look_ups.wait_ms(remaining_ms), *steps_ms])
            if self._beside is not None:
                remaining_ms = self._beside.wait_ms(remaining_ms)
        late_ms = [leader.flight.deadline.remaining_ms for leader in self._leaders.values()]
        # When there is something to do although nothing has arrived.
        due = self._cluster.retrying.deadline(min([remaining_ms, *late_ms]))
        streams: list[Readable] = [*self._leaders.values(), *polled, *wakes]
        while True:
            ready = self._cluster.wait(streams, due.remaining_ms)
            is_partial = False
            for leader in list(self._leaders.values()):
                if leader in ready:
                    landed = self._land(leader)
                    is_partial = is_partial or landed is None
                    fetched += landed or ()
                elif leader.flight.deadline.has_passed:
                    self._give_up(leader)
            # Nothing else has happened: a response comes in pieces.
            if not (is_partial and len(ready) == 1) or due.has_passed:
                break
        if fetched:
            self._send()
        is_woken = self._wake in ready or any(each in ready for each in beside)
        return fetched, is_woken or (bool(beside) and (not ready or due.has_passed))

    def _give_up(self, leader: _Leader) -> None:
        late = CallTimedOut(f"{leader.connection.address} did not answer a fetch")
        leader.connection.close(late)
        self._lose(leader.leader_id, late)

    def _land(self, leader: _Leader) -> list[FetchedPartition] | None:
        """What its fetch has brought; None while the response is not whole."""
        try:
            outcomes = receive_fetch(leader.connection, leader.flight.positions, self._limits)
        except ClientError as error:
            self._lose(leader.leader_id, error)
            return []
        if outcomes is None:
            if not leader.flight.deadline.has_passed:
                return None
            self._give_up(leader)
            return []
        del self._leaders[leader.leader_id]
        fetched = self._machine.on_answer(leader.leader_id, outcomes)
        self._forget_stale_topics()
        return fetched

    def _lose(self, leader_id: int, error: ClientError) -> None:
        self._leaders.pop(leader_id, None)
        self._machine.on_lost(leader_id, error)
        self._forget_stale_topics()

    def _forget_stale_topics(self) -> None:
        self._cluster.forget(self._machine.take_stale_topics())
