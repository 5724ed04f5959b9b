"""One run: a home, a topic with a steady load, two groups on it, faults one after the other, and the verdict.

A run that is not clean keeps its directory: journals, outputs and logs of all processes, and all data.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ottla.testing.cluster import ClusterStateMissing
from tests.cluster.fault_without_effect import FaultWithoutEffect
from tests.connectors.crew import PLAIN_MEMBER, Crew
from tests.connectors.faults import FAULTS_OF, PUBLISH_SUBSCRIBE, Fault, Target
from tests.connectors.homes import TOPIC, Home
from tests.connectors.journal import now_ns
from tests.connectors.verdict import Verdict

PAUSE_S: Final = (0.0, 1.0)


@dataclass(frozen=True)
class Size:
    """The sizes of a run."""

    partitions_count: int
    # Of the group with changing members, and of the other one.
    members_count: int
    audit_count: int
    herd_count: int
    # To each partition.
    per_second: float


LONG: Final = Size(partitions_count=48, members_count=3, audit_count=2, herd_count=20, per_second=5.0)
SHORT: Final = Size(partitions_count=16, members_count=2, audit_count=1, herd_count=5, per_second=10.0)


@dataclass
class RunResult:
    verdict: Verdict
    strikes: Counter[str] = field(default_factory=Counter)
    evidence: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    # Seconds from each change until all members consume, by kind of change.
    took_s: dict[str, list[float]] = field(default_factory=dict)
    kept_directory: Path | None = None
    last_lines: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return self.verdict.is_clean and not self.problems

    def __str__(self) -> str:
        lines = [
            " ".join(f"{name}={count}" for name, count in sorted(self.strikes.items())),
            " ".join(f"{name}={max(took):.2f}s" for name, took in sorted(self.took_s.items())),
            str(self.verdict),
            *self.problems,
        ]
        if self.kept_directory is not None:
            lines += [*self.evidence, *self.last_lines, f"all files of this run are kept in {self.kept_directory}"]
        return "\n".join(lines)


def run(
    make_home: Callable[[Path], Home],
    plan: Sequence[str],
    *,
    seed: int,
    size: Size = LONG,
    command: Sequence[str] = PLAIN_MEMBER,
    faults: Mapping[str, Fault] | None = None,
    streams_counts: Sequence[int] = (1, 1, 2, 3),
    work_ms: float = 0.0,
) -> RunResult:
    """`plan` are names of faults; `command` starts a member."""
    directory = Path(tempfile.mkdtemp(prefix="ottla-connectors-"))
    result = RunResult(Verdict())
    home = make_home(directory)
    try:
        home.start()
        home.create_topic(size.partitions_count)
        journals = directory / "journals"
        journals.mkdir()
        crew = Crew(journals, home.bootstrap, TOPIC, home.place, command)
        target = Target(
            home, crew, random.Random(seed), size.per_second, size.herd_count, streams_counts, work_ms, result.took_s
        )
        try:
            _strike_all(target, plan, faults or FAULTS_OF[home.name], size, result)
            crew.finish()
        finally:
            crew.close()
            result.problems += crew.problems
            result.last_lines = [*home.last_lines(), *crew.last_lines()]
        home.judge(crew, result.verdict)
    except BaseException as error:
        error.add_note("\n".join([str(result), *result.last_lines, f"all files of this run are kept in {directory}"]))
        raise
    finally:
        home.close()
    if result.is_clean:
        shutil.rmtree(directory)
    else:
        result.kept_directory = directory
    return result


def _strike_all(
    target: Target, plan: Sequence[str], faults: Mapping[str, Fault], size: Size, result: RunResult
) -> None:
    """Two groups at work, then the plan."""
    crew = target.crew
    crew.feed(size.partitions_count, size.per_second)
    began_ns = now_ns()
    members = [
        *(target.join() for _ in range(size.members_count)),
        *(crew.join(PUBLISH_SUBSCRIBE) for _ in range(size.audit_count)),
    ]
    for group in crew.groups:
        target.consume("start", group, began_ns, [member for member in members if member.group == group])
    for name in plan:
        try:
            result.evidence.append(f"{name}: {faults[name](target)}")
            result.strikes[name] += 1
        except FaultWithoutEffect as void:
            result.problems.append(f"the run is void: {void}")
        except (AssertionError, ClusterStateMissing) as missing:
            # The journals are judged all the same.
            result.problems.append(f"{name}: a state did not come: {missing}")
            return
        time.sleep(target.random.uniform(*PAUSE_S))
