"""How many offsets a load commits at once: so that memory is bounded for any backlog.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# The driver has all files of a commit in memory, with some 5 KiB each while it commits them.
FILES_PER_COMMIT: Final = 20_000


@dataclass(frozen=True, slots=True)
class CommitLimits:
    """`bytes_max`: of the records, in memory.  `files_max`: many hours, or other values that partition, are many."""

    rows_max: int
    bytes_max: int
    files_max: int

    def offsets_max(self, seen: Commit | None, first_offsets: int) -> int:
        """Of the commit after this one, by what its records were; of the first one at most `first_offsets`."""
        if seen is None:
            # Each record may be of an hour of its own.
            return max(1, min(self.rows_max, first_offsets, self.files_max))
        by_bytes = seen.rows_count * self.bytes_max // max(1, seen.records_bytes)
        # More rows never come in more files than in proportion.
        by_files = seen.rows_count * self.files_max // max(1, seen.files_count)
        return max(1, min(self.rows_max, by_bytes, by_files))


@dataclass(frozen=True, slots=True)
class Commit:
    """What a commit had; `rows_count` is at least 1."""

    rows_count: int
    records_bytes: int
    files_count: int
