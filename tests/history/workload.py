"""Producers and a consumer group, each client a separate process, while broker and members are killed.

A run that fails keeps its directory: the histories, each client's output, the broker's log and its data.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Final

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.testing.broker import RunningBroker
from tests.history.checker import check
from tests.history.clients import PARTITIONS_COUNT, TOPIC, HistoryClients, MemberKind, read_finally
from tests.history.report import Report

SEGMENT_BYTES: Final = "65536"
BROKER_LOG: Final = "broker.log"
BROKER_LINES_SHOWN: Final = 40
# Shorter than a session's time-out as well as longer: a group is hit in every state.
PAUSE_S: Final = (0.2, 3.0)
# The group must remove a killed member soon, and must not wait before its first generation.
SETTINGS: Final[Mapping[str, str]] = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
}


class Fault(Enum):
    """The faults of the system under test."""

    KILL_BROKER = auto()
    KILL_MEMBER = auto()
    PAUSE_MEMBER = auto()
    REPLACE_MEMBER = auto()


def mixed_faults(count: int, seed: int) -> list[Fault]:
    """Half of them are kills of the broker; the others kills, pauses and orderly replacements of members."""
    of_members = (Fault.KILL_MEMBER, Fault.PAUSE_MEMBER, Fault.REPLACE_MEMBER)
    plan = [of_members[number // 2 % 3] if number % 2 else Fault.KILL_BROKER for number in range(count)]
    random.Random(seed).shuffle(plan)
    return plan


@dataclass
class Faults:
    """Counts of the faults; a run without faults is no evidence."""

    broker_kills: int = 0
    member_kills: int = 0
    member_pauses: int = 0
    members_left: int = 0
    members_joined: int = 0

    def __str__(self) -> str:
        return " ".join(f"{name}={count}" for name, count in vars(self).items())


@dataclass
class Result:
    """The checker's report of a run, and the other problems of the run."""

    report: Report
    faults: Faults
    problems: list[str] = field(default_factory=list)
    # The directory of the run's files; None when they were removed, as after every successful run.
    kept_directory: Path | None = None
    broker_lines: Sequence[str] = ()

    @property
    def is_clean(self) -> bool:
        return self.report.is_clean and not self.problems

    def __str__(self) -> str:
        lines = [str(self.faults), str(self.report), *self.problems]
        if self.kept_directory is not None:
            lines += [f"the broker's last log lines, of {self.kept_directory / BROKER_LOG}:"]
            lines += [f"  {line}" for line in self.broker_lines[-BROKER_LINES_SHOWN:]]
            lines += [f"all files of this run are kept in {self.kept_directory}"]
        return "\n".join(lines)


class HistoryRun:
    """One broker, producers, one group."""

    def __init__(
        self,
        broker: RunningBroker,
        kinds: Sequence[MemberKind],
        seed: int,
        directory: Path,
        pause_s: tuple[float, float] = PAUSE_S,
    ) -> None:
        self._broker = broker
        self._random = random.Random(seed)
        self._pause_s = pause_s
        self._clients = HistoryClients(broker.bootstrap, kinds, seed, directory)
        self.faults = Faults()

    def run(self, plan: Sequence[Fault]) -> Result:
        with Cluster(self._broker.bootstrap) as cluster:
            Admin(cluster).create_topic(TOPIC, PARTITIONS_COUNT, 1, {"segment.bytes": SEGMENT_BYTES})
        clients = self._clients
        try:
            clients.start()
            for fault in plan:
                self._strike(fault)
                time.sleep(self._random.uniform(*self._pause_s))
            clients.finish()
        finally:
            clients.kill()
        self.faults.members_joined = len(clients.member_names)
        history = [*clients.history(), *read_finally(self._broker.bootstrap)]
        return Result(check(history, clients.member_names), self.faults, clients.problems)

    def _strike(self, fault: Fault) -> None:
        match fault:
            case Fault.KILL_BROKER:
                self._kill_broker()
            case Fault.KILL_MEMBER:
                self._clients.kill_member()
                self.faults.member_kills += 1
            case Fault.PAUSE_MEMBER:
                self._clients.pause_member()
                self.faults.member_pauses += 1
            case Fault.REPLACE_MEMBER:
                self._clients.replace_member()
                self.faults.members_left += 1

    def _kill_broker(self) -> None:
        self._broker.kill()
        self.faults.broker_kills += 1
        time.sleep(self._random.random() * 0.3)
        self._broker.start()


def run_faults(
    kinds: Sequence[MemberKind],
    plan: Sequence[Fault],
    *,
    seed: int,
    pause_s: tuple[float, float] = PAUSE_S,
    mutation: str | None = None,
) -> Result:
    """A fresh broker, clients, faults with pauses between them, and the checker's verdict."""
    command = [sys.executable, "-m", "ottla"]
    if mutation is not None:
        command = [sys.executable, "-m", "tests.history.mutated_broker", mutation]
    directory = Path(tempfile.mkdtemp(prefix="ottla-history-"))
    broker = RunningBroker(directory / "data", settings=SETTINGS, command=command)
    try:
        with broker:
            result = HistoryRun(broker, kinds, seed, directory, pause_s).run(plan)
    except BaseException as error:
        error.add_note(f"all files of this run are kept in {directory}")
        raise
    finally:
        (directory / BROKER_LOG).write_text("\n".join(broker.log_lines))
    if result.is_clean == (mutation is None):
        shutil.rmtree(directory)
    else:
        result.kept_directory, result.broker_lines = directory, broker.log_lines
    return result
