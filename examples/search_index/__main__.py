"""python -m examples.search_index run | query | status"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Final

import click

from ottla.cli.client_flags import bootstrap_flag
from ottla.cli.exit_status import FAILED
from ottla.cli.output import say, say_error
from ottla.cli.pipeline.job_progress import JobProgress
from ottla.client.fetching.offsets import log_ranges
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import UnknownTopic
from ottla.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.runtime.interrupts import StopRequest

from .follower import OPTIONS, Follower
from .index import Hit, LogIndex, Position
from .indexer import Indexer
from .log_line import moment_ms, moment_text

# How long a fetch waits for lines, and with it how soon a stop is noticed.
WAIT_MS: Final = 500
_AGO: Final = re.compile(r"(\d{1,9})([smhd])")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

index_flag = click.option(
    "--index", "path", type=click.Path(path_type=Path), default="logs.db", show_default=True, help="The index's file."
)


@click.group()
def program() -> None:
    """A search index over the log lines of a topic."""


@program.command()
@bootstrap_flag
@click.option("--topic", default="app-logs", show_default=True)
@index_flag
@click.option("--until-end", is_flag=True, help="End when everything is indexed.  [default: stay up]")
def run(bootstrap: str, topic: str, path: Path, until_end: bool) -> None:
    """Index what the topic has and what comes, until Ctrl-C or SIGTERM."""
    with (
        StopRequest() as stop,
        JobProgress() as progress,
        LogIndex(path, has_writes=True) as index,
        Cluster(bootstrap, OPTIONS) as cluster,
        Follower(cluster, topic, index, progress.say) as follower,
        Indexer(follower, index, bootstrap) as indexer,
    ):

        def line() -> str:
            return (
                f"{indexer.lines_count:,} lines indexed, {indexer.set_aside_count:,} records set aside, "
                f"{follower.behind:,} to go"
            )

        progress.say(f"indexing {topic} into {path}")
        indexer.run(
            lambda: stop.is_made() or (until_end and follower.is_at_end), WAIT_MS, lambda: progress.show(line())
        )
        progress.say(line())


@program.command()
@click.argument("words", nargs=-1)
@index_flag
@click.option("--service", help="Only lines of this service.")
@click.option("--level", help="Only lines of this level.")
@click.option("--since", metavar="TIME", help="Not before: 2h, 30m, or 2011-06-12T09:00:00Z.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each line.")
def query(
    words: tuple[str, ...],
    path: Path,
    service: str | None,
    level: str | None,
    since: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """The newest lines that have all WORDS; "a phrase" in quotes, and any ending by a star: time*"""
    since_ms = None if since is None else _since_ms(since)
    with LogIndex(path, has_writes=False) as index:
        hits = index.search(" ".join(words), service=service, level=level, since_ms=since_ms, limit=limit)
    for hit in hits:
        say(_as_json(hit) if as_json else _as_text(hit))


@program.command()
@bootstrap_flag
@index_flag
def status(bootstrap: str, path: Path) -> None:
    """How far each partition is indexed, and how much is to go."""
    with LogIndex(path, has_writes=False) as index, Cluster(bootstrap, OPTIONS) as cluster:
        say(f"{index.lines_count():,} lines")
        for position in index.positions():
            say(
                f"{position.topic.topic}-{position.partition}: {index.lines_count(position):,} lines, "
                f"indexed up to offset {position.next_offset}, {_to_go(cluster, position)}"
            )


def _to_go(cluster: Cluster, position: Position) -> str:
    try:
        topic = cluster.topic(position.topic.topic)
    except UnknownTopic:
        return "the topic was deleted"
    if (cluster.info.cluster_id or "", topic.topic_id) != (position.topic.cluster_id, position.topic.id):
        return "of a topic that is gone: this name is another topic's now"
    place = TopicPartition(position.topic.topic, position.partition)
    return f"{max(0, log_ranges(cluster, [place])[place].stop - position.next_offset):,} to go"


def _since_ms(text: str) -> int:
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return int(time.time() * 1000) - int(ago[1]) * _UNIT_MS[ago[2]]
    try:
        return moment_ms(text)
    except ValueError:
        raise click.UsageError(f"--since is like 2h, 30m or 2011-06-12T09:00:00Z, not {text!r}.") from None


def _as_text(hit: Hit) -> str:
    line = hit.line
    return f"{moment_text(line.at_ms)} {line.level} {line.service}: {line.message}"


def _as_json(hit: Hit) -> str:
    fields = {"time": moment_text(hit.line.at_ms), **hit.line._asdict(), **hit._asdict()}
    return json.dumps({name: fields[name] for name in fields if name not in ("at_ms", "line")})


if __name__ == "__main__":
    try:
        program()
    except OttlaError as error:
        say_error(str(error), error.hint)
        sys.exit(FAILED)
