"""A clean's job and its results: plain values, so that it can run in another process."""

from __future__ import annotations

import json
from typing import NamedTuple

from ottla.storage.compaction.cleaned_segment import CleanedFiles


class SourceSegment(NamedTuple):
    """A closed segment; `end_offset` (exclusive) is where the next one begins."""

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
        return cls(**fields)


class CleanedGroup(NamedTuple):
    """Neighbouring segments, by their base offsets, and what replaces them, durable under names of its own."""

    replaced: tuple[int, ...]
    cleaned: tuple[CleanedFiles, ...]


class CleanSummary(NamedTuple):
    """The end of a clean.  Byte counts are of `.log` files; `cleaned_end` (exclusive) is where the next one begins."""

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
