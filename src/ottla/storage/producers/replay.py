"""State derived from a log's batches (producers, epochs), rebuilt from their heads."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ottla.observe.events import fields
from ottla.records.end_marker import EndMarker, stored_end_marker
from ottla.records.header import CONTROL_BIT, LOG_OVERHEAD_BYTES, BatchHeader
from ottla.runtime.disk import Disk, File, read_file
from ottla.storage.checkpoints import EpochStart
from ottla.storage.errors import CorruptLog
from ottla.storage.producers.aborted_transactions import AbortedIndex
from ottla.storage.producers.log_transactions import LogTransactions
from ottla.storage.producers.producer_snapshot import (
    DamagedSnapshot,
    decode_snapshot,
    load_latest_snapshot,
    snapshot_file_name,
    sync_snapshot,
    write_snapshot,
)
from ottla.storage.producers.producer_state import EXPIRATION_MS, ProducerStates
from ottla.storage.segment.batch_scan import HEAD_CHUNK_BYTES, BatchScan, BatchTuple
from ottla.storage.segment.segment import Segment

_log = logging.getLogger(__name__)

# A marker has 78.  No memory is taken for a length that is not checked.
_MARKER_BYTES_MAX: Final = 4096


def heads(segments: Sequence[Segment], start_offset: int, end_offset: int) -> Iterator[BatchTuple]:
    """The heads of the batches that start in [start_offset, end_offset), in order.  Raises `CorruptLog`."""
    for _, _, head in _batches(segments, start_offset, end_offset):
        yield head


def _batches(segments: Sequence[Segment], start_offset: int, end_offset: int) -> Iterator[tuple[File, int, BatchTuple]]:
    """File, position and head of each."""
    for slot, segment in enumerate(segments):
        is_below = slot + 1 < len(segments) and segments[slot + 1].base_offset <= start_offset
        if is_below or segment.base_offset >= end_offset:
            continue
        file = segment.open()
        position = 0
        if segment.base_offset < start_offset:
            found = segment.find(start_offset)
            if found is None:
                continue
            position = found[0]
        scan = BatchScan(file, position, segment.size_bytes, HEAD_CHUNK_BYTES)
        for at, head in scan.heads():
            if head[0] >= end_offset:
                return
            if head[0] >= start_offset:
                yield file, at, head
        if scan.problem is not None:
            raise CorruptLog(segment.log_path, scan.position, segment.base_offset, scan.problem)


def marker_at(file: File, position: int, head: BatchTuple) -> EndMarker | None:
    """The marker that ends a transaction, of the batch with this head; None where it is none."""
    size_bytes = LOG_OVERHEAD_BYTES + head[1]
    if not head[5] & CONTROL_BIT or size_bytes > _MARKER_BYTES_MAX:
        return None
    batch = file.read_at(position, size_bytes)
    return stored_end_marker(memoryview(batch)) if len(batch) == size_bytes else None


def producers_at(
    disk: Disk,
    path: str,
    segments: Sequence[Segment],
    end_offset: int,
    now_ms: int,
    expiration_ms: int,
    snapshot_offsets: Sequence[int] | None = None,
) -> ProducerStates:
    """The producers as they were at `end_offset`: the newest snapshot up to it, and the batches after that.

    Without any snapshot the whole log is read.  The directory is listed unless `snapshot_offsets` are given.  Raises
    `CorruptLog`.
    """
    loaded = load_latest_snapshot(disk, path, end_offset, expiration_ms, snapshot_offsets)
    states, start_offset = ProducerStates(expiration_ms), segments[0].base_offset
    if loaded is not None and loaded.offset >= start_offset:
        states, start_offset = loaded
    for file, position, head in _batches(segments, start_offset, end_offset):
        if head[9] >= 0:
            states.replay(BatchHeader._make(head), marker_at(file, position, head), now_ms)
    return states


def aborted_at(
    disk: Disk, path: str, segments: Sequence[Segment], segment: Segment, end_offset: int, now_ms: int
) -> AbortedIndex:
    """The aborted transactions of one segment, which ends at `end_offset`, from its batches.  Raises `CorruptLog`."""
    states = producers_at(disk, path, segments, segment.base_offset, now_ms, EXPIRATION_MS)
    transactions, found = LogTransactions(states), AbortedIndex()
    for file, position, head in _batches(segments, segment.base_offset, end_offset):
        if head[9] >= 0:
            aborted = transactions.replay(BatchHeader._make(head), marker_at(file, position, head), now_ms)
            if aborted is not None:
                found.add(aborted)
    return found


def ensure_snapshot(
    disk: Disk,
    path: str,
    segments: Sequence[Segment],
    offset: int,
    now_ms: int,
    expiration_ms: int,
    *,
    sync: bool = True,
) -> ProducerStates | None:
    """Make the producers at `offset` durable, before the batches below it are removed; None when they are lost.

    `segments` are all that there are, those to be removed included.  A roll has mostly written the snapshot already.
    Without `sync` it is written only, and durable after `sync_snapshot`.
    """
    snapshot_path = f"{path}/{snapshot_file_name(offset)}"
    try:
        if disk.exists(snapshot_path):
            states = decode_snapshot(read_file(disk, snapshot_path), expiration_ms)
            if sync:
                sync_snapshot(disk, path, offset)
            return states
    except DamagedSnapshot as error:
        _log.warning("snapshot.damaged", extra=fields(path=snapshot_path, reason=str(error)))
        disk.remove(snapshot_path)
    try:
        states = producers_at(disk, path, segments, offset, now_ms, expiration_ms)
    except CorruptLog as error:
        # These batches are removed in any case; later snapshots and batches know the rest of their producers.
        _log.warning("snapshot.not_rebuilt", extra=fields(path=snapshot_path, reason=str(error)))
        return None
    write_snapshot(disk, path, offset, states)
    if sync:
        sync_snapshot(disk, path, offset)
    return states


def epoch_starts(batch_heads: Iterable[BatchTuple], above_epoch: int) -> list[EpochStart]:
    """Where each epoch above `above_epoch` starts among some batches."""
    found = []
    for head in batch_heads:
        if head[2] > above_epoch:
            above_epoch = head[2]
            found.append(EpochStart(above_epoch, head[0]))
    return found
