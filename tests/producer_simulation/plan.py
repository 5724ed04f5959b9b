"""What one seed runs: sizes, and which faults are on: a random part of them each time."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

FAULT_KINDS: Final = ("cut", "hang", "move_leader", "leaderless", "late_requests", "lagging_metadata")
FAULTS_MS: Final = 4_000


@dataclass(frozen=True)
class Plan:
    """The sizes and faults of one run; all of them follow from its seed."""

    brokers_count: int
    partitions_count: int
    is_idempotent: bool
    halts_on_refusal: bool
    max_in_flight: int
    request_bytes_max: int
    delivery_timeout_ms: int
    # Between two batches of the user.
    send_interval_ms: float
    fault_kinds: tuple[str, ...]
    fault_interval_ms: float
    # Of batches: how many are refused for good, how many are too large for the topic.
    poison_share: float
    large_share: float
    # Of answers: how many are errors that pass, before and after the append.
    refused_share: float
    unknown_share: float

    @classmethod
    def of_seed(cls, seed: int) -> Plan:
        chance = random.Random(seed * 2 + 1)
        draw = chance.random
        is_idempotent = draw() < 0.85
        return cls(
            brokers_count=chance.choice((1, 2, 3)),
            partitions_count=chance.choice((1, 1, 2, 4)),
            is_idempotent=is_idempotent,
            halts_on_refusal=is_idempotent and draw() < 0.3,
            max_in_flight=chance.choice((1, 2, 5, 5)),
            request_bytes_max=chance.choice((150, 400, 1 << 20)),
            delivery_timeout_ms=chance.choice((400, 1_500, 5_000, 5_000)),
            send_interval_ms=chance.choice((2, 10, 40)),
            fault_kinds=tuple(kind for kind in FAULT_KINDS if draw() < 0.4),
            fault_interval_ms=chance.choice((40, 120, 400)),
            poison_share=chance.choice((0, 0, 0.03, 0.1)),
            large_share=chance.choice((0, 0, 0.05, 0.2)),
            refused_share=chance.choice((0, 0, 0.05, 0.2)),
            unknown_share=chance.choice((0, 0, 0.05, 0.2)),
        )

    def with_only(self, *fault_kinds: str) -> Plan:
        return replace(self, fault_kinds=fault_kinds)
