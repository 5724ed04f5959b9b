"""The choice of seeds, and the end of a search."""

from __future__ import annotations

import time
from collections.abc import Iterator


class Violation(Exception):
    """A guarantee is broken; the message names it."""


def seeds_until(deadline: float, first: int) -> Iterator[int]:
    seed = first
    while time.monotonic() < deadline:
        yield seed
        seed += 1
