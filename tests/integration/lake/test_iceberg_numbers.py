"""Where an Iceberg table keeps a load's numbers, when other writers add, expire and roll back snapshots."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from ottla.spark.errors import LakeError
from ottla.spark.lake.formats import IcebergTarget
from ottla.spark.lake.lake_table import TableCommit
from ottla.spark.lake.publishing import publish
from ottla.spark.lake.target import parse_target

SCHEMA = pa.schema([("offset", pa.int64()), ("topic", pa.string())])


def test_numbers_are_found_below_others_snapshots_after_expiry_and_as_of_a_rollback(tmp_path: Path) -> None:
    target = IcebergTarget("lake.events", parse_target(tmp_path / "events"))
    lake = target.open(SCHEMA, ())
    lake.commit(TableCommit(numbers={"a": 1, "b": 1}))
    lake.commit(TableCommit(numbers={"a": 2}))
    theirs = load_catalog("default", type="sql", uri=f"sqlite:///{tmp_path}/events.catalog.db").load_table(target.table)
    first = theirs.snapshots()[0]
    theirs.append(pa.table({"offset": [1], "topic": ["x"]}))
    lake.refresh()
    assert (lake.number_of("a"), lake.number_of("b")) == (2, 1)

    theirs.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    lake.refresh()
    assert (lake.number_of("a"), lake.number_of("b")) == (1, 1)

    lake.commit(TableCommit(numbers={"a": 5}))
    theirs.refresh()
    theirs.append(pa.table({"offset": [2], "topic": ["x"]}))
    newest = theirs.current_snapshot()
    assert newest is not None
    ours = [each.snapshot_id for each in theirs.snapshots() if each.snapshot_id != newest.snapshot_id]
    theirs.maintenance.expire_snapshots().by_ids(ours).commit()
    lake.refresh()
    assert (lake.number_of("a"), lake.number_of("b")) == (5, 1)


def test_first_loads_at_the_same_time_share_the_new_catalog_and_the_new_table(tmp_path: Path) -> None:
    loads_count = 4
    target = IcebergTarget("lake.events", parse_target(tmp_path / "events"))
    together = threading.Barrier(loads_count)

    def load(number: int) -> None:
        together.wait()
        lake = target.open(SCHEMA, ())
        publish(lake, TableCommit(numbers={f"load-{number}": number}), {f"load-{number}": None})

    with ThreadPoolExecutor(loads_count) as threads:
        for loaded in [threads.submit(load, number) for number in range(loads_count)]:
            loaded.result()
    found = target.open(None)
    assert [found.number_of(f"load-{number}") for number in range(loads_count)] == list(range(loads_count))


def test_a_table_outside_the_target_is_refused(tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    IcebergTarget("lake.events", parse_target(tmp_path / "events"), catalog).open(SCHEMA, ())
    elsewhere = IcebergTarget("lake.events", parse_target(tmp_path / "event"), catalog)
    for schema in (SCHEMA, None):
        with pytest.raises(LakeError, match=r"lake.events is at file://.*/events, and not at file://.*/event;"):
            elsewhere.open(schema, ())
    again = IcebergTarget("lake.events", parse_target(f"file://{tmp_path}/events/"), catalog)
    assert again.open(None).name == "lake.events"


def test_a_table_without_a_sequence_of_snapshots_is_refused(tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    theirs = load_catalog("default", **catalog)
    theirs.create_namespace("lake")
    place = parse_target(tmp_path / "events")
    theirs.create_table("lake.events", SCHEMA, location=f"file://{place.url}", properties={"format-version": "1"})
    with pytest.raises(LakeError, match=r"the table lake.events is of Iceberg's format version 1.*upgrade it"):
        IcebergTarget("lake.events", place, catalog).open(None)
