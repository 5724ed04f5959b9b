"""How much each part does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Sizes:
    seconds: float
    """Of one measured load."""
    warm_s: float
    """A JVM compiles what runs often; a broker without one needs less."""
    partitions: tuple[int, ...]
    many_partitions: tuple[int, ...]
    connections: tuple[int, ...]
    idle_connections: int
    groups: tuple[int, ...]
    groups_s: float
    backlog_bytes: int
    backlog_s: float
    """Of the producer that runs alone, before the backlog is read."""
    brokers: tuple[int, ...]


FULL: Final = Sizes(
    seconds=4,
    warm_s=12,
    partitions=(1, 100, 1000, 5000),
    many_partitions=(10_000, 20_000),
    connections=(1, 16, 64, 1000, 10_000),
    idle_connections=10_000,
    groups=(10, 100),
    groups_s=10,
    backlog_bytes=50_000_000_000,
    backlog_s=10,
    brokers=(3, 9),
)
QUICK: Final = Sizes(
    seconds=1.5,
    warm_s=4,
    partitions=(1, 100, 1000),
    many_partitions=(2000,),
    connections=(1, 16, 64, 1000),
    idle_connections=1000,
    groups=(10, 100),
    groups_s=3,
    backlog_bytes=500_000_000,
    backlog_s=3,
    brokers=(3,),
)
