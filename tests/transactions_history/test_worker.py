"""A worker's transactions, over a broker in memory that fails at any call: its records are judged correct."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.history.operations import Committed, CommittedRead, LastStableOffset, Operation, Outcome, read_lines
from tests.history.recorder import Recorder, now_ns
from tests.transactions_history import working_librdkafka
from tests.transactions_history.checker import FINAL_READER, check, settled
from tests.transactions_history.report import Anomaly
from tests.transactions_history.worker import GAVE_UP, Inputs, MustAbort, ProducerEnded, Record, Worker

PARTITIONS_COUNT = 3
TURNS = 150


class Memory:
    """Inputs without end, lists of results, and committed offsets; `TransactionalClient` of one worker."""

    def __init__(self, seed: int, stopping: threading.Event) -> None:
        self._random = random.Random(seed)
        self._stopping = stopping
        self._turns = 0
        self._assignment = 0
        self._assigned: frozenset[int] = frozenset()
        self._position: dict[int, int] = {}
        # Committed values and None for markers and aborted ones.
        self.lists: dict[int, list[str | None]] = {partition: [] for partition in range(PARTITIONS_COUNT)}
        self._read_to: dict[int, int] = dict.fromkeys(self.lists, 0)
        self.offsets: dict[int, int] = {}
        self._open: list[tuple[int, int, str]] = []
        self._open_offsets: dict[int, int] = {}
        self.renewed: list[bool] = []

    def poll(self, count: int) -> Inputs:
        self._turns += 1
        if self._turns == TURNS:
            self._stopping.set()
        if self._turns == 1 or self._random.random() < 0.1:
            self._assignment += 1
            self._position.clear()
            self._assigned = frozenset(self._random.sample(range(PARTITIONS_COUNT), self._random.randrange(1, 4)))
        records = {
            partition: [(offset, f"input {offset}") for offset in range(first, first + self._random.randrange(1, 5))]
            for partition, first in self._position.items()
        }
        for partition, read in records.items():
            self._position[partition] = read[-1][0] + 1
        return Inputs(self._assignment, records)

    def assigned(self) -> tuple[int, frozenset[int]]:
        return self._assignment, self._assigned

    def position(self, offsets: Mapping[int, int]) -> None:
        self._position = dict(offsets)

    def committed(self, partitions: Iterable[int]) -> Mapping[int, int] | None:
        if self._random.random() < 0.2:
            return None
        return {partition: self.offsets.get(partition, -1) for partition in partitions}

    def read_results(self, partitions: Iterable[int]) -> tuple[Mapping[int, Sequence[Record]], bool]:
        read = {}
        is_complete = self._random.random() < 0.8
        for partition in partitions:
            end = len(self.lists[partition]) - (0 if is_complete else self._random.randrange(2))
            first = self._read_to[partition]
            self._read_to[partition] = max(first, end)
            values = enumerate(self.lists[partition][first:end], first)
            read[partition] = [(offset, value) for offset, value in values if value is not None]
        return read, is_complete

    def begin(self) -> None:
        self._fail()

    def send(self, partition: int, value: str, acknowledged: Callable[[int], None]) -> None:
        self._fail()
        self._open.append((partition, len(self.lists[partition]), value))
        self.lists[partition].append(None)
        acknowledged(self._open[-1][1])

    def flush(self) -> None:
        self._fail()

    def send_offsets(self, offsets: Mapping[int, int]) -> None:
        self._fail()
        self._open_offsets = dict(offsets)

    def commit(self) -> None:
        self._fail()
        for partition, offset, value in self._open:
            self.lists[partition][offset] = value
        self.offsets.update(self._open_offsets)
        self._end()
        if self._random.random() < 0.05:
            raise ProducerEnded("no answer", is_fenced=False)

    def abort(self) -> None:
        self._end()
        if self._random.random() < 0.05:
            raise ProducerEnded("fenced", is_fenced=True)

    def renew(self, *, is_fenced: bool) -> None:
        self.renewed.append(is_fenced)
        if self._random.random() < 0.1:
            raise ProducerEnded("fenced again", is_fenced=True)
        self._end()

    def _end(self) -> None:
        """Its markers follow."""
        for partition in {partition for partition, _, _ in self._open}:
            self.lists[partition].append(None)
        self._open, self._open_offsets = [], {}

    def _fail(self) -> None:
        chance = self._random.random()
        if chance < 0.02:
            raise MustAbort("it must abort")
        if chance < 0.04:
            raise ProducerEnded("it ended", is_fenced=self._random.random() < 0.5)

    def readings(self) -> list[Operation]:
        at_ns = now_ns()
        found: list[Operation] = []
        for partition, values in self.lists.items():
            records = tuple((offset, value) for offset, value in enumerate(values) if value is not None)
            found.append(CommittedRead(FINAL_READER, at_ns, at_ns, partition, records))
            found.append(Committed(FINAL_READER, at_ns, at_ns, partition, self.offsets.get(partition, -1)))
            found.append(LastStableOffset(FINAL_READER, at_ns, at_ns, partition, len(values), len(values)))
        return found


def work(seed: int, directory: Path, client: type[Memory] = Memory) -> tuple[Memory, list[Operation]]:
    """The client, and the history of a worker until its last turn."""
    stopping = threading.Event()
    memory = client(seed, stopping)
    file = directory / f"{seed}.history"
    with Recorder(file) as recorder:
        worker = Worker("member0", memory, recorder, PARTITIONS_COUNT, pause_s=(0, 0), open_s=(0, 0))
        worker.run(stopping)
    return memory, [*read_lines([file]), *memory.readings()]


@pytest.mark.parametrize("seed", range(10))
def test_transactions_through_failures_of_any_call_are_judged_correct(seed: int, tmp_path: Path) -> None:
    memory, history = work(seed, tmp_path)
    report = check(history)
    assert report.is_clean, str(report)
    outcomes = {each.outcome for each in settled(history)}
    assert outcomes >= {Outcome.OK, Outcome.FAILED}
    assert len(memory.renewed) > 1


def test_some_commits_without_an_answer_are_found_committed(tmp_path: Path) -> None:
    figures = [check(work(seed, tmp_path)[1]).figures for seed in range(10)]
    assert sum(each["unknown_committed"] for each in figures) > 0
    assert sum(each["transactions_unknown"] - each["unknown_committed"] for each in figures) > 0


class LostCommits(Memory):
    """A commit is answered, and nothing of it is there."""

    def commit(self) -> None:
        self._end()


class LateOffsets(Memory):
    """The results of an aborted transaction are gone, and its offsets are committed."""

    def send_offsets(self, offsets: Mapping[int, int]) -> None:
        super().send_offsets(offsets)
        self.offsets.update(offsets)


class ShownAborts(Memory):
    def abort(self) -> None:
        for partition, offset, value in self._open:
            self.lists[partition][offset] = value
        super().abort()


@pytest.mark.parametrize(
    ("client", "anomaly"),
    [
        (LostCommits, Anomaly.LOST_COMMIT),
        (LateOffsets, Anomaly.INPUT_LOST),
        (ShownAborts, Anomaly.ABORTED_READ),
    ],
)
def test_faulty_broker_is_found(client: type[Memory], anomaly: Anomaly, tmp_path: Path) -> None:
    assert anomaly in check(work(1, tmp_path, client)[1]).found


def test_call_of_a_library_that_does_not_return_ends_its_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working_librdkafka, "GIVE_UP_S", 0.01)
    returning = threading.Event()
    with pytest.raises(ProducerEnded, match=GAVE_UP):
        working_librdkafka._in_time(returning.wait)
    returning.set()


def test_failure_of_a_call_is_that_of_its_thread() -> None:
    def fail() -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    with pytest.raises(KafkaException):
        working_librdkafka._in_time(fail)
