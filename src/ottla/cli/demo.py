"""`ottla demo`: a day at a small LinkedIn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from ottla.cli.program import ended_by_ctrl_c
from ottla.model.errors import OttlaError
from ottla.runtime.installation import install_command

EVENTS_COUNT: Final = 250_000
# Module and package, as in the extra `demo` and those that it takes in.
NEEDED: Final[Mapping[str, str]] = {
    "confluent_kafka": "confluent-kafka",
    "deltalake": "deltalake",
    "kafka": "kafka-python",
    "numpy": "numpy",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "pyspark": "pyspark",
    "rich": "rich",
}


class MissingPackages(OttlaError):
    """The extra `demo` is not installed."""


def check_requirements(is_installed: Callable[[str], bool] = lambda module: find_spec(module) is not None) -> None:
    """Raises `MissingPackages`, which names all that is missing.  Imports nothing."""
    missing = [package for module, package in NEEDED.items() if not is_installed(module)]
    if missing:
        *others, last = missing
        names = f"{', '.join(others)} and {last}" if others else last
        raise MissingPackages(f"the demo needs {names}", hint=install_command("demo"))


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
        check_requirements()
        from ottla.demo.run import run_demo

    run_demo(events, seed, keep, drop_one=drop_one)
