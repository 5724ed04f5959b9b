"""Orders of the fetch thread that cannot be carried out yet, and when each is tried again.  Pure."""

from __future__ import annotations

from ottla.client.streams.assignments import FetchOrder
from ottla.client.wire.postponed import Postponed
from ottla.client.wire.retrying import Retrying
from ottla.model.identifiers import TopicPartition


class PostponedOrders:
    """Pauses grow with each failure of a partition, until it succeeds or is ordered anew."""

    def __init__(self, retrying: Retrying) -> None:
        self._pauses = Postponed[TopicPartition](retrying)
        self._orders: dict[TopicPartition, FetchOrder] = {}

    def postpone(self, partition: TopicPartition, order: FetchOrder) -> None:
        self._pauses.postpone(partition)
        self._orders[partition] = order

    def succeeded(self, partition: TopicPartition) -> None:
        self._pauses.clear(partition)

    def drop(self, partition: TopicPartition) -> None:
        """It is ordered anew, or not any more."""
        self._pauses.clear(partition)
        self._orders.pop(partition, None)

    def take_due(self) -> dict[TopicPartition, FetchOrder]:
        due = [partition for partition in self._orders if self._pauses.may_try(partition)]
        return {partition: self._orders.pop(partition) for partition in due}

    def wait_ms(self, limit_ms: float) -> float:
        """The time until one is due; at most `limit_ms`, 0 when one has become so since `take_due`."""
        left_ms = self._pauses.next_try_ms(limit_ms)
        return 0 if any(map(self._pauses.may_try, self._orders)) else left_ms
