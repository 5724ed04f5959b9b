"""Skewed choices: few members and pages have most of the events."""

from __future__ import annotations

import random
from bisect import bisect
from itertools import accumulate
from typing import Generic, TypeVar

T = TypeVar("T")


class Skewed(Generic[T]):
    """Draws from `choices` by Zipf's law: the n-th is drawn `n ** exponent` times less often than the first."""

    def __init__(self, choices: list[T], exponent: float = 1.05) -> None:
        assert choices, "there must be choices to draw from"
        self._choices = choices
        self._sums = list(accumulate(rank**-exponent for rank in range(1, len(choices) + 1)))

    def draw(self, rng: random.Random) -> T:
        # bisect never reaches the last sum: random() is below 1.
        return self._choices[min(bisect(self._sums, rng.random() * self._sums[-1]), len(self._choices) - 1)]
