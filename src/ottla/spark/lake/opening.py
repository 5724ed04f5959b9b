"""Opens a table in its format; a format's library is imported when a table has it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ottla.spark.errors import LakeError
from ottla.spark.lake.lake_table import LakeTable
from ottla.spark.lake.target import IcebergTarget, LakeTarget


def open_table(target: LakeTarget | IcebergTarget, first_schema: pa.Schema, partition_by: Sequence[str]) -> LakeTable:
    """The table as it is now; created where there is none.

    Raises `LakeError`, also for a table that is partitioned otherwise.
    """
    table = _opened(target, first_schema, partition_by)
    if table.partition_by != tuple(partition_by):
        raise LakeError(
            f"{table.name} is partitioned by {', '.join(table.partition_by) or 'nothing'}",
            hint=f"give partition_by={table.partition_by!r}, or load into a new table",
        )
    return table


def open_existing(target: LakeTarget | IcebergTarget) -> LakeTable:
    """Raises `LakeError` where there is no table."""
    return _opened(target, None, ())


def _opened(
    target: LakeTarget | IcebergTarget, first_schema: pa.Schema | None, partition_by: Sequence[str]
) -> LakeTable:
    if isinstance(target, IcebergTarget):
        from ottla.spark.lake.iceberg_table import IcebergLake

        return IcebergLake(target, first_schema, partition_by)
    from ottla.spark.lake.delta_table import DeltaLake

    return DeltaLake(target, first_schema, partition_by)
