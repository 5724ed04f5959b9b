"""Which seeds are run, what ends a search, and how a run is shown."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

# The last lines of a trace that a failed test shows; `./dev sim --seed` shows all.
TRACE_LINES: Final = 60


class Violation(Exception):
    """A promise is broken; the message names it."""


class Found(Protocol):
    """What runs of many seeds added up to; `violations` by seed."""

    @property
    def seeds_count(self) -> int: ...

    @property
    def events_count(self) -> int: ...

    @property
    def violations(self) -> Mapping[int, str]: ...


class Traced(Protocol):
    """A run of one seed that writes down what happens."""

    @property
    def plan(self) -> object: ...

    @property
    def lines(self) -> Sequence[str] | None: ...

    def run(self) -> object: ...


def seeds_until(deadline: float, first: int) -> Iterator[int]:
    seed = first
    while time.monotonic() < deadline:
        yield seed
        seed += 1


def trace(simulation: Traced) -> list[str]:
    """The plan of a run, its trace, and its result last."""
    try:
        result = str(simulation.run())
    except Violation as violation:
        result = f"VIOLATION {violation}"
    assert simulation.lines is not None
    return [str(simulation.plan), *simulation.lines, result]
