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
from ottla.spark.lake import UnityTarget
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
