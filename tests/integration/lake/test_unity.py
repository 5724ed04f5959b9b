"""Delta tables by their names in a Unity Catalog."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ottla.spark.errors import LakeError
from ottla.spark.lake.compaction import compact
from ottla.spark.lake.files import LakeFiles
from ottla.spark.lake.formats import DeltaTarget, UnityTarget, open_table
from ottla.spark.lake.lake_table import DataFile, LakeTable, TableCommit
from ottla.spark.lake.publishing import publish
from ottla.spark.lake.rows import RowShape
from ottla.spark.lake.target import parse_target
from tests.s3_server import BUCKET, S3Server
from tests.unity_server import UnityServer

SHAPE = RowShape(kept=("value", "headers"))
NAME = "main.lake.events"


@pytest.fixture
def unity() -> Iterator[UnityServer]:
    lent = {"access_key_id": "lent", "secret_access_key": "lent", "session_token": "lent"}
    with UnityServer(lent=lent) as server:
        yield server


def opened(target: UnityTarget) -> LakeTable:
    return open_table(target, SHAPE.first_schema, SHAPE.partition_by)


def written(table: LakeTable, *offsets: int) -> list[DataFile]:
    """Files where a task would write them, with these offsets of a partition."""
    batch = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"%d" % offset for offset in offsets]),
            "headers": pa.array([None] * len(offsets), SHAPE.first_schema.field("headers").type),
            "topic": ["clicks"] * len(offsets),
            "partition": pa.array([0] * len(offsets), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([0] * len(offsets), pa.timestamp("us", tz="UTC")),
        }
    )
    files = LakeFiles(table.location, SHAPE.partition_by)
    files.add(SHAPE.rows(batch, {"clicks": "id"}))
    return files.close()


def test_a_table_is_loaded_into_by_its_name_with_credentials_that_the_catalog_lends(
    unity: UnityServer, s3: S3Server
) -> None:
    place = parse_target(f"s3://{BUCKET}/{uuid.uuid4().hex}", s3.storage)
    DeltaTarget(place).open(SHAPE.first_schema, SHAPE.partition_by)
    unity.add(NAME, place.url)
    storage = {"AWS_ENDPOINT_URL": s3.endpoint, "AWS_REGION": "us-east-1"}
    table = opened(UnityTarget(NAME, unity.properties, storage=storage))
    publish(table, TableCommit(written(table, 0, 1), numbers={"a": 2}), {"a": None})
    assert (table.name, table.location.url) == (NAME, place.url)
    assert table.location.settings["AWS_SESSION_TOKEN"] == "lent"
    unity.lent["session_token"] = "lent later"
    table.refresh()
    assert table.location.settings["AWS_SESSION_TOKEN"] == "lent later"
    publish(table, TableCommit(written(table, 2), numbers={"a": 3}), {"a": 2})
    found = DeltaTable(place.url, storage_options=place.storage_options)
    assert sorted(found.to_pyarrow_table().column("offset").to_pylist()) == [0, 1, 2]
    assert opened(UnityTarget(NAME, unity.properties, storage=storage)).number_of("a") == 3


def test_own_credentials_are_used_where_they_are_given(unity: UnityServer, s3: S3Server) -> None:
    unity.add(NAME, f"s3://{BUCKET}/{uuid.uuid4().hex}")
    table = opened(UnityTarget(NAME, unity.properties, storage=s3.storage))
    assert table.location.settings["AWS_ACCESS_KEY_ID"] == "any"
    assert not any("temporary" in request for request in unity.requests)


def test_a_table_that_the_catalog_has_and_no_writer_yet_is_created_at_its_place(
    unity: UnityServer, tmp_path: Path
) -> None:
    unity.add(NAME, f"file://{tmp_path}/events")
    table = opened(UnityTarget(NAME, unity.properties))
    publish(table, TableCommit(written(table, 0), numbers={"a": 1}), {"a": None})
    assert DeltaTable(str(tmp_path / "events")).to_pyarrow_table().num_rows == 1


def test_a_new_table_is_created_at_the_given_place_and_registered(unity: UnityServer, tmp_path: Path) -> None:
    place = parse_target(tmp_path / "events")
    opened(UnityTarget(NAME, unity.properties, place))
    registered = unity.tables[NAME]
    assert (registered["table_type"], registered["data_source_format"]) == ("EXTERNAL", "DELTA")
    assert registered["storage_location"] == f"file://{place.url}"
    columns = {column["name"]: column for column in registered["columns"]}
    assert [column["position"] for column in registered["columns"]] == list(range(len(columns)))
    assert (columns["offset"]["type_text"], columns["offset"]["type_name"]) == ("bigint", "LONG")
    assert columns["event_time"]["type_name"] == "TIMESTAMP"
    assert columns["headers"]["type_text"] == "array<struct<key:string,value:binary>>"
    assert columns["headers"]["type_name"] == "ARRAY"
    assert json.loads(columns["value"]["type_json"])["type"] == "binary"
    assert {name: column["partition_index"] for name, column in columns.items() if "partition_index" in column} == {
        "topic": 0,
        "event_hour": 1,
    }
    by_name = opened(UnityTarget(NAME, unity.properties))
    publish(by_name, TableCommit(written(by_name, 0), numbers={"a": 1}), {"a": None})
    assert opened(UnityTarget(NAME, unity.properties, place)).number_of("a") == 1
    with pytest.raises(LakeError, match=r"main.lake.events is at .*/events, and not at .*/elsewhere"):
        opened(UnityTarget(NAME, unity.properties, parse_target(tmp_path / "elsewhere")))


def test_first_loads_at_the_same_time_share_the_new_table(unity: UnityServer, tmp_path: Path) -> None:
    loads_count = 3
    together = threading.Barrier(loads_count)

    def load(number: int) -> None:
        together.wait()
        table = opened(UnityTarget(NAME, unity.properties, parse_target(tmp_path / "events")))
        publish(table, TableCommit(written(table, number), numbers={f"load-{number}": 1}), {f"load-{number}": None})

    with ThreadPoolExecutor(loads_count) as threads:
        for loaded in [threads.submit(load, number) for number in range(loads_count)]:
            loaded.result()
    rows = DeltaTable(str(tmp_path / "events")).to_pyarrow_table()
    assert sorted(rows.column("offset").to_pylist()) == list(range(loads_count))


def test_a_table_that_the_catalog_does_not_have_needs_a_place(unity: UnityServer) -> None:
    with pytest.raises(LakeError, match=r"the Unity Catalog has no table main.lake.events; create it there .*--target"):
        opened(UnityTarget(NAME, unity.properties))
    with pytest.raises(LakeError, match=r"the Unity Catalog has no table main.lake.events"):
        compact(UnityTarget(NAME, unity.properties, parse_target("/lake/events")))
    with pytest.raises(LakeError, match=r"'lake.events' names no table of a Unity Catalog"):
        opened(UnityTarget("lake.events", unity.properties))


def test_tables_that_only_the_catalog_commits_to_and_tables_of_other_formats_are_refused(unity: UnityServer) -> None:
    unity.add("main.lake.managed", "s3://bucket/managed", table_type="MANAGED")
    unity.add("main.lake.iceberg", "s3://bucket/iceberg", data_source_format="ICEBERG")
    with pytest.raises(LakeError, match="managed is a table of the type MANAGED, and only the catalog commits to it"):
        opened(UnityTarget("main.lake.managed", unity.properties))
    with pytest.raises(LakeError, match=r"iceberg is no Delta table: ICEBERG; .*type=rest"):
        opened(UnityTarget("main.lake.iceberg", unity.properties))
    unity.add("main.lake.azure", "abfss://lake@account.dfs.core.windows.net/events")
    with pytest.raises(LakeError, match=r"the target 'abfss://.*' cannot be used"):
        opened(UnityTarget("main.lake.azure", unity.properties))


def test_a_catalog_that_refuses_or_is_away_is_an_error_that_says_so(unity: UnityServer) -> None:
    stranger = UnityTarget(NAME, {"uri": unity.uri, "token": "other"})
    with pytest.raises(LakeError, match=r"refuses: 401 Invalid access token.; give token= or DATABRICKS_TOKEN"):
        opened(stranger)
    with pytest.raises(LakeError, match=r"at http://127.0.0.1:1 does not answer"):
        opened(UnityTarget(NAME, {"uri": "http://127.0.0.1:1"}))
