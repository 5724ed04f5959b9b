"""A mirror of one-record batches, while the target, the source or the mirror is stopped for about a session.

Each stall is SIGSTOP for half a session to a little more than one, so leases lapse and are renewed.  The mirror is
killed between stalls and at the end; a last run with `--once` copies the rest.  Then both topics are compared, record
by record.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import lt
from typing import Final, TypeAlias

from ottla.mirror import Mirror
from ottla.testing import ControlledBroker
from tests.eventually import eventually
from tests.mirror.mirrored import Content, MirrorProcess, Writer, committed_content_of, content_of, copied_count

SESSION_MS: Final = 1_000
STALL_MIN: Final = 0.5
STALL_MAX: Final = 1.2
PARTITIONS: Final = 20
STALLS_OF_A_LIFE: Final = 10
# The target twice as often: its stalls make leases lapse.
VICTIMS: Final = ("target", "target", "source", "mirror")
LAPSED: Final = "the lease has lapsed"
# The records of each partition.
Contents: TypeAlias = Mapping[int, Sequence[Content]]


@dataclass
class Outcome:
    """The counts of a run, and its problems."""

    seed: int
    stalls: Counter[str] = field(default_factory=Counter)
    kills_count: int = 0
    lapses_count: int = 0
    gaps_count: int = 0
    records_count: int = 0
    doubles_count: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        stalls = ", ".join(f"{count} of the {victim}" for victim, count in sorted(self.stalls.items()))
        lines = [
            f"seed {self.seed}: {self.records_count} records, stalls: {stalls}; {self.kills_count} kills,"
            f" {self.lapses_count} lapses, {self.gaps_count} gaps found, {self.doubles_count} records twice",
            *(f"  {problem}" for problem in self.problems),
        ]
        return "\n".join(lines)


def run(
    stalls_count: int,
    seed: int,
    *,
    module: str = "ottla",
    partitions: int = PARTITIONS,
    until: Callable[[Contents, Contents], bool] | None = None,
    is_transactional: bool = False,
) -> Outcome:
    """`module` is run as the mirror; the last life lasts until the contents of source and target are like this.

    With transactions a reader of committed records must see no record twice.
    """
    chance = random.Random(seed)
    outcome = Outcome(seed)
    settings = {"group.min.session.timeout.ms": "100"}
    with ControlledBroker() as live, ControlledBroker(settings) as offline, live.namespace("clicks") as namespace:
        topic = str(namespace.topic("clicks.all", partitions=partitions))
        flags = (*_flags(topic), *(("--transactional",) if is_transactional else ()))
        copies_of = committed_content_of if is_transactional else content_of
        copied = partial(copied_count, offline.bootstrap, topic, partitions)
        start = partial(MirrorProcess, live.bootstrap, offline.bootstrap, *flags, module=module)
        with Writer(live.bootstrap, topic, partitions, pause_s=0.03, records_max=1):
            left = stalls_count
            while left:
                count = min(left, STALLS_OF_A_LIFE)
                left -= count
                with _life(start, outcome) as process:
                    for _ in range(count):
                        before = eventually(copied, partial(lt, copied()), every_s=0.1)
                        _stall(chance, outcome, live, offline, process)
                        eventually(copied, partial(lt, before), every_s=0.1)
                        time.sleep(chance.uniform(0, 0.3))
                    if until is not None and not left:
                        eventually(
                            lambda: until(content_of(live.bootstrap, topic), copies_of(offline.bootstrap, topic)),
                            every_s=0.5,
                        )
        # The second one counts the records that arrived after the first one's last read.
        for _ in range(2):
            last = MirrorProcess(live.bootstrap, offline.bootstrap, *flags, "--once", module=module)
            report = last.wait()
            if report["stuck"] or report["lag_offsets"]:
                outcome.problems.append(f"the last run ends with {report}")
        counts = [each.counts for each in Mirror(live.bootstrap, offline.bootstrap).status() if each.topic == topic]
        reported = sum(each.duplicate_records for each in counts)
        foreign = sum(each.foreign_records + each.lost_offsets for each in counts)
        if foreign:
            outcome.problems.append(f"{foreign} records are called foreign or lost")
        judge(content_of(live.bootstrap, topic), copies_of(offline.bootstrap, topic), reported, outcome)
        if is_transactional and outcome.doubles_count:
            outcome.problems.append(f"{outcome.doubles_count} records are committed twice")
    return outcome


def has_gap(source: Contents, target: Contents) -> bool:
    """Whether the target lacks a record below another one that it has: no later copy begins before it."""
    for number, rows in source.items():
        found = set(target.get(number, ()))
        has = [row in found for row in rows]
        if False in has[: max((at for at, is_there in enumerate(has) if is_there), default=0)]:
            return True
    return False


def judge(source: Contents, target: Contents, reported: int, outcome: Outcome) -> None:
    """Every record is on the target; the newest copies are in order; duplicates are at most those reported."""
    for number, rows in sorted(source.items()):
        found = target.get(number, ())
        outcome.records_count += len(rows)
        outcome.doubles_count += len(found) - len(set(found))
        missing = [row[2] for row in rows if row not in set(found)]
        if missing:
            outcome.problems.append(f"partition {number}: {len(missing)} records are missing: {missing[:5]}")
        unknown = set(found) - set(rows)
        if unknown:
            outcome.problems.append(f"partition {number}: {len(unknown)} records are not on the source")
        # Of duplicates the newer copy counts: all records between the two are copied again, in order.
        newest = {row: at for at, row in enumerate(found)}
        order = [newest[row] for row in rows if row in newest]
        if order != sorted(order):
            outcome.problems.append(f"partition {number}: the last copies are not in order")
    if outcome.doubles_count > reported:
        outcome.problems.append(f"{outcome.doubles_count} records are there twice, the mirror reported {reported}")


def _flags(topic: str) -> tuple[str, ...]:
    return (
        *("--topics", topic.replace(".", r"\.")),
        *("--session-timeout-ms", str(SESSION_MS)),
        *("--progress-interval-ms", "300"),
        *("--refresh-interval-ms", "1000"),
        "--no-groups",
    )


@contextmanager
def _life(start: Callable[[], MirrorProcess], outcome: Outcome) -> Iterator[MirrorProcess]:
    """The report of one mirror, up to its kill."""
    process = start()
    try:
        yield process
    finally:
        said = process.kill()
        outcome.kills_count += 1
        outcome.lapses_count += said.count(LAPSED)
        outcome.gaps_count += said.count("the target lacks records")
        if "Traceback" in said:
            outcome.problems.append(said)


def _stall(
    chance: random.Random, outcome: Outcome, live: ControlledBroker, offline: ControlledBroker, process: MirrorProcess
) -> None:
    victim = chance.choice(VICTIMS)
    outcome.stalls[victim] += 1
    pause, resume = {
        "target": (offline.pause, offline.resume),
        "source": (live.pause, live.resume),
        "mirror": (process.suspend, process.resume),
    }[victim]
    pause()
    try:
        # A fixed sleep instead of a wait for a state: it is the length of the stall.
        time.sleep(chance.uniform(STALL_MIN, STALL_MAX) * SESSION_MS / 1000)
    finally:
        resume()
