"""What one fetch request finds in the logs: a pure walk over its partitions, without sockets or waiting."""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.partition import Partition
from ottla.broker.partition_read import PartitionRead
from ottla.broker.partition_table import PartitionTable
from ottla.protocol.fetch import FetchPartition, FetchRequest


class FetchRead(NamedTuple):
    """All partitions' parts.  `is_due`: it must be answered now, however few bytes it holds."""

    topics: list[tuple[bytes, list[PartitionRead]]]
    readable_bytes: int
    is_due: bool


def read_partitions(table: PartitionTable, request: FetchRequest, size_bytes_max: int) -> FetchRead:
    """Walk the partitions in request order, filling at most the request's and `size_bytes_max` bytes.

    The first partition that has anything gives at least one whole batch, so a consumer always gets on (KIP-74).
    """
    left_bytes = min(request.max_bytes, size_bytes_max)
    readable_bytes = 0
    is_due = False
    topics: list[tuple[bytes, list[PartitionRead]]] = []
    for name_bytes, wanted in request.topics:
        reads: list[PartitionRead] = []
        for fetch in wanted:
            partition = table.by_name.get(name_bytes, fetch[0])
            if partition is None:
                read = PartitionRead(fetch[0], table.by_name.absence_error(name_bytes, fetch[0]))
            else:
                read = read_partition(partition, fetch, left_bytes, is_first=readable_bytes == 0)
            if read.run is not None:
                readable_bytes += read.run.length_bytes
                left_bytes -= read.run.length_bytes
            elif read.error_code or read.diverging is not None:
                is_due = True
            reads.append(read)
        topics.append((name_bytes, reads))
    return FetchRead(topics, readable_bytes, is_due)


def ends_in_older_segment(table: PartitionTable, request: FetchRequest) -> bool:
    """Whether some partition has readable records behind its run, in a later segment: waiting adds none of them."""
    for name_bytes, wanted in request.topics:
        for fetch in wanted:
            partition = table.by_name.get(name_bytes, fetch[0])
            if partition is not None and partition.ends_in_older_segment(fetch[2]):
                return True
    return False


def read_partition(partition: Partition, fetch: FetchPartition, left_bytes: int, *, is_first: bool) -> PartitionRead:
    """One partition's part: at most `left_bytes` and its own limit, one whole batch at least if it `is_first`."""
    _, epoch, fetch_offset, last_fetched_epoch, _, size_bytes_max = fetch
    return partition.read(
        epoch, fetch_offset, last_fetched_epoch, min(size_bytes_max, left_bytes), whole_first_batch=is_first
    )
