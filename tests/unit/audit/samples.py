"""Counts and reports as short words."""

from __future__ import annotations

from uuid import UUID

from ottla.audit.count import NO_TOPIC_ID, Count, CountKey, Report, ReportKey
from ottla.model.windows import Window

TEN_MINUTES_MS = 600_000
HOUR_MS = 3_600_000


def count(
    tier: str,
    records: int,
    *,
    start_ms: int = 0,
    late: int = 0,
    seen_ms: int = 0,
    counter: int = 1,
    sequence: int = 1,
    window_ms: int = TEN_MINUTES_MS,
    topic_id: UUID = NO_TOPIC_ID,
) -> Count:
    key = CountKey(tier, UUID(int=counter), "clicks", topic_id, Window(start_ms, window_ms))
    return Count(key, sequence, records, late, seen_ms)


def report(
    tier: str,
    until_ms: int,
    *,
    ended: bool = False,
    counter: int = 1,
    sequence: int = 1,
    counters: int = 0,
    topic_id: UUID = NO_TOPIC_ID,
) -> Report:
    return Report(ReportKey(tier, UUID(int=counter), "clicks", topic_id), sequence, until_ms, ended, counters)
