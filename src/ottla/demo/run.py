"""One run of the demo, with its cleanup."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.text import Text

from ottla.demo.children import Children, ProcessFailed
from ottla.demo.interrupts import Interrupts
from ottla.demo.next_steps import next_steps
from ottla.demo.play import Play
from ottla.demo.screen import Screen
from ottla.demo.workplace import Workplace
from ottla.model.errors import OttlaError
from ottla.testing.broker import RunningBroker

BROKER_LINES_SHOWN: Final = 10
# The broker counts what it stores, and tells it soon: a day takes seconds here.
BROKER_SETTINGS: Final = {"audit.enable": "true", "audit.interval.ms": "1000"}


@dataclass(frozen=True, slots=True)
class Options:
    """`keep` names the directory that keeps the broker's data and the lake; `drop_one` loses one record on purpose."""

    events_count: int
    seed: int
    keep: Path | None
    drop_one: bool


def run_demo(options: Options) -> None:
    """Raises `CountsDiffer`, `ProcessFailed`, and `KeyboardInterrupt`, each after everything is cleaned up."""
    with Interrupts() as interrupts, Screen() as screen:
        try:
            with ExitStack() as stack:
                workplace = Workplace(options.keep)
                stack.callback(workplace.close)
                broker = RunningBroker(workplace.data_dir, settings=BROKER_SETTINGS, own_group=True)
                stack.callback(broker.close)
                # Entered last, ended first: clients before their broker.
                children = Children(interrupts, {"TMPDIR": str(workplace.scratch)})
                stack.callback(children.close)
                play = Play(options.events_count, options.seed, workplace, broker, children, screen)
                try:
                    play.run(options.drop_one)
                except OttlaError as error:
                    screen.settle()
                    _print_complaints(screen, error, broker)
                    raise
                _print_next_steps(screen, options.keep)
        except KeyboardInterrupt:
            screen.settle()
            screen.say("stopped; nothing is left running")
            raise


def _print_complaints(screen: Screen, error: OttlaError, broker: RunningBroker) -> None:
    """The error lines of the failed process, and the broker's warnings."""
    complaints = error.complaints if isinstance(error, ProcessFailed) else []
    warnings = [line for line in broker.log_lines if line.split()[1:2] != ["INFO"]]
    for line in [*complaints, *warnings[-BROKER_LINES_SHOWN:]]:
        screen.say(Text(f"  | {line}"))


def _print_next_steps(screen: Screen, keep: Path | None) -> None:
    screen.say("\nnext steps:")
    for step in next_steps(None if keep is None else keep.absolute(), os.environ):
        screen.say(f"  {step}")
