"""A process of the demo: the online consumer reads every topic as it grows, and counts minute by minute."""

from __future__ import annotations

import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.demo.events import PAGE_VIEWS, TOPICS, clock_name
from ottla.demo.processes import MinuteRow, Report, Task, Watched, run_task
from ottla.model.limits import HOUR_MS, MINUTE_MS
from ottla.runtime.clock import SystemClock

# Producers are only roughly in step: an event an hour older than the latest of its partition is late, not overtaken.
LATE_FROM_MS: Final = HOUR_MS
REPORT_EVERY_S: Final = 0.25
# The stream ends when it was idle for so long, and is read again after a report.
QUIET_MS: Final = 125
# The count of messages between two looks at the clock.
CHECK_EVERY: Final = 256
MINUTES_SHOWN: Final = 8


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
        self.late_count += timestamp_ms < latest_ms - LATE_FROM_MS
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
        until = min(reached.values(), default=0)
        return [self._row(minute) for minute in sorted(self._by_minute) if until - count < minute <= until]

    def _row(self, minute: int) -> MinuteRow:
        pages = self._pages.get(minute)
        busiest = pages.most_common(1)[0][0] if pages else ""
        return clock_name(minute * MINUTE_MS), [self._by_minute[minute][topic] for topic in self.topics], busiest


def watch(task: Task, report: Report) -> None:
    """Run until the parent ends the process."""
    from ottla import ConsumerConnector

    connector = ConsumerConnector(
        task.bootstrap,
        group="online",
        client_id="online",
        auto_offset_reset="earliest",
        consumer_timeout_ms=QUIET_MS,
        fetch_max_wait_ms=100,
    )
    (stream,) = connector.create_message_streams_by_filter(1, allow="|".join(map(re.escape, TOPICS)))
    minutes = Minutes(list(TOPICS))
    clock = SystemClock()
    latest_ms = clock.monotonic_ms()
    report_at_s = 0.0
    while True:
        for message in stream:
            minutes.add(message.topic, message.partition, message.timestamp_ms, message.value or b"")
            latest_ms = clock.monotonic_ms()
            if minutes.events_count % CHECK_EVERY == 0 and time.monotonic() >= report_at_s:
                break
        if time.monotonic() >= report_at_s:
            newest = minutes.newest(MINUTES_SHOWN)
            report(Watched(minutes.events_count, minutes.late_count, minutes.malformed_count, newest, latest_ms))
            report_at_s = time.monotonic() + REPORT_EVERY_S


if __name__ == "__main__":
    run_task(watch)
