"""Iceberg tables in a catalog that is a server: REST, as most platforms offer it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.utils.config import Config

from ottla.spark.errors import LakeError
from ottla.spark.lake.formats import IcebergTarget, catalog_table, open_table
from ottla.spark.lake.lake_table import TableCommit
from ottla.spark.lake.publishing import publish
from ottla.spark.lake.target import parse_target
from tests.iceberg_rest_server import RestCatalog
from tests.s3_server import BUCKET, S3Server

SCHEMA = pa.schema([("offset", pa.int64()), ("topic", pa.string())])


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[RestCatalog]:
    with RestCatalog(tmp_path / "catalog.db", f"file://{tmp_path}/warehouse", token="secret") as server:
        yield server


def target_in(catalog: RestCatalog, tmp_path: Path) -> IcebergTarget:
    return IcebergTarget("lake.events", parse_target(tmp_path / "events"), catalog.properties)


def test_table_is_created_and_committed_to_over_rest(catalog: RestCatalog, tmp_path: Path) -> None:
    target = target_in(catalog, tmp_path)
    table = open_table(target, SCHEMA, ("topic",))
    publish(table, TableCommit(numbers={"a": 2}, facts={"fact": "x"}), {"a": None})
    table.add_columns([pa.field("page", pa.string())])
    publish(table, TableCommit(numbers={"a": 3}), {"a": 2})
    again = target.open(None)
    assert again.number_of("a") == 3
    assert again.schema.names == ["offset", "topic", "page"]
    assert again.partition_by == ("topic",)
    assert "POST namespaces/lake/tables" in catalog.requests


def test_of_two_commits_with_the_same_numbers_the_second_is_refused(catalog: RestCatalog, tmp_path: Path) -> None:
    first, second = (target_in(catalog, tmp_path).open(SCHEMA) for _ in range(2))
    publish(first, TableCommit(numbers={"a": 1}), {"a": None})
    with pytest.raises(LakeError, match="another load of these topics"):
        publish(second, TableCommit(numbers={"a": 1}), {"a": None})
    publish(second, TableCommit(numbers={"b": 1}), {"b": None})
    first.refresh()
    assert (first.number_of("a"), first.number_of("b")) == (1, 1)


def test_first_loads_at_the_same_time_share_the_new_table(catalog: RestCatalog, tmp_path: Path) -> None:
    loads_count = 3
    together = threading.Barrier(loads_count)

    def load(number: int) -> None:
        together.wait()
        table = target_in(catalog, tmp_path).open(SCHEMA)
        publish(table, TableCommit(numbers={f"load-{number}": number}), {f"load-{number}": None})

    with ThreadPoolExecutor(loads_count) as threads:
        for loaded in [threads.submit(load, number) for number in range(loads_count)]:
            loaded.result()
    found = target_in(catalog, tmp_path).open(None)
    assert [found.number_of(f"load-{number}") for number in range(loads_count)] == list(range(loads_count))


def test_catalog_that_refuses_or_is_away_is_an_error_that_says_so(catalog: RestCatalog, tmp_path: Path) -> None:
    place = parse_target(tmp_path / "events")
    stranger = IcebergTarget("lake.events", place, {"type": "rest", "uri": catalog.uri, "token": "other"})
    with pytest.raises(LakeError, match=r"the Iceberg catalog refuses: .*who are you.*; check its credentials"):
        stranger.open(SCHEMA)
    away = IcebergTarget("lake.events", place, {"type": "rest", "uri": "http://127.0.0.1:1"})
    with pytest.raises(LakeError, match="the Iceberg table or its catalog failed"):
        away.open(SCHEMA)


def test_table_is_named_by_catalog_schema_and_table(
    catalog: RestCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog is one of pyiceberg's configuration; the place of the table is the one that it has."""
    for name, value in catalog.properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{name.upper()}", value)
    # pyiceberg has read the environment at its import.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    publish(target_in(catalog, tmp_path).open(SCHEMA), TableCommit(numbers={"a": 1}), {"a": None})
    named = catalog_table("prod.lake.events").open(None)
    assert named.location == parse_target(tmp_path / "events")
    assert named.number_of("a") == 1
    new = catalog_table("prod.lake.visits").open(SCHEMA)
    assert new.location == parse_target(tmp_path / "warehouse/lake/visits")
    with pytest.raises(LakeError, match="names no catalog, schema and table"):
        catalog_table("lake.events")
    with pytest.raises(LakeError, match=r"the catalog 'prd' is not in pyiceberg's configuration; did you mean prod\?"):
        catalog_table("prd.lake.events")
    with pytest.raises(LakeError, match=r"'stage' is not in .*; set PYICEBERG_CATALOG__STAGE__URI"):
        catalog_table("stage.lake.events")


def test_files_are_read_and_written_with_the_credentials_that_a_catalog_lends(tmp_path: Path, s3: S3Server) -> None:
    """Of a table on S3, as most catalogs of platforms lend them with each table."""
    lent = {
        "s3.endpoint": s3.endpoint,
        "s3.access-key-id": "lent",
        "s3.secret-access-key": "lent",
        "s3.session-token": "lent",
        "s3.region": "us-east-1",
    }
    with RestCatalog(tmp_path / "catalog.db", f"s3://{BUCKET}/{uuid.uuid4().hex}", lent=lent) as catalog:
        table = IcebergTarget("lake.events", catalog=catalog.properties).open(SCHEMA)
        publish(table, TableCommit(numbers={"a": 1}), {"a": None})
        assert table.location.settings["AWS_SESSION_TOKEN"] == "lent"
        lent["s3.session-token"] = "lent later"
        table.refresh()
        assert table.location.settings["AWS_SESSION_TOKEN"] == "lent later"
        own = IcebergTarget("lake.events", catalog=catalog.properties, storage=s3.storage).open(None).location
        assert own.settings["AWS_ACCESS_KEY_ID"] == "any"
        assert "AWS_SESSION_TOKEN" not in own.settings
