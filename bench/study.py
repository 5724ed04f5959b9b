"""What all studies share: figures by scenario and peer, what went wrong, and how both are kept."""

from __future__ import annotations

import json
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from tests.peers.answering import NotAnswering
from tests.peers.kafka_jars import KafkaUnavailable
from tests.peers.unavailable import PeerUnavailable

from bench.raw_client.load import LoadFailed
from bench.scenarios.scenario import Figures
from bench.wire import BrokerRefused

FORMAT: Final = 1
# A figure's round, by which those of two peers are paired.
ROUND: Final = "round"
LEAST_SHARE: Final = 0.1

# A peer that fails so costs its own figures, never the run.
PEER_FAILURES: Final = (
    *(LoadFailed, BrokerRefused, NotAnswering, PeerUnavailable, KafkaUnavailable),
    *(OSError, TimeoutError, EOFError, struct.error, subprocess.SubprocessError),
)


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """`rounds`: how often everything is measured; `is_quick`: small sizes, for trying and for a busy hour."""

    is_quick: bool
    rounds: int
    peers: tuple[str, ...]
    """Only these; all where it is empty."""
    parts: tuple[str, ...]
    """Only these parts of the study; all where it is empty."""
    work_dir: Path
    scale: float = 1.0
    """Of the full sizes, in a study that has it."""
    scenarios: tuple[str, ...] = ()
    """Only those that match one of these patterns; all where it is empty."""

    def has_peer(self, name: str) -> bool:
        return not self.peers or name in self.peers

    def has_part(self, name: str) -> bool:
        return not self.parts or name in self.parts

    def has_scenario(self, name: str) -> bool:
        return not self.scenarios or any(fnmatchcase(name, pattern) for pattern in self.scenarios)


@dataclass(slots=True)
class Observed:
    """The figures of a study.  A scenario that has been measured once for a peer has one set for each round."""

    about: dict[str, Any]
    limits: list[dict[str, float]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    rounds: dict[tuple[str, str], list[Figures]] = field(default_factory=dict)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Observed:
        """What `document()` of an earlier run gave."""
        rounds = {(line["scenario"], line["peer"]): line["rounds"] for line in document["lines"]}
        return cls(document["about"], document["limits"], document["problems"], rounds)

    def has(self, scenario: str, peer: str, round_index: int) -> bool:
        return any(figures.get(ROUND) == round_index for figures in self.rounds.get((scenario, peer), []))

    def add(self, scenario: str, peer: str, figures: Figures) -> None:
        """Figures of a round take the place of those that it has already."""
        others = self.rounds.get((scenario, peer), [])
        if ROUND in figures:
            others = [other for other in others if other.get(ROUND) != figures[ROUND]]
        self.rounds[scenario, peer] = [*others, figures]
        say(f"{scenario}, {peer}: " + ", ".join(f"{name} {value:,.6g}" for name, value in figures.items()))

    @contextmanager
    def may_fail(self, what: str) -> Iterator[None]:
        """A peer's failure inside is written down, and the study continues."""
        try:
            yield
        except PEER_FAILURES as problem:
            text = f"{what}: {type(problem).__name__}: {problem}"
            self.problems.append(text)
            say(f"FAILED {text}")

    def median(self, scenario: str, peer: str, metric: str) -> float | None:
        values = self._values(scenario, peer, metric)
        return statistics.median(values) if values else None

    def least(self, scenario: str, peer: str, metric: str) -> float | None:
        """The 10th percentile over the rounds: others at work on the machine only ever add time."""
        values = self._values(scenario, peer, metric)
        return percentile(values, LEAST_SHARE) if values else None

    def spread(self, scenario: str, peer: str, metric: str) -> tuple[float, float] | None:
        values = self._values(scenario, peer, metric)
        return (min(values), max(values)) if values else None

    def paired_ratio(self, scenario: str, ours: str, theirs: str, metric: str) -> float | None:
        """The median over the rounds that both have of one's metric divided by the other's."""
        others = {figures[ROUND]: figures[metric] for figures in self.rounds.get((scenario, theirs), [])}
        rounds = self.rounds.get((scenario, ours), [])
        values = [figures[metric] / others[figures[ROUND]] for figures in rounds if figures[ROUND] in others]
        return statistics.median(values) if values else None

    def scenarios(self) -> list[str]:
        """In the order in which they were first measured."""
        return list(dict.fromkeys(scenario for scenario, _ in self.rounds))

    def peers(self) -> list[str]:
        return list(dict.fromkeys(peer for _, peer in self.rounds))

    def document(self) -> dict[str, object]:
        lines = [
            {
                "scenario": scenario,
                "peer": peer,
                "medians": {metric: self.median(scenario, peer, metric) for metric in rounds[0]},
                "rounds": [dict(figures) for figures in rounds],
            }
            for (scenario, peer), rounds in self.rounds.items()
        ]
        return {
            "format": FORMAT,
            "about": self.about,
            "limits": self.limits,
            "problems": self.problems,
            "lines": lines,
        }

    def _values(self, scenario: str, peer: str, metric: str) -> list[float]:
        rounds = self.rounds.get((scenario, peer), [])
        return [figures[metric] for figures in rounds if metric in figures]


@dataclass(frozen=True, slots=True)
class Study:
    """One verb of the benchmark.  `table` gives Markdown, which the README may quote as it is."""

    name: str
    summary: str
    parts: tuple[str, ...]
    peers: tuple[str, ...]
    rounds: int
    run: Callable[[StudyOptions, Observed], None]
    table: Callable[[Observed], str]
    has_scenarios: bool = False
    """Whether single scenarios can be chosen by name."""
    has_scale: bool = False
    """Whether its full sizes can be a share of what they are."""
    may_continue: bool = False
    """Whether a run can add to an earlier one's result: it leaves out what `Observed.has`."""


def write(study: Study, observed: Observed, stem: Path) -> None:
    """STEM.json holds everything, STEM.md is for people."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".json").write_text(json.dumps(observed.document(), indent=1) + "\n")
    stem.with_suffix(".md").write_text(whole_text(study, observed))
    say(f"written to {stem}.json and .md")


def whole_text(study: Study, observed: Observed) -> str:
    about = "\n".join(f"* {name}: {value}" for name, value in observed.about.items())
    problems = "\n".join(f"* {problem}" for problem in observed.problems) or "None."
    return f"# {study.name}\n\n{about}\n\n{study.table(observed)}\n\n## Problems of this run\n\n{problems}\n"


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def number(value: float | None) -> str:
    """Three significant digits below a hundred, whole numbers above; a dash where there is none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"


def with_spread(observed: Observed, scenario: str, peer: str, metric: str, unit: float = 1.0) -> str:
    """The median in units of `unit`, with the least and the greatest where they differ."""
    middle, spread = observed.median(scenario, peer, metric), observed.spread(scenario, peer, metric)
    if middle is None or spread is None:
        return "-"
    low, high = spread
    text = number(middle / unit)
    return text if low == high else f"{text} ({number(low / unit)}..{number(high / unit)})"


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share (0..1) of all values does not exceed."""
    if not values:
        raise ValueError("a percentile of nothing")
    ordered = sorted(values)
    index = max(0, -(-len(ordered) * share // 1) - 1)
    return ordered[min(len(ordered) - 1, int(index))]


def say(text: str) -> None:
    print(f"bench {time.strftime('%H:%M:%S')}: {text}", file=sys.stderr, flush=True)
