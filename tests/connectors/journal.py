"""The journals of a run's processes: one line for each event, written out before the next event.

All times are nanoseconds of the machine's clock that runs while a process is stopped, so those of several processes
can be compared.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Joined(NamedTuple):
    """A member has created its streams; `pid` is that of its process."""

    member: str
    at_ns: int
    group: str
    pid: int


class Handed(NamedTuple):
    """A stream delivered a message, at some time between the request and the return to the user.

    The process may be stopped between, so only the two times together bound the delivery.
    """

    member: str
    asked_ns: int
    got_ns: int
    stream: int
    topic: str
    partition: int
    offset: int
    value: str


class Left(NamedTuple):
    """A member has closed its connector, and all its streams have ended."""

    member: str
    at_ns: int


class Sent(NamedTuple):
    """A message was acknowledged; `value` is unique."""

    feed: str
    at_ns: int
    topic: str
    partition: int
    offset: int
    value: str


Entry: TypeAlias = Joined | Handed | Left | Sent
_KINDS: Final = {kind.__name__: kind for kind in (Joined, Handed, Left, Sent)}


class Journal:
    """Appends to a file, for all threads of a process.  What was written survives a kill of the process."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def add(self, *entries: Entry) -> None:
        """In one write: a kill leaves the whole line or nothing."""
        os.write(self._fd, "".join(f"{to_line(entry)}\n" for entry in entries).encode())


def to_line(entry: Entry) -> str:
    return json.dumps([type(entry).__name__, *entry])


def from_line(line: str) -> Entry:
    name, *values = json.loads(line)
    entry: Entry = _KINDS[name](*values)
    return entry


class JournalReader:
    """Reads a file that grows, each line once; a missing file is empty."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0

    def read(self) -> Iterator[Entry]:
        """The lines since the last call."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        whole, _, _ = data.rpartition(b"\n")
        if whole:
            self._position += len(whole) + 1
            for line in whole.decode().split("\n"):
                yield from_line(line)
