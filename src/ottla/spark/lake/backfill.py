"""A time range of a table, loaded again from the log: the files of its hours or days are replaced in one commit.

The offsets of the rows in those files decide, never their times: exactly these records are read again, and come where
today's decoder and event time put them, be it another hour.  Rows of offsets that the log no longer has, and of other
topics, are carried over as they are.  So each offset is in the table as often as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ottla.model.identifiers import uuid_to_text
from ottla.spark.errors import LakeError
from ottla.spark.lake.columns import with_columns
from ottla.spark.lake.files import LakeFiles
from ottla.spark.lake.lake_table import DataFile, LakeTable
from ottla.spark.lake.offset_runs import OffsetRuns, OffsetsByPartition, Place, is_among, is_of_place
from ottla.spark.lake.rows import DAY_US, EVENT_DATE, EVENT_HOUR, HOUR_US, TOPIC_ID, period_name
from ottla.spark.lake.target import LakeTarget
from ottla.spark.source.offset_ranges import ROWS_PER_TASK_MIN, OffsetRange

# A year of hours; a longer range is given as several.
PERIODS_MAX: Final = 366 * 24
_ROWS_AT_ONCE: Final = 100_000


def periods_of(partition_by: Sequence[str], from_ms: int, to_ms: int) -> tuple[str, frozenset[str]]:
    """The table's column of hours or days, and its values in `[from_ms, to_ms)`.

    Raises `LakeError` where the range does not start and end with one of them.
    """
    if EVENT_HOUR in partition_by:
        column, period_us, form, noun = EVENT_HOUR, HOUR_US, "%Y-%m-%d-%H", "hour"
    elif EVENT_DATE in partition_by:
        column, period_us, form, noun = EVENT_DATE, DAY_US, "%Y-%m-%d", "day"
    else:
        raise LakeError(
            "a backfill replaces hours or days, and the table is not partitioned by them",
            hint=f"load into a table that is partitioned by {EVENT_HOUR} or {EVENT_DATE}",
        )
    first, first_rest = divmod(from_ms * 1000, period_us)
    end, end_rest = divmod(to_ms * 1000, period_us)
    if first_rest or end_rest or not first < end:
        raise LakeError(
            f"[{from_ms}, {to_ms}) ms are no whole {noun}s", hint=f"begin and end with a full {noun} in UTC"
        )
    if end - first > PERIODS_MAX:
        raise LakeError(f"{end - first} {noun}s are more than {PERIODS_MAX}", hint="backfill one part after the other")
    return column, frozenset(period_name(number * period_us, form) for number in range(first, end))


def files_of(table: LakeTable, column: str, periods: frozenset[str], topics: Sequence[str]) -> list[DataFile]:
    """The table's files of these periods; of other topics they are left alone where the table keeps topics apart."""
    return [
        file
        for file in table.files()
        if file.partition[column] in periods and file.partition.get("topic", topics[0]) in topics
    ]


def offsets_of(
    table: LakeTable, location: LakeTarget, files: Sequence[DataFile], ranges: Sequence[OffsetRange]
) -> tuple[OffsetsByPartition, list[DataFile], list[DataFile]]:
    """The offsets of these files' rows that are in `ranges`; the files that have such rows, and those of them that have
    other rows, too.

    Raises `LakeError` for rows whose topic is not known, and for files with deleted rows: they would be back.
    """
    system = location.file_system()
    runs: dict[Place, list[OffsetRuns]] = {}
    replaced: list[DataFile] = []
    mixed: list[DataFile] = []
    for file in files:
        if file.has_deletes:
            raise LakeError(
                f"{table.name}: rows of {file.path} were deleted by another writer, and would be back",
                hint="rewrite the file with that writer first (OPTIMIZE or PURGE, rewrite_data_files)",
            )
        is_found, is_whole = False, True
        with system.open_input_file(f"{location.root}/{file.path}") as source:
            parquet = pq.ParquetFile(source)
            if TOPIC_ID not in parquet.schema_arrow.names:
                raise _without_topic(table, file)
            for batch in parquet.iter_batches(_ROWS_AT_ONCE, columns=[TOPIC_ID, "partition", "offset"]):
                if batch.column(TOPIC_ID).null_count:
                    raise _without_topic(table, file)
                is_read = np.zeros(batch.num_rows, np.bool_)
                for part in ranges:
                    mine = is_of_place(batch, uuid_to_text(part.topic_id), part.partition)
                    offsets = batch.column("offset").to_numpy()
                    mine &= (offsets >= part.first_offset) & (offsets < part.end_offset)
                    if mine.any():
                        place = (uuid_to_text(part.topic_id), part.partition)
                        runs.setdefault(place, []).append(OffsetRuns.of(offsets[mine]))
                        is_read |= mine
                is_found |= bool(is_read.any())
                is_whole &= bool(is_read.all())
        if is_found:
            replaced.append(file)
            mixed += [] if is_whole else [file]
    return {place: OffsetRuns.joined(found) for place, found in runs.items()}, replaced, mixed


def ranges_of(offsets: OffsetsByPartition, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """What is read of `ranges` to find these offsets: without the gaps that are worth a task of their own."""
    found = []
    for part in ranges:
        runs = offsets.get((uuid_to_text(part.topic_id), part.partition))
        if runs is not None:
            found += [
                replace(part, first_offset=first, end_offset=end) for first, end in runs.stretches(ROWS_PER_TASK_MIN)
            ]
    return found


def carried_over(
    table: LakeTable, location: LakeTarget, files: Sequence[DataFile], offsets: OffsetsByPartition
) -> Iterator[DataFile]:
    """New files with the rows of `files` that are not of `offsets`, which are read from the log again."""
    system = location.file_system()
    for file in files:
        schema = pa.schema([field for field in table.schema if field.name not in file.partition])
        writer = LakeFiles(location, (), directory=file.partition)
        with system.open_input_file(f"{location.root}/{file.path}") as source:
            for batch in pq.ParquetFile(source).iter_batches(_ROWS_AT_ONCE):
                rows = batch.filter(pa.array(~is_among(batch, offsets)))
                writer.add(with_columns(pa.table(rows), schema))
        for added in writer.close():
            yield replace(added, partition=file.partition)


def _without_topic(table: LakeTable, file: DataFile) -> LakeError:
    return LakeError(
        f"{table.name}: {file.path} does not say of which topics its rows are",
        hint="rows of versions that kept no topic_id cannot be replaced: load into a new table",
    )
