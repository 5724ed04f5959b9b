"""The deliveries of groups so far, and the faults that may have disturbed them."""

from __future__ import annotations

import threading
from bisect import insort
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from ottla.model.identifiers import TopicPartition
from tests.connectors.journal import Handed, now_ns

STALL_TICK_S: Final = 0.05
STALLED_NS: Final = 700_000_000


@dataclass
class Progress:
    """The deliveries of a group, from its journals."""

    handed: dict[TopicPartition, list[Handed]] = field(default_factory=lambda: defaultdict(list))
    values: set[str] = field(default_factory=set)
    # The time of each member's last delivery.
    last_ns: dict[str, int] = field(default_factory=dict)

    def add(self, entry: Handed) -> None:
        # In the order of time: journals are read one after the other.
        insort(self.handed[TopicPartition(entry.topic, entry.partition)], entry, key=lambda each: each.got_ns)
        self.values.add(entry.value)
        self.last_ns[entry.member] = entry.got_ns


@dataclass(frozen=True)
class Disturbance:
    """Faults that permit duplicate deliveries, and their times: of one member, or of all."""

    what: str
    member: str | None
    began_ns: int
    ended_ns: int


class StallWatch(threading.Thread):
    """Records when this machine did not schedule an almost idle thread: members may have lost their sessions."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._is_over = threading.Event()
        self._stalls: list[Disturbance] = []

    def run(self) -> None:
        before_ns = now_ns()
        while not self._is_over.wait(STALL_TICK_S):
            after_ns = now_ns()
            if after_ns - before_ns > STALLED_NS:
                self._stalls.append(Disturbance("the machine stood", None, before_ns, after_ns))
            before_ns = after_ns

    def stop(self) -> list[Disturbance]:
        self._is_over.set()
        self.join()
        return self._stalls
