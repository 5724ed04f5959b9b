"""Random histories of correct transactions, and mutations that add one anomaly to each."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from tests.history.operations import Committed, CommittedRead, LastStableOffset, Operation, Outcome, Transaction
from tests.transactions_history.checker import FINAL_READER
from tests.transactions_history.report import Anomaly

PARTITIONS: Final = (0, 1, 2)
WORKERS: Final = ("w0", "w1")
READERS: Final = ("r0", "r1")
TRANSACTIONS: Final = 80
Spoil = Callable[[list[Operation], random.Random], None]
Kind = TypeVar("Kind", bound=Operation)


class CorrectWorld:
    """Partitions of results and inputs without faults; each step appends to `history`.

    A transaction runs alone or beside another one, whose results are between its own.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._now_ns = 0
        self._number = 0
        # (value, whether it is committed), by offset; a marker is None.
        self._log: dict[int, list[tuple[str, bool] | None]] = {partition: [] for partition in PARTITIONS}
        self._consumed: dict[int, int] = dict.fromkeys(PARTITIONS, 0)
        self._state: dict[int, str] = dict.fromkeys(PARTITIONS, "")
        self._position: dict[tuple[str, int], int] = {}
        self.history: list[Operation] = []

    def run(self) -> list[Operation]:
        # With any seed each outcome is there, in every partition.
        for outcome, is_committed in ((Outcome.OK, True), (Outcome.FAILED, False), (Outcome.UNKNOWN, True)):
            self._transact([(WORKERS[0], PARTITIONS, outcome, is_committed)])
        for _ in range(TRANSACTIONS):
            self._step()
        for partition in PARTITIONS:
            self._read_of(FINAL_READER, partition, len(self._log[partition]))
            self._committed_of(FINAL_READER, partition)
            self._stable_of(FINAL_READER, partition)
        return self.history

    def _step(self) -> None:
        partitions = list(PARTITIONS)
        self._random.shuffle(partitions)
        beside = [self._chosen(WORKERS[0], partitions[:2])]
        if self._random.random() < 0.5:
            beside = [self._chosen(WORKERS[0], partitions[:1]), self._chosen(WORKERS[1], partitions[1:])]
        self._transact(beside)
        partition = self._random.choice(PARTITIONS)
        reader = self._random.choice(READERS)
        self._read_of(reader, partition, self._random.randrange(1, 9))
        self._stable_of(reader, self._random.choice(PARTITIONS))
        self._committed_of(self._random.choice(WORKERS), partition)

    def _chosen(self, worker: str, inputs: list[int]) -> tuple[str, tuple[int, ...], Outcome, bool]:
        outcome = self._random.choices(list(Outcome), weights=(8, 2, 2))[0]
        is_committed = outcome is Outcome.OK or (outcome is Outcome.UNKNOWN and self._random.random() < 0.5)
        return worker, tuple(inputs), outcome, is_committed

    def _transact(self, beside: list[tuple[str, tuple[int, ...], Outcome, bool]]) -> None:
        """At the same time: their results alternate, and their markers follow."""
        planned = [self._planned(worker, inputs) for worker, inputs, _, _ in beside]
        pending = [(each, place) for each in planned for place in range(len(each.results))]
        self._random.shuffle(pending)
        # A transaction sends its results in order.
        next_place = {each.name: 0 for each in planned}
        placed: dict[str, list[tuple[int, str, int]]] = {each.name: [] for each in planned}
        for each, _ in pending:
            partition, value, _ = each.results[next_place[each.name]]
            next_place[each.name] += 1
            is_committed = beside[planned.index(each)][3]
            placed[each.name].append((partition, value, len(self._log[partition])))
            self._log[partition].append((value, is_committed))
        for each, (_, _, outcome, is_committed) in zip(planned, beside, strict=True):
            for partition in {partition for partition, _, _ in each.results}:
                self._log[partition].append(None)
            if is_committed:
                for partition, _, end in each.inputs:
                    self._consumed[partition] = end
                for partition, value, _ in each.results[: len(each.inputs)]:
                    self._state[partition] = value
            results = tuple(
                (partition, value, -1 if self._random.random() < 0.1 else offset)
                for partition, value, offset in placed[each.name]
            )
            self.history.append(each)
            self.history.append(each._replace(completed_ns=self._tick(), outcome=outcome, results=results))

    def _planned(self, worker: str, inputs: tuple[int, ...]) -> Transaction:
        name = f"{worker}:{self._number}"
        self._number += 1
        targets = [*inputs, *self._random.choices(PARTITIONS, k=self._random.randrange(1, 5))]
        if self._number == 1:
            targets += PARTITIONS
        at_ns = self._tick()
        return Transaction(
            worker,
            at_ns,
            at_ns,
            Outcome.FAILED,
            name,
            tuple((each, self._consumed[each], self._consumed[each] + self._random.randrange(1, 6)) for each in inputs),
            tuple((each, self._state[each]) for each in inputs),
            tuple((partition, f"{name}#{place}", -1) for place, partition in enumerate(targets)),
        )

    def _tick(self) -> int:
        self._now_ns += self._random.randrange(2, 5)
        return self._now_ns

    def _read_of(self, reader: str, partition: int, count: int) -> None:
        first = self._position.get((reader, partition), 0)
        entries = list(enumerate(self._log[partition]))[first : first + count]
        self._position[reader, partition] = first + len(entries)
        records = tuple((offset, entry[0]) for offset, entry in entries if entry is not None and entry[1])
        self.history.append(CommittedRead(reader, self._tick(), self._tick(), partition, records))

    def _stable_of(self, reader: str, partition: int) -> None:
        end = len(self._log[partition])
        self.history.append(LastStableOffset(reader, self._tick(), self._tick(), partition, end, end))

    def _committed_of(self, process: str, partition: int) -> None:
        offset = self._consumed[partition] or -1
        self.history.append(Committed(process, self._tick(), self._tick(), partition, offset))


def plant(anomaly: Anomaly, history: list[Operation], seed: int) -> list[Operation]:
    """A copy of the history with one anomaly in it."""
    spoiled = list(history)
    PLANTERS[anomaly](spoiled, random.Random(seed))
    return spoiled


def _pick(history: list[Operation], kind: type[Kind], rng: random.Random, fits: Callable[[Kind], bool]) -> Kind:
    return rng.choice([operation for operation in history if isinstance(operation, kind) and fits(operation)])


def _swap(history: list[Operation], before: Operation, after: Operation) -> None:
    history[history.index(before)] = after


def _later_ns(history: list[Operation]) -> int:
    kinds = Transaction | CommittedRead | LastStableOffset | Committed
    return max(operation.completed_ns for operation in history if isinstance(operation, kinds)) + 10


def _final(history: list[Operation], partition: int) -> CommittedRead:
    return next(
        each
        for each in history
        if isinstance(each, CommittedRead) and each.process == FINAL_READER and each.partition == partition
    )


def _add_to_final(history: list[Operation], partition: int, *records: tuple[int, str]) -> None:
    final = _final(history, partition)
    _swap(history, final, final._replace(records=(*final.records, *records)))


def _beyond(history: list[Operation], partition: int) -> int:
    """An offset above all results of the partition."""
    return 100 + max(
        offset
        for each in history
        if isinstance(each, Transaction)
        for of_partition, _, offset in each.results
        if of_partition == partition
    )


def _remove(history: list[Operation], values: set[str], *, only_of: str | None = None) -> None:
    for place, operation in enumerate(history):
        if isinstance(operation, CommittedRead) and only_of in (None, operation.process):
            kept = tuple(record for record in operation.records if record[1] not in values)
            history[place] = operation._replace(records=kept)


def _values(transaction: Transaction) -> list[str]:
    return [value for _, value, _ in transaction.results]


def _is_answered(transaction: Transaction) -> bool:
    return transaction.outcome is Outcome.OK


def _torn(history: list[Operation], rng: random.Random) -> None:
    shown = {value for partition in PARTITIONS for _, value in _final(history, partition).records}
    torn = _pick(
        history, Transaction, rng, lambda each: each.outcome is not Outcome.FAILED and shown.issuperset(_values(each))
    )
    values = _values(torn)
    _remove(history, set(rng.sample(values, rng.randrange(1, len(values)))))


def _aborted_read(history: list[Operation], rng: random.Random) -> None:
    aborted = _pick(
        history,
        Transaction,
        rng,
        lambda each: each.outcome is Outcome.FAILED and each.completed_ns > each.invoked_ns,
    )
    partition, value, offset = rng.choice(aborted.results)
    at_ns = _later_ns(history)
    offset = offset if offset >= 0 else _beyond(history, partition)
    history.append(CommittedRead("other", at_ns, at_ns + 1, partition, ((offset, value),)))


def _lost_commit(history: list[Operation], rng: random.Random) -> None:
    _remove(history, set(_values(_pick(history, Transaction, rng, _is_answered))))


def _vanished(history: list[Operation], rng: random.Random) -> None:
    read = _pick(history, CommittedRead, rng, lambda read: read.process in READERS and bool(read.records))
    _remove(history, {rng.choice(read.records)[1]}, only_of=FINAL_READER)


def _inconsistent_offset(history: list[Operation], rng: random.Random) -> None:
    final = _final(history, rng.choice(PARTITIONS))
    at_ns = _later_ns(history)
    offset, value = rng.choice(final.records)[0], rng.choice(final.records)[1]
    other = next(each for _, each in final.records if each != value)
    history.append(CommittedRead("other", at_ns, at_ns + 1, final.partition, ((offset, value),)))
    history.append(CommittedRead("another", at_ns, at_ns + 1, final.partition, ((offset, other),)))


def _duplicate(history: list[Operation], rng: random.Random) -> None:
    final = _final(history, rng.choice(PARTITIONS))
    _add_to_final(history, final.partition, (_beyond(history, final.partition), rng.choice(final.records)[1]))


def _phantom(history: list[Operation], rng: random.Random) -> None:
    partition = rng.choice(PARTITIONS)
    if rng.random() < 0.5:
        _add_to_final(history, partition, (_beyond(history, partition), "no-worker:1#0"))
    else:
        elsewhere = _final(history, (partition + 1) % len(PARTITIONS))
        _add_to_final(history, partition, (_beyond(history, partition), rng.choice(elsewhere.records)[1]))


def _intermediate(history: list[Operation], rng: random.Random) -> None:
    spans = []
    for each in history:
        if isinstance(each, Transaction):
            for partition in PARTITIONS:
                offsets = [offset for of_partition, _, offset in each.results if of_partition == partition <= offset]
                offsets = [offset for offset in offsets if offset >= 0]
                if len(offsets) > 1:
                    spans.append((partition, min(offsets), max(offsets)))
    partition, first, last = rng.choice(spans)
    # Before all others, so that it did not fall.
    history.append(LastStableOffset("other", 0, 1, partition, rng.randrange(first + 1, last + 1), last + 1))


def _read_skipped(history: list[Operation], rng: random.Random) -> None:
    final = _final(history, rng.choice(PARTITIONS))
    skipped = rng.randrange(len(final.records) - 1)
    at_ns = _later_ns(history)
    records = final.records[:skipped] + final.records[skipped + 1 :]
    history.append(CommittedRead("other", at_ns, at_ns + 1, final.partition, records))


def _read_went_back(history: list[Operation], rng: random.Random) -> None:
    final = _final(history, rng.choice(PARTITIONS))
    at_ns = _later_ns(history)
    again = rng.choice(final.records)
    history.append(CommittedRead("other", at_ns, at_ns + 1, final.partition, final.records))
    history.append(CommittedRead("other", at_ns + 2, at_ns + 3, final.partition, (again,)))


def _out_of_order(history: list[Operation], rng: random.Random) -> None:
    """Two results of a producer have changed places."""
    final = _final(history, rng.choice(PARTITIONS))
    worker = rng.choice(WORKERS)
    places = [place for place, (_, value) in enumerate(final.records) if value.startswith(worker)]
    earlier, later = sorted(rng.sample(places, 2))
    records = list(final.records)
    records[earlier] = (records[earlier][0], final.records[later][1])
    records[later] = (records[later][0], final.records[earlier][1])
    _swap(history, final, final._replace(records=tuple(records)))


def _real_time_order(history: list[Operation], rng: random.Random) -> None:
    """A transaction that is below another one has started after all had committed."""
    at_ns = _later_ns(history)
    answered = {each.name for each in history if isinstance(each, Transaction) and _is_answered(each)}
    below: set[str] = set()
    for partition in PARTITIONS:
        names = [value.partition("#")[0] for _, value in _final(history, partition).records]
        end = max(place for place, name in enumerate(names) if name in answered)
        below.update(name for name in names[:end] if name in answered and name != names[end])
    late = rng.choice(sorted(below))
    for place, operation in enumerate(history):
        if isinstance(operation, Transaction) and operation.name == late:
            history[place] = operation._replace(process="late", invoked_ns=at_ns, completed_ns=at_ns + 1)


def _input_twice(history: list[Operation], rng: random.Random) -> None:
    each = _pick(history, Transaction, rng, lambda each: _is_answered(each) and each.inputs[0][1] > 0)
    (partition, first, end), *rest = each.inputs
    _swap(history, each, each._replace(inputs=((partition, first - 1, end), *rest)))


def _input_lost(history: list[Operation], rng: random.Random) -> None:
    each = _pick(history, Transaction, rng, _is_answered)
    (partition, first, end), *rest = each.inputs
    _swap(history, each, each._replace(inputs=((partition, first + 1, end), *rest)))


def _offset_of_no_commit(history: list[Operation], rng: random.Random) -> None:
    ends = {
        end
        for each in history
        if isinstance(each, Transaction) and each.outcome is not Outcome.FAILED
        for _, _, end in each.inputs
    }
    offset = rng.choice([each for each in range(1, max(ends) + 9) if each not in ends])
    at_ns = _later_ns(history)
    history.append(Committed("other", at_ns, at_ns + 1, rng.choice(PARTITIONS), offset))


def _offset_lost(history: list[Operation], rng: random.Random) -> None:
    each = _pick(history, Transaction, rng, _is_answered)
    partition, first, _ = rng.choice(each.inputs)
    at_ns = _later_ns(history)
    history.append(Committed("other", at_ns, at_ns + 1, partition, rng.choice((-1, 0, first))))


def _wrong_state(history: list[Operation], rng: random.Random) -> None:
    """It has not read what its predecessor appended: it knew the state before."""
    each = _pick(history, Transaction, rng, lambda each: _is_answered(each) and each.states[0][1] != "")
    (partition, _), *rest = each.states
    _swap(history, each, each._replace(states=((partition, ""), *rest)))


def _stable_went_back(history: list[Operation], rng: random.Random) -> None:
    answer = _pick(history, LastStableOffset, rng, lambda answer: answer.offset > 0)
    at_ns = _later_ns(history)
    history.append(answer._replace(process="other", invoked_ns=at_ns, completed_ns=at_ns, offset=answer.offset - 1))


def _stuck(history: list[Operation], rng: random.Random) -> None:
    answer = _pick(history, LastStableOffset, rng, lambda answer: answer.process == FINAL_READER)
    _swap(history, answer, answer._replace(high_watermark=answer.offset + 1))


PLANTERS: Final[Mapping[Anomaly, Spoil]] = {
    Anomaly.TORN: _torn,
    Anomaly.ABORTED_READ: _aborted_read,
    Anomaly.LOST_COMMIT: _lost_commit,
    Anomaly.VANISHED: _vanished,
    Anomaly.INCONSISTENT_OFFSET: _inconsistent_offset,
    Anomaly.DUPLICATE: _duplicate,
    Anomaly.PHANTOM: _phantom,
    Anomaly.INTERMEDIATE: _intermediate,
    Anomaly.READ_SKIPPED: _read_skipped,
    Anomaly.READ_WENT_BACK: _read_went_back,
    Anomaly.OUT_OF_ORDER: _out_of_order,
    Anomaly.REAL_TIME_ORDER: _real_time_order,
    Anomaly.INPUT_TWICE: _input_twice,
    Anomaly.INPUT_LOST: _input_lost,
    Anomaly.OFFSET_OF_NO_COMMIT: _offset_of_no_commit,
    Anomaly.OFFSET_LOST: _offset_lost,
    Anomaly.WRONG_STATE: _wrong_state,
    Anomaly.STABLE_WENT_BACK: _stable_went_back,
    Anomaly.STUCK: _stuck,
}
