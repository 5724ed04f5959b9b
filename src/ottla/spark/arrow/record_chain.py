"""The start of each record of a batch: the only sequential part of decoding, and most of its cost.

A record starts with its length, so the next one's position is known only after reading it.  Three walkers find them:

* `walk`           plain Python, one step a record (about 0.1 us)
* `walk_strides`   guesses that the next records are as long as this one, proves a whole run with two strided
                   comparisons, and gives up where runs are short
* `walk_together`  numpy, all batches advance in step: fast for many small batches

They only have to be safe: they end for any input, and read nothing outside the buffer.  `record_fields` checks
afterwards, for all walkers alike, whether the positions form a valid chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from ottla.spark.arrow.varint_columns import Ints, Octets, read_varints
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
