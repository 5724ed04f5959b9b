"""Runs of many seeds, and how a run that breaks a promise is reported."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.producer_simulation.plan import Plan
from tests.producer_simulation.simulation import Simulation
from tests.seeds.search import Violation, trace


@dataclass
class Found:
    """What runs of many seeds added up to."""

    seeds_count: int = 0
    events_count: int = 0
    batches_count: int = 0
    acknowledged_count: int = 0
    requests_count: int = 0
    stops_count: int = 0
    refused_after_moves_count: int = 0
    violations: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"{self.seeds_count} seeds, {self.events_count} events, {self.batches_count} batches, "
            f"{self.acknowledged_count} acknowledged, {self.requests_count} requests, "
            f"{self.stops_count} stopped producers, {self.refused_after_moves_count} refused after moves, "
            f"{len(self.violations)} violations"
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
        found.batches_count += outcome.batches_count
        found.acknowledged_count += outcome.acknowledged_count
        found.requests_count += outcome.requests_count
        found.stops_count += outcome.stops_count
        found.refused_after_moves_count += outcome.refused_after_moves_count
    return found


def replay(seed: int, plan: Plan | None = None) -> list[str]:
    """The trace of one seed, its result last."""
    return trace(Simulation(seed, plan, traces=True))
