"""python -m examples.clean_views"""

from __future__ import annotations

import sys
from typing import Final

import click

import ottla
from ottla.cli.client_flags import bootstrap_flag
from ottla.cli.exit_status import FAILED
from ottla.cli.output import say_error
from ottla.cli.pipeline.job_progress import JobProgress
from ottla.client.streams.message_stream import MessageStream
from ottla.errors import NotAssigned, OttlaError
from ottla.runtime.interrupts import StopRequest

from .cleaner import Cleaner

# How long a transaction waits for more views, and with it how soon a stop is noticed.
WAIT_MS: Final = 200


@click.command()
@bootstrap_flag
@click.option("--from", "source", default="raw-views", show_default=True, help="The topic of raw views.")
@click.option("--to", "target", default="clean-views", show_default=True, help="The topic of clean ones.")
@click.option("--group", default="clean-views", show_default=True, help="The group that keeps the offsets.")
@click.option(
    "--transactional-id",
    default="clean-views-0",
    show_default=True,
    help="A name for each process that runs at the same time; the next run of a process has it again.",
)
@click.option("--until-idle", is_flag=True, help="End when all views are cleaned.  [default: stay up]")
def program(bootstrap: str, source: str, target: str, group: str, transactional_id: str, until_idle: bool) -> None:
    """Clean the views of a topic, each exactly once, until Ctrl-C or SIGTERM."""
    with (
        StopRequest() as stop,
        JobProgress() as progress,
        ottla.Admin(bootstrap) as admin,
        ottla.Producer(bootstrap, transactional_id=transactional_id) as producer,
    ):
        # First: it aborts what a killed run has left open, which would keep the group's offsets back.
        producer.init_transactions()
        with ottla.ConsumerConnector(
            bootstrap,
            group=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            consumer_timeout_ms=WAIT_MS,
        ) as connector:
            (stream,) = connector.create_message_streams({source: 1})[source]
            cleaner = Cleaner(stream, producer, target)
            progress.say(f"cleaning the views of {source} into {target}")
            while not stop.is_made():
                had_views = cleaner.step()
                progress.show(_line(cleaner))
                if until_idle and not had_views and _is_at_end(stream, admin):
                    break
            progress.say(_line(cleaner))


def _is_at_end(stream: MessageStream, admin: ottla.Admin) -> bool:
    """All views of its partitions were read.  That none has come for a while may be a slow broker."""
    try:
        positions = {partition: stream.position(partition) for partition in stream.partitions}
    except NotAssigned:
        return False
    ends = admin.list_offsets(positions, isolation="read_committed")
    return bool(positions) and all(at is not None and at >= ends[each].offset for each, at in positions.items())


def _line(cleaner: Cleaner) -> str:
    return (
        f"{cleaner.views_count:,} views cleaned, {cleaner.set_aside_count:,} set aside, "
        f"{cleaner.aborted_count:,} transactions aborted"
    )


if __name__ == "__main__":
    try:
        program()
    except OttlaError as error:
        say_error(str(error), error.hint)
        sys.exit(FAILED)
