"""The network between brokers, tree and clients: loss, duplicates, delays, reordering, cuts in one direction."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from tests.simulation.timeline import Timeline

TREE: Final = 0
CLIENTS: Final = -1

LATENCY_MS: Final = 1.5
SLOW_MS: Final = 60.0
# The largest delay of a second copy of a message.
LATE_MS_MAX: Final = 400.0


class Network:
    """Messages are calls.  Those between two nodes are neither ordered nor certain to arrive."""

    def __init__(self, timeline: Timeline, chance: random.Random) -> None:
        self._timeline = timeline
        self._chance = chance
        self.loss = 0.0
        self.duplication = 0.0
        self.slowness = 0.0
        # Directed pairs of nodes.
        self.cuts: set[tuple[int, int]] = set()

    def send(self, sender: int, receiver: int, call: Callable[..., None], *arguments: Any) -> None:
        if (sender, receiver) in self.cuts:
            return
        draw = self._chance.random
        if self.loss and draw() < self.loss:
            return
        latency_ms = SLOW_MS if self.slowness and draw() < self.slowness else LATENCY_MS
        self._timeline.after(latency_ms * (0.1 + 2 * draw()), call, *arguments)
        # A client's connection duplicates no message; its retries do.
        if self.duplication and sender != CLIENTS and draw() < self.duplication:
            self._timeline.after(draw() * LATE_MS_MAX, call, *arguments)

    def heal(self) -> None:
        self.loss = self.duplication = self.slowness = 0.0
        self.cuts.clear()
