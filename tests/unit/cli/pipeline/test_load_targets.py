"""What the flags of a table name, before a catalog is looked at."""

from __future__ import annotations

import click
import pytest

from ottla.cli.pipeline.load import lake_target
from ottla.spark.lake.formats import DeltaTarget, IcebergTarget, UnityTarget
from ottla.spark.lake.target import parse_target

PLACE = parse_target("/lake/views")
GLUE = {"type": "glue", "warehouse": "s3://lake"}
UNITY = {"type": "unity", "uri": "https://dbc-1.example"}
REGION = {"AWS_REGION": "eu-central-1"}


def named(properties: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"{name}={value}" for name, value in properties.items())


def test_a_place_alone_is_a_delta_table() -> None:
    assert lake_target("/lake/views", (), None, ()) == DeltaTarget(PLACE)


def test_a_table_with_a_place_is_an_iceberg_table_in_a_catalog_beside_it_or_in_the_one_that_is_given() -> None:
    assert lake_target("/lake/views", (), "lake.views", ()) == IcebergTarget("lake.views", PLACE)
    assert lake_target("/lake/views", (), "lake.views", named(GLUE)) == IcebergTarget("lake.views", PLACE, GLUE)


def test_a_table_without_a_place_is_where_its_catalog_has_it() -> None:
    found = lake_target(None, named(REGION), "lake.views", named(GLUE))
    assert found == IcebergTarget("lake.views", None, GLUE, REGION)
    assert found.name == "lake.views"


def test_a_table_of_a_unity_catalog_is_a_delta_table() -> None:
    assert lake_target(None, named(REGION), "main.lake.views", named(UNITY)) == UnityTarget(
        "main.lake.views", UNITY, None, REGION
    )
    assert lake_target("/lake/views", (), "main.lake.views", named(UNITY)) == UnityTarget(
        "main.lake.views", UNITY, PLACE
    )


def test_a_table_needs_a_place_or_a_name_and_a_catalog_needs_a_table() -> None:
    with pytest.raises(click.UsageError, match="Missing option '--target'"):
        lake_target(None, (), None, ())
    with pytest.raises(click.UsageError, match="--catalog is for a table in a catalog: name it with --table"):
        lake_target("/lake/views", (), None, named(GLUE))
