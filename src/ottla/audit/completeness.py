"""Until when, in event time, a topic is complete at a tier: what a batch job waits for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from ottla.audit.comparison import COMPARED_MS, TierLine, compare, tier_rank
from ottla.audit.count import LAKE, NO_TOPIC_ID, NOT_YET_MS, Report
from ottla.audit.snapshot import AuditSnapshot
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

    threshold       at least this part of what the tiers before it have counted is there
    delay_ms        each of their counters has reported a time so long after the window's end
    silence_ms      a producer that was silent for so long is not waited for while others report
    trusts_silence  no counter that was silent for so long is waited for, brokers and the only producer included;
                    then the clock alone may decide that a window is over

    Raises ConfigError for values that cannot be.
    """

    tier: str = LAKE
    window_ms: int = HOUR_MS
    threshold: float = THRESHOLD
    delay_ms: int = DELAY_MS
    silence_ms: int = SILENCE_MS
    trusts_silence: bool = False

    def __post_init__(self) -> None:
        check_window_ms(self.window_ms)
        if not 0 < self.threshold <= 1:
            raise ConfigError(f"the threshold is {self.threshold}", hint="a part of 1, such as 0.999")
        if self.delay_ms < 0 or self.silence_ms < 0:
            raise ConfigError("a delay and a silence are times of 0 ms or more")


@dataclass(frozen=True, slots=True)
class Completeness:
    """`until_ms`: every window that ended by then is complete; None when that can be said of none yet.

    `reported_until_ms`: windows that ended by then have been counted by all tiers before; None: no counter has spoken.
    `short`: windows before that which lack records.  `silent`: counters that ended without saying so; what they counted
    last may be missing in `expected_records`.  `behind_count`: partitions that brokers have not counted up to their end
    yet, or that no broker counts.
    """

    topic: str
    rules: CompletenessRules
    until_ms: int | None
    reported_until_ms: int | None
    short: tuple[TierLine, ...]
    silent: tuple[Report, ...]
    behind_count: int = 0

    @property
    def told_until_ms(self) -> int | None:
        """The name of `reported_until_ms` in earlier releases."""
        return self.reported_until_ms

    def is_complete(self, window: Window) -> bool:
        """Independent of the windows before it.

        Raises ConfigError for a window that is not made of those of the rules: what was counted says nothing of it.
        """
        size_ms = self.rules.window_ms
        if window.start_ms % size_ms or window.size_ms % size_ms:
            raise ConfigError(
                f"a window of {window.size_ms} ms at {time_text(window.start_ms)} is not made of the rules' windows of "
                f"{size_ms} ms",
                hint=f"ask with CompletenessRules(window_ms={window.size_ms}), or for whole windows of the rules",
            )
        return self.is_complete_between(window.start_ms, window.end_ms)

    def is_complete_between(self, from_ms: int | None, until_ms: int) -> bool:
        """Every window that overlaps this time is complete.  None: from the first one on."""
        if self.reported_until_ms is None or self.reported_until_ms < until_ms:
            return False
        return not self.short_between(from_ms, until_ms)

    def short_between(self, from_ms: int | None, until_ms: int) -> list[TierLine]:
        return [
            line
            for line in self.short
            if line.window.start_ms < until_ms and (from_ms is None or line.window.end_ms > from_ms)
        ]

    @property
    def behind_text(self) -> str:
        return (
            f"brokers have not counted {self.behind_count} of the partitions up to their end yet; "
            "is audit.enable on at all of them?"
        )

    def __str__(self) -> str:
        rules = self.rules
        what = f"{self.topic} at {rules.tier}"
        if self.until_ms is not None:
            return f"{what} is complete to {rules.threshold:.1%} until {time_text(self.until_ms)}"
        if self.behind_count:
            return f"{what}: {self.behind_text}"
        if self.reported_until_ms is None:
            return f"{what}: no counter before this tier has reported anything"
        return f"{what} has no complete window of {rules.window_ms} ms"


def completeness_of(snapshot: AuditSnapshot, topic: str, rules: CompletenessRules, now_ms: int) -> Completeness:
    """What the counts say of `topic` at the time `now_ms`."""
    counts = [count for count in snapshot.counts if count.key.topic == topic]
    reports = [
        report
        for report in snapshot.reports
        if report.key.topic == topic and tier_rank(report.key.tier) < tier_rank(rules.tier)
    ]
    reported = _reported(reports, rules, now_ms)
    lines = [
        line
        for line in compare(
            counts,
            rules.window_ms,
            tiers=[rules.tier],
            seen_since_ms=now_ms - COMPARED_MS,
            gone_ids=gone_topic_ids(snapshot, topic),
        )
        if line.tier == rules.tier
    ]
    short = tuple(line for line in lines if not _is_enough(line, rules))
    reported_until_ms = reported.until_ms
    if reported_until_ms is None:
        return Completeness(topic, rules, None, None, (), reported.silent, reported.behind_count)
    reported_short = tuple(line for line in short if line.window.end_ms <= reported_until_ms)
    until_ms = min([reported_until_ms, *(line.window.start_ms for line in short)])
    begun = any(line.window.end_ms <= until_ms for line in lines)
    return Completeness(
        topic,
        rules,
        until_ms if begun else None,
        reported_until_ms,
        reported_short,
        reported.silent,
        reported.behind_count,
    )


def gone_topic_ids(snapshot: AuditSnapshot, topic: str) -> frozenset[UUID]:
    """Of topics that were deleted, where brokers count another one that has the name now."""
    counted = [each for each in snapshot.reports if each.key.topic == topic and each.counters_count]
    live = {group[0].key.topic_id for group in _live_groups(counted)}
    return frozenset(each.key.topic_id for each in counted) - live - {NO_TOPIC_ID} if live else frozenset()


class _Reported(NamedTuple):
    until_ms: int | None
    silent: tuple[Report, ...]
    behind_count: int


def _reported(reports: Sequence[Report], rules: CompletenessRules, now_ms: int) -> _Reported:
    """Until when all counters have reported, which of them fell silent, and how many lag."""
    if not reports:
        return _Reported(None, (), 0)
    silent = tuple(each for each in reports if not each.has_ended and each.until_ms < now_ms - rules.silence_ms)
    if rules.trusts_silence:
        live = [each.until_ms for each in reports if not each.has_ended and each not in silent]
        return _Reported(window_start_ms(min([now_ms, *live]) - rules.delay_ms, rules.window_ms), silent, 0)
    shared = _live_groups(reports)
    behind_count = sum(
        max(each.counters_count for each in group) - sum(each.until_ms > NOT_YET_MS for each in group)
        for group in shared
    )
    # Counters of partitions have successors, so their missing counts are still to come.  Others do not return.
    given_up = tuple(each for each in silent if not each.counters_count)
    if behind_count > 0:
        return _Reported(None, given_up, behind_count)
    live = [each.until_ms for group in shared for each in group]
    live += [each.until_ms for each in reports if not (each.counters_count or each.has_ended or each in silent)]
    # Where all have ended the clock decides that a window is over; where all fell silent that is unknown.
    until_ms = min([now_ms, *live]) if live or not given_up else max(each.until_ms for each in given_up)
    return _Reported(window_start_ms(until_ms - rules.delay_ms, rules.window_ms), given_up, 0)


def _live_groups(reports: Sequence[Report]) -> list[list[Report]]:
    """The reports of counters of partitions, by tier and topic id, without those of topics that are gone."""
    groups: dict[tuple[str, UUID], list[Report]] = defaultdict(list)
    for each in reports:
        if each.counters_count:
            groups[each.key.tier, each.key.topic_id].append(each)
    found = []
    for (tier, topic_id), group in groups.items():
        newest_ms = max(each.until_ms for each in group)
        # Topics have one name one after the other.
        is_replaced = newest_ms > NOT_YET_MS and any(
            min(each.until_ms for each in other) > newest_ms
            for (other_tier, other_id), other in groups.items()
            if other_tier == tier and other_id != topic_id
        )
        if not is_replaced and not any(each.has_ended for each in group):
            found.append(group)
    return found


def _is_enough(line: TierLine, rules: CompletenessRules) -> bool:
    return line.expected_records is None or line.records >= rules.threshold * line.expected_records
