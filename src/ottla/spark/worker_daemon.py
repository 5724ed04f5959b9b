"""PySpark's daemon of Python workers, without a traceback for each worker whose task was killed.

A query that has enough rows, or is stopped, closes the pipe to its workers: that is no error, and nobody's to read.
Spark starts this module by its name (`spark.python.daemon.module`).
"""

from __future__ import annotations

import sys
import traceback
from types import SimpleNamespace
from typing import IO

from pyspark import daemon


def print_exc() -> None:
    """The exception that is being handled, unless it only says that nobody listens any more."""
    if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
        traceback.print_exc()


def say(text: str, file: IO[str] = sys.stderr) -> None:
    """What the daemon prints: that a result could not be sent, unless nobody listens any more."""
    if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
        file.write(f"{text}\n")


if __name__ == "__main__":
    daemon.traceback = SimpleNamespace(print_exc=print_exc, format_exc=traceback.format_exc)  # type: ignore[attr-defined, assignment]
    daemon.print = say  # type: ignore[attr-defined]
    daemon.manager()
