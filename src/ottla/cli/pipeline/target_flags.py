"""Flags that name a lake table: a Delta table by its place, an Iceberg table by its name in a catalog, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import click

from ottla.cli.client_flags import assignments
from ottla.cli.pipeline.job_settings import KEY_VALUE
from ottla.runtime.installed import ICEBERG, LAKE, require_modules

if TYPE_CHECKING:
    from ottla.spark.lake.target import IcebergTarget, LakeTarget

F = TypeVar("F", bound=Callable[..., object])


def target_flags(function: F) -> F:
    for option in (
        click.option(
            "--catalog",
            multiple=True,
            metavar=KEY_VALUE,
            help="A property of the Iceberg table's catalog, as pyiceberg names it; may be repeated.",
        ),
        click.option("--table", metavar="NAMESPACE.NAME", help="An Iceberg table's name; without it, a Delta table."),
        click.option(
            "--storage",
            multiple=True,
            metavar=KEY_VALUE,
            help="A setting of S3, as AWS_ENDPOINT_URL; may be repeated.  [default: from the environment]",
        ),
        click.option("--target", required=True, metavar="URL", help="A path, s3://bucket/prefix or hdfs://..."),
    ):
        function = option(function)
    return function


def lake_target(
    target: str, storage: Iterable[str], table: str | None, catalog: Iterable[str]
) -> LakeTarget | IcebergTarget:
    """Raises `ConfigError` where the table's packages are not installed: before Spark starts, which takes its time."""
    if table is None:
        require_modules("a Delta table", LAKE, "lake")
    else:
        require_modules("an Iceberg table", ICEBERG, "iceberg")
    from ottla.spark.lake.target import IcebergTarget, parse_target

    properties = assignments(catalog, "--catalog")
    if properties and table is None:
        raise click.UsageError("--catalog is for an Iceberg table: name it with --table.")
    place = parse_target(target, assignments(storage, "--storage"))
    return place if table is None else IcebergTarget(table, place, properties or None)
