"""Until when, in event time, a topic is complete at a tier: what a batch job waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla.audit.book import AuditBook
from ottla.audit.comparison import TierLine, compare, tier_rank
from ottla.audit.count import LAKE, Report
from ottla.model.errors import ConfigError
from ottla.model.limits import HOUR_MS, MINUTE_MS, SECOND_MS
from ottla.model.windows import Window, check_window_ms, time_text, window_start_ms

THRESHOLD: Final = 0.999
# Records of a window that are still on their way when it ends.
DELAY_MS: Final = 30 * SECOND_MS
# A counter that has been silent for so long is given up: its process died.
SILENCE_MS: Final = 5 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class CompletenessRules:
    """When a window counts as complete at `tier`.

    threshold    at least this part of what the tiers before it have counted is there
    delay_ms     the window ended so long before what each of their counters has told
    silence_ms   a counter that was silent for so long is not waited for
    Raises ConfigError for values that cannot be.
    """

    tier: str = LAKE
    window_ms: int = HOUR_MS
    threshold: float = THRESHOLD
    delay_ms: int = DELAY_MS
    silence_ms: int = SILENCE_MS

    def __post_init__(self) -> None:
        check_window_ms(self.window_ms)
        if not 0 < self.threshold <= 1:
            raise ConfigError(f"the threshold is {self.threshold}", hint="a part of 1, such as 0.999")
        if self.delay_ms < 0 or self.silence_ms < 0:
            raise ConfigError("a delay and a silence are times of 0 ms or more")


@dataclass(frozen=True, slots=True)
class Completeness:
    """`until_ms`: every window that ended by then is complete; None when that can be said of none yet.

    `told_until_ms`: windows that ended by then have been counted by all tiers before; None: no counter has spoken.
    `short`: windows before that which lack records.  `silent`: counters that ended without saying so; what they counted
    last may be missing in `expected_records`.
    """

    topic: str
    rules: CompletenessRules
    until_ms: int | None
    told_until_ms: int | None
    short: tuple[TierLine, ...]
    silent: tuple[Report, ...]

    def is_complete(self, window: Window) -> bool:
        return self.until_ms is not None and window.end_ms <= self.until_ms

    def __str__(self) -> str:
        rules = self.rules
        what = f"{self.topic} at {rules.tier}"
        if self.until_ms is not None:
            return f"{what} is complete to {rules.threshold:.1%} until {time_text(self.until_ms)}"
        if self.told_until_ms is None:
            return f"{what}: no counter before this tier has told anything"
        return f"{what} has no complete window of {rules.window_ms} ms"


def completeness_of(book: AuditBook, topic: str, rules: CompletenessRules, now_ms: int) -> Completeness:
    """What the counts say of `topic` at the time `now_ms`."""
    counts = [count for count in book.counts if count.key.topic == topic]
    reports = [
        report
        for report in book.reports
        if report.key.topic == topic and tier_rank(report.key.tier) < tier_rank(rules.tier)
    ]
    silent = tuple(each for each in reports if not each.has_ended and each.until_ms < now_ms - rules.silence_ms)
    told_until_ms = _told_until(reports, silent, rules, now_ms)
    lines = [line for line in compare(counts, rules.window_ms, tiers=[rules.tier]) if line.tier == rules.tier]
    short = tuple(line for line in lines if not _is_enough(line, rules))
    if told_until_ms is None:
        return Completeness(topic, rules, None, None, (), silent)
    told_short = tuple(line for line in short if line.window.end_ms <= told_until_ms)
    until_ms = min([told_until_ms, *(line.window.start_ms for line in short)])
    begun = any(line.window.end_ms <= until_ms for line in lines)
    return Completeness(topic, rules, until_ms if begun else None, told_until_ms, told_short, silent)


def _told_until(
    reports: Sequence[Report], silent: Sequence[Report], rules: CompletenessRules, now_ms: int
) -> int | None:
    if not reports:
        return None
    live = [report.until_ms for report in reports if not report.has_ended and report not in silent]
    # Counters that ended have told all; with no live one the clock itself says that a window is over.
    return window_start_ms(min([now_ms, *live]) - rules.delay_ms, rules.window_ms)


def _is_enough(line: TierLine, rules: CompletenessRules) -> bool:
    return line.expected_records is None or line.records >= rules.threshold * line.expected_records
