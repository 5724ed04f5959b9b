"""What the fetch thread asks of the streams, and brings them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ottla.client.fetching.fetch import FetchedPartition
from ottla.client.streams.assignments import Assigned, Assignments, FetchOrder
from ottla.client.wire.errors import OffsetOutOfRange
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition


class FetchScheduler:
    """The streams as the fetch thread sees them; a `FetchRoom`.

    What has a token is of that order: it is ignored once the partition was ordered again.
    """

    def __init__(self, lock: threading.Lock, assignments: Assignments, make_calls: Callable[[], None]) -> None:
        self._lock = lock
        self._assignments = assignments
        self._make_calls = make_calls
        # Whose fetches are in flight, and whose have brought what is put to the others next.
        self._flying: dict[TopicPartition, Assigned] = {}
        self._landed: dict[TopicPartition, Assigned] = {}

    def take_orders(self) -> dict[TopicPartition, FetchOrder | None]:
        """What has changed since the last call; None: fetch nothing of it."""
        with self._lock:
            return self._assignments.take_orders()

    def reserve(self, partition: TopicPartition) -> int:
        with self._lock:
            assigned = self._assignments.of(partition)
            if assigned is None:
                return 0
            feed, reading = assigned
            room_bytes = feed.prefetched.reserve(reading, feed.readings_wanted_count())
            if room_bytes:
                self._flying[partition] = assigned
            return room_bytes

    def on_landed(self, partition: TopicPartition, size_bytes: int) -> None:
        with self._lock:
            assigned = self._flying.pop(partition)
            assigned.feed.prefetched.on_landed(assigned.reading, size_bytes)
            if size_bytes:
                self._landed[partition] = assigned

    def on_fetched(self, fetched: FetchedPartition, token: int | None) -> None:
        """Records have come."""
        with self._lock:
            feed, reading = self._landed.pop(fetched.partition)
            if reading.token == token and not reading.is_stopped:
                feed.prefetched.put(reading, fetched)
                feed.ring()
                return
            feed.prefetched.forget_bytes(len(fetched.records))
            if token is not None and self._assignments.of_order(fetched.partition, token) is not None:
                # It was sent for the claim before, and the fetcher continues after it: its records are fetched again.
                self._assignments.order(fetched.partition)

    def on_place(self, partition: TopicPartition, token: int, offset: int) -> None:
        """The question of the order is answered: the partition is read from `offset` on."""
        with self._lock:
            assigned = self._assignments.of_order(partition, token)
            if assigned is not None:
                self._assignments.on_place(assigned, offset)
        self._make_calls()

    def may_reset(self, partition: TopicPartition, token: int) -> bool:
        """Whether all that was fetched before was handed out, so that reading may continue elsewhere."""
        with self._lock:
            assigned = self._assignments.of_order(partition, token)
            return assigned is None or not assigned.feed.has_more_of(assigned.reading)

    def on_out_of_range(self, error: OffsetOutOfRange, token: int, log_range: range | None) -> None:
        """The log has not the offset that was ordered."""
        with self._lock:
            assigned = self._assignments.of_order(error.partition, token)
            if assigned is not None:
                self._assignments.on_out_of_range(assigned, error, log_range)

    def on_unreadable(self, partition: TopicPartition, token: int, offset: int, error: OttlaError) -> None:
        """The records at `offset` cannot be fetched, and trying again does not help."""
        with self._lock:
            assigned = self._assignments.of_order(partition, token)
            if assigned is not None:
                self._assignments.on_unreadable(assigned, offset, error)
