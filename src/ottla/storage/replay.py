"""What is derived from a log's batches - producers, epochs - made again from their heads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ottla.records.header import BatchHeader
from ottla.runtime.disk import Disk
from ottla.storage.batch_scan import HEAD_CHUNK_BYTES, BatchScan, BatchTuple
from ottla.storage.checkpoints import EpochStart
from ottla.storage.errors import CorruptLog
from ottla.storage.producer_snapshot import load_latest_snapshot, remove_snapshots
from ottla.storage.producer_state import ProducerStates
from ottla.storage.segment import Segment


def heads(segments: Sequence[Segment], start_offset: int, end_offset: int) -> Iterator[BatchTuple]:
    """The heads of the batches that begin in [start_offset, end_offset), in order.  Raises `CorruptLog`."""
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
        for _, head in scan.heads():
            if head[0] >= end_offset:
                return
            if head[0] >= start_offset:
                yield head
        if scan.problem is not None:
            raise CorruptLog(segment.log_path, scan.position, segment.base_offset, scan.problem)


def producers_at(
    disk: Disk, path: str, segments: Sequence[Segment], end_offset: int, now_ms: int, expiration_ms: int
) -> ProducerStates:
    """The producers as they were at `end_offset`: the newest snapshot up to it, and the batches behind that.

    Snapshots above `end_offset` stand for batches that are gone or not trusted, and are removed; without any the
    whole log is read.
    """
    remove_snapshots(disk, path, above=end_offset)
    loaded = load_latest_snapshot(disk, path, end_offset, expiration_ms)
    states, start_offset = ProducerStates(expiration_ms), segments[0].base_offset
    if loaded is not None and loaded.offset >= start_offset:
        states, start_offset = loaded
    for head in heads(segments, start_offset, end_offset):
        if head[9] >= 0:
            states.replay(BatchHeader._make(head), now_ms)
    return states


def epoch_starts(batch_heads: Iterable[BatchTuple], above_epoch: int) -> list[EpochStart]:
    """Where each epoch above `above_epoch` begins among some batches."""
    found = []
    for head in batch_heads:
        if head[2] > above_epoch:
            above_epoch = head[2]
            found.append(EpochStart(above_epoch, head[0]))
    return found
