"""`ottla load`: topics into a lake table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from ottla.cli.client_flags import assignments, bootstrap_flag
from ottla.cli.counted import counted
from ottla.cli.job_progress import JobProgress
from ottla.cli.job_settings import KEY_VALUE, config_flag, json_flag

if TYPE_CHECKING:
    from ottla.spark.lake import LakeLoad


@click.command(name="load")
@config_flag("load")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@bootstrap_flag
@click.option("--target", required=True, metavar="PATH", help="The table's directory.")
@click.option("--event-time", metavar="SQL", default="timestamp", show_default=True, help="A Spark SQL expression.")
@click.option("--option", "options", multiple=True, metavar=KEY_VALUE, help="An option of the source; may be repeated.")
@click.option("--master", default="local[*]", show_default=True, help="Where Spark runs.")
@json_flag
def command(
    topics: tuple[str, ...],
    bootstrap: str,
    target: str,
    event_time: str,
    options: tuple[str, ...],
    master: str,
    as_json: bool,
) -> None:
    """Append the records that a Delta table does not have yet; data and offsets are one commit."""
    given = assignments(options, "--option")
    import ottla.spark
    from ottla.spark.lake import load_topic_to_lake

    with JobProgress() as progress:
        progress.show("Spark starts")
        spark = ottla.spark.session("ottla load", master=master)
        progress.show(f"loading {', '.join(topics)}")
        outcome = load_topic_to_lake(spark, bootstrap, list(topics), target, event_time=event_time, options=given)
    click.echo(json.dumps(_facts(outcome)) if as_json else _line(outcome))


def _facts(outcome: LakeLoad) -> Mapping[str, object]:
    return {
        "rows": outcome.rows_count,
        "files": outcome.files_count,
        "table_version": outcome.table_version,
        "next_offsets": {str(place): offset for place, offset in sorted(outcome.next_offsets.items())},
        "recreated_topics": sorted(outcome.recreated_topics),
    }


def _line(outcome: LakeLoad) -> str:
    if outcome.table_version is None:
        return "nothing to load"
    rows, files = counted(outcome.rows_count, "row"), counted(outcome.files_count, "file")
    return f"loaded {rows} in {files}, table version {outcome.table_version}"
