"""Producers and the members of one group, each a separate process, that record their histories.

A run connects them to one or more brokers, and injects faults into these and into the clients meanwhile.
"""

from __future__ import annotations

import math
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeGuard

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from ottla.testing.running import pause_process
from tests.eventually import eventually
from tests.history import waiting_clients
from tests.history.checker import FINAL_READER
from tests.history.consuming_librdkafka import DAWDLED, INSTANCE_ID_VARIABLE, STATIC_SESSION_TIMEOUT_MS
from tests.history.numbered_sends import PAUSE_VARIABLE
from tests.history.operations import (
    CommittedRead,
    Ended,
    GrowingHistories,
    LastStableOffset,
    LatestOffset,
    Operation,
    Outcome,
    Poll,
    Positioned,
    Send,
    Servable,
    Served,
    Snapshot,
    read_lines,
)
from tests.history.recorder import Recorder, now_ns

TOPIC: Final = "history"
# Polls the latest offsets of every broker.
ASKER: Final = "asker"
GROUP: Final = "readers"
PARTITIONS_COUNT: Final = 6
# The minimum: one of every kind.
MEMBERS_COUNT: Final = 3
DRAIN_S: Final = 90.0
SETTLED_S: Final = 4.0
# Of the group's static member; it has one at most.
INSTANCE_ID: Final = "static"
# Spark and several JVMs start at the same time.
STARTED_WITHIN_S: Final = 240.0
CLIENT_LINES_SHOWN: Final = 25
# Longer than a session's time-out and the rebalance after it.
PAUSED_S: Final = 4.0
# In the line of a send that was acknowledged.
_ACKNOWLEDGED: Final = b'"ok"'
_GIVEN: Final = f'["{Positioned.__name__}"'.encode()


@dataclass(frozen=True)
class MemberKind:
    """Which library, and which of the group protocols: the command takes name, bootstrap, topic, group, protocol, and a
    file."""

    library: str
    command: tuple[str, ...]
    protocol: str

    @classmethod
    def of_module(cls, module: str, protocol: str) -> MemberKind:
        return cls(module.removeprefix("consuming_"), _command_of(module), protocol)

    @property
    def name(self) -> str:
        return f"{self.library}-{self.protocol}"


@dataclass(frozen=True)
class ProducerKind:
    """Which library: the command that takes name, bootstrap, topic, the count of its partitions, and a file."""

    name: str
    command: tuple[str, ...]

    @classmethod
    def of_module(cls, module: str) -> ProducerKind:
        return cls(module.removeprefix("producing_"), _command_of(module))

    def paced(self, pause_ms: int) -> ProducerKind:
        """With this pause after each one to seven records."""
        return replace(self, command=("env", f"{PAUSE_VARIABLE}={pause_ms}", *self.command))


@dataclass(frozen=True)
class ReaderKind:
    """A program that reads everything without a group: the command takes what a producer's does.

    It records snapshots repeatedly, and at SIGTERM those of all that it has read.
    """

    name: str
    command: tuple[str, ...]


def _command_of(module: str) -> tuple[str, ...]:
    return sys.executable, "-m", f"tests.history.{module}"


# Clients that wait at a leader that is cut off: library and role.
WAITING: Final = tuple(
    (library, role)
    for library in ("librdkafka", "kafka-python")
    for role in (waiting_clients.READER, waiting_clients.MEMBER, waiting_clients.PRODUCER, waiting_clients.ASKER)
)
LIBRDKAFKA: Final = ProducerKind("librdkafka", ProducerKind.of_module("producing").command)
KAFKA_PYTHON: Final = ProducerKind.of_module("producing_kafka_python")
AIOKAFKA: Final = ProducerKind.of_module("producing_aiokafka")
RANGE: Final = (
    MemberKind.of_module("consuming_librdkafka", "range"),
    MemberKind.of_module("consuming_kafka_python", "range"),
)
AIOKAFKA_RANGE: Final = MemberKind.of_module("consuming_aiokafka", "range")
COOPERATIVE: Final = (MemberKind.of_module("consuming_librdkafka", "cooperative-sticky"),)
CONSUMER: Final = (MemberKind.of_module("consuming_librdkafka", "consumer"),)


@dataclass
class ClientProcess:
    """A producer, a reader or a member of the group: a process that writes its history and its output to its own
    files."""

    name: str
    process: subprocess.Popen[bytes]
    history: Path
    output: Path

    def wait_until_started(self) -> None:
        """Until it is ready for SIGTERM: then it opens its history.  A process that has ended is not waited for."""
        eventually(lambda: self.history.exists() or self.process.poll() is not None, within_s=DRAIN_S)

    def describe_end(self, code: int | None) -> str:
        """Its exit status and its last lines of output."""
        ended = f"was still running {DRAIN_S:.0f} s after SIGTERM" if code is None else f"ended with status {code}"
        return f"{self.name} {ended}; its last lines:\n{self.last_lines()}"

    def last_lines(self) -> str:
        """Its last lines of output."""
        lines = self.output.read_text(errors="replace").splitlines()[-CLIENT_LINES_SHOWN:]
        return "\n".join(f"  {line}" for line in lines or ["(none)"])


class HistoryClients:
    """`kinds` of members come in turn.  All files are in `directory`.  `enter`: the words before each command."""

    def __init__(
        self,
        bootstrap: str,
        kinds: Sequence[MemberKind],
        seed: int,
        directory: Path,
        producers: Sequence[ProducerKind] = (LIBRDKAFKA, LIBRDKAFKA),
        enter: Sequence[str] = (),
        readers: Sequence[ReaderKind] = (),
    ) -> None:
        self._bootstrap = bootstrap
        self._enter = tuple(enter)
        self._producer_kinds = producers
        self._reader_kinds = readers
        self._kinds = kinds
        self._random = random.Random(seed)
        self._directory = directory
        # Many waits read the histories, which are long at the end of a run.
        self._histories = GrowingHistories()
        self.partitions_count = PARTITIONS_COUNT
        self._producers: list[ClientProcess] = []
        # Including those that were stopped before the end.
        self._producers_ever: list[ClientProcess] = []
        self._members: list[ClientProcess] = []
        self._readers: list[ClientProcess] = []
        self._askers: list[ClientProcess] = []
        self._waiting_count = 0
        self._static_lost_s = -math.inf
        # Of all members so far.
        self.member_names: list[str] = []
        self.problems: list[str] = []

    def start(self) -> None:
        """Start them all, and wait until every producer has sent, every member has partitions and every
        reader has read: a fault hits a system under load."""
        for number, reader in enumerate(self._reader_kinds):
            name = f"reader{number}-{reader.name}"
            self._readers.append(self._start(reader.command, name, self._about_topic(name)))
        for number, producer in enumerate(self._producer_kinds):
            self._start_producer(f"producer{number}-{producer.name}", producer)
        for _ in range(max(MEMBERS_COUNT, len(self._kinds))):
            self._start_member()
        self._askers.append(self._start(_command_of("asking_everywhere"), ASKER, self._about_topic(ASKER)))
        self._wait_until_at_work(since_ns=0, within_s=STARTED_WITHIN_S)

    def expect_at_work(self) -> None:
        """Wait until each makes progress again; one that does not is a problem of the run."""
        try:
            self._wait_until_at_work(since_ns=now_ns(), within_s=DRAIN_S)
        except AssertionError as idle:
            lines = [
                f"{client.name}, its last lines:\n{client.last_lines()}"
                for client in self._all()
                if repr(client.name) in str(idle)
            ]
            problem = f"clients that did nothing any more after the last fault: {idle}"
            self.problems.append("\n".join([problem, *lines]))

    def running_members(self) -> list[str]:
        """The names of the group's members that run."""
        return [member.name for member in self._members if member.process.poll() is None]

    def finish(self) -> None:
        """Stop the producers, wait until the group has read all acknowledged records, and stop the others."""
        self._stop(self._producers)
        self._wait_until_delivered()
        self._stop([*self._members, *self._readers, *self._askers])

    def kill(self) -> None:
        """Kill all clients that still run."""
        for client in self._all():
            self._note(Ended(client.name, now_ns()))
            client.process.kill()
            client.process.wait()

    def history(self) -> list[Operation]:
        return self._histories.read(sorted(self._directory.glob("*.history")))

    def acknowledged_count(self) -> int:
        """Records of all producers so far; it is cheap, since it reads their files and decodes nothing."""
        return sum(producer.history.read_bytes().count(_ACKNOWLEDGED) for producer in self._producers_ever)

    def given_count(self) -> int:
        """The number of assignments of partitions to members so far."""
        return sum(map(_given_count, self._directory.glob("member*.history")))

    def wait_until_settled(self) -> None:
        """Wait until no member has received a partition for a while: the rebalances of an earlier fault are over."""
        last = (-1, 0.0)

        def is_settled() -> bool:
            nonlocal last
            count = self.given_count()
            if count != last[0]:
                last = (count, time.monotonic())
            return time.monotonic() - last[1] > SETTLED_S

        eventually(is_settled, every_s=0.2)

    def slow_members(self) -> int:
        """Cause a rebalance in which some members are slow; return how many were."""
        before_count = self._dawdled_count()
        for member in self._members:
            if LIBRDKAFKA.name in member.name:
                member.process.send_signal(signal.SIGUSR1)
        self.replace_member()
        eventually(lambda: self._dawdled_count() > before_count, within_s=DRAIN_S)
        return self._dawdled_count() - before_count

    def restart_static_member(self) -> tuple[float, int]:
        """kill -9 of a static member, and a start under the same instance id: the seconds until it has its partitions
        again, and how many assignments others received meanwhile."""
        member = self._static_member()
        self.wait_until_settled()
        before_count = self.given_count()
        began_s = time.monotonic()
        self._members.remove(member)
        member.process.kill()
        member.process.wait()
        again = self._start_member(INSTANCE_ID)
        eventually(lambda: _given_count(again.history), within_s=DRAIN_S)
        took_s = time.monotonic() - began_s
        return took_s, self.given_count() - before_count - _given_count(again.history)

    def replace_static_member(self) -> int | None:
        """Another process takes the instance id of a running one; returns the exit status of the former one."""
        member = self._static_member()
        self._members.remove(member)
        self._start_member(INSTANCE_ID)
        try:
            return member.process.wait(DRAIN_S)
        except subprocess.TimeoutExpired:
            member.process.kill()
            member.process.wait()
            return None

    def _static_member(self) -> ClientProcess:
        """The static member; one is started in another member's place when there is none."""
        for member in self._members:
            if INSTANCE_ID in member.name:
                return member
        self.replace_member(INSTANCE_ID)
        member = self._members[-1]
        eventually(lambda: _given_count(member.history), within_s=DRAIN_S)
        return member

    def _dawdled_count(self) -> int:
        return sum(path.read_text(errors="replace").count(DAWDLED) for path in self._directory.glob("member*.output"))

    def kill_member(self) -> None:
        member = self._members.pop(self._random.randrange(len(self._members)))
        member.process.kill()
        member.process.wait()
        self._note_lost(member)
        self._start_member()

    def pause_member(self) -> None:
        """Long enough for the group to continue without it: when it resumes, another member has its partitions."""
        member = self._random.choice(self._members)
        pause_process(member.process)
        time.sleep(PAUSED_S)
        member.process.send_signal(signal.SIGCONT)

    def replace_member(self, instance_id: str | None = None) -> None:
        member = self._members.pop(self._random.randrange(len(self._members)))
        self._start_member(instance_id)
        self._stop([member])
        self._note_lost(member)

    def static_session_left_s(self) -> float:
        """How long the partitions of a stopped static member stay without another owner."""
        return max(self._static_lost_s + STATIC_SESSION_TIMEOUT_MS / 1000 - time.monotonic(), 0)

    def _note_lost(self, member: ClientProcess) -> None:
        if INSTANCE_ID in member.name:
            self._static_lost_s = time.monotonic()

    @contextmanager
    def waiting(self, bootstrap: str, name_group: Callable[[str], str]) -> Iterator[None]:
        """Clients of `waiting_clients` that know only this broker at first, making progress when the context starts.

        A member is alone in its group, which has the member's name; `name_group` makes it from a prefix.
        """
        started: list[ClientProcess] = []
        try:
            for library, role in WAITING:
                self._waiting_count += 1
                name = f"waiting{self._waiting_count}-{library}-{role}"
                if role == waiting_clients.MEMBER:
                    name = name_group(name)
                command = (*_command_of("waiting_clients"), library, role)
                started.append(self._start(command, name, (name, bootstrap, TOPIC, str(self.partitions_count))))
            eventually(
                lambda: all(_has_worked(each.history) for each in started), within_s=STARTED_WITHIN_S, every_s=0.5
            )
            yield
        except BaseException:
            for client in started:
                client.process.kill()
            raise
        finally:
            self._stop(started)

    def note_servable(self, began_ns: int, ended_ns: int, whom: Served) -> None:
        """Between these times a replica of each partition could serve these clients."""
        self._note(Servable("run", began_ns, ended_ns, whom))

    def _note(self, operation: Operation) -> None:
        with Recorder(self._directory / "run.history") as recorder:
            recorder.add(operation)

    def write_to(self, partitions_count: int) -> None:
        """The topic has grown: the oldest producer ends, and a new one writes to all partitions."""
        self.partitions_count = partitions_count
        self._stop([self._producers.pop(0)])
        number = len(self._producers_ever)
        kind = self._producer_kinds[number % len(self._producer_kinds)]
        self._start_producer(f"producer{number}-{kind.name}", kind)

    def _all(self) -> tuple[ClientProcess, ...]:
        return (*self._producers, *self._members, *self._readers, *self._askers)

    def _wait_until_at_work(self, since_ns: int, within_s: float) -> None:
        """Wait until each client has made progress with an operation that started after this time; one
        that has ended is not waited for."""

        def is_work(operation: Operation) -> bool:
            if isinstance(operation, Positioned):
                return operation.at_ns > since_ns
            if is_acknowledged(operation) or isinstance(
                operation, Poll | Snapshot | LatestOffset | CommittedRead | LastStableOffset
            ):
                return operation.invoked_ns > since_ns
            return False

        def idle() -> set[str]:
            # A reader reports what it reads in several ways.
            working = {operation.process.partition(".")[0] for operation in filter(is_work, self.history())}
            return {client.name for client in self._all() if client.process.poll() is None} - working

        eventually(idle, lambda idle: not idle, within_s=within_s, every_s=0.5)

    def _about_topic(self, name: str) -> Sequence[str]:
        return name, self._bootstrap, TOPIC, str(self.partitions_count)

    def _start_producer(self, name: str, kind: ProducerKind) -> None:
        started = self._start(kind.command, name, self._about_topic(name))
        self._producers.append(started)
        self._producers_ever.append(started)

    def _start_member(self, instance_id: str | None = None) -> ClientProcess:
        kind = self._kinds[len(self.member_names) % len(self._kinds)]
        static: tuple[str, ...] = ()
        if instance_id is not None:
            kind = next(kind for kind in self._kinds if kind.name.startswith(LIBRDKAFKA.name))
            static = ("env", f"{INSTANCE_ID_VARIABLE}={instance_id}")
        name = "-".join(filter(None, [f"member{len(self.member_names)}", kind.name, instance_id]))
        self.member_names.append(name)
        arguments = (name, self._bootstrap, TOPIC, GROUP, kind.protocol)
        self._members.append(self._start((*static, *kind.command), name, arguments))
        return self._members[-1]

    def _start(self, command: Sequence[str], name: str, arguments: Sequence[str]) -> ClientProcess:
        history, output = self._directory / f"{name}.history", self._directory / f"{name}.output"
        with output.open("wb") as opened:
            process = subprocess.Popen(
                [*self._enter, *command, *arguments, str(history)], stdout=opened, stderr=subprocess.STDOUT
            )
        return ClientProcess(name, process, history, output)

    def _stop(self, clients: Sequence[ClientProcess]) -> None:
        """Stop each by SIGTERM; any status but 0 is a problem of the run, and so is an end before that."""
        for client in clients:
            client.wait_until_started()
            if client.process.poll() == 0:
                self.problems.append(f"{client.name} was not asked to end: {client.describe_end(0)}")
            self._note(Ended(client.name, now_ns()))
            client.process.terminate()
        for client in clients:
            try:
                code = client.process.wait(DRAIN_S)
            except subprocess.TimeoutExpired:
                code = None
                client.process.kill()
                client.process.wait()
            if code != 0:
                self.problems.append(client.describe_end(code))

    def _wait_until_delivered(self) -> None:
        def undelivered() -> int:
            history = self.history()
            missing = {(send.partition, send.value) for send in filter(is_acknowledged, history)}
            for poll in history:
                if isinstance(poll, Poll):
                    missing.difference_update((poll.partition, value) for _, value in poll.records)
            return len(missing)

        try:
            eventually(undelivered, lambda count: count == 0, within_s=DRAIN_S, every_s=1)
        except AssertionError as late:
            self.problems.append(f"acknowledged records were not read by the group: {late}")


def _has_worked(history: Path) -> bool:
    """Whether records, an acknowledgement, or a response with the latest offset, are in the history."""
    return history.exists() and any(
        isinstance(each, Poll | LatestOffset) or is_acknowledged(each) for each in read_lines([history])
    )


def _given_count(history: Path) -> int:
    return history.read_bytes().count(_GIVEN) if history.exists() else 0


def is_acknowledged(operation: Operation) -> TypeGuard[Send]:
    return isinstance(operation, Send) and operation.outcome is Outcome.OK


def read_finally(bootstrap: str, partitions_count: int = PARTITIONS_COUNT) -> list[Operation]:
    """Every partition from its start, by a library that none of the producers uses."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, check_crcs=True)
    operations: list[Operation] = []
    try:
        partitions = [KafkaTopicPartition(TOPIC, partition) for partition in range(partitions_count)]
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
