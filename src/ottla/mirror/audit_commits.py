"""What of a copy the audit is told: the records of each event-time window, one commit after the other.  Pure.

A commit is told under its own name, so telling it again counts once.  It is stored with the progress that it belongs to
and stays there until it was told: a kill at any moment neither loses a count nor counts twice.
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
    """`windows` since `first`; `untold` was closed, and may have been told or not."""

    first: int
    windows: Mapping[int, int] = field(default_factory=dict)
    untold: AuditCommit | None = None


class AuditLedger:
    """The counts of one partition's copy.  One commit at a time is open for telling: the next one waits."""

    def __init__(self, state: AuditState) -> None:
        self._first = state.first
        self._windows = Counter(state.windows)
        self._untold = state.untold

    @property
    def state(self) -> AuditState:
        return AuditState(self._first, dict(self._windows), self._untold)

    @property
    def untold(self) -> AuditCommit | None:
        return self._untold

    @property
    def is_full(self) -> bool:
        """Nothing more is to be copied before the audit was told."""
        return len(self._windows) >= WINDOWS_MAX

    def add(self, windows: Mapping[int, int]) -> None:
        """So many records were copied."""
        self._windows.update(windows)

    def close(self, source_end: int, now_ms: int) -> bool:
        """What was copied up to `source_end` is to be told.  False: there is nothing, or the last is not told yet."""
        if self._untold is not None or not self._windows:
            return False
        self._untold = AuditCommit(self._first, source_end, dict(self._windows), now_ms)
        self._windows.clear()
        self._first = source_end
        return True

    def on_told(self) -> None:
        self._untold = None
