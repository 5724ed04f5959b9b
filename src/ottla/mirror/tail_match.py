"""Which records at the target's end are copies of which records of the source: how a mirror resumes.  Pure.

The last progress says that everything below (source S, target T) is copied.  What the target has from T on was written
after that, by the same copy: so it equals the source's records from S on, as far as it goes.  Repeated
records were written by another mirror, and records that equal none of them by a foreign writer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.mirror.offset_translation import Run


class TailMatch(NamedTuple):
    """`runs`: target offsets that are copies, in order; copying continues after the last.

    duplicate_offsets   target offsets of further copies of the same records: another mirror was at work
    foreign_offsets     target offsets of records that are no copies of the source's next ones
    gap                 source offsets of records that the target never got, though it has later ones; `runs` ends below
                        them, and the later ones count as duplicates: they are copied again, in their order
    """

    runs: Sequence[Run]
    foreign_offsets: Sequence[int]
    duplicate_offsets: Sequence[int] = ()
    gap: range = range(0)

    @property
    def records_count(self) -> int:
        return sum(run.length for run in self.runs)


class Digest(NamedTuple):
    """`content` is equal for records that are."""

    offset: int
    content: int


def match_tail(
    tail: Sequence[Digest],
    source: Iterable[Digest],
    first_offset: int | None = None,
    uncompacted_from: int | None = None,
) -> TailMatch:
    """`tail`: the target's records from the last progress on; `source`: the next records of the source.

    A record that is not in the tail may have been compacted away there since; the last that is there decides.  The
    source's own gaps are not seen here: only records that a reader of the source gets count.

    `first_offset`: where the target was to store the first of the source's records; None: gaps are not looked for.
    Compaction and retention leave offsets without a record.  A copy without loss stored the n-th record (n from 0 on)
    at offset `first_offset` + n, or as much later as others wrote records before it.  A lower offset proves that the
    target never got one of the n records before.  The proof needs no look at the topic's settings, which may have been
    others when the records were written.  Where records are equal, down to their times, and the target was compacted,
    it may find a gap that is none: then more is copied again than need be.

    `uncompacted_from`: where the target's log starts, if nothing but retention takes records of it; None: compaction
    may.  Then an offset without a record explains nothing: it is a marker of another writer's transaction, or was lost.
    Only the first of the source's records can be missing, and no more of them than offsets below the log's start.
    """
    places: dict[int, list[int]] = {}
    for place, each in enumerate(tail):
        places.setdefault(each.content, []).append(place)
    runs: list[Run] = []
    matched: set[int] = set()
    copied: set[int] = set()
    next_place = 0
    # The first record since the last match that is not in the tail.
    missing: int | None = None
    gap = range(0)
    deleted_max = None if first_offset is None or uncompacted_from is None else max(0, uncompacted_from - first_offset)
    for number, record in enumerate(source):
        candidates = places.get(record.content, ())
        if candidates:
            copied.add(record.content)
        if gap:
            continue
        at = bisect_left(candidates, next_place)
        if at == len(candidates):
            missing = record.offset if missing is None else missing
            continue
        place = candidates[at]
        others_count = place - len(matched)
        is_too_low = first_offset is not None and tail[place].offset - others_count < first_offset + number
        is_not_deleted = deleted_max is not None and (bool(matched) or number > deleted_max)
        if missing is not None and (is_too_low or is_not_deleted):
            gap = range(missing, record.offset)
            continue
        missing = None
        matched.add(place)
        next_place = place + 1
        run = Run(record.offset, tail[place].offset, 1)
        last = runs[-1] if runs else None
        if last is not None and (last.source_first + last.length, last.target_first + last.length) == run[:2]:
            runs[-1] = last._replace(length=last.length + 1)
        else:
            runs.append(run)
    others = [each for place, each in enumerate(tail) if place not in matched]
    return TailMatch(
        runs,
        [each.offset for each in others if each.content not in copied],
        [each.offset for each in others if each.content in copied],
        gap,
    )
