"""A time range of a table, made anew from the log: the files of its hours or days are replaced in one commit.

What the log still has is read again, with today's decoder, up to where the table has loaded it; rows of offsets that
the log no longer has, and of other topics, are carried over as they are.  So nothing is in the table twice, and
nothing that retention has deleted from the log is lost in the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ottla.model.uuid_text import uuid_to_text
from ottla.spark.errors import LakeError
from ottla.spark.lake.columns import with_columns
from ottla.spark.lake.files import LakeFiles
from ottla.spark.lake.lake_table import DataFile, LakeTable
from ottla.spark.lake.rows import DAY_US, EVENT_DATE, EVENT_HOUR, HOUR_US, TOPIC_ID, period_name
from ottla.spark.lake.target import LakeTarget
from ottla.spark.source.offset_ranges import OffsetRange

# A year of hours; a longer range is given as several.
PERIODS_MAX: Final = 366 * 24
_ROWS_AT_ONCE: Final = 100_000


def periods_of(partition_by: Sequence[str], from_ms: int, to_ms: int) -> tuple[str, frozenset[str]]:
    """The table's column of hours or days, and its values in `[from_ms, to_ms)`.

    Raises `LakeError` where the range does not begin and end with one of them.
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


def carried_over(
    table: LakeTable, location: LakeTarget, files: Sequence[DataFile], ranges: Sequence[OffsetRange]
) -> Iterator[DataFile]:
    """New files with the rows of `files` that are not of `ranges`, which are read from the log again."""
    system = location.file_system()
    read = _by_topic_and_partition(ranges)
    for file in files:
        schema = pa.schema([field for field in table.schema if field.name not in file.partition])
        writer = LakeFiles(location, (), directory=file.partition)
        with system.open_input_file(f"{location.root}/{file.path}") as source:
            for batch in pq.ParquetFile(source).iter_batches(_ROWS_AT_ONCE):
                rows = pa.table(batch)
                if TOPIC_ID not in rows.schema.names or rows.column(TOPIC_ID).null_count:
                    raise LakeError(
                        f"{table.name}: {file.path} does not say of which topics its rows are",
                        hint="rows of versions that kept no topic_id cannot be replaced: load into a new table",
                    )
                writer.add(with_columns(rows.filter(pa.array(~is_read(rows, read))), schema))
        for added in writer.close():
            yield DataFile(added.path, file.partition, added.size_bytes, added.rows_count, added.schema, added.bounds)


def is_read(rows: pa.Table, read: Mapping[tuple[str, int], OffsetRange]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which rows are of offsets that are read again."""
    ids = rows.column(TOPIC_ID).to_numpy(zero_copy_only=False)
    partitions, offsets = rows.column("partition").to_numpy(), rows.column("offset").to_numpy()
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.zeros(rows.num_rows, np.bool_)
    for (topic_id, partition), part in read.items():
        mine = (ids == topic_id) & (partitions == partition)
        found |= mine & (offsets >= part.first_offset) & (offsets < part.end_offset)
    return found


def _by_topic_and_partition(ranges: Sequence[OffsetRange]) -> dict[tuple[str, int], OffsetRange]:
    return {(uuid_to_text(part.topic_id), part.partition): part for part in ranges}
