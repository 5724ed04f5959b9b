"""The plan of one seed: sizes, and a random choice of faults, as in `tests/simulation`."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

from tests.consumers_simulation.scale import FAULTS_MS

FAULT_KINDS: Final = (
    "kill",
    "join",
    "leave",
    "pause",
    "long_pause",
    "break_link",
    "cut_link",
    "expire",
    "tree_away",
    "add_partitions",
    "reset_offset",
)
HERD_COUNT: Final = 20
# Far more than quartz does; less than a third, which the lease would not survive.
CLOCK_DRIFT_MAX: Final = 0.2


@dataclass(frozen=True)
class Plan:
    """The sizes and faults of one run; all of them follow from its seed."""

    consumers_count: int
    consumers_max: int
    partitions_counts: tuple[int, ...]
    # Within which the first consumers start.
    start_ms: float
    fault_kinds: tuple[str, ...]
    fault_interval_ms: float
    faults_ms: float
    # Of requests: how many lose the connection before they are answered.
    lost_answers: float
    # How late a watch is called at most, and how many changes a read may lag.
    late_watch_ms: float
    lag_changes_max: int
    # The clocks of the processes run faster or slower than the tree's by this at most.
    clock_drift: float

    @classmethod
    def of_seed(cls, seed: int) -> Plan:
        chance = random.Random(seed * 2 + 1)
        draw = chance.random
        is_herd = draw() < 0.04
        consumers_count = HERD_COUNT if is_herd else chance.choice((1, 2, 2, 3, 3, 4))
        return cls(
            consumers_count=consumers_count,
            consumers_max=max(6, consumers_count),
            partitions_counts=tuple(chance.choice((1, 2, 3, 4, 7)) for _ in range(chance.choice((1, 1, 2)))),
            start_ms=5 if is_herd else 200,
            fault_kinds=tuple(kind for kind in FAULT_KINDS if draw() < 0.4),
            fault_interval_ms=chance.choice((60, 120, 250, 500)),
            faults_ms=FAULTS_MS,
            lost_answers=chance.choice((0, 0, 0.01, 0.05, 0.15)),
            late_watch_ms=chance.choice((5, 5, 50, 400)),
            lag_changes_max=chance.choice((0, 0, 1, 3)),
            clock_drift=chance.choice((0, 0.001, CLOCK_DRIFT_MAX)),
        )

    def with_only(self, *fault_kinds: str) -> Plan:
        return replace(self, fault_kinds=fault_kinds)
