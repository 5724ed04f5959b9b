"""Planning a clean: which part of a log may be cleaned now, and whether that is worth its cost.

A clean's job and its results are plain values, so that the clean can run in another process.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ottla.storage.compaction.cleaned_segment import CleanedFiles
from ottla.storage.producers.aborted_transactions import AbortedTransaction

if TYPE_CHECKING:
    from ottla.storage.log.log import Log
    from ottla.storage.producers.producer_state import ProducerStates
    from ottla.storage.segment.segment import Segment


class SourceSegment(NamedTuple):
    """A closed segment; `end_offset` (exclusive) is where the next one starts."""

    base_offset: int
    size_bytes: int
    end_offset: int


class CleanJob(NamedTuple):
    """One clean of one log.  Its segments, from the log's first on, are those below the limit."""

    path: str
    segments: tuple[SourceSegment, ...]
    # Below it every key was seen by an earlier clean.
    first_dirty_offset: int
    limit_offset: int
    kept_last_offsets: tuple[int, ...]
    now_ms: int
    delete_retention_ms: int
    # Those with records below the limit that end above it.
    aborted_later: tuple[AbortedTransaction, ...]
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes: int

    def to_json(self) -> str:
        return json.dumps(self._asdict())

    @classmethod
    def from_json(cls, text: str) -> CleanJob:
        fields = json.loads(text)
        fields["segments"] = tuple(SourceSegment(*segment) for segment in fields["segments"])
        fields["kept_last_offsets"] = tuple(fields["kept_last_offsets"])
        fields["aborted_later"] = tuple(AbortedTransaction(*each) for each in fields["aborted_later"])
        return cls(**fields)


class CleanedGroup(NamedTuple):
    """Neighbouring segments, by their base offsets, and what replaces them, durable under names of its own."""

    replaced: tuple[int, ...]
    cleaned: tuple[CleanedFiles, ...]


class CleanSummary(NamedTuple):
    """The end of a clean.  Byte counts are of `.log` files; `cleaned_end` (exclusive) is where the next one starts."""

    cleaned_end: int
    bytes_before: int
    bytes_after: int
    records_read_count: int
    records_kept_count: int
    keyless_count: int
    unreadable_batches_count: int
    keys_count: int
    # The map of keys was full before the limit: the next clean is due at once.
    is_map_full: bool


class CleanFailure(NamedTuple):
    """Why a clean ended early.  `is_damage`: the log itself is damaged, so a retry cannot succeed.  `lacks_room`: the
    disk is full."""

    reason: str
    is_damage: bool
    lacks_room: bool = False


CleanResult = CleanedGroup | CleanSummary | CleanFailure
_KINDS = {kind.__name__: kind for kind in (CleanedGroup, CleanSummary, CleanFailure)}


def result_to_json(result: CleanResult) -> str:
    return json.dumps([type(result).__name__, *result])


def result_from_json(text: str) -> CleanResult:
    """Raises `ValueError` for what `result_to_json` does not write."""
    try:
        name, *fields = json.loads(text)
        if name == CleanedGroup.__name__:
            replaced, cleaned = fields
            files = (CleanedFiles(base, size, tuple(suffixes)) for base, size, suffixes in cleaned)
            return CleanedGroup(tuple(replaced), tuple(files))
        result: CleanResult = _KINDS[name](*fields)
    except (KeyError, TypeError) as error:
        raise ValueError(f"no result of a clean: {text[:100]!r}") from error
    return result


# Which part of a log may be cleaned now, and whether that is worth its cost.
#
# Kafka's rules: closed segments only, wholly below the stable and the flushed end and the first open transaction, and
# old enough (`min.compaction.lag.ms`); when the part that no clean has seen makes up more than
# `min.cleanable.dirty.ratio`, or holds a batch older than `max.compaction.lag.ms`.


class Cleanable(NamedTuple):
    """What a clean of this log would cover.  `segments` are clean ones first, then dirty ones; ends are exclusive."""

    segments: tuple[SourceSegment, ...]
    first_dirty_offset: int
    limit_offset: int
    dirty_bytes: int
    total_bytes: int
    # A batch has waited for longer than the log allows.
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / self.total_bytes if self.total_bytes else 0.0


def cleanable(log: Log, cleaned_end: int, now_ms: int) -> Cleanable | None:
    """None when nothing may be cleaned."""
    first_dirty_offset = cleaned_end
    if not log.log_start_offset <= cleaned_end <= log.log_end_offset:
        first_dirty_offset = log.log_start_offset
    found: list[SourceSegment] = []
    dirty_bytes = 0
    end_max = clean_limit(log)
    for segment, following in pairwise(log.segments):
        end_offset = following.base_offset
        is_dirty = end_offset > first_dirty_offset
        if end_offset > end_max or (is_dirty and _is_too_young(log, segment, now_ms)):
            break
        found.append(SourceSegment(segment.base_offset, segment.size_bytes, end_offset))
        dirty_bytes += segment.size_bytes if is_dirty else 0
    if not found or found[-1].end_offset <= first_dirty_offset:
        return None
    return Cleanable(
        tuple(found),
        first_dirty_offset,
        found[-1].end_offset,
        dirty_bytes,
        sum(segment.size_bytes for segment in found),
        _is_overdue(log, first_dirty_offset, now_ms),
    )


def is_due(log: Log, part: Cleanable) -> bool:
    """Whether a clean is worth its cost."""
    return part.is_overdue or part.dirty_ratio > log.config.min_cleanable_dirty_ratio


def clean_limit(log: Log) -> int:
    """The exclusive limit of cleans: records above may still change or are not readable yet."""
    return min(log.decided_end, log.active_base_offset)


def clean_job(
    log: Log, part: Cleanable, map_bytes: int, now_ms: int, producers_at_limit: ProducerStates | None
) -> CleanJob:
    """The job of cleaning this part."""
    config = log.config
    # Not only each producer's last batch: all by which a duplicate is recognized, in case a snapshot is lost.
    # And those that were the last at the limit: a power loss may lose later appends.
    known = list(log.producers.entries())
    if producers_at_limit is not None:
        known += [each for each in producers_at_limit.entries() if log.producers.entry(each[0]) is not None]
    kept = {batch[2] + batch[3] for _, entry in known for batch in entry.batches}
    return CleanJob(
        path=log.path,
        segments=part.segments,
        first_dirty_offset=part.first_dirty_offset,
        limit_offset=part.limit_offset,
        kept_last_offsets=tuple(last_offset for last_offset in sorted(kept) if last_offset < part.limit_offset),
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        aborted_later=tuple(log.aborted.across(part.limit_offset)),
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        map_bytes=map_bytes,
    )


def _is_too_young(log: Log, segment: Segment, now_ms: int) -> bool:
    lag_ms = log.config.min_compaction_lag_ms
    return lag_ms > 0 and segment.greatest_timestamp()[0] > now_ms - lag_ms


def _is_overdue(log: Log, first_dirty_offset: int, now_ms: int) -> bool:
    """Whether a dirty closed segment starts with a batch that is too old."""
    limit_ms = now_ms - log.config.max_compaction_lag_ms
    if limit_ms <= 0:
        return False
    for segment, following in pairwise(log.segments):
        if following.base_offset > first_dirty_offset and 0 < segment.first_batch_timestamp() < limit_ms:
            return True
    return False
