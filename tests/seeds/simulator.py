"""A simulation as its tests and its command use it: runs of many seeds, the trace of one, the search for a bug."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from tests.seeds.planted import Mutant, planted
from tests.seeds.search import Violation

P = TypeVar("P")
P_contra = TypeVar("P_contra", contravariant=True)

# The number of seeds until a guarantee broke, and which one; None: none did.
Killed: TypeAlias = tuple[int, str] | None


class Outcome(Protocol):
    """A NamedTuple of what a run did: counts (`*_count`), and how long it took to converge, if it says so."""

    def _asdict(self) -> dict[str, Any]: ...


class Simulation(Protocol):
    """A run of one seed; `lines` is its trace, if it records one."""

    @property
    def plan(self) -> object: ...

    @property
    def lines(self) -> Sequence[str] | None: ...

    def run(self) -> Outcome:
        """Raises `Violation`."""
        ...


class Simulate(Protocol[P_contra]):
    def __call__(self, seed: int, plan: P_contra | None = None, *, traces: bool = False) -> Simulation: ...


@dataclass
class Found:
    """The totals of runs of many seeds: the sums of their counts by name, and the violations by seed."""

    seeds_count: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    converged_ms: float = 0.0
    violations: dict[int, str] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        for name, value in outcome._asdict().items():
            if name.endswith("_count"):
                self.counts[name.removesuffix("_count")] += value
            elif name == "converged_ms":
                self.converged_ms = max(self.converged_ms, value)

    def __str__(self) -> str:
        counts = (f"{count} {name.replace('_', ' ')}" for name, count in self.counts.items())
        slowest = [f"slowest convergence {self.converged_ms:.0f} ms"] if self.converged_ms else []
        return ", ".join([f"{self.seeds_count} seeds", *counts, *slowest, f"{len(self.violations)} violations"])


class Simulator(Generic[P]):
    """`command` replays a seed; `plan_of` is the plan of a seed, its sizes and faults."""

    def __init__(self, command: str, simulate: Simulate[P], plan_of: Callable[[int], P]) -> None:
        self.command: Final = command
        self._simulate: Final = simulate
        self._plan_of: Final = plan_of

    def run_seeds(self, seeds: Iterable[int]) -> Found:
        """Run each seed; the first violation ends it."""
        found = Found()
        for seed in seeds:
            found.seeds_count += 1
            try:
                found.add(self._simulate(seed).run())
            except Violation as violation:
                found.violations[seed] = str(violation)
                break
        return found

    def replay(self, seed: int) -> list[str]:
        """The plan of one seed, its trace, and its result last."""
        simulation = self._simulate(seed, traces=True)
        try:
            result = str(simulation.run())
        except Violation as violation:
            result = f"VIOLATION {violation}"
        assert simulation.lines is not None
        return [str(simulation.plan), *simulation.lines, result]

    def seeds_needed(self, mutant: Mutant[P], seeds_max: int) -> Killed:
        """The number of seeds, from 0 on, until a guarantee breaks, and which one; None when none does."""
        with planted(mutant.patches):
            for seed in range(seeds_max):
                try:
                    self._simulate(seed, mutant.plan(self._plan_of(seed))).run()
                except Violation as violation:
                    return seed + 1, str(violation)
        return None
