"""The producers of a log that was cut: from memory, and from the log only what memory does not hold any more.

A cut is made on the event loop, and its log may be long: reading all heads since the last snapshot takes about 12 s for
1 GiB of single records.  A producer whose last batch stays needs nothing.  Of one that lost batches the window may be
whole without them; else its last five batches are looked for from the cut back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from ottla.records.header import BATCH_OVERHEAD_BYTES, CONTROL_BIT, HEADER, PRODUCER_ID, TRANSACTIONAL_BIT
from ottla.runtime.disk import Disk, File
from ottla.storage.producers.producer_snapshot import load_latest_snapshot, snapshot_offsets_in
from ottla.storage.producers.producer_state import SEQUENCE_MASK, WINDOW_BATCHES, ProducerStates
from ottla.storage.producers.replay import producers_at
from ottla.storage.segment.batch_scan import HEAD_CHUNK_BYTES, BatchScan
from ottla.storage.segment.segment import Segment

# Walking through the batches of a segment from its end back, block by block, as its offset index divides it.
#
# A block starts at a batch that the index names and holds about `BLOCK_BYTES`.  Each of them is walked forwards, since
# a batch does not show where the one before it starts.

BLOCK_BYTES: Final = 64 * 1024
# A walk through the single records of a block takes about as long as a search for this many patterns.
_PATTERNS_MAX: Final = 12
# Where batches are longer than this on average their heads are read faster than all of their bytes.
_DENSE_BATCH_BYTES_MAX: Final = 8192


class WrongIndex(Exception):
    """The offset index does not fit the log: a block does not start and end with batches that follow each other."""


def blocks_backwards(segment: Segment, start_offset: int, patterns: Collection[bytes]) -> Iterator[BatchScan]:
    """A walk through each block, the last one first, to the one that holds `start_offset`.

    Blocks of short batches that hold none of `patterns`, which may change between blocks, are passed over while these
    are few.  Raises `WrongIndex`; so must the caller where a walk meets a problem.
    """
    offset_index = segment.indexes()[0]
    file = segment.open()
    end_slot, end_position = len(offset_index), segment.size_bytes
    while end_position > 0:
        slot = offset_index.slot_at(end_position - BLOCK_BYTES)
        position = offset_index.position(slot) if slot >= 0 else 0
        first_offset = _first_offset(segment, file, position, offset_index.relative_offset(slot) if slot >= 0 else None)
        size_bytes = end_position - position
        is_dense = size_bytes <= (end_slot - slot) * _DENSE_BATCH_BYTES_MAX
        if not is_dense or len(patterns) > _PATTERNS_MAX or _holds_any(file, position, size_bytes, patterns):
            yield BatchScan(file, position, end_position, size_bytes if is_dense else HEAD_CHUNK_BYTES)
        if first_offset <= start_offset:
            return
        end_slot, end_position = slot, position


def _first_offset(segment: Segment, file: File, position: int, relative_last_offset: int | None) -> int:
    """The base offset of a block's first batch, which must be the one that the index names."""
    head = file.read_at(position, BATCH_OVERHEAD_BYTES) if position >= 0 else b""
    if len(head) < BATCH_OVERHEAD_BYTES:
        raise WrongIndex
    fields = HEADER.unpack_from(head)
    base_offset: int = fields[0]
    if relative_last_offset is not None and base_offset + fields[6] != segment.base_offset + relative_last_offset:
        raise WrongIndex
    return base_offset


def _holds_any(file: File, position: int, size_bytes: int, patterns: Collection[bytes]) -> bool:
    block = file.read_at(position, size_bytes)
    return any(pattern in block for pattern in patterns)


_TRANSACTION_BITS: Final = CONTROL_BIT | TRANSACTIONAL_BIT


class _TransactionFound(Exception):
    """A producer whose transactions were forgotten lost batches: only a replay shows which one was open."""


def truncated_producers(
    disk: Disk, path: str, segments: Sequence[Segment], states: ProducerStates, end_offset: int, now_ms: int
) -> ProducerStates:
    """The producers at `end_offset`, where the log ends now, after `states`, which may be changed for it.

    They are what `producers_at` gives; but producers that were forgotten for their age stay so, and the others keep
    the time of their last activity.  With transactions `producers_at` does it.  Raises `CorruptLog`, `OSError`.
    """
    try:
        incomplete = states.truncate_to(end_offset)
        if incomplete is not None:
            if incomplete:
                _complete(disk, path, segments, states, incomplete, end_offset)
            return states
    except (WrongIndex, _TransactionFound):
        pass
    return producers_at(disk, path, segments, end_offset, now_ms, states.expiration_ms)


def _complete(
    disk: Disk,
    path: str,
    segments: Sequence[Segment],
    states: ProducerStates,
    incomplete: Iterable[int],
    end_offset: int,
) -> None:
    """Give producers the windows that they had at `end_offset`: from the log down to a snapshot, then from that."""
    search = _WindowSearch(segments, incomplete, end_offset)
    first_offset = segments[0].base_offset
    for offset in reversed(snapshot_offsets_in(disk.list_directory(path))):
        if not first_offset <= offset <= end_offset:
            continue
        search.go_back_to(offset)
        if search.is_done:
            break
        loaded = load_latest_snapshot(disk, path, offset, states.expiration_ms, [offset])
        if loaded is not None:
            search.end_with(loaded.states)
            break
    else:
        search.go_back_to(first_offset)
    for producer_id, window in search.windows.items():
        states.set_window(producer_id, window.epoch, window.batches)


class _Window:
    """A producer's last batches of one epoch, oldest first; without any it is not known."""

    __slots__ = ("batches", "epoch", "is_whole")

    def __init__(self) -> None:
        self.epoch = -1
        self.batches: list[tuple[int, int, int, int]] = []
        # Whether no older batch belongs to it.
        self.is_whole = False

    def add(self, epoch: int, batch: tuple[int, int, int, int]) -> None:
        """A newer batch."""
        if epoch != self.epoch:
            self.is_whole = bool(self.batches)
            self.epoch, self.batches = epoch, []
        if len(self.batches) == WINDOW_BATCHES:
            del self.batches[0]
        self.batches.append(batch)

    def precede(self, older: _Window) -> None:
        """The producer's state before the batches that are known here."""
        if not self.batches:
            self.epoch, self.batches, self.is_whole = older.epoch, older.batches, older.is_whole
        elif older.epoch != self.epoch:
            self.is_whole = True
        else:
            self.batches = [*older.batches, *self.batches][-WINDOW_BATCHES:]
            self.is_whole = older.is_whole
        self.is_whole = self.is_whole or len(self.batches) == WINDOW_BATCHES


class _WindowSearch:
    """A walk back from a log's end that ends as soon as the windows of some producers are whole."""

    def __init__(self, segments: Sequence[Segment], producer_ids: Iterable[int], end_offset: int) -> None:
        self.windows = {producer_id: _Window() for producer_id in producer_ids}
        self._segments = segments
        self._end_offset = end_offset
        # How the ids of those are written whose windows are not whole.
        self._wanted = {producer_id: PRODUCER_ID.pack(producer_id) for producer_id in self.windows}

    @property
    def is_done(self) -> bool:
        return not self._wanted

    def go_back_to(self, start_offset: int) -> None:
        """Look through the batches that start at `start_offset` or above, below those that were looked through."""
        for segment in reversed(self._segments):
            if segment.base_offset >= self._end_offset:
                continue
            if not self._wanted or self._end_offset <= start_offset:
                return
            for scan in blocks_backwards(segment, start_offset, self._wanted.values()):
                self._look_through(scan, start_offset)
                if not self._wanted:
                    return
            self._end_offset = max(segment.base_offset, start_offset)

    def _look_through(self, scan: BatchScan, start_offset: int) -> None:
        wanted, end_offset = self._wanted, self._end_offset
        found: dict[int, _Window] = {}
        for _, head in scan.heads():
            if head[9] in wanted and start_offset <= head[0] < end_offset:
                if head[5] & _TRANSACTION_BITS:
                    raise _TransactionFound
                last_sequence = (head[11] + head[6]) & SEQUENCE_MASK
                window = found.get(head[9])
                if window is None:
                    window = found[head[9]] = _Window()
                window.add(head[10], (head[11], last_sequence, head[0], head[6]))
        if scan.problem is not None:
            raise WrongIndex
        for producer_id, window in found.items():
            self._precede(producer_id, window)

    def _precede(self, producer_id: int, older: _Window) -> None:
        window = self.windows[producer_id]
        window.precede(older)
        if window.is_whole:
            del self._wanted[producer_id]

    def end_with(self, states: ProducerStates) -> None:
        """State older than the scanned batches is in `states`."""
        for producer_id in list(self._wanted):
            entry = states.entry(producer_id)
            if entry is None:
                continue
            if entry.is_transactional:
                raise _TransactionFound
            older = _Window()
            older.epoch, older.batches = entry.epoch, entry.batches
            self._precede(producer_id, older)
