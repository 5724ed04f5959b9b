"""The interface of a table of any format for loads: columns, numbers, and one commit for files and numbers.

A new format is one module with its `TableTarget` and its `LakeTable` (docs/ARCHITECTURE.md, "Where to begin").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import pyarrow as pa

from ottla.spark.lake.target import LakeTarget

# Each commit has an id of its own among its facts, so that its writer finds it when the answer was lost.
COMMIT_ID: Final = "ottla.commit_id"
COMMITS_SEARCHED: Final = 100

# A partition's values by column, as text; None is the null partition.
PartitionValues = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """What a file's footer says of a column.

    `least` and `most`: whole numbers, days or microseconds since 1970; None where nothing is said.
    """

    nulls_count: int
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a table.  `path` is relative to the table's root.  `schema`: without the partition columns.

    `has_deletes`: the table says elsewhere that some of its rows are deleted (merge-on-read).
    """

    path: str
    partition: PartitionValues
    size_bytes: int
    rows_count: int
    schema: pa.Schema
    bounds: Mapping[str, ColumnBounds] = field(default_factory=dict)
    has_deletes: bool = False


@dataclass(frozen=True, slots=True)
class TableCommit:
    """`numbers`: by application id.  `facts` are kept beside the commit, for people and for the audit.

    `is_same_data`: rows were only moved to other files (compaction).
    """

    added: Sequence[DataFile] = ()
    removed: Sequence[DataFile] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    is_same_data: bool = False


@dataclass(frozen=True, slots=True)
class CommitFacts:
    committed_ms: int
    facts: Mapping[str, str]


class CommitConflict(Exception):
    """Another writer's commit was first; nothing was committed.  Refresh, look at the numbers, and decide."""


class LakeTable(Protocol):
    """A table as it was at its opening or its last `refresh`."""

    def refresh(self) -> None: ...

    @property
    def name(self) -> str: ...

    @property
    def location(self) -> LakeTarget:
        """The place of its files, where tasks read and write, with the storage settings that hold now."""

    @property
    def version(self) -> int: ...

    @property
    def schema(self) -> pa.Schema:
        """With the partition columns, in the types that files are to have."""

    @property
    def partition_by(self) -> tuple[str, ...]: ...

    def number_of(self, app_id: str) -> int | None: ...

    @property
    def widens_columns(self) -> bool:
        """Whether a column may get a wider type, and the table's files may have the narrower one (`columns.wider`)."""

    @property
    def takes_empty_partitions(self) -> bool:
        """Whether an empty text may partition it; else its readers take the text for null."""

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        """Nullable ones, at the end; of those that the table has, more fields or a wider type.

        Raises `CommitConflict`.
        """

    def commit(self, commit: TableCommit) -> int:
        """The new version.  Raises `CommitConflict` when files or numbers of it were changed meanwhile."""

    def newest_facts(self, commits_max: int) -> list[CommitFacts]:
        """Of the newest commits of all writers, the newest first."""

    def files(self) -> list[DataFile]: ...

    def vacuum(self, older_than_hours: float, *, dry_run: bool) -> list[str]:
        """Removes the files that no version of the table needs and that are older; their paths.

        Raises `CommitConflict`.
        """


class TableTarget(Protocol):
    """A table of one format and where it is: what a load writes into.  Opened on the driver only."""

    @property
    def name(self) -> str:
        """For people: its place, or its name where only a catalog knows the place."""

    @property
    def location(self) -> LakeTarget | None:
        """The place of its files; None where its catalog decides it, and the opened table has it."""

    def open(self, first_schema: pa.Schema | None, partition_by: Sequence[str] = ()) -> LakeTable:
        """The table as it is now; with `first_schema` it is created where there is none.

        The format's library is imported here.  Raises `LakeError`.
        """
