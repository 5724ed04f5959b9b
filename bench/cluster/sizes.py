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
    victims: tuple[int, ...]
    """The brokers that are killed, and stopped, in turn."""
    return_bytes: int
    partitions: int
    idle_s: float


FULL: Final = Sizes(4, 24, victims=(1, 2, 3), return_bytes=2_000_000_000, partitions=2000, idle_s=10)
QUICK: Final = Sizes(2, 6, victims=(1,), return_bytes=200_000_000, partitions=300, idle_s=4)
# So long everything runs undisturbed before an event, and again after it.
QUIET_S: Final = 2.0
