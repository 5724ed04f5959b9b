"""A run of the demo at its end, as its processes have told it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from ottla.audit.comparison import TierLine, compare
from ottla.audit.count import NO_TOPIC_ID, Count, CountKey
from ottla.audit.results import result_to_json
from ottla.demo.day import HOUR_MS
from ottla.demo.messages import Audited, Checked, Loaded, Produced, Running, SetAside, Watched
from ottla.demo.progress import Progress
from ottla.demo.services import TOPICS
from ottla.demo.verdict import TIERS
from ottla.model.windows import Window

# 2011-06-12 00:00 UTC
DAY_MS: Final = 1_307_836_800_000
# In each topic and hour, unless a test says otherwise.
RECORDS: Final = 7
EVENTS: Final = RECORDS * 24 * len(TOPICS)
HOURS: Final = [DAY_MS + hour * HOUR_MS for hour in range(24)]
LETTERS: Final = {"clicks": 1, "page-views": 2}


def tier_lines(other: Mapping[tuple[str, str, int], int] | None = None) -> list[TierLine]:
    """The comparison of a day; `other` are counts by tier, topic and hour."""
    found = {(tier, topic, hour): RECORDS for tier in TIERS for topic in TOPICS for hour in range(24)} | dict(
        other or {}
    )
    counts = [
        Count(
            CountKey(tier, UUID(int=1), topic, NO_TOPIC_ID, Window(DAY_MS + hour * HOUR_MS, HOUR_MS)),
            1,
            records,
            0,
            DAY_MS,
        )
        for (tier, topic, hour), records in found.items()
    ]
    return compare(counts, HOUR_MS)


def audited(lines: list[TierLine] | None = None, duplicates: Mapping[str, int] | None = None) -> Audited:
    return Audited(
        lines=[result_to_json(line, 0).decode() for line in (tier_lines() if lines is None else lines)],
        duplicates=dict.fromkeys(TOPICS, 0) | dict(duplicates or {}),
        complete_hours=dict.fromkeys(TOPICS, HOURS),
        ended_ms=9_000,
    )


def checked(**other: object) -> Checked:
    facts: dict[str, object] = {
        "problems": [],
        "letters": LETTERS,
        "replayable_count": 3,
        "letter": "page-views 3:123456 b'<html><h1>502 Bad Gateway</h1></'",
        "sessions_count": 201_345,
        "longest_views": 17,
        "longest_ms": 100 * 60_000,
        "windows_count": 288,
        "busiest_ms": DAY_MS + 10 * HOUR_MS,
        "busiest_pages": [("/feed", 210), ("/company/199", 103), ("/network", 70)],
        "late_count": 480,
    }
    return Checked(**(facts | other))  # type: ignore[arg-type]  # by name


def finished(*messages: Audited | Checked | SetAside | Watched) -> Progress:
    """All is well but for these messages."""
    progress = Progress()
    progress.take("web-1", Produced(EVENTS, EVENTS, 0, 1_000))
    progress.take("online consumer", Watched(EVENTS, 5, 3, [], 1_100))
    progress.take("Spark", Running("starts", 1_000))
    progress.take("Spark", Running("loads", 5_000))
    progress.take("Spark", Loaded(EVENTS, 96, 2_000))
    progress.take("Spark", SetAside(EVENTS - 3))
    progress.take("Spark", audited())
    progress.take("check", checked())
    for message in messages:
        progress.take("later", message)
    return progress
