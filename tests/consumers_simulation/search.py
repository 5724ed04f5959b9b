"""Runs of many seeds, and the report of a run that breaks a guarantee."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.consumers_simulation.plan import Plan
from tests.consumers_simulation.simulation import Simulation
from tests.seeds.search import Violation, trace


@dataclass
class Found:
    """The totals of runs of many seeds."""

    seeds_count: int = 0
    events_count: int = 0
    handed_out_count: int = 0
    claims_count: int = 0
    settled_count: int = 0
    blocked_count: int = 0
    slowest_ms: float = 0.0
    violations: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"{self.seeds_count} seeds, {self.events_count} events, {self.handed_out_count} handed out, "
            f"{self.claims_count} claims, {self.settled_count} rebalances ended, {self.blocked_count} blocked, "
            f"slowest convergence {self.slowest_ms:.0f} ms, {len(self.violations)} violations"
        )


def run_seeds(seeds: Iterable[int], plan: Plan | None = None) -> Found:
    """Run each seed; the first violation ends it."""
    found = Found()
    for seed in seeds:
        found.seeds_count += 1
        simulation = Simulation(seed, plan)
        try:
            outcome = simulation.run()
        except Violation as violation:
            found.violations[seed] = str(violation)
            return found
        found.events_count += outcome.events_count
        found.handed_out_count += outcome.handed_out_count
        found.claims_count += outcome.claims_count
        found.settled_count += outcome.settled_count
        found.blocked_count += outcome.blocked_count
        found.slowest_ms = max(found.slowest_ms, outcome.converged_ms)
    return found


def replay(seed: int, plan: Plan | None = None) -> list[str]:
    """The trace of one seed, its result last."""
    return trace(Simulation(seed, plan, traces=True))
