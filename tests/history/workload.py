"""Producers and a consumer group, each client a process of its own, while broker and members are killed.

A run that fails keeps its directory: the histories, each client's output, the broker's log and its data.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Final, TypeGuard

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually
from tests.history.checker import FINAL_READER, check
from tests.history.operations import Operation, Outcome, Poll, Positioned, Send, read_lines
from tests.history.recorder import now_ns
from tests.history.report import Report

TOPIC: Final = "history"
GROUP: Final = "readers"
PARTITIONS_COUNT: Final = 6
SEGMENT_BYTES: Final = "65536"
PRODUCERS_COUNT: Final = 2
MEMBERS_COUNT: Final = 3
DRAIN_S: Final = 90.0
BROKER_LOG: Final = "broker.log"
CLIENT_LINES_SHOWN: Final = 25
BROKER_LINES_SHOWN: Final = 40
# Shorter than a session's time-out as well as longer: a group is hit in every state.
PAUSE_S: Final = (0.2, 3.0)
# Longer than a session's time-out and the rebalance behind it.
PAUSED_S: Final = 4.0
# The group must get rid of a killed member soon, and must not wait before its first generation.
SETTINGS: Final[Mapping[str, str]] = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
}


@dataclass(frozen=True)
class MemberKind:
    """Which library, and which of the group protocols."""

    module: str
    protocol: str

    @property
    def name(self) -> str:
        return f"{self.module.removeprefix('consuming_')}-{self.protocol}"


RANGE: Final = (MemberKind("consuming_librdkafka", "range"), MemberKind("consuming_kafka_python", "range"))
COOPERATIVE: Final = (MemberKind("consuming_librdkafka", "cooperative-sticky"),)
CONSUMER: Final = (MemberKind("consuming_librdkafka", "consumer"),)


class Fault(Enum):
    """What is done to the system under test."""

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
    """What was done to the system; a run in which nothing was done says nothing."""

    broker_kills: int = 0
    member_kills: int = 0
    member_pauses: int = 0
    members_left: int = 0
    members_joined: int = 0

    def __str__(self) -> str:
        return " ".join(f"{name}={count}" for name, count in vars(self).items())


@dataclass
class Result:
    """The checker's report of a run, and what else went wrong in it."""

    report: Report
    faults: Faults
    problems: list[str] = field(default_factory=list)
    # Where the run's files are; None when they were removed, as after every run that ended as expected.
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


@dataclass
class ClientProcess:
    """A producer or a member of the group: a process that writes its history and its output to files of its own."""

    name: str
    process: subprocess.Popen[bytes]
    history: Path
    output: Path

    def wait_until_started(self) -> None:
        """Until it is ready for SIGTERM: then it opens its history.  A process that has ended is not waited for."""
        eventually(lambda: self.history.exists() or self.process.poll() is not None, within_s=DRAIN_S)

    def describe_end(self, code: int | None) -> str:
        """How it ended and the last lines that it printed."""
        ended = f"was still running {DRAIN_S:.0f} s after SIGTERM" if code is None else f"ended with status {code}"
        lines = self.output.read_text(errors="replace").splitlines()[-CLIENT_LINES_SHOWN:]
        return "\n".join([f"{self.name} {ended}; its last lines:", *(f"  {line}" for line in lines or ["(none)"])])


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
        self._kinds = kinds
        self._random = random.Random(seed)
        self._directory = directory
        self._pause_s = pause_s
        self._producers: list[ClientProcess] = []
        self._members: list[ClientProcess] = []
        self._member_names: list[str] = []
        self._problems: list[str] = []
        self.faults = Faults()

    def run(self, plan: Sequence[Fault]) -> Result:
        with Cluster(self._broker.bootstrap) as cluster:
            Admin(cluster).create_topic(TOPIC, PARTITIONS_COUNT, 1, {"segment.bytes": SEGMENT_BYTES})
        try:
            for number in range(PRODUCERS_COUNT):
                self._start_producer(f"producer{number}")
            for _ in range(MEMBERS_COUNT):
                self._start_member()
            self._wait_until_under_way()
            do = {
                Fault.KILL_BROKER: self._kill_broker,
                Fault.KILL_MEMBER: self._kill_member,
                Fault.PAUSE_MEMBER: self._pause_member,
                Fault.REPLACE_MEMBER: self._replace_member,
            }
            for fault in plan:
                do[fault]()
                time.sleep(self._random.uniform(*self._pause_s))
            self._stop(self._producers)
            self._wait_until_delivered()
            self._stop(self._members)
        finally:
            for client in (*self._producers, *self._members):
                client.process.kill()
                client.process.wait()
        history = [*self._history(), *read_finally(self._broker.bootstrap)]
        return Result(check(history, self._member_names), self.faults, self._problems)

    def _start_producer(self, name: str) -> None:
        arguments = (name, self._broker.bootstrap, TOPIC, str(PARTITIONS_COUNT))
        self._producers.append(self._start("producing", name, arguments))

    def _start_member(self) -> None:
        kind = self._kinds[self.faults.members_joined % len(self._kinds)]
        name = f"member{self.faults.members_joined}-{kind.name}"
        self.faults.members_joined += 1
        self._member_names.append(name)
        arguments = (name, self._broker.bootstrap, TOPIC, GROUP, kind.protocol)
        self._members.append(self._start(kind.module, name, arguments))

    def _start(self, module: str, name: str, arguments: Sequence[str]) -> ClientProcess:
        history, output = self._directory / f"{name}.history", self._directory / f"{name}.output"
        command = [sys.executable, "-m", f"tests.history.{module}", *arguments, str(history)]
        with output.open("wb") as opened:
            process = subprocess.Popen(command, stdout=opened, stderr=subprocess.STDOUT)
        return ClientProcess(name, process, history, output)

    def _kill_broker(self) -> None:
        self._broker.kill()
        self.faults.broker_kills += 1
        time.sleep(self._random.random() * 0.3)
        self._broker.start()

    def _kill_member(self) -> None:
        member = self._members.pop(self._random.randrange(len(self._members)))
        member.process.kill()
        member.process.wait()
        self.faults.member_kills += 1
        self._start_member()

    def _pause_member(self) -> None:
        """Long enough for the group to go on without it: when it wakes up, its partitions are another's."""
        member = self._random.choice(self._members)
        member.process.send_signal(signal.SIGSTOP)
        time.sleep(PAUSED_S)
        member.process.send_signal(signal.SIGCONT)
        self.faults.member_pauses += 1

    def _replace_member(self) -> None:
        member = self._members.pop(self._random.randrange(len(self._members)))
        self._start_member()
        self._stop([member])
        self.faults.members_left += 1

    def _stop(self, clients: Sequence[ClientProcess]) -> None:
        """Ask each to end, by SIGTERM; any status but 0 is a problem of the run."""
        for client in clients:
            client.wait_until_started()
            client.process.terminate()
        for client in clients:
            try:
                code = client.process.wait(DRAIN_S)
            except subprocess.TimeoutExpired:
                code = None
                client.process.kill()
                client.process.wait()
            if code != 0:
                self._problems.append(client.describe_end(code))

    def _wait_until_under_way(self) -> None:
        """Until every producer has sent and every member has been given partitions: a kill hits a system at work."""

        def idle() -> set[str]:
            history = self._history()
            working = {operation.process for operation in history if isinstance(operation, Positioned)}
            working |= {operation.process for operation in history if is_acknowledged(operation)}
            return {client.name for client in (*self._producers, *self._members)} - working

        eventually(idle, lambda idle: not idle, within_s=DRAIN_S, every_s=0.2)

    def _wait_until_delivered(self) -> None:
        def undelivered() -> int:
            history = self._history()
            missing = {(send.partition, send.value) for send in filter(is_acknowledged, history)}
            for poll in history:
                if isinstance(poll, Poll):
                    missing.difference_update((poll.partition, value) for _, value in poll.records)
            return len(missing)

        try:
            eventually(undelivered, lambda count: count == 0, within_s=DRAIN_S, every_s=1)
        except AssertionError as late:
            self._problems.append(f"acknowledged records were not read by the group: {late}")

    def _history(self) -> list[Operation]:
        return list(read_lines(sorted(self._directory.glob("*.history"))))


def is_acknowledged(operation: Operation) -> TypeGuard[Send]:
    return isinstance(operation, Send) and operation.outcome is Outcome.OK


def read_finally(bootstrap: str) -> list[Operation]:
    """Every partition from its beginning, by a library that none of the producers uses."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, check_crcs=True)
    operations: list[Operation] = []
    try:
        partitions = [KafkaTopicPartition(TOPIC, partition) for partition in range(PARTITIONS_COUNT)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        give_up_s = time.monotonic() + DRAIN_S
        while time.monotonic() < give_up_s and any(consumer.position(tp) < ends[tp] for tp in partitions):
            invoked_ns = now_ns()
            for tp, read in consumer.poll(timeout_ms=500).items():
                records = tuple((record.offset, record.value.decode()) for record in read)
                operations.append(Poll(FINAL_READER, invoked_ns, now_ns(), tp.partition, records))
    finally:
        consumer.close()
    return operations


def run_faults(
    kinds: Sequence[MemberKind],
    plan: Sequence[Fault],
    *,
    seed: int,
    pause_s: tuple[float, float] = PAUSE_S,
    mutation: str | None = None,
) -> Result:
    """A fresh broker, clients, faults with pauses between them, and what the checker says of it all."""
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
