"""Appends to a Delta table that happen once for each version of an application, also when they are repeated.

For small tables: dead letters and the audit's results.  The files of loads are written by Spark's tasks (`load`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ottla.spark.errors import LakeError
from ottla.spark.lake.columns import check_partitions
from ottla.spark.lake.target import LakeTarget

if TYPE_CHECKING:
    from deltalake import DeltaTable

# Of writers of other applications at the same time, one wins each time.
ATTEMPTS_MAX: Final = 50


def append_once(
    target: LakeTarget, rows: pa.Table, *, app_id: str, version: int, partition_by: Sequence[str] = ()
) -> bool:
    """Append rows to a Delta table in one commit, unless it has this version of `app_id`, or a later one, already.

    Versions of one `app_id` only grow: the number of a batch, or an offset.  A table that does not exist is created,
    partitioned by `partition_by`; columns that it does not have are added to it.  True where the rows were appended,
    False where they were there.

        append_once(parse_target("s3://lake/dead"), rows, app_id=f"{query_id}/{run}", version=batch_id)

    Raises `LakeError`: a column's type is not the table's, or other writers were always faster.
    """
    from deltalake import CommitProperties, Transaction, write_deltalake
    from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError

    properties = CommitProperties(app_transactions=[Transaction(app_id, version)])
    for _ in range(ATTEMPTS_MAX):
        table = open_delta(target, rows.schema, partition_by)
        known = table.transaction_version(app_id)
        if known is not None and known >= version:
            return False
        try:
            write_deltalake(table, rows, mode="append", schema_mode="merge", commit_properties=properties)
        except CommitFailedError:
            continue
        except (SchemaMismatchError, DeltaError, pa.ArrowInvalid) as error:
            raise LakeError(f"{target.url} does not take the rows: {error}") from error
        return True
    raise LakeError(f"{target.url}: other writers were faster {ATTEMPTS_MAX} times", hint="try again")


def newest_version(target: LakeTarget, app_id: str) -> int | None:
    """The last version of `app_id` that `append_once` has appended; None: none.  Raises `LakeError`."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        if not DeltaTable.is_deltatable(target.url, target.storage_options):
            return None
        return DeltaTable(target.url, storage_options=target.storage_options).transaction_version(app_id)
    except (DeltaError, OSError) as error:
        raise LakeError(f"the table {target.url} cannot be opened: {error}") from error


def open_delta(
    target: LakeTarget, schema: pa.Schema, partition_by: Sequence[str], configuration: Mapping[str, str] | None = None
) -> DeltaTable:
    """The table as it is now; created where there is none.  Raises `LakeError`."""
    from deltalake import DeltaTable
    from deltalake.exceptions import CommitFailedError, DeltaError

    options = target.storage_options
    try:
        if not DeltaTable.is_deltatable(target.url, options):
            _refuse_iceberg(target)
            check_partitions(schema, partition_by)
            with contextlib.suppress(CommitFailedError):  # another process created it in between
                DeltaTable.create(
                    target.url,
                    schema,
                    mode="ignore",
                    partition_by=list(partition_by),
                    configuration=configuration,
                    storage_options=options,
                )
        return DeltaTable(target.url, storage_options=options)
    except (DeltaError, OSError) as error:
        raise LakeError(f"the table {target.url} cannot be opened: {error}") from error


def _refuse_iceberg(target: LakeTarget) -> None:
    """Files of two tables in one place would be removed by the vacuum of either."""
    if any(name.endswith(".metadata.json") for name in target.names_in("metadata")):
        raise LakeError(
            f"{target.url} has an Iceberg table", hint="name it in its catalog (--table), or use another place"
        )
