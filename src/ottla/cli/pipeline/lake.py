"""`ottla lake`: what is done to a lake table besides loads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.client_flags import json_flag
from ottla.cli.output import say
from ottla.cli.pipeline.job_progress import JobProgress
from ottla.cli.pipeline.load import lake_target, target_flags
from ottla.model.counted import counted

if TYPE_CHECKING:
    import pyarrow as pa


@click.command(name="erase")
@target_flags
@click.option(
    "--key",
    "keys",
    multiple=True,
    required=True,
    metavar="COLUMN=VALUE",
    help="Of the rows to erase; several columns are a key together, and of each as many values as there are keys.",
)
@json_flag()
def erase(
    target: str | None,
    storage: tuple[str, ...],
    table: str | None,
    catalog: tuple[str, ...],
    keys: tuple[str, ...],
    as_json: bool,
) -> None:
    """Erase the rows of a key from a lake table: of loads, of upserts, or of dead letters.

    A backfill does not bring them back.  `ottla load vacuum` then removes the files that had them.
    """
    place = lake_target(target, storage, table, catalog)
    from ottla.spark.lake import erasure

    with JobProgress() as progress:
        progress.show("looking for the rows")
        done = erasure.erase(place, _values(place.open(None).schema, keys))
    if as_json:
        say(json.dumps({"rows": done.rows_count, "files": done.files_count, "table_version": done.version}))
    elif done.version is None:
        say("no such rows")
    else:
        say(f"erased {counted(done.rows_count, 'row')} from {counted(done.files_count, 'file')}")
        say("hint: readers of earlier versions have them until `ottla load vacuum` removes those files", err=True)


def _values(schema: pa.Schema, keys: Iterable[str]) -> Mapping[str, list[Any]]:
    """The texts in the types of the table's columns; bytes are texts in UTF-8."""
    import pyarrow as pa

    found: dict[str, list[Any]] = {}
    for each in keys:
        name, is_given, text = each.partition("=")
        if not is_given:
            raise click.UsageError(f"--key {each!r} is not COLUMN=VALUE.")
        kind = schema.field(name).type if name in schema.names else pa.string()
        try:
            value = pa.scalar(text, pa.string()).cast(kind).as_py()
        except pa.ArrowInvalid:
            raise click.UsageError(f"--key {each!r}: the column is {kind}.") from None
        found.setdefault(name, []).append(value)
    return found
