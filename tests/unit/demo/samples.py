"""A run of the demo at its end, as its processes have reported it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from ottla.audit.comparison import TierLine, compare
from ottla.audit.count import NO_TOPIC_ID, Count, CountKey
from ottla.demo.events import TOPICS
from ottla.demo.processes import Checked, JobsDone, Produced, StageStarted, Watched
from ottla.demo.report import TIERS, RunProgress
from ottla.model.limits import HOUR_MS
from ottla.model.windows import Window

# 2011-06-12 00:00 UTC
DAY_MS: Final = 1_307_836_800_000
# In each topic and hour, unless a test says otherwise.
RECORDS: Final = 7
EVENTS: Final = RECORDS * 24 * len(TOPICS)
HOURS: Final = [DAY_MS + hour * HOUR_MS for hour in range(24)]
LETTERS: Final = 3


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


def jobs_done(
    lines: list[TierLine] | None = None,
    duplicates: Mapping[str, int] | None = None,
    well_formed_count: int = EVENTS - LETTERS,
) -> JobsDone:
    return JobsDone(
        rows_count=EVENTS,
        files_count=96,
        well_formed_count=well_formed_count,
        lines=tier_lines() if lines is None else lines,
        duplicates=dict.fromkeys(TOPICS, 0) | dict(duplicates or {}),
        complete_hours=dict.fromkeys(TOPICS, HOURS),
        ended_ms=9_000,
    )


def finished(*messages: Checked | JobsDone | Watched) -> RunProgress:
    """All is well but for these messages."""
    progress = RunProgress()
    progress.take("web-1", Produced(EVENTS, 0, 1_000))
    progress.take("online consumer", Watched(EVENTS, 5, LETTERS, [], 1_100))
    progress.take("Spark", StageStarted("starts", 1_000))
    progress.take("Spark", StageStarted("loads", 5_000))
    progress.take("Spark", jobs_done())
    progress.take("check", Checked([], LETTERS, LETTERS, ["sessions   201,345"]))
    for message in messages:
        progress.take("later", message)
    return progress
