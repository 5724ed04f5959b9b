"""The counts of a copy for the audit: the records of each event-time window, one commit after the other.  Pure.

A commit is published under its own name, so duplicates count once.  It is stored with the progress that it belongs to
until it is published: a kill at any moment neither loses a count nor counts twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.model.windows import DEFAULT_WINDOW_MS

MIRROR_TIER: Final = "mirror"
WINDOW_MS: Final = DEFAULT_WINDOW_MS
# All windows of a partition are stored in one record with its progress: ten weeks.
WINDOWS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class AuditCommit:
    """The copy of the source's offsets [first, end): `windows` has the records by the windows' starts."""

    first: int
    end: int
    windows: Mapping[int, int]
    closed_ms: int


@dataclass(frozen=True, slots=True)
class AuditState:
    """`windows` since `first`; `unpublished` is closed, and perhaps published."""

    first: int
    windows: Mapping[int, int] = field(default_factory=dict)
    unpublished: AuditCommit | None = None


class CopyCounts:
    """The counts of one partition's copy.  One closed commit at a time waits to be published."""

    def __init__(self, state: AuditState) -> None:
        self._first = state.first
        self._windows = Counter(state.windows)
        self._unpublished = state.unpublished

    @property
    def state(self) -> AuditState:
        return AuditState(self._first, dict(self._windows), self._unpublished)

    @property
    def unpublished(self) -> AuditCommit | None:
        return self._unpublished

    @property
    def is_full(self) -> bool:
        """Nothing more must be copied before the counts are published."""
        return len(self._windows) >= WINDOWS_MAX

    def add(self, windows: Mapping[int, int]) -> None:
        """So many records were copied."""
        self._windows.update(windows)

    def close(self, source_end: int, now_ms: int) -> bool:
        """Close the counts of the copy up to `source_end`; False without counts, or while the last are unpublished."""
        if self._unpublished is not None or not self._windows:
            return False
        self._unpublished = AuditCommit(self._first, source_end, dict(self._windows), now_ms)
        self._windows.clear()
        self._first = source_end
        return True

    def on_published(self) -> None:
        self._unpublished = None
