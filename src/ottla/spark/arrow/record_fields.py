"""The fields of all records of a buffer, column by column, with proof that every record is sound.

Record, format v2 (KIP-98): length, attributes, timestamp delta, offset delta, key length, key, value length, value,
headers count, headers.  All numbers are zigzag varints, the attributes one byte.

A record starts with its length, so the next one's position is known only after reading it: this chain is the only
sequential part of decoding, and most of its cost.  Three walkers find the positions:

* `walk`           plain Python, one step a record (about 0.1 us)
* `walk_strides`   guesses that the next records are as long as this one, proves a whole run with two strided
                   comparisons, and gives up where runs are short
* `walk_together`  numpy, all batches advance in step: fast for many small batches

They only have to be safe: they end for any input, and read nothing outside the buffer.  `read_fields` checks
afterwards, for all walkers alike, whether the positions form a valid chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.spark.arrow.varint_columns import VARLONG_BYTES_MAX, Ints, Octets, from_zigzag, read_varints
from ottla.spark.errors import UnreadableElement

# A step of all batches together costs as much as walking so many records (measured: 20 us against 0.15 us).
STEP_COST_RECORDS: Final = 128
# Below this a guess, which costs as much as walking 50 records, cannot find a long enough run.
GUESSING_RECORDS_MIN: Final = 512
# A run shorter than this many records costs more to guess than to walk.
RUN_RECORDS_WORTHWHILE: Final = 24
GUESSES_PER_REVIEW: Final = 16
FIRST_LOOK_RECORDS: Final = 64
LOOK_RECORDS_MAX: Final = 65_536
# After guessing was slower, this many batches are walked before it is tried again.
BATCHES_BETWEEN_TRIALS: Final = 31


class RecordArea(NamedTuple):
    """The uncompressed records of one batch inside a buffer: `[position, end)`, and their count in the header."""

    position: int
    end: int
    records_count: int


class ChainWalker:
    """Chooses the walker; remembers across buffers whether guessing was faster."""

    def __init__(self) -> None:
        self._walks_before_trial = 0

    def starts(self, buffer: bytes | memoryview, data: Octets, areas: Sequence[RecordArea]) -> Ints:
        """The position of every record of all areas, in order."""
        counts = np.array([area.records_count for area in areas], np.int64)
        starts = np.empty(int(counts.sum()), np.int64)
        first = np.concatenate(([0], np.cumsum(counts)[:-1]))
        if counts.max() * STEP_COST_RECORDS < len(starts):
            walk_together(data, np.array([area.position for area in areas], np.int64), counts, first, starts)
            return starts
        for area, index in zip(areas, first.tolist(), strict=True):
            self._walk_one(buffer, data, area, starts[index : index + area.records_count], index)
        return starts

    def _walk_one(self, buffer: bytes | memoryview, data: Octets, area: RecordArea, out: Ints, index: int) -> None:
        try:
            done, position = 0, area.position
            if area.records_count < GUESSING_RECORDS_MIN:
                pass
            elif self._walks_before_trial:
                self._walks_before_trial -= 1
            else:
                done, position = walk_strides(buffer, data, area, out)
                if done < area.records_count:
                    self._walks_before_trial = BATCHES_BETWEEN_TRIALS
            if done < area.records_count:
                out[done:] = walk(buffer, position, area.records_count - done)
        except IndexError:
            raise UnreadableElement(index, "a record reaches beyond the end of its batch") from None


def walk(buffer: bytes | memoryview, position: int, records_count: int) -> list[int]:
    """One step a record.  Raises IndexError where the chain leaves the buffer."""
    starts: list[int] = []
    add = starts.append
    for _ in range(records_count):
        add(position)
        byte = buffer[position]
        if byte < 128:
            position += (byte >> 1) + 1
            continue
        second = buffer[position + 1]
        if second < 128:
            position += ((second << 6) | ((byte & 127) >> 1)) + 2
        else:
            position = _behind_long(buffer, position)
    return starts


def _behind_long(buffer: bytes | memoryview, position: int) -> int:
    """The end of a record whose length has three to five bytes (the check refuses a sixth)."""
    raw = 0
    for shift in (0, 7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            break
    return position + (raw >> 1)


def walk_strides(buffer: bytes | memoryview, data: Octets, area: RecordArea, out: Ints) -> tuple[int, int]:
    """Fill `out` by guessed runs while that is faster; returns the count of records and the start of the next."""
    position, done, look = area.position, 0, FIRST_LOOK_RECORDS
    guesses = hits = 0
    while done < area.records_count:
        if guesses == GUESSES_PER_REVIEW:
            if hits < guesses * RUN_RECORDS_WORTHWHILE:
                return done, position
            guesses = hits = 0
        out[done] = position
        done += 1
        behind = _behind_long(buffer, position)
        stride, record, position = behind - position, position, behind
        run = min(area.records_count - done, (area.end - position) // stride, look)
        if run < 8:
            continue
        # Same first two bytes at every stride: the same length, for records below 8 KiB; longer ones are checked later.
        same = data[position : position + run * stride : stride] == buffer[record]
        if buffer[record] >= 128:
            same &= data[position + 1 : position + run * stride : stride] == buffer[record + 1]
        length = run if same.all() else int(same.argmin())
        out[done : done + length] = np.arange(position, position + length * stride, stride)
        done += length
        position += length * stride
        guesses += 1
        hits += length
        look = min(LOOK_RECORDS_MAX, look * 4) if length == run else FIRST_LOOK_RECORDS
    return done, position


def walk_together(data: Octets, positions: Ints, counts: Ints, first: Ints, out: Ints) -> None:
    """Step k finds record k of every batch that has so many; `first[i]` is the index of batch i's first position in
    `out`."""
    order = np.argsort(-counts, kind="stable")
    at, target = positions[order], first[order]
    # The count of batches with more than k records, for every k: they are sorted by count, so those are a prefix.
    alive = np.searchsorted(-counts[order], -np.arange(int(counts.max())), side="left")
    for step, alive_count in enumerate(alive.tolist()):
        at = at[:alive_count]
        out[target[:alive_count] + step] = at
        try:
            raw, behind = read_varints(data, at)
        except UnreadableElement as error:
            raise UnreadableElement(int(target[error.index]) + step, error.problem) from None
        at = behind + (raw >> 1)


# length, attributes, two deltas, two lengths, headers count: a byte each.
RECORD_BYTES_MIN: Final = 7
HEADER_BYTES_MIN: Final = 2


@dataclass(frozen=True, slots=True)
class ByteSpans:
    """Variable-length values inside a buffer: start and length of each; length -1 is null."""

    positions: Ints
    lengths: Ints

    def __getitem__(self, rows: slice) -> ByteSpans:
        return ByteSpans(self.positions[rows], self.lengths[rows])


@dataclass(frozen=True, slots=True)
class RecordFields:
    """One element a record.  `headers_positions` is where the first header starts, `ends` where the record ends."""

    timestamp_deltas: Ints
    offset_deltas: Ints
    keys: ByteSpans
    values: ByteSpans
    headers_counts: Ints
    headers_positions: Ints
    ends: Ints

    def __getitem__(self, rows: slice) -> RecordFields:
        return RecordFields(
            self.timestamp_deltas[rows],
            self.offset_deltas[rows],
            self.keys[rows],
            self.values[rows],
            self.headers_counts[rows],
            self.headers_positions[rows],
            self.ends[rows],
        )


def refuse_where(wrong: npt.NDArray[np.bool_], problem: str) -> None:
    """Raises `UnreadableElement` for the first True."""
    if wrong.any():
        raise UnreadableElement(int(wrong.argmax()), problem)


def read_fields(data: Octets, starts: Ints, ends: Ints) -> RecordFields:
    """Read every field.  `ends[i]` is where record i must end: the next record's start, or the end of its batch.

    Every position is at most the record's end before anything is read from it, so a read goes at most a few bytes too
    far, never out of the buffer; and a record whose fields do not end where it ends is refused.
    Raises `UnreadableElement`.
    """
    raw, at = read_varints(data, starts)
    refuse_where((raw & 1 != 0) | (at + (raw >> 1) != ends), "a record's length does not lead to the next record")
    raw, at = read_varints(data, at + 1, VARLONG_BYTES_MAX)
    timestamp_deltas = from_zigzag(raw)
    raw, at = read_varints(data, at)
    offset_deltas = from_zigzag(raw)
    keys, at = read_spans(data, at, ends, "key")
    values, at = read_spans(data, at, ends, "value")
    raw, at = read_varints(data, at)
    headers_counts = from_zigzag(raw)
    left = ends - at
    refuse_where(left < 0, "a record's fields reach beyond its end")
    refuse_where(
        (headers_counts < 0) | (headers_counts * HEADER_BYTES_MIN > left) | ((headers_counts == 0) & (left > 0)),
        "a record's headers count does not fit its length",
    )
    return RecordFields(timestamp_deltas, offset_deltas, keys, values, headers_counts, at, ends)


def read_spans(data: Octets, at: Ints, ends: Ints, what: str) -> tuple[ByteSpans, Ints]:
    """A length (-1 is null) and so many bytes, inside each record; and the positions after them."""
    raw, at = read_varints(data, at)
    lengths = from_zigzag(raw)
    behind = at + np.maximum(lengths, 0)
    refuse_where((lengths < -1) | (behind > ends), f"the length of a {what} does not fit its record")
    return ByteSpans(at, lengths), behind


def gather(data: Octets, spans: ByteSpans) -> pa.Array:
    """A `binary` column of the spans, which ascend and do not overlap; the buffer is below 2 GiB.

    A binary array with two slots a value (the gap before it, the value) is laid over the buffer without a copy;
    `take` of every second slot then copies all values in C++.
    """
    count = len(spans.positions)
    is_null = spans.lengths < 0
    if count == 0 or is_null.all():
        return pa.nulls(count, pa.binary())
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0] = 0
    offsets[1::2] = spans.positions
    np.add(spans.positions, spans.lengths, out=offsets[2::2], casting="unsafe")
    if is_null.any():
        offsets[2::2] += is_null
    slots = pa.BinaryArray.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    wanted = np.arange(1, 2 * count, 2, dtype=np.int32)
    return slots.take(pa.array(wanted, mask=is_null) if is_null.any() else pa.array(wanted))
