"""Iceberg tables by their names alone: the contract of catalogs.  A catalog decides where its tables are."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from ottla.spark.errors import LakeError
from ottla.spark.lake.compaction import compact, vacuum
from ottla.spark.lake.erasure import erase
from ottla.spark.lake.files import LakeFiles
from ottla.spark.lake.formats import DeltaTarget, IcebergTarget, open_table
from ottla.spark.lake.lake_table import DataFile, LakeTable, TableCommit
from ottla.spark.lake.publishing import publish
from ottla.spark.lake.rows import RowShape
from ottla.spark.lake.target import parse_target
from tests.iceberg_rest_server import RestCatalog
from tests.s3_server import BUCKET, S3Server

HOUR_US = 3_600_000_000
SHAPE = RowShape(kept=("value",))


@dataclass
class NamedPlace:
    """A namespace that no other test has, of a catalog with a warehouse.  `default`: the place of its tables there."""

    properties: Mapping[str, str]
    warehouse: str
    namespace: str
    default: str

    def target(self, table: str = "events") -> IcebergTarget:
        return IcebergTarget(f"{self.namespace}.{table}", catalog=self.properties)

    def open(self, table: str = "events") -> LakeTable:
        return open_table(self.target(table), SHAPE.first_schema, SHAPE.partition_by)

    def offsets(self) -> list[int]:
        """Of all rows, read by a catalog that Ottla has not opened."""
        named = {"name": "default", **self.properties}
        table = load_catalog(named.pop("name"), **named).load_table(self.target().table)
        found: list[int] = table.scan().to_arrow().column("offset").to_pylist()
        return sorted(found)


def written(table: LakeTable, *offsets: int) -> list[DataFile]:
    """Files where a task would write them, with these offsets of a partition."""
    batch = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"%d" % offset for offset in offsets]),
            "topic": ["clicks"] * len(offsets),
            "partition": pa.array([0] * len(offsets), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([offset // 10 * HOUR_US for offset in offsets], pa.timestamp("us", tz="UTC")),
        }
    )
    files = LakeFiles(table.location, SHAPE.partition_by)
    files.add(SHAPE.rows(batch, {"clicks": "id"}))
    return files.close()


@pytest.fixture(params=["sql", "rest", "glue"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NamedPlace]:
    namespace, warehouse = f"lake_{uuid.uuid4().hex[:8]}", f"file://{tmp_path}/warehouse"
    if request.param == "glue":
        server: S3Server = request.getfixturevalue("s3")
        yield in_glue(server, namespace)
    elif request.param == "rest":
        with RestCatalog(tmp_path / "catalog.db", warehouse) as catalog:
            yield NamedPlace(catalog.properties, warehouse, namespace, f"{warehouse}/{namespace}")
    else:
        properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": warehouse}
        yield NamedPlace(properties, warehouse, namespace, f"{warehouse}/{namespace}")


def in_glue(server: S3Server, namespace: str) -> NamedPlace:
    warehouse = f"s3://{BUCKET}/warehouse"
    return NamedPlace({**server.glue, "warehouse": warehouse}, warehouse, namespace, f"{warehouse}/{namespace}.db")


def test_a_new_table_is_where_the_catalog_puts_it_and_is_continued_by_its_name(place: NamedPlace) -> None:
    table = place.open()
    assert table.location.url == parse_target(f"{place.default}/events").url
    publish(table, TableCommit(written(table, 0, 1), numbers={"a": 2}, facts={"fact": "x"}), {"a": None})
    again = place.target().open(None)
    assert (again.number_of("a"), again.partition_by) == (2, ("topic", "event_hour"))
    publish(again, TableCommit(written(again, 2), numbers={"a": 3}), {"a": 2})
    assert place.offsets() == [0, 1, 2]
    assert place.target().open(None).number_of("a") == 3


def test_of_two_commits_with_the_same_numbers_the_second_is_refused(place: NamedPlace) -> None:
    first, second = place.open(), place.open()
    publish(first, TableCommit(written(first, 0), numbers={"a": 1}), {"a": None})
    with pytest.raises(LakeError, match="another load of these topics"):
        publish(second, TableCommit(written(second, 0), numbers={"a": 1}), {"a": None})
    publish(second, TableCommit(written(second, 1), numbers={"b": 1}), {"b": None})
    assert place.offsets() == [0, 1]


def test_first_loads_at_the_same_time_share_the_new_catalog_namespace_and_table(place: NamedPlace) -> None:
    loads_count = 3
    together = threading.Barrier(loads_count)

    def load(number: int) -> None:
        together.wait()
        table = place.open()
        publish(table, TableCommit(written(table, number), numbers={f"load-{number}": 1}), {f"load-{number}": None})

    with ThreadPoolExecutor(loads_count) as threads:
        for loaded in [threads.submit(load, number) for number in range(loads_count)]:
            loaded.result()
    assert place.offsets() == list(range(loads_count))
    found = place.target().open(None)
    assert [found.number_of(f"load-{number}") for number in range(loads_count)] == [1] * loads_count


def test_files_are_compacted_erased_and_removed_by_the_tables_name(place: NamedPlace) -> None:
    table = place.open()
    for offset in (0, 1, 10):
        publish(table, TableCommit(written(table, offset)), {})
    done = compact(place.target())
    assert (done.files_before, done.files_after) == (2, 1)
    assert erase(place.target(), {"value": [b"1"]}).rows_count == 1
    assert place.offsets() == [0, 10]
    assert vacuum(place.target(), dry_run=True) == []
    assert len(place.target().open(None).vacuum(0, dry_run=True)) == 0


def test_a_namespaces_location_is_the_place_of_its_new_tables(place: NamedPlace) -> None:
    named = {"name": "default", **place.properties}
    own = f"{place.warehouse}/elsewhere/{place.namespace}"
    load_catalog(named.pop("name"), **named).create_namespace(place.namespace, {"location": own})
    table = place.open()
    assert table.location.url == parse_target(f"{own}/events").url
    publish(table, TableCommit(written(table, 0)), {})
    assert place.offsets() == [0]


def test_a_table_that_is_not_there_is_reported(place: NamedPlace) -> None:
    with pytest.raises(LakeError, match="there is no table"):
        compact(place.target())


def test_a_catalog_without_a_warehouse_says_that_a_new_table_needs_a_place(tmp_path: Path) -> None:
    target = IcebergTarget("lake.events", catalog={"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"})
    with pytest.raises(LakeError, match=r"has no table lake.events yet, and no place for it.*--target.*warehouse"):
        target.open(SHAPE.first_schema)


def test_a_table_needs_a_place_or_a_catalog() -> None:
    with pytest.raises(LakeError, match="the Iceberg table needs a catalog"):
        IcebergTarget("lake.events").open(SHAPE.first_schema)
    with pytest.raises(LakeError, match="storage settings of s3://lake/x and others are given"):
        IcebergTarget("lake.events", parse_target("s3://lake/x"), storage={"AWS_REGION": "x"}).open(SHAPE.first_schema)


def test_glue_tables_of_another_format_are_no_iceberg_tables(s3: S3Server) -> None:
    from pyiceberg.catalog.glue import GlueCatalog

    place = in_glue(s3, f"lake_{uuid.uuid4().hex[:8]}")
    theirs = load_catalog("default", **place.properties)
    assert isinstance(theirs, GlueCatalog)
    theirs.create_namespace(place.namespace)
    for name, parameters in (("hive", {}), ("delta", {"table_type": "DELTA"})):
        theirs.glue.create_table(DatabaseName=place.namespace, TableInput={"Name": name, "Parameters": parameters})
        with pytest.raises(LakeError, match=rf"\.{name} is in the catalog, and is no Iceberg table"):
            place.open(name)


def test_a_catalog_of_glue_without_a_login_is_an_error_that_says_so(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    stranger = {name: value for name, value in s3.glue.items() if "access-key" not in name}
    with pytest.raises(LakeError, match=r"catalog failed: Unable to locate credentials"):
        IcebergTarget("lake.events", catalog=stranger).open(None)


@pytest.mark.parametrize(("kind", "module"), [("glue", "boto3"), ("hive", "thrift")])
def test_a_catalog_whose_library_is_missing_says_what_to_install(
    kind: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, f"pyiceberg.catalog.{kind}", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(LakeError, match=rf"the catalog cannot be used: .*; pip install 'pyiceberg\[{kind}\]'"):
        IcebergTarget("lake.events", catalog={"type": kind, "uri": "thrift://127.0.0.1:1"}).open(None)


def test_a_kind_of_catalog_that_there_is_not_is_refused() -> None:
    with pytest.raises(LakeError, match="'glou' is not a valid CatalogType"):
        IcebergTarget("lake.events", catalog={"type": "glou"}).open(None)


def test_a_place_is_not_shared_by_tables_of_two_formats(tmp_path: Path) -> None:
    delta, iceberg = parse_target(tmp_path / "delta"), parse_target(tmp_path / "iceberg")
    DeltaTarget(delta).open(SHAPE.first_schema)
    IcebergTarget("lake.events", iceberg).open(SHAPE.first_schema)
    with pytest.raises(LakeError, match=r"/delta has a Delta table; load into it without --table"):
        IcebergTarget("lake.events", delta).open(SHAPE.first_schema)
    with pytest.raises(LakeError, match=r"/iceberg has an Iceberg table; name it in its catalog"):
        DeltaTarget(iceberg).open(SHAPE.first_schema)
