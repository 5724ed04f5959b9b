"""What a run has found, and the judgement on it."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path

from bench.scenarios.scenario import Figures
from bench.targets import BASELINE, LIMITS, RATIOS, Verdict

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Line:
    """One scenario and one peer: the figures of each round."""

    scenario: str
    peer: str
    headline: str
    rounds: list[Figures]

    def median(self, metric: str) -> float:
        return statistics.median(figures[metric] for figures in self.rounds)

    def spread(self, metric: str) -> tuple[float, float]:
        values = [figures[metric] for figures in self.rounds]
        return min(values), max(values)

    def medians(self) -> dict[str, float]:
        return {metric: self.median(metric) for metric in self.rounds[0]}


@dataclass(frozen=True, slots=True)
class Judgement:
    """One promise, kept or not.  `value` is a multiple of the baseline's if `is_ratio`, else the metric itself."""

    scenario: str
    peer: str
    metric: str
    is_ratio: bool
    value: float
    floor: float
    aim: float
    verdict: Verdict


@dataclass(slots=True)
class Results:
    about: dict[str, object]
    """When, where, which commit, which settings: plain JSON values."""
    limits: list[dict[str, float]] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)

    def line(self, scenario: str, peer: str) -> Line | None:
        return next((line for line in self.lines if (line.scenario, line.peer) == (scenario, peer)), None)

    def ratio(self, line: Line, metric: str) -> float | None:
        """The median over the rounds of (this peer / baseline in that round), which cancels the machine's drift."""
        baseline = self.line(line.scenario, BASELINE)
        if baseline is None or baseline is line:
            return None
        pairs = zip(line.rounds, baseline.rounds, strict=False)
        return statistics.median(ours[metric] / theirs[metric] for ours, theirs in pairs)

    def judgements(self) -> list[Judgement]:
        return [judgement for line in self.lines for judgement in self.judge(line)]

    def judge(self, line: Line) -> list[Judgement]:
        judgements = []
        target = RATIOS.get((line.scenario, line.peer))
        if target is not None and (ratio := self.ratio(line, target.metric)) is not None:
            verdict = target.judge(ratio)
            judgements.append(
                Judgement(line.scenario, line.peer, target.metric, True, ratio, target.floor, target.aim, verdict)
            )
        for limit in LIMITS.get((line.scenario, line.peer), ()):
            value, most = line.median(limit.metric), limit.most
            verdict = limit.judge(value)
            judgements.append(Judgement(line.scenario, line.peer, limit.metric, False, value, most, most, verdict))
        return judgements

    @property
    def has_missed_a_floor(self) -> bool:
        return any(judgement.verdict is Verdict.BELOW for judgement in self.judgements())

    def write_json(self, path: Path) -> None:
        lines = [
            {
                "scenario": line.scenario,
                "peer": line.peer,
                "headline": line.headline,
                "ratio": self.ratio(line, line.headline),
                "medians": line.medians(),
                "rounds": list(line.rounds),
            }
            for line in self.lines
        ]
        judgements = [
            {
                "scenario": each.scenario,
                "peer": each.peer,
                "metric": each.metric,
                "is_ratio": each.is_ratio,
                "value": each.value,
                "floor": each.floor,
                "aim": each.aim,
                "verdict": each.verdict.value,
            }
            for each in self.judgements()
        ]
        document = {
            "format": FORMAT,
            "about": self.about,
            "limits": self.limits,
            "lines": lines,
            "judgements": judgements,
        }
        path.write_text(json.dumps(document, indent=1) + "\n")
