"""The cleaner of views, which is killed at a point of its transactions: MODULE POINT ARGUMENTS."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Final
from unittest.mock import patch

import ottla
from examples.clean_views.__main__ import program

BEFORE_OFFSETS: Final = "before offsets"
BEFORE_COMMIT: Final = "before commit"
AFTER_COMMIT: Final = "after commit"
POINTS: Final = (BEFORE_OFFSETS, BEFORE_COMMIT, AFTER_COMMIT)

_commit = ottla.Producer.commit_transaction


def die(producer: ottla.Producer, *arguments: Any) -> None:
    """With its messages at the broker."""
    producer.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def commit_and_die(producer: ottla.Producer, *arguments: Any) -> None:
    _commit(producer)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    point, *arguments = sys.argv[1:]
    name, replacement = {
        BEFORE_OFFSETS: ("send_offsets_to_transaction", die),
        BEFORE_COMMIT: ("commit_transaction", die),
        AFTER_COMMIT: ("commit_transaction", commit_and_die),
    }[point]
    with patch.object(ottla.Producer, name, replacement):
        program(arguments)


if __name__ == "__main__":
    main()
