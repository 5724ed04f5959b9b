"""A log as a plain list of batches: the reference for the real one, and batches for both."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ottla.records.builder import BatchBuilder
from ottla.records.end_marker import read_end_marker
from ottla.records.header import HEADER, BatchHeader, read_header

START_MS = 1_700_000_000_000
WINDOW = 5

# (epoch, [(first sequence, last sequence, base offset, last offset delta)]) by producer id.
Producers = dict[int, tuple[int, list[tuple[int, int, int, int]]]]


class BatchShape(NamedTuple):
    """The parameters of a batch; `fill` distinguishes batches of one size."""

    records_count: int = 1
    value_bytes: int = 10
    timestamp_ms: int = START_MS
    fill: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False


@lru_cache(maxsize=4096)
def _built(shape: BatchShape) -> bytes:
    builder = BatchBuilder()
    for number in range(shape.records_count):
        builder.append(shape.timestamp_ms + number, b"key", bytes([shape.fill % 256]) * shape.value_bytes)
    return bytes(
        builder.build(
            producer_id=shape.producer_id,
            producer_epoch=shape.producer_epoch,
            base_sequence=shape.base_sequence,
            is_transactional=shape.is_transactional,
        )
    )


def batch_of(shape: BatchShape) -> memoryview:
    """A whole batch in a separate buffer, as from a request."""
    return memoryview(bytearray(_built(shape)))


class Stored(NamedTuple):
    """A batch as stored in the log, with base offset and leader epoch."""

    data: bytes
    head: BatchHeader

    @classmethod
    def of(cls, data: bytes) -> Stored:
        return cls(data, read_header(data))

    @property
    def base_offset(self) -> int:
        return self.head.base_offset

    @property
    def next_offset(self) -> int:
        return self.head.next_offset

    @property
    def epoch(self) -> int:
        return self.head.leader_epoch


def split_log(data: bytes) -> list[Stored]:
    """The batches of a log file's content; an assertion fails when it is not made of whole batches."""
    stored = []
    position = 0
    while position < len(data):
        head = HEADER.unpack_from(data, position)
        end = position + 12 + head[1]
        assert end <= len(data), f"a batch is cut at position {position}"
        stored.append(Stored.of(data[position:end]))
        position = end
    return stored


class LogModel:
    """`batches` are all that were appended and not truncated, also those that retention removed since."""

    def __init__(self) -> None:
        self.batches: list[Stored] = []
        self.log_start_offset = 0
        self.flushed_end = 0
        # The batches before a cut that is not flushed yet: a power loss may undo the cut.
        self.abandoned: list[list[Stored]] = []

    @property
    def log_end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    @property
    def state(self) -> tuple[int, ...]:
        """Another one after each change within a step of a test."""
        return (len(self.batches), self.log_start_offset, self.flushed_end, len(self.abandoned))

    def append(self, stored: Stored) -> None:
        assert stored.base_offset == self.log_end_offset, "offsets are dense"
        self.batches.append(stored)

    def end_if_truncated_to(self, offset: int) -> int:
        """Where the log ends after a cut at `offset`: below it where that is inside a batch."""
        return max([0, *(stored.next_offset for stored in self.batches if stored.next_offset <= offset)])

    def truncate_to(self, offset: int) -> None:
        end_offset = self.end_if_truncated_to(offset)
        self.batches = [stored for stored in self.batches if stored.next_offset <= end_offset]
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.flushed_end = min(self.flushed_end, end_offset)

    def all_flushed(self) -> None:
        self.flushed_end = self.log_end_offset
        self.abandoned = []

    def accept_survivors(self, found: list[Stored], log_start_offset: int, end_offset: int) -> None:
        """A power loss left `found`, from `log_start_offset` on: continue with that, if it is legal.

        It must have all flushed batches, and be a prefix of the log before or after a cut.
        """
        assert end_offset >= self.flushed_end, f"flushed up to {self.flushed_end}, left up to {end_offset}"
        for history in [self.batches, *reversed(self.abandoned)]:
            kept = [stored for stored in history if stored.next_offset <= end_offset]
            if (kept[-1].next_offset if kept else 0) != end_offset:
                continue
            if found == [stored for stored in kept if stored.next_offset > log_start_offset]:
                self.batches = kept
                self.log_start_offset = min(self.log_start_offset, end_offset)
                return
        raise AssertionError("what is left never was in the log like that")

    def data_from(self, offset: int) -> bytes:
        """All batches from the one that holds `offset` on."""
        return b"".join(stored.data for stored in self.batches if stored.next_offset > offset)

    def base_offsets(self) -> set[int]:
        return {stored.base_offset for stored in self.batches}

    def producers(self) -> Producers:
        return producers_of(self.batches)

    def epoch_starts(self) -> list[tuple[int, int]]:
        """(epoch, first offset), from all batches."""
        return epoch_starts_of(self.batches, 0)

    def epoch_end_offset(self, epoch: int, leader_epoch: int) -> tuple[int, int]:
        """Straight from the definition: the greatest epoch not above, and where the next one starts.

        `leader_epoch` was started last: before its first batch it starts at the log's end.
        """
        starts = epoch_starts_of(self.batches, self.log_start_offset)
        if not starts or starts[-1][0] < leader_epoch:
            starts = [*starts, (leader_epoch, self.log_end_offset)]
        if not 0 <= epoch <= starts[-1][0]:
            return -1, -1
        known = [start for start in starts if start[0] <= epoch]
        above = [start for start in starts if start[0] > epoch]
        return known[-1][0] if known else epoch, above[0][1] if above else self.log_end_offset

    def first_at_or_after(self, timestamp_ms: int) -> int | None:
        """The offset of the first record with that timestamp or a later one (`batch_of`: one ms apart in a batch)."""
        for stored in self.batches:
            for delta in range(stored.head.records_count):
                offset = stored.base_offset + delta
                if offset >= self.log_start_offset and stored.head.base_timestamp_ms + delta >= timestamp_ms:
                    return offset
        return None


def producers_of(batches: list[Stored]) -> Producers:
    """Each producer's epoch and the last five batches of it."""
    found: Producers = {}
    for stored in batches:
        head = stored.head
        if head.producer_id < 0:
            continue
        epoch, window = found.get(head.producer_id, (head.producer_epoch, []))
        if epoch != head.producer_epoch:
            window = []
        if head.is_control:
            found[head.producer_id] = (head.producer_epoch, window)
            continue
        last_sequence = (head.base_sequence + head.last_offset_delta) % 2**31
        window = [*window, (head.base_sequence, last_sequence, head.base_offset, head.last_offset_delta)][-WINDOW:]
        found[head.producer_id] = (head.producer_epoch, window)
    return found


class Transactions(NamedTuple):
    """Of a log's batches: the first offset of each open one by its producer, the aborted ones, coordinators' epochs."""

    open: dict[int, int]
    # First and last offset, producer, and where the oldest one that was open after it starts, or the offset after it.
    aborted: list[tuple[int, int, int, int]]
    coordinator_epochs: dict[int, int]


def transactions_of(batches: list[Stored]) -> Transactions:
    found = Transactions({}, [], {})
    for stored in batches:
        head = stored.head
        if not head.is_transactional:
            continue
        if not head.is_control:
            found.open.setdefault(head.producer_id, head.base_offset)
            continue
        marker = read_end_marker(memoryview(stored.data))
        assert marker is not None
        known_epoch = found.coordinator_epochs.get(head.producer_id, -1)
        found.coordinator_epochs[head.producer_id] = max(known_epoch, marker.coordinator_epoch)
        first_offset = found.open.pop(head.producer_id, None)
        if first_offset is not None and not marker.commits:
            stable_end = min(found.open.values(), default=head.base_offset + 1)
            found.aborted.append((first_offset, head.base_offset, head.producer_id, stable_end))
    return found


def epoch_starts_of(batches: list[Stored], log_start_offset: int) -> list[tuple[int, int]]:
    """(epoch, first offset), the first one moved up to the log's start."""
    starts: list[tuple[int, int]] = []
    for stored in batches:
        if stored.epoch >= 0 and (not starts or stored.epoch > starts[-1][0]):
            starts.append((stored.epoch, stored.base_offset))
    while len(starts) > 1 and starts[1][1] <= log_start_offset:
        starts.pop(0)
    if starts and starts[0][1] < log_start_offset:
        starts[0] = (starts[0][0], log_start_offset)
    return starts
