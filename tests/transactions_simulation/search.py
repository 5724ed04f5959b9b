"""Runs of many seeds, and how a run that breaks a guarantee is reported."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.seeds.search import Violation, trace
from tests.transactions_simulation.plan import Plan
from tests.transactions_simulation.simulation import Simulation


@dataclass
class Found:
    """What runs of many seeds added up to."""

    seeds_count: int = 0
    events_count: int = 0
    transactions_count: int = 0
    committed_count: int = 0
    calls_count: int = 0
    violations: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"{self.seeds_count} seeds, {self.events_count} events, {self.transactions_count} transactions, "
            f"{self.committed_count} committed, {self.calls_count} calls, {len(self.violations)} violations"
        )


def run_seeds(seeds: Iterable[int], plan: Plan | None = None) -> Found:
    """Run each seed; the first violation ends it."""
    found = Found()
    for seed in seeds:
        found.seeds_count += 1
        try:
            outcome = Simulation(seed, plan).run()
        except Violation as violation:
            found.violations[seed] = str(violation)
            return found
        found.events_count += outcome.events_count
        found.transactions_count += outcome.transactions_count
        found.committed_count += outcome.committed_count
        found.calls_count += outcome.calls_count
    return found


def replay(seed: int, plan: Plan | None = None) -> list[str]:
    """The trace of one seed, its result last."""
    return trace(Simulation(seed, plan, traces=True))
