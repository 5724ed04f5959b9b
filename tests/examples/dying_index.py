"""The search index, which is killed at a point: MODULE POINT ARGUMENTS."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, Final
from unittest.mock import patch

from examples.search_index.__main__ import program
from examples.search_index.index import Advance, LogIndex, Position
from ottla.dead_letters import DeadLetters

AFTER_LETTERS: Final = "after letters"
BEFORE_COMMIT: Final = "before commit"
AFTER_COMMIT: Final = "after commit"
POINTS: Final = (AFTER_LETTERS, BEFORE_COMMIT, AFTER_COMMIT)

_put_all = DeadLetters.put_all
_add = LogIndex.add


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def put_all_and_die(letters: DeadLetters, *arguments: Any) -> None:
    _put_all(letters, *arguments)
    die()


def add_and_die(index: LogIndex, advances: Sequence[Advance]) -> list[Position]:
    """At the first statement after the first COMMIT; when there is none, at the end."""
    committed: list[str] = []

    def follow(statement: str) -> None:
        # SQLite shows the statements of FTS5 within the COMMIT as comments.
        if committed and not statement.startswith("--"):
            die()
        if statement == "COMMIT":
            committed.append(statement)

    index._database.set_trace_callback(follow)
    positions = _add(index, advances)
    die()
    return positions


def die_at_commit(index: LogIndex, advances: Sequence[Advance]) -> list[Position]:
    """Everything is written when SQLite is about to execute the COMMIT."""
    index._database.set_trace_callback(lambda statement: die() if statement == "COMMIT" else None)
    return _add(index, advances)


def main() -> None:
    point, *arguments = sys.argv[1:]
    target, name, replacement = {
        AFTER_LETTERS: (DeadLetters, "put_all", put_all_and_die),
        BEFORE_COMMIT: (LogIndex, "add", die_at_commit),
        AFTER_COMMIT: (LogIndex, "add", add_and_die),
    }[point]
    with patch.object(target, name, replacement):
        program(arguments)


if __name__ == "__main__":
    main()
