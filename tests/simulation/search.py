"""Runs of many seeds, and the report of a run that breaks a guarantee."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.seeds.search import Violation, trace
from tests.simulation.kinds import Kinds
from tests.simulation.plan import Plan
from tests.simulation.simulation import Simulation


@dataclass
class Found:
    """The totals of runs of many seeds."""

    seeds_count: int = 0
    events_count: int = 0
    acknowledged_count: int = 0
    elections_count: int = 0
    leaderless_count: int = 0
    slowest_ms: float = 0.0
    violations: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"{self.seeds_count} seeds, {self.events_count} events, {self.acknowledged_count} acknowledged, "
            f"{self.elections_count} elections, {self.leaderless_count} partitions given up, "
            f"slowest convergence {self.slowest_ms:.0f} ms, {len(self.violations)} violations"
        )


def run_seeds(seeds: Iterable[int], kinds: Kinds | None = None, plan: Plan | None = None) -> Found:
    """Run each seed; the first violation ends it."""
    found = Found()
    for seed in seeds:
        found.seeds_count += 1
        simulation = Simulation(seed, plan, kinds)
        try:
            outcome = simulation.run()
        except Violation as violation:
            found.events_count += simulation.timeline.events_count
            found.violations[seed] = str(violation)
            return found
        found.events_count += outcome.events_count
        found.acknowledged_count += outcome.acknowledged_count
        found.elections_count += outcome.elections_count
        found.leaderless_count += outcome.leaderless_count
        found.slowest_ms = max(found.slowest_ms, outcome.converged_ms)
    return found


def replay(seed: int, kinds: Kinds | None = None, plan: Plan | None = None) -> list[str]:
    """The trace of one seed, its result last."""
    return trace(Simulation(seed, plan, kinds, traces=True))
