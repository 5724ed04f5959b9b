"""The tables that loads under kills write, and their contents at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import Table

from ottla.spark.lake.formats import IcebergTarget
from ottla.spark.lake.target import LakeTarget, parse_target

_ROWS_AT_ONCE: Final = 100_000


@dataclass(frozen=True, slots=True)
class TableSpec:
    """`storage`: settings of S3.  `catalog`: the file of an Iceberg table's catalog; empty for a Delta table.

    `is_upserted`: it has a row for each key.
    """

    name: str
    url: str
    storage: Mapping[str, str]
    catalog: str = ""
    is_upserted: bool = False

    def target(self) -> LakeTarget | IcebergTarget:
        place = parse_target(self.url, self.storage or None, {})
        if not self.catalog:
            return place
        return IcebergTarget("lake.clicks", place, {"type": "sql", "uri": f"sqlite:///{self.catalog}"})

    def rows(self) -> pa.Table:
        """Read by the table's own library."""
        table = self._opened()
        return table.to_pyarrow_table() if isinstance(table, DeltaTable) else table.scan().to_arrow()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The same rows; a file of them is in memory at a time."""
        table = self._opened()
        if not isinstance(table, DeltaTable):
            return iceberg_batches(table)
        rows = table.to_pyarrow_dataset()
        found: Iterator[pa.RecordBatch] = rows.to_batches(
            batch_size=_ROWS_AT_ONCE, batch_readahead=1, fragment_readahead=1
        )
        return found

    def _opened(self) -> DeltaTable | Table:
        target = self.target()
        if isinstance(target, LakeTarget):
            return DeltaTable(target.url, storage_options=target.storage_options)
        s3 = {
            f"s3.{name}": self.storage[variable]
            for name, variable in (
                ("endpoint", "AWS_ENDPOINT_URL"),
                ("access-key-id", "AWS_ACCESS_KEY_ID"),
                ("secret-access-key", "AWS_SECRET_ACCESS_KEY"),
                ("region", "AWS_REGION"),
            )
            if variable in self.storage
        }
        catalog = load_catalog("default", type="sql", uri=f"sqlite:///{self.catalog}", **s3)
        return catalog.load_table(target.table)


def iceberg_batches(table: Table) -> Iterator[pa.RecordBatch]:
    """File by file: the library's own reader has all files in memory."""
    scan = table.scan()
    reader = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter)
    for task in scan.plan_files():
        yield from reader.to_record_batches([task])


def problems(rows: pa.Table, log_ends: Mapping[int, int], values: Counter[bytes]) -> list[str]:
    """How the table differs from the log, in which partition p has the offsets 0 to `log_ends[p]`, exclusive."""
    found = Counter(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
    wanted = Counter((partition, offset) for partition, end in log_ends.items() for offset in range(end))
    wrong = []
    if lost := wanted - found:
        wrong.append(f"{lost.total()} records are lost, as {sorted(lost)[:5]}")
    if twice := found - wanted:
        wrong.append(f"{twice.total()} rows are too many, as {sorted(twice)[:5]}")
    if Counter(rows["value"].to_pylist()) != values:
        wrong.append("the values are not those that were produced")
    return wrong


def problems_of_keys(rows: pa.Table, expected: Mapping[bytes, bytes]) -> list[str]:
    """How the table differs from a row for each of these keys, with its value."""
    found = Counter(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))
    wanted = Counter(expected.items())
    wrong = []
    if lost := wanted - found:
        wrong.append(f"{lost.total()} rows are missing, as {sorted(lost)[:5]}")
    if others := found - wanted:
        wrong.append(f"{others.total()} rows are too many, as {sorted(others)[:5]}")
    return wrong
