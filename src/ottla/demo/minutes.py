"""The online consumer's state: the counts of each minute so far."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ottla.demo.day import HOUR_MS, MINUTE_MS, clock_name
from ottla.demo.services import PAGE_VIEWS

# Producers are only roughly in step: an event an hour behind its partition is late, not merely overtaken.
LATE_FROM_MS: Final = HOUR_MS

# The minute's name, the count of each topic, the page viewed most.
MinuteRow: TypeAlias = tuple[str, list[int], str]


@dataclass(slots=True)
class Minutes:
    """Counts of events by the minute in which they happened, fed in the order of arrival."""

    topics: Sequence[str]
    events_count: int = 0
    late_count: int = 0
    malformed_count: int = 0
    _by_minute: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    _pages: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    # The latest event of each partition: lateness is measured from it.
    _latest_ms: dict[tuple[str, int], int] = field(default_factory=dict)

    def add(self, topic: str, partition: int, timestamp_ms: int, value: bytes) -> None:
        self.events_count += 1
        latest_ms = self._latest_ms.get((topic, partition), timestamp_ms)
        if timestamp_ms < latest_ms - LATE_FROM_MS:
            self.late_count += 1
        self._latest_ms[topic, partition] = max(latest_ms, timestamp_ms)
        minute = timestamp_ms // MINUTE_MS
        self._by_minute[minute][topic] += 1
        try:
            facts = json.loads(value)
        except ValueError:
            self.malformed_count += 1
            return
        if topic == PAGE_VIEWS:
            self._pages[minute][facts["page"]] += 1

    def newest(self, count: int) -> list[MinuteRow]:
        """The last minutes that every topic has reached, in their order."""
        reached: dict[str, int] = {}
        for (topic, _), latest_ms in self._latest_ms.items():
            reached[topic] = max(reached.get(topic, 0), latest_ms // MINUTE_MS)
        if not reached:
            return []
        until = min(reached.values())
        return [self._row(minute) for minute in sorted(self._by_minute) if until - count < minute <= until]

    def _row(self, minute: int) -> MinuteRow:
        pages = self._pages.get(minute)
        busiest = pages.most_common(1)[0][0] if pages else ""
        return clock_name(minute * MINUTE_MS), [self._by_minute[minute][topic] for topic in self.topics], busiest
