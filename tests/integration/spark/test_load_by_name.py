"""Loads into tables by their names in catalogs, as users call them; the tables are read back without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from ottla.cli.pipeline.load_verb import command
from ottla.spark.errors import LakeError
from ottla.spark.jvm import java_session, jvm_of
from ottla.spark.lake import UnityTarget, spark_table
from ottla.spark.lake import load as lake
from ottla.spark.lake.load import Loader
from ottla.testing import ControlledBroker, produce
from tests.unity_server import UnityServer

pytestmark = [pytest.mark.spark]


def load(*arguments: str) -> dict[str, object]:
    """The verb, in this process and its session."""
    outcome = CliRunner().invoke(command, [*arguments, "--json"])
    assert outcome.exit_code == 0, outcome.output
    found: dict[str, object] = json.loads(outcome.stdout.splitlines()[-1])
    return found


def test_tables_are_loaded_into_and_compacted_by_their_names_alone(spark: SparkSession, tmp_path: Path) -> None:
    iceberg = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    with ControlledBroker() as broker, broker.namespace() as topics, UnityServer() as unity:
        clicks = topics.topic("clicks")
        produce(clicks, [b"%d" % number for number in range(20)])
        unity.add("main.lake.clicks", f"file://{tmp_path}/delta")
        for properties, table in (
            (iceberg, "lake.clicks"),
            ({"type": "unity", **unity.properties}, "main.lake.clicks"),
        ):
            place = ("--table", table, *(f"--catalog={name}={value}" for name, value in properties.items()))
            given = (str(clicks), "-b", broker.bootstrap, *place, "--partition-by", "topic", "--rows-per-commit", "10")
            assert load(*given)["commits"] == 2
            assert load(*given)["rows"] == 0
            assert load("compact", *place)["files_before"] == 2
    found = load_catalog("default", **iceberg).load_table("lake.clicks")
    assert found.scan().to_arrow().num_rows == 20
    assert found.location() == f"file://{tmp_path}/warehouse/lake/clicks"
    assert DeltaTable(str(tmp_path / "delta")).to_pyarrow_table().num_rows == 20


def test_a_long_load_renews_what_the_catalog_lends(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake, "REFRESH_EVERY_MS", 0)
    with ControlledBroker() as broker, broker.namespace() as topics, UnityServer() as unity:
        clicks = topics.topic("clicks")
        produce(clicks, [b"%d" % number for number in range(3)])
        unity.add("main.lake.clicks", f"file://{tmp_path}/delta")
        target = UnityTarget("main.lake.clicks", unity.properties)
        loaded = Loader(spark, broker.bootstrap, str(clicks), target, rows_per_commit=1).load()
        assert (loaded.rows_count, loaded.commits_count) == (3, 3)
        # At the opening, and before each commit.
        assert unity.requests.count("GET /tables/main.lake.clicks") == 4


def register_as_delta(spark: SparkSession, name: str, place: Path) -> None:
    """As Delta's jars would, which the tests do not have: as Parquet, whose format is then changed in the catalog."""
    spark.sql(f"CREATE TABLE lake.{name} (value BINARY) USING parquet LOCATION '{place}'")
    catalog = java_session(spark).sharedState().externalCatalog()
    table = catalog.getTable("lake", name)
    fields = range(table.productArity())
    values = [getattr(table, f"copy$default${index + 1}")() for index in fields]
    provider = [table.productElementName(index) for index in fields].index("provider")
    values[provider] = jvm_of(spark.sparkContext).scala.Some("delta")
    catalog.alterTable(table.copy(*values))


def test_a_delta_table_of_sparks_own_catalog_is_loaded_into_by_its_name(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE DATABASE lake LOCATION '{tmp_path}/lake'")
    try:
        register_as_delta(spark, "clicks", tmp_path / "the clicks")
        spark.sql("CREATE TABLE lake.visits (value BINARY) USING parquet")
        with ControlledBroker() as broker, broker.namespace() as topics:
            clicks = topics.topic("clicks")
            produce(clicks, [b"%d" % number for number in range(3)])
            for name in ("lake.clicks", "spark_catalog.lake.clicks"):
                Loader(spark, broker.bootstrap, str(clicks), spark_table(spark, name)).load()
        with pytest.raises(LakeError, match=r"lake.visits is no Delta table: its format is parquet"):
            spark_table(spark, "lake.visits")
        for name in ("lake.none", "none.clicks", "clicks"):
            with pytest.raises(LakeError, match=r"Spark's catalog has no table \w+\.\w+; create it by Spark"):
                spark_table(spark, name)
        with pytest.raises(LakeError, match=r"'prod.lake.clicks' names no table of Spark's own catalog"):
            spark_table(spark, "prod.lake.clicks")
    finally:
        spark.sql("DROP DATABASE lake CASCADE")
    assert DeltaTable(str(tmp_path / "the clicks")).to_pyarrow_table().num_rows == 3
