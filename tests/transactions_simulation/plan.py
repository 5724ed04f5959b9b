"""What one seed runs: sizes, and which faults are on: a random part of them each time."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

FAULT_KINDS: Final = (
    "move_coordinator",
    "move_leader",
    "suspend_coordinator",
    "lost_requests",
    "lost_answers",
    "take_over",
    "stall",
)
FAULTS_MS: Final = 6_000


@dataclass(frozen=True)
class Plan:
    """The sizes and faults of one run; all of them follow from its seed."""

    partitions_count: int
    ids_count: int
    # Whether ends advance the epoch (KIP-890).
    advances_epoch: bool
    timeout_ms: int
    # The epoch of the first producer of each id: near the last one in some runs.
    first_epoch: int
    replication_ms: float
    fault_kinds: tuple[str, ...]
    fault_interval_ms: float
    # Of requests and of answers between any two.
    lost_share: float
    # Of appends to the coordinator's log.
    refused_share: float
    # How long a replaced coordinator or leader does not know it.
    zombie_ms: float
    # Whether transactions commit the offset of their input, too.
    commits_offsets: bool

    @classmethod
    def of_seed(cls, seed: int) -> Plan:
        chance = random.Random(seed * 2 + 1)
        draw = chance.random
        return cls(
            partitions_count=chance.choice((1, 2, 3)),
            ids_count=chance.choice((1, 2, 3)),
            advances_epoch=draw() < 0.6,
            timeout_ms=chance.choice((300, 1_000, 5_000)),
            first_epoch=chance.choice((0, 0, 32_755)),
            replication_ms=chance.choice((2, 8, 30)),
            fault_kinds=tuple(kind for kind in FAULT_KINDS if draw() < 0.5),
            fault_interval_ms=chance.choice((60, 200, 600)),
            lost_share=chance.choice((0.02, 0.1)),
            refused_share=chance.choice((0, 0, 0.05)),
            zombie_ms=chance.choice((0, 40, 400)),
            commits_offsets=draw() < 0.5,
        )

    def with_only(self, *fault_kinds: str) -> Plan:
        return replace(self, fault_kinds=fault_kinds)
