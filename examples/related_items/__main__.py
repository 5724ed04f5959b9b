"""python -m examples.related_items run | related"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from pyspark.sql import DataFrame

from ottla.cli.output import say

from ..stream_program import program_of, run_command, stream_flags
from .counts import Pair, PairCounts
from .visits import Rule, pairs_of, parsed, sessions_of

counts_flag = click.option(
    "--counts", "path", type=click.Path(path_type=Path), default="related.db", show_default=True, help="Their file."
)


@click.group()
def program() -> None:
    """Items that are looked at in the same sessions."""


@program.command()
@stream_flags(topic="item-views")
@counts_flag
@click.option("--gap", default=Rule().gap, show_default=True, help="A session ends when nothing comes for so long.")
@click.option("--delay", default=Rule().delay, show_default=True, help="How late views may be.")
@click.option(
    "--items-max",
    type=click.IntRange(min=2),
    default=Rule().items_max,
    show_default=True,
    help="Sessions with more items are left out.",
)
def run(path: Path, gap: str, delay: str, items_max: int, **flags: Any) -> None:
    """Count pairs of items, until Ctrl-C or SIGTERM."""
    rule = Rule(gap, delay, items_max)
    with PairCounts(path, has_writes=True) as counts:

        def count(sessions: DataFrame, batch_id: int) -> None:
            pairs = [Pair(*row) for row in pairs_of(sessions, rule).collect()]
            counts.add(_query_id(sessions), batch_id, pairs)

        program_of("related items", flags).run(
            parsed, lambda records: sessions_of(records, rule).writeStream.foreachBatch(count)
        )


@program.command()
@click.argument("item")
@counts_flag
@click.option("--top", type=click.IntRange(min=1), default=5, show_default=True, help="So many.")
def related(item: str, path: Path, top: int) -> None:
    """The items that are looked at in most sessions with ITEM."""
    with PairCounts(path, has_writes=False) as counts:
        for pair in counts.related(item, top):
            say(f"{pair.other} {pair.sessions}")


def _query_id(batch: DataFrame) -> str:
    """The same for all runs from one checkpoint."""
    query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert query_id is not None, "Spark sets it for each batch"
    return query_id


if __name__ == "__main__":
    run_command(program)
