"""Whether everything came through: what differs between tiers, and what was found otherwise than sent.  Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.audit.count import BROKER, LAKE, PRODUCER
from ottla.demo.lake import TABLE
from ottla.demo.progress import Progress
from ottla.demo.report import difference_lines
from ottla.demo.services import TOPICS

TIERS: Final = (PRODUCER, BROKER, LAKE, TABLE)


def problems_of(progress: Progress, events_count: int) -> Iterator[str]:
    """Nothing when all is well, at the end of a run of so many events."""
    audited, checked, set_aside = progress.audited, progress.checked, progress.set_aside
    assert audited is not None, "the audit has not run"
    assert checked is not None, "nothing was checked"
    assert set_aside is not None, "no events were parsed"
    lines = progress.tier_lines
    yield from difference_lines(lines)
    for topic in TOPICS:
        found = {line.tier for line in lines if line.topic == topic}
        yield from (f"tier {tier} has not counted {topic}" for tier in TIERS if tier not in found)
        if audited.duplicates[topic]:
            yield f"{audited.duplicates[topic]:,} rows of {topic} in the table are duplicates"
    # Events that no tier has are in none of their differences.
    counted = sum(line.records for line in lines if line.tier == PRODUCER)
    if not counted == progress.acknowledged_count == events_count:
        yield f"of {events_count:,} events {progress.acknowledged_count:,} were acknowledged and {counted:,} counted"
    letters_count = sum(checked.letters.values())
    if set_aside.well_formed_count + letters_count != events_count:
        yield f"{set_aside.well_formed_count:,} events were processed and {letters_count:,} set aside"
    if progress.watched.malformed_count != letters_count:
        yield f"the online consumer met {progress.watched.malformed_count:,} malformed events"
    if checked.replayable_count != letters_count:
        yield f"{checked.replayable_count:,} of {letters_count:,} dead letters can be put back"
    yield from checked.problems
