"""`ottla demo`: a day at a small LinkedIn."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from ottla.cli.imports import ended_by_ctrl_c

EVENTS_COUNT: Final = 250_000


@click.command(name="demo")
@click.option("--events", type=click.IntRange(min=100), default=EVENTS_COUNT, show_default=True, metavar="N")
@click.option(
    "--seed",
    type=int,
    default=2011,
    show_default=True,
    metavar="N",
    help="Another seed plays other events of the same kind.",
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep the broker's data and the lake there.",
)
@click.option("--drop-one", is_flag=True, hidden=True, help="Lose one record of the lake: the demo must notice.")
def command(events: int, seed: int, keep: Path | None, drop_one: bool) -> None:
    """A day at a small LinkedIn, end to end on this machine.

    Page views, clicks, searches and service metrics go through real clients into a broker.  PySpark loads them into a
    lake, sets malformed ones aside as dead letters, and finds top pages and sessions; and the audit counts every topic
    and hour at each step.
    """
    with ended_by_ctrl_c():
        from ottla.demo.requirements import check_requirements

        check_requirements()
        from ottla.demo.run import Options, run_demo

    run_demo(Options(events, seed, keep, drop_one))
