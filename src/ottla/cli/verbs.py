"""The verbs, by name: where each lives and the line that `ottla --help` shows for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Verb(NamedTuple):
    """`module` has a click command named `command`."""

    module: str
    about: str


VERBS: Final[Mapping[str, Verb]] = {
    "serve": Verb("ottla.cli.serve", "Run a broker."),
    "topic": Verb("ottla.cli.topic", "Create, list, describe, alter and delete topics."),
    "produce": Verb("ottla.cli.produce", "Write lines of standard input to a topic."),
    "consume": Verb("ottla.cli.consume", "Write a topic's records to standard output."),
    "log": Verb("ottla.cli.log", "Look into a data directory: dump and verify segments."),
    "demo": Verb("ottla.cli.demo", "A day at a small LinkedIn, end to end on this machine."),
}
