"""The choice of seeds, the end of a search, and the display of a run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

# The last lines of a trace that a failed test shows; `./dev sim --seed` shows all.
TRACE_LINES: Final = 60


class Violation(Exception):
    """A guarantee is broken; the message names it."""


class Found(Protocol):
    """The totals of runs of many seeds; `violations` by seed."""

    @property
    def seeds_count(self) -> int: ...

    @property
    def events_count(self) -> int: ...

    @property
    def violations(self) -> Mapping[int, str]: ...


class Traced(Protocol):
    """A run of one seed that records its trace."""

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
