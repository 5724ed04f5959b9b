"""A host with other work: processes that never sleep, at the priority of those that are measured."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

BUSY_PROCESSES: Final = 20
# Each ends when the benchmark does, a killed one too.
_SPINNER: Final = """\
import os, sys
parent = int(sys.argv[1])
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


@contextmanager
def busy_host(count: int = BUSY_PROCESSES) -> Iterator[list[int]]:
    """The processes run while the context is open: their ids."""
    command = [sys.executable, "-S", "-E", "-c", _SPINNER, str(os.getpid())]
    with ExitStack() as running:
        yield [running.enter_context(_process(command)) for _ in range(count)]


@contextmanager
def _process(command: list[str]) -> Iterator[int]:
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        try:
            yield process.pid
        finally:
            process.kill()
