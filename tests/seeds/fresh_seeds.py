"""The test of every simulation: no guarantee breaks in seeds that were never run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

import pytest

from tests.seeds.search import seeds_until
from tests.seeds.simulator import Found, Simulator

P = TypeVar("P")

# The last lines of a trace that a failed test shows; `./dev sim --seed` shows all.
_TRACE_LINES: Final = 60


def run_fresh_seeds(simulator: Simulator[P], seconds: int, record_property: Callable[[str, object], None]) -> Found:
    """Run fresh seeds for so long.  Fails the test at the first violation, with the end of its trace."""
    # Of the current time in milliseconds, so that no range is run twice.
    first_seed = int(time.clock_gettime(time.CLOCK_REALTIME)) * 1000
    found = simulator.run_seeds(seeds_until(time.monotonic() + seconds, first_seed))
    record_property("simulation", f"seeds {first_seed} to {first_seed + found.seeds_count - 1}: {found}")
    for seed, violation in found.violations.items():
        trace = "\n".join(simulator.replay(seed)[-_TRACE_LINES:])
        pytest.fail(f"{trace}\n{violation}\nreplay it: {simulator.command} --seed {seed}", pytrace=False)
    return found
