"""Counts of all tiers side by side: what each tier lacks or has too much in each window, and how late it came."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.audit.count import BROKER, LAKE, NO_TOPIC_ID, PRODUCER, Count
from ottla.model.errors import ConfigError
from ottla.model.limits import DAY_MS
from ottla.model.windows import Window, check_window_ms, window_start_ms

MIRROR: Final = "mirror"
# Counts expire one by one, 30 days after they were published and some segments later: the rest of an old window means
# nothing.  Windows of which a count is older than this are not compared.
COMPARED_MS: Final = 28 * DAY_MS
# As records pass them; tiers of other names come after these, by name.
TIERS: Final = (PRODUCER, BROKER, MIRROR, LAKE)


class TierCount(NamedTuple):
    """What a tier's counters have counted in one window, together."""

    records: int = 0
    late_records: int = 0
    last_seen_ms: int | None = None
    first_seen_ms: int | None = None


class TierLine(NamedTuple):
    """One topic, window and tier.

    `expected_records`: the most that any tier before it has counted; None for the first one.  `missing_records` and
    `surplus_records` are the difference in either direction: a record lost and another one twice in the same window
    hide each other.  `late_records` arrived after the window had ended, the last of them `late_ms` after that.
    """

    topic: str
    window: Window
    tier: str
    records: int
    expected_records: int | None
    missing_records: int
    surplus_records: int
    late_records: int
    late_ms: int

    @property
    def completeness(self) -> float | None:
        """The part of what was expected that is there, 1.0 at most; None where nothing says what to expect."""
        if self.expected_records is None:
            return None
        return 1.0 if not self.expected_records else min(1.0, self.records / self.expected_records)

    def fields(self) -> dict[str, object]:
        """By the names that tables and JSON have for them."""
        return {
            "topic": self.topic,
            "window_start_ms": self.window.start_ms,
            "window_ms": self.window.size_ms,
            "tier": self.tier,
            "records": self.records,
            "expected_records": self.expected_records,
            "missing_records": self.missing_records,
            "surplus_records": self.surplus_records,
            "late_records": self.late_records,
            "late_ms": self.late_ms,
            "completeness": self.completeness,
        }


def tier_rank(tier: str) -> tuple[int, str]:
    """Sorts tiers as records pass them."""
    return (TIERS.index(tier), "") if tier in TIERS else (len(TIERS), tier)


def unfit_counts(counts: Iterable[Count], window_ms: int) -> dict[str, Count]:
    """By topic, a count by windows that are not parts of windows of this size: such a topic cannot be compared."""
    return {count.key.topic: count for count in counts if window_ms % count.key.window.size_ms}


def unfit_text(tier: str, topic: str, size_ms: int, window_ms: int) -> str:
    return (
        f"tier {tier} counts {topic} by windows of {size_ms} ms, which are no parts of windows of {window_ms} ms: "
        "compare by a multiple of every counter's windows"
    )


def sum_windows(
    counts: Iterable[Count], window_ms: int, *, gone_ids: Collection[UUID] = ()
) -> dict[tuple[str, Window], dict[str, TierCount]]:
    """By topic and window of this size, each tier's sum.

    Topics with these ids are gone, and others have their names: their counts are left out, and of counters that do not
    know ids as many records as brokers have counted of those topics.
    Raises ConfigError where a counter's windows are no parts of these.
    """
    check_window_ms(window_ms)
    sums: dict[tuple[str, Window], dict[str, TierCount]] = defaultdict(dict)
    without_id: dict[tuple[str, Window], Counter[str]] = defaultdict(Counter)
    gone: dict[tuple[str, Window], TierCount] = {}
    for count in counts:
        key = count.key
        if window_ms % key.window.size_ms:
            raise ConfigError(unfit_text(key.tier, key.topic, key.window.size_ms, window_ms))
        place = key.topic, Window(window_start_ms(key.window.start_ms, window_ms), window_ms)
        if key.topic_id in gone_ids:
            if key.tier == BROKER:
                gone[place] = _plus(gone.get(place), count)
            continue
        sums[place][key.tier] = _plus(sums[place].get(key.tier), count)
        if key.topic_id == NO_TOPIC_ID:
            without_id[place][key.tier] += count.records
    for place, of_gone in gone.items():
        for tier, records in without_id[place].items():
            sums[place][tier] = _minus(sums[place][tier], min(records, of_gone.records), of_gone.first_seen_ms)
    return sums


def _plus(so_far: TierCount | None, count: Count) -> TierCount:
    seen_ms = count.last_seen_ms
    if so_far is None:
        return TierCount(count.records, count.late_records, seen_ms, seen_ms)
    last_ms, first_ms = so_far.last_seen_ms, so_far.first_seen_ms
    return TierCount(
        so_far.records + count.records,
        so_far.late_records + count.late_records,
        seen_ms if last_ms is None else max(last_ms, seen_ms),
        seen_ms if first_ms is None else min(first_ms, seen_ms),
    )


def _minus(so_far: TierCount, records: int, seen_ms: int | None) -> TierCount:
    """Without so many records; what it says expires with the counts that say how many those are."""
    left_records = so_far.records - records
    first_ms = min((each for each in (so_far.first_seen_ms, seen_ms) if each is not None), default=None)
    return TierCount(left_records, min(so_far.late_records, left_records), so_far.last_seen_ms, first_ms)


def compare(
    counts: Iterable[Count],
    window_ms: int,
    *,
    tiers: Sequence[str] = (),
    seen_since_ms: int | None = None,
    gone_ids: Collection[UUID] = (),
) -> list[TierLine]:
    """A line for each topic, window and tier, in this order.

    A tier that counts the topic at all, or that `tiers` names, has a line in each window, of 0 records if need be.
    Windows with a count that met nothing since `seen_since_ms` are left out: others of theirs may have expired.
    `gone_ids`: as of `sum_windows`.
    """
    return compare_sums(sum_windows(counts, window_ms, gone_ids=gone_ids), tiers=tiers, seen_since_ms=seen_since_ms)


def compare_sums(
    sums: Mapping[tuple[str, Window], Mapping[str, TierCount]],
    *,
    tiers: Sequence[str] = (),
    seen_since_ms: int | None = None,
) -> list[TierLine]:
    """The same of what `sum_windows` gives."""
    if seen_since_ms is not None:
        sums = {place: found for place, found in sums.items() if not _is_older(found, seen_since_ms)}
    of_topic: dict[str, set[str]] = defaultdict(set)
    for (topic, _), found in sums.items():
        of_topic[topic] |= found.keys() | set(tiers)
    lines: list[TierLine] = []
    for (topic, window), found in sorted(sums.items()):
        expected: int | None = None
        for tier in sorted(of_topic[topic], key=tier_rank):
            count = found.get(tier, TierCount())
            lines.append(_line(topic, window, tier, count, expected))
            expected = max(expected or 0, count.records)
    return lines


def _is_older(found: Mapping[str, TierCount], than_ms: int) -> bool:
    return any(count.first_seen_ms is not None and count.first_seen_ms < than_ms for count in found.values())


def _line(topic: str, window: Window, tier: str, count: TierCount, expected: int | None) -> TierLine:
    behind = 0 if expected is None else expected - count.records
    is_late = count.late_records and count.last_seen_ms is not None
    late_ms = max(0, count.last_seen_ms - window.end_ms) if is_late and count.last_seen_ms is not None else 0
    return TierLine(
        topic, window, tier, count.records, expected, max(0, behind), max(0, -behind), count.late_records, late_ms
    )
