"""Writes the markers of transactions to the partitions that this broker leads, for its own coordinator and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.broker.partitions.partition import NO_WAIT
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.broker.partitions.waiting_requests import ACKS_ALL
from ottla.broker.tree.broker_lifecycle import BrokerLifecycle
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from ottla.records.end_marker import EndMarker
from ottla.runtime.clock import Clock
from ottla.transactions.end_markers import EndMarkers


class GroupMarkers(Protocol):
    """Writes markers to the partitions of `__consumer_offsets`, whose groups have pending offsets."""

    def write_marker(self, index: int, markers: EndMarkers, on_done: Callable[[ErrorCode], None]) -> None:
        """See `MarkerWriting.write`."""
        ...


class MarkerWriter:
    """`MarkerWriting` of the context.  `lifecycle`: this broker among others."""

    def __init__(
        self, partitions: PartitionTable, clock: Clock, lifecycle: BrokerLifecycle, groups: GroupMarkers
    ) -> None:
        self._partitions = partitions
        self._clock = clock
        self._lifecycle = lifecycle
        self._groups = groups

    def write(self, partition: TopicPartition, markers: EndMarkers, on_done: Callable[[ErrorCode], None]) -> None:
        """See `MarkerWriting.write`.  The partition is one of those that the markers are for."""
        if partition.topic == TRANSACTIONS_TOPIC:
            # No transaction has records there, and its shard expects that only its own appends move the log's end.
            on_done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        found = self._partitions.find(partition.topic, partition.partition)
        if found is None:
            on_done(self._partitions.absence_error(partition.topic, partition.partition))
            return
        if self._lifecycle.is_uncertain(self._clock.boottime_ms()):
            on_done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if partition.topic == OFFSETS_TOPIC:
            self._groups.write_marker(partition.partition, markers, on_done)
            return
        try:
            required_end = found.append_marker(
                EndMarker(markers.commits, markers.coordinator_epoch),
                markers.producer_id,
                markers.producer_epoch,
                self._clock.now_ms(),
                advances_epoch=markers.advances_epoch,
            )
        except OttlaError as error:
            on_done(error.error_code)
            return
        if required_end == NO_WAIT:
            on_done(ErrorCode.NONE)
        else:
            found.waiting.park_produce(required_end, ACKS_ALL, _WaitingMarker(on_done), 0)


class _WaitingMarker:
    """`ParkedProduce` of one marker."""

    __slots__ = ("_on_done",)

    def __init__(self, on_done: Callable[[ErrorCode], None]) -> None:
        self._on_done = on_done

    def release(self, slot: int) -> None:
        self._on_done(ErrorCode.NONE)

    def fail(self, slot: int, error_code: int) -> None:
        self._on_done(ErrorCode(error_code))

    def is_expired(self, now_ms: int) -> bool:
        return False

    def expire(self) -> None:
        """Never called: the sender of the marker decides how long it waits."""
