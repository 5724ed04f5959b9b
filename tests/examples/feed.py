"""The input of an example with Spark: late and repeated events, and values that are no events."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Final

from ottla.testing import Record, Topic, produce

NINE_MS: Final = 1_307_869_200_000
MINUTE_MS: Final = 60_000
DAY_MS: Final = 24 * 60 * MINUTE_MS
PARTITIONS: Final = 3
# The time span of one send, and the lateness of some events: together less than the delay of ten minutes.
SPAN_MS: Final = 4 * MINUTE_MS
LATE_MS_MAX: Final = 4 * MINUTE_MS
# No event has a round time.
JITTER_MS: Final = 97
# Spark starts within it on a machine with much other work.
WITHIN_S: Final = 400.0


class Feed(ABC):
    """Sends spans of events, and remembers the offset of each `bad` value."""

    def __init__(self, topic: Topic, bad: Sequence[str], *, events_count: int, seed: int) -> None:
        """`events_count`: of each span."""
        self.topic = topic
        self.malformed: set[tuple[int, int]] = set()
        self.chance: Final = random.Random(seed)
        self._bad: Final = bad
        self._events_count: Final = events_count
        self._spans_count = 0
        self._ends: Counter[int] = Counter()

    @abstractmethod
    def event(self, number: int, at_ms: int) -> str:
        """The value of a new event; `number` counts those of its span."""

    def send_span(self) -> None:
        first_ms = NINE_MS + self._spans_count * SPAN_MS
        self._spans_count += 1
        values: list[str] = []
        for number in range(self._events_count):
            at_ms = first_ms + number * SPAN_MS // self._events_count + self.chance.randrange(JITTER_MS)
            if self.chance.random() < 0.1:
                at_ms -= self.chance.randrange(LATE_MS_MAX)
            values.append(self.event(number, at_ms))
            if self.chance.random() < 0.1:
                values.append(self.chance.choice(values))
        self.send([*values, *self._bad])

    def send(self, values: Sequence[str]) -> None:
        records = []
        for value in values:
            partition = self.chance.randrange(PARTITIONS)
            if value in self._bad:
                self.malformed.add((partition, self._ends[partition]))
            self._ends[partition] += 1
            records.append(Record(value, partition=partition))
        produce(self.topic, records)
