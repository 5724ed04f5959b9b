"""PySpark's daemon of Python workers, without a traceback for each worker whose task was killed.

A query that has enough rows, or is stopped, closes the pipe to its workers: that is no error, and users should not see
it. Spark starts this module by its name (`spark.python.daemon.module`).
"""

from __future__ import annotations

import sys
import traceback
from types import SimpleNamespace
from typing import IO

from pyspark import daemon


def print_exc() -> None:
    """The exception that is being handled, unless it only means a closed pipe."""
    if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
        traceback.print_exc()


def say(text: str, file: IO[str] = sys.stderr) -> None:
    """Print a message of the daemon (a result could not be sent), unless the reason is a closed pipe."""
    if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
        file.write(f"{text}\n")


if __name__ == "__main__":
    daemon.traceback = SimpleNamespace(print_exc=print_exc, format_exc=traceback.format_exc)  # type: ignore[attr-defined, assignment]
    daemon.print = say  # type: ignore[attr-defined]
    daemon.manager()
