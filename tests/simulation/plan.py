"""The plan of one seed: sizes, settings, and the enabled faults.

Each seed enables a random half of the fault kinds (swarm testing): with all of them at once no run would get
far enough to break in an interesting way.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

from tests.simulation.scale import FAULTS_MS

FAULT_KINDS: Final = (
    "crash",
    "power_cut",
    "power_cut_all",
    "quick_restart",
    "pause",
    "long_pause",
    "stop",
    "cut_link",
    "cut_one_way",
    "cut_tree",
    "swizzle",
    "expire",
    "tree_away",
    "disk_full",
    "disk_stuck",
    "disk_replaced",
    "log_failed",
    "prefer",
    "min_in_sync",
    "retention",
    "shrink",
    "move",
    "stale_directory",
)


@dataclass(frozen=True)
class Plan:
    """The sizes, settings and faults of one run; all of them follow from its seed."""

    brokers_count: int
    replicas_count: int
    partitions_count: int
    min_in_sync: int
    is_os_policy: bool
    allows_unclean: bool
    # Whether at most one replica loses its records at a time: then no partition may be unservable, unless the minimum
    # of in-sync replicas is 1.
    bounds_losses: bool
    closes_former_session: bool
    fault_kinds: tuple[str, ...]
    fault_interval_ms: float
    faults_ms: float
    loss: float
    duplication: float
    slowness: float
    lost_answers: float
    late_requests: float
    lag_changes_max: int
    pause_between_sends_ms: float

    @classmethod
    def of_seed(cls, seed: int) -> Plan:
        chance = random.Random(seed * 2 + 1)
        draw = chance.random
        kinds = FAULT_KINDS[:-2]
        # From separate random generators: seeds from before these faults keep their draws.
        moves = ("move",) if random.Random(seed * 2 + 2).random() < 0.4 else ()
        stale = ("stale_directory",) if random.Random(f"stale directories of {seed}").random() < 0.25 else ()
        brokers_count = chance.choice((3, 3, 3, 4, 5))
        replicas_count = chance.choice((2, 3, 3, 3, brokers_count))
        return cls(
            brokers_count=brokers_count,
            replicas_count=replicas_count,
            partitions_count=chance.choice((1, 1, 2, 3)),
            min_in_sync=min(replicas_count, chance.choice((1, 2, 2, 2, 3))),
            is_os_policy=draw() < 0.25,
            allows_unclean=draw() < 0.1,
            bounds_losses=draw() < 0.6,
            closes_former_session=draw() < 0.5,
            fault_kinds=(*(kind for kind in kinds if draw() < 0.4), *moves, *stale),
            fault_interval_ms=chance.choice((80, 150, 300, 600)),
            faults_ms=FAULTS_MS,
            loss=chance.choice((0, 0, 0.01, 0.05, 0.2)),
            duplication=chance.choice((0, 0, 0.02, 0.1)),
            slowness=chance.choice((0, 0, 0.05, 0.3)),
            lost_answers=chance.choice((0, 0, 0.05, 0.3)),
            late_requests=chance.choice((0, 0, 0.05, 0.3)),
            lag_changes_max=chance.choice((0, 0, 1, 3)),
            pause_between_sends_ms=chance.choice((5, 20, 60)),
        )

    @property
    def may_lose_disks(self) -> bool:
        """Whether a replica may lack records that it reported."""
        return self.is_os_policy or not {"disk_replaced", "stale_directory"}.isdisjoint(self.fault_kinds)

    @property
    def counts_generations(self) -> bool:
        """Where no directory can be stale this is omitted, and seeds run as before these faults."""
        return "stale_directory" in self.fault_kinds

    def with_only(self, *fault_kinds: str) -> Plan:
        return replace(self, fault_kinds=fault_kinds)
