"""The formats of tables, Delta and Iceberg, by their places and by their names in catalogs.

A format's library is imported when a table is opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from ottla.spark.errors import LakeError, TableRefused
from ottla.spark.lake.lake_table import LakeTable, TableTarget
from ottla.spark.lake.target import LakeTarget, parse_target


@dataclass(frozen=True, slots=True)
class DeltaTarget:
    """A Delta table: it is where its files are."""

    location: LakeTarget

    @property
    def name(self) -> str:
        return self.location.url

    def open(self, first_schema: pa.Schema | None, partition_by: Sequence[str] = ()) -> LakeTable:
        from ottla.spark.lake.delta_table import DeltaLake

        return DeltaLake(self.location, first_schema, partition_by)


@dataclass(frozen=True, slots=True)
class IcebergTarget:
    """An Iceberg table: its name in a catalog, and where its files are.

        IcebergTarget("lake.clicks", parse_target("s3://lake/clicks"), {"type": "rest", "uri": "https://catalog"})
        IcebergTarget("lake.clicks", catalog={"type": "glue", "warehouse": "s3://lake"})

    `catalog`: pyiceberg's properties of a catalog (its `name` is "default" unless given), or the name of one in
    pyiceberg's configuration.  A table on this machine needs none: its catalog is then a SQLite file beside it,
    `<location>.catalog.db`.  Without `location` the table is where the catalog has it, and a new one where the catalog
    puts it; `storage` has the settings of S3 then, and the catalog's count for those that it does not name.
    """

    table: str
    location: LakeTarget | None = None
    catalog: str | Mapping[str, str] | None = field(default=None, repr=False)
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        if self.location is not None:
            return self.location.url
        return f"{self.catalog}.{self.table}" if isinstance(self.catalog, str) else self.table

    def open(self, first_schema: pa.Schema | None, partition_by: Sequence[str] = ()) -> LakeTable:
        from ottla.spark.lake.iceberg_table import IcebergLake

        return IcebergLake(self.table, self.location, self.catalog, self.storage, first_schema, partition_by)


@dataclass(frozen=True, slots=True)
class UnityTarget:
    """A Delta table by its name in a Unity Catalog, `catalog.schema.table`: Databricks', or the open-source server's.

        UnityTarget("main.lake.clicks", {"uri": "https://dbc-1.cloud.databricks.com", "token": token})

    `catalog`: its `uri` and `token`; those that are not given are DATABRICKS_HOST and DATABRICKS_TOKEN of the
    environment.  The table is an external one.  With `location` a new table is created there, and registered.
    `storage` has settings of S3, as its region; credentials that are not given are lent by the catalog.
    """

    table: str
    catalog: Mapping[str, str] = field(default_factory=dict, repr=False)
    location: LakeTarget | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return self.table

    def open(self, first_schema: pa.Schema | None, partition_by: Sequence[str] = ()) -> LakeTable:
        from ottla.spark.lake.unity import UnityCatalog, UnityLake

        catalog = UnityCatalog(self.catalog)
        return UnityLake(self.table, catalog, self.location, self.storage, first_schema, partition_by)


def catalog_table(name: str, storage: Mapping[str, str] | None = None) -> IcebergTarget:
    """An Iceberg table by `catalog.schema.table`: the catalog is one of pyiceberg's configuration.

    Its files are where the catalog has the table, or puts a new one.  Raises `LakeError`, also where the catalog
    cannot be used.
    """
    catalog, _, table = name.partition(".")
    if not catalog or not all(table.split(".")) or "." not in table:
        raise LakeError(f"{name!r} names no catalog, schema and table", hint="write catalog.schema.table")
    target = IcebergTarget(table, None, catalog, storage or {})
    from ottla.spark.lake.iceberg_table import check_catalog

    check_catalog(catalog)
    return target


def table_target(
    target: str | Path | LakeTarget | TableTarget, storage: Mapping[str, str] | None = None
) -> TableTarget:
    """A place alone is that of a Delta table.  Raises `LakeError` as `parse_target` does."""
    if isinstance(target, str | Path | LakeTarget):
        return DeltaTarget(parse_target(target, storage))
    return target


def open_table(target: TableTarget, first_schema: pa.Schema, partition_by: Sequence[str]) -> LakeTable:
    """The table as it is now; created where there is none.

    Raises `LakeError`, and `TableRefused` for a table that is partitioned otherwise.
    """
    table = target.open(first_schema, partition_by)
    if table.partition_by != tuple(partition_by):
        raise TableRefused(
            f"{table.name} is partitioned by {', '.join(table.partition_by) or 'nothing'}",
            hint=f"give partition_by={table.partition_by!r}, or load into a new table",
        )
    return table
