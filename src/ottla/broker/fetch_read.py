"""What one fetch request finds in the logs: a pure walk over its partitions, without sockets or waiting."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.broker.partition import Partition
from ottla.broker.partition_read import PartitionRead
from ottla.broker.partition_table import PartitionIndex
from ottla.protocol.fetch import FetchPartition, FetchRequest

_READ_COMMITTED: Final = 1


class FetchRead(NamedTuple):
    """All partitions' parts.  `is_due`: it must be answered now, however few bytes it holds."""

    topics: list[tuple[bytes, list[PartitionRead]]]
    readable_bytes: int
    is_due: bool


def reads_committed(request: FetchRequest) -> bool:
    """Whether the reader sees committed records only, those below the last stable offset (KIP-98)."""
    return request.isolation_level == _READ_COMMITTED


def read_partitions(partitions: PartitionIndex, request: FetchRequest, size_bytes_max: int) -> FetchRead:
    """Read the partitions in request order, at most the request's and `size_bytes_max` bytes.

    The first partition that has any records gives at least one whole batch, so a consumer always progresses (KIP-74).
    """
    left_bytes = min(request.max_bytes, size_bytes_max)
    readable_bytes = 0
    is_due = False
    committed = reads_committed(request)
    topics: list[tuple[bytes, list[PartitionRead]]] = []
    for topic, wanted in request.topics:
        reads: list[PartitionRead] = []
        for fetch in wanted:
            partition = partitions.get(topic, fetch[0])
            if partition is None:
                read = PartitionRead(fetch[0], partitions.absence_error(topic, fetch[0]))
            else:
                read = read_partition(partition, fetch, left_bytes, is_first=readable_bytes == 0, committed=committed)
            if read.run is not None:
                readable_bytes += read.run.length_bytes
                left_bytes -= read.run.length_bytes
            elif read.error_code or read.diverging is not None:
                is_due = True
            reads.append(read)
        topics.append((topic, reads))
    return FetchRead(topics, readable_bytes, is_due)


def ends_in_older_segment(partitions: PartitionIndex, request: FetchRequest) -> bool:
    """Whether some partition has readable records after its run, in a later segment: waiting adds none of them."""
    for topic, wanted in request.topics:
        for fetch in wanted:
            partition = partitions.get(topic, fetch[0])
            if partition is not None and partition.ends_in_older_segment(fetch[2]):
                return True
    return False


def read_partition(
    partition: Partition, fetch: FetchPartition, left_bytes: int, *, is_first: bool, committed: bool
) -> PartitionRead:
    """One partition's part: at most `left_bytes` and its own limit, one whole batch at least if it `is_first`."""
    _, epoch, fetch_offset, last_fetched_epoch, _, size_bytes_max = fetch
    return partition.read(
        epoch,
        fetch_offset,
        last_fetched_epoch,
        min(size_bytes_max, left_bytes),
        whole_first_batch=is_first,
        reads_committed=committed,
    )
