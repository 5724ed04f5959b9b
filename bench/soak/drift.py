"""Figures of each minute, and the judgement on them: pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

# Caches fill and pools grow at first: this share of the minutes is not judged.
WARM_UP_SHARE: Final = 1 / 6
MINUTES_JUDGED_MIN: Final = 3
# What a process may grow over the judged minutes, by the line through them: a share of its mean, and never less than
# what a pool or a cache of a new topic takes.
GROWTH_SHARE_MAX: Final = 0.10
MEMORY_MB_ALLOWED: Final = 4.0
DESCRIPTORS_ALLOWED: Final = 20.0
# What the loads count, and do in every minute.
WORK: Final = ("read", "transactions", "topics")
# p99 of the last third beside the first: the medians of their minutes.
P99_RATIO_MAX: Final = 1.5
P99_MS_ALLOWED: Final = 5.0


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """The median of a minute's looks."""

    memory_mb: float
    descriptors: float


@dataclass(frozen=True, slots=True)
class Minute:
    processes: dict[str, ProcessFigures]
    """Those that ran throughout, by name; one that is killed now and then is not among them."""
    p50_ms: float | None
    """Of the paced producer, from when a message was due; None where nothing was acknowledged in this minute."""
    p99_ms: float | None
    max_ms: float | None
    counts: dict[str, int] = field(default_factory=dict)
    """What the loads have done in this minute: messages, commits, topics, kills."""
    disk_mb: float = 0.0

    def document(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Judgement:
    what: str
    first: float
    last: float
    """Where the line through the judged minutes starts and ends; of p99 the medians of the outer thirds."""
    allowed: float
    """What `last` may be at most."""

    @property
    def has_drifted(self) -> bool:
        return self.last > self.allowed

    def line(self) -> str:
        verdict = "DRIFT" if self.has_drifted else "steady"
        return (
            f"{self.what}: from {self.first:,.1f} to {self.last:,.1f}, at most {self.allowed:,.1f} allowed: {verdict}"
        )


def judged(minutes: Sequence[Minute]) -> list[Minute]:
    """Without the warm-up; empty where too few are left to judge."""
    warm = max(1, round(len(minutes) * WARM_UP_SHARE))
    rest = list(minutes[warm:])
    return rest if len(rest) >= MINUTES_JUDGED_MIN else []


def judge(minutes: Sequence[Minute]) -> list[Judgement]:
    """Memory and descriptors of each process, and p99.  Empty where there are too few minutes."""
    rest = judged(minutes)
    if not rest:
        return []
    judgements = []
    for name in rest[0].processes:
        figures = [minute.processes[name] for minute in rest if name in minute.processes]
        for what, values, least in (
            (f"memory of {name}, MB", [each.memory_mb for each in figures], MEMORY_MB_ALLOWED),
            (f"descriptors of {name}", [each.descriptors for each in figures], DESCRIPTORS_ALLOWED),
        ):
            first, last = line_through(values)
            allowed = first + max(least, GROWTH_SHARE_MAX * statistics.fmean(values))
            judgements.append(Judgement(what, first, last, allowed))
    p99s = [minute.p99_ms for minute in rest if minute.p99_ms is not None]
    third = len(p99s) // 3
    if third > 0:
        first, last = statistics.median(p99s[:third]), statistics.median(p99s[-third:])
        allowed = max(first * P99_RATIO_MAX, first + P99_MS_ALLOWED)
        judgements.append(Judgement("p99 of the producer, ms", first, last, allowed))
    return judgements


def standstills(minutes: Sequence[Minute]) -> list[str]:
    """A line for each load that did nothing for a judged minute: a figure that is missing is steady, too."""
    rest = judged(minutes)
    idle = {"acknowledgements": sum(minute.p99_ms is None for minute in rest)}
    for what in WORK:
        idle[what] = sum(not minute.counts.get(what) for minute in rest)
    return [f"{what}: none in {count} of {len(rest)} minutes: STANDSTILL" for what, count in idle.items() if count]


def line_through(values: Sequence[float]) -> tuple[float, float]:
    """The first and the last value of the line of least squares through them, at even distances."""
    if len(values) < 2:
        return values[0], values[0]
    slope, intercept = statistics.linear_regression(range(len(values)), values)
    return intercept, intercept + slope * (len(values) - 1)
