"""What one answer of a fetch session holds: a walk over its candidates only."""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.fetch_read import FetchRead, read_partition
from ottla.broker.fetch_session import FetchSession, SessionPartition
from ottla.broker.partition import Partition
from ottla.broker.partition_read import PartitionRead
from ottla.broker.partition_table import PartitionTable
from ottla.model.error_code import ErrorCode
from ottla.protocol.fetch import FetchRequest


class SessionRead(NamedTuple):
    """The partitions that must be in the answer, in order of service; see `FetchRead` for the rest.

    `would_not_grow`: some run ends before its partition's readable end, in an older segment: waiting adds nothing.
    """

    reads: list[tuple[SessionPartition, PartitionRead]]
    readable_bytes: int
    is_due: bool
    would_not_grow: bool

    def by_topic(self) -> list[tuple[bytes, list[PartitionRead]]]:
        """As an answer lists them."""
        topics: dict[bytes, list[PartitionRead]] = {}
        for entry, read in self.reads:
            topics.setdefault(entry.name_bytes, []).append(read)
        return list(topics.items())


def read_session(table: PartitionTable, session: FetchSession, limit_bytes: int) -> SessionRead:
    """Read the candidates, at most `limit_bytes`; those with nothing to tell are settled.

    The first that has anything gives at least one whole batch (KIP-74).
    """
    left_bytes = limit_bytes
    readable_bytes = 0
    is_due = would_not_grow = False
    reads: list[tuple[SessionPartition, PartitionRead]] = []
    for entry in list(session.candidates):
        partition = _partition_of(table, entry)
        if isinstance(partition, ErrorCode):
            reads.append((entry, PartitionRead(entry.index, partition)))
            is_due = True
            continue
        read = read_partition(partition, entry.fetch, left_bytes, is_first=readable_bytes == 0)
        if read.run is not None:
            length_bytes = read.run.length_bytes
            readable_bytes += length_bytes
            left_bytes -= length_bytes
            would_not_grow = would_not_grow or partition.ends_in_older_segment(entry.fetch[2])
        elif read.error_code or read.diverging is not None:
            is_due = True
        elif read.high_watermark == entry.sent_high_watermark and read.log_start_offset == entry.sent_log_start:
            if entry.fetch[2] >= read.high_watermark:
                session.settle(entry)
            # Else it has records for which there was no room: its turn comes.
            continue
        reads.append((entry, read))
    return SessionRead(reads, readable_bytes, is_due, would_not_grow)


def note_sent(session: FetchSession, read: SessionRead) -> None:
    """The answer has been given: what it said need not be said again."""
    for entry, part in read.reads:
        entry.sent_high_watermark, entry.sent_log_start = part.high_watermark, part.log_start_offset
        if part.error_code:
            # Errors are told each time; who was told that a topic is gone gets the next one of its name.
            if entry.partition is not None and not entry.partition.is_served:
                entry.partition = None
        elif part.run is not None:
            session.move_behind(entry)
        elif part.diverging is None and entry.fetch[2] >= part.high_watermark:
            session.settle(entry)


def fill_session(table: PartitionTable, session: FetchSession, request: FetchRequest, read: FetchRead) -> None:
    """Begin a session with a full request and the answer that it gets."""
    reads: list[tuple[SessionPartition, PartitionRead]] = []
    for (name_bytes, wanted), (_, parts) in zip(request.topics, read.topics, strict=True):
        for fetch, part in zip(wanted, parts, strict=True):
            entry = session.put(name_bytes, fetch)
            entry.partition = table.by_name.get(name_bytes, fetch[0])
            reads.append((entry, part))
    note_sent(session, SessionRead(reads, 0, False, False))


def _partition_of(table: PartitionTable, entry: SessionPartition) -> Partition | ErrorCode:
    partition = entry.partition
    if partition is None:
        partition = entry.partition = table.by_name.get(entry.name_bytes, entry.index)
        if partition is None:
            return table.by_name.absence_error(entry.name_bytes, entry.index)
    elif not partition.is_served:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return partition
