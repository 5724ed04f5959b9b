"""What one fetch request finds in the logs: a pure walk over its partitions, without sockets or waiting."""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from ottla.broker.partition import Partition
from ottla.broker.partition_table import PartitionTable
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.observe.events import fields
from ottla.protocol.fetch import FetchPartition, FetchRequest
from ottla.runtime.disk import FileRun

_log = logging.getLogger(__name__)

_NO_OFFSET: Final = -1
_NO_EPOCH: Final = -1


class PartitionRead(NamedTuple):
    """One partition's part of the answer; offsets are -1 where an error leaves them unknown."""

    partition: int
    error_code: int
    high_watermark: int = _NO_OFFSET
    log_start_offset: int = _NO_OFFSET
    # (epoch, end offset) where the reader's history leaves ours (KIP-595)
    diverging: tuple[int, int] | None = None
    run: FileRun | None = None


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
            if partition is not None and fetch[2] < min(partition.high_watermark, partition.log.active_base_offset):
                return True
    return False


def read_partition(partition: Partition, fetch: FetchPartition, left_bytes: int, *, is_first: bool) -> PartitionRead:
    """One partition's part: at most `left_bytes` and its own limit, one whole batch at least if it `is_first`."""
    index, epoch, fetch_offset, last_fetched_epoch, _, size_bytes_max = fetch
    if epoch not in (_NO_EPOCH, partition.leader_epoch):
        is_newer = epoch > partition.leader_epoch
        return PartitionRead(index, ErrorCode.UNKNOWN_LEADER_EPOCH if is_newer else ErrorCode.FENCED_LEADER_EPOCH)
    log = partition.log
    high_watermark = partition.high_watermark
    run = None
    try:
        if last_fetched_epoch >= 0:
            diverging = log.epoch_end_offset(last_fetched_epoch)
            if diverging[0] < 0:
                # An epoch that this log has not come to: no offset tells the client where to go on.
                return PartitionRead(index, ErrorCode.OFFSET_OUT_OF_RANGE)
            if diverging[0] < last_fetched_epoch or diverging[1] < fetch_offset:
                return PartitionRead(index, 0, high_watermark, log.log_start_offset, diverging)
        if not log.log_start_offset <= fetch_offset <= log.log_end_offset:
            return PartitionRead(index, ErrorCode.OFFSET_OUT_OF_RANGE)
        limit_bytes = min(size_bytes_max, left_bytes)
        if fetch_offset < high_watermark and (limit_bytes > 0 or is_first):
            run = log.read(fetch_offset, high_watermark, max(limit_bytes, 0), whole_first_batch=is_first)
    except OttlaError as error:
        return PartitionRead(index, error.error_code)
    except OSError as error:
        # Opening or reading a closed segment failed: no descriptor left, a disk that cannot read.
        _log.error("fetch.read_failed", extra=fields(partition=partition.topic_partition, error=str(error)))
        return PartitionRead(index, ErrorCode.KAFKA_STORAGE_ERROR)
    return PartitionRead(index, 0, high_watermark, log.log_start_offset, None, run)
