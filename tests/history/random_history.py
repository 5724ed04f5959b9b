"""Random histories without anomalies, and mutations that add one anomaly to each."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from tests.history.checker import FINAL_READER
from tests.history.log_checks import SILENCE_NS_MAX
from tests.history.operations import (
    Commit,
    Committed,
    LatestOffset,
    Operation,
    Outcome,
    Poll,
    Positioned,
    Revoked,
    Send,
    Servable,
    Served,
    Snapshot,
    Watermark,
)
from tests.history.report import Anomaly

PARTITIONS: Final = (0, 1)
PRODUCERS: Final = ("p0", "p1")
MEMBERS: Final = ("m0", "m1", "m2")
LATE_MEMBER: Final = "m9"
ASKERS: Final = ("a0", "a1")
STEPS: Final = 300

Kind = TypeVar("Kind", bound=Operation)


class CorrectWorld:
    """A log, a group and their clients without faults; each step appends to `history`."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._now_ns = 0
        self._number = 0
        self._generation = 0
        # Stored values by partition; None where an unknown write may or may not be stored (it is read like any other).
        self._stored: dict[int, list[str]] = {partition: [] for partition in PARTITIONS}
        self._owner: dict[int, str] = {}
        self._position: dict[int, int] = dict.fromkeys(PARTITIONS, 0)
        self._committed: dict[int, int] = dict.fromkeys(PARTITIONS, -1)
        self.history: list[Operation] = []

    def run(self) -> list[Operation]:
        self._rebalance()
        for partition in PARTITIONS:
            self._send(PRODUCERS[0], partition, Outcome.OK)
            self._send(PRODUCERS[0], partition, Outcome.FAILED)
        steps: list[Callable[[], None]] = [self._send_any] * 6 + [self._poll] * 5 + [self._commit] * 2
        steps += [self._tell_watermark, self._rebalance, self._read_committed, self._read_at_once, self._ask_latest]
        for _ in range(STEPS):
            self._random.choice(steps)()
        self._finish()
        return self.history

    def _tick(self) -> int:
        self._now_ns += self._random.randrange(1, 5)
        return self._now_ns

    def _send_any(self) -> None:
        outcome = self._random.choices(list(Outcome), weights=(8, 1, 1))[0]
        self._send(self._random.choice(PRODUCERS), self._random.choice(PARTITIONS), outcome)

    def _send(self, producer: str, partition: int, outcome: Outcome) -> None:
        self._number += 1
        value = f"{producer}:{self._number}"
        invoked_ns = self._tick()
        offset = -1
        if outcome is not Outcome.FAILED and (outcome is Outcome.OK or self._random.random() < 0.5):
            self._stored[partition].append(value)
            offset = len(self._stored[partition]) - 1 if outcome is Outcome.OK else -1
        self.history.append(Send(producer, invoked_ns, self._tick(), outcome, partition, value, offset))

    def _poll(self) -> None:
        partition = self._random.choice(PARTITIONS)
        self._poll_as(self._owner[partition], partition, self._random.randrange(1, 6))

    def _poll_as(self, process: str, partition: int, count: int) -> None:
        first = self._position[partition]
        values = self._stored[partition][first : first + count]
        self._position[partition] = first + len(values)
        records = tuple(enumerate(values, first))
        self.history.append(Poll(process, self._tick(), self._tick(), partition, records))

    def _read_at_once(self) -> None:
        partition = self._random.choice(PARTITIONS)
        records = tuple(enumerate(self._stored[partition]))
        self.history.append(Snapshot("reader", self._tick(), self._tick(), partition, records))

    def _commit(self) -> None:
        partition = self._random.choice(PARTITIONS)
        offset = self._position[partition]
        outcome = self._random.choices(list(Outcome), weights=(8, 1, 1))[0]
        if outcome is not Outcome.FAILED:
            self._committed[partition] = max(self._committed[partition], offset)
        owner = self._owner[partition]
        self.history.append(Commit(owner, self._tick(), self._tick(), outcome, partition, offset))

    def _read_committed(self) -> None:
        partition = self._random.choice(PARTITIONS)
        offset = self._committed[partition]
        self.history.append(Committed(self._owner[partition], self._tick(), self._tick(), partition, offset))

    def _tell_watermark(self) -> None:
        partition = self._random.choice(PARTITIONS)
        invoked_ns = self._tick()
        high_watermark = len(self._stored[partition])
        process = self._random.choice(MEMBERS)
        self.history.append(Watermark(process, invoked_ns, self._tick(), partition, high_watermark))

    def _ask_latest(self) -> None:
        partition = self._random.choice(PARTITIONS)
        invoked_ns = self._tick()
        offset = len(self._stored[partition])
        self.history.append(LatestOffset(self._random.choice(ASKERS), invoked_ns, self._tick(), partition, offset))

    def _rebalance(self) -> None:
        self._generation += 1
        for partition in PARTITIONS:
            if partition in self._owner and self._random.random() < 0.7:
                self.history.append(Revoked(self._owner[partition], self._tick(), partition))
            owner = self._owner[partition] = self._random.choice(MEMBERS)
            self._position[partition] = max(self._committed[partition], 0)
            self.history.append(Positioned(owner, self._tick(), partition, self._generation))

    def _finish(self) -> None:
        for whom in Served:
            self.history.append(Servable("run", 0, self._tick(), whom))
        for partition in PARTITIONS:
            self._poll_as(self._owner[partition], partition, len(self._stored[partition]))
            self._position[partition] = 0
            self._poll_as(FINAL_READER, partition, len(self._stored[partition]))


def plant(anomaly: Anomaly, history: list[Operation], seed: int) -> list[Operation]:
    """A copy of the history with one anomaly in it."""
    spoiled = list(history)
    PLANTERS[anomaly](spoiled, random.Random(seed))
    return spoiled


def _pick(history: list[Operation], kind: type[Kind], rng: random.Random, fits: Callable[[Kind], bool]) -> Kind:
    return rng.choice([operation for operation in history if isinstance(operation, kind) and fits(operation)])


def _swap(history: list[Operation], before: Operation, after: Operation) -> None:
    history[history.index(before)] = after


def _last_ns(history: list[Operation]) -> int:
    return max(operation[1] for operation in history if isinstance(operation[1], int)) + 10


def _is_acknowledged(send: Send) -> bool:
    return send.outcome is Outcome.OK


def _final_poll(history: list[Operation], partition: int) -> Poll:
    return next(
        operation
        for operation in history
        if isinstance(operation, Poll) and operation.process == FINAL_READER and operation.partition == partition
    )


def _without(history: list[Operation], partition: int, value: str, *, final_only: bool) -> None:
    for place, operation in enumerate(history):
        if isinstance(operation, Poll | Snapshot) and operation.partition == partition:
            if final_only and operation.process != FINAL_READER:
                continue
            kept = tuple(record for record in operation.records if record[1] != value)
            history[place] = operation._replace(records=kept)


def _inconsistent_offset(history: list[Operation], rng: random.Random) -> None:
    poll = _pick(history, Poll, rng, lambda poll: bool(poll.records))
    offset = rng.choice(poll.records)[0]
    history.append(Poll("other", _last_ns(history), _last_ns(history) + 1, poll.partition, ((offset, "p0:other"),)))


def _failed_write_read(history: list[Operation], rng: random.Random) -> None:
    failed = _pick(history, Send, rng, lambda send: send.outcome is Outcome.FAILED)
    end_offset = len(_final_poll(history, failed.partition).records) + 3
    at_ns = _last_ns(history)
    history.append(Poll("other", at_ns, at_ns + 1, failed.partition, ((end_offset, failed.value),)))


def _duplicate(history: list[Operation], rng: random.Random) -> None:
    final = _final_poll(history, rng.choice(PARTITIONS))
    again = final.records[-1][0] + 1, rng.choice(final.records)[1]
    _swap(history, final, final._replace(records=(*final.records, again)))


def _lost_write(history: list[Operation], rng: random.Random) -> None:
    sends = [op for op in history if isinstance(op, Send) and _is_acknowledged(op)]
    lost = rng.choice([s for s in sends if any(t.partition == s.partition and t.offset > s.offset for t in sends)])
    _without(history, lost.partition, lost.value, final_only=False)


def _unseen(history: list[Operation], rng: random.Random) -> None:
    send = _pick(history, Send, rng, _is_acknowledged)
    _without(history, send.partition, send.value, final_only=True)


def _phantom(history: list[Operation], rng: random.Random) -> None:
    final = _final_poll(history, rng.choice(PARTITIONS))
    made_up = final.records[-1][0] + 1, "no-producer:1"
    _swap(history, final, final._replace(records=(*final.records, made_up)))


def _poll_skip(history: list[Operation], rng: random.Random) -> None:
    final = _final_poll(history, rng.choice(PARTITIONS))
    place = rng.randrange(1, len(final.records) - 1)
    # Read by another one, so that nothing is lost: only this consumer did not get it.
    at_ns = _last_ns(history)
    history.append(Poll("other", at_ns, at_ns + 1, final.partition, (final.records[place],)))
    _swap(history, final, final._replace(records=final.records[:place] + final.records[place + 1 :]))


def _poll_went_back(history: list[Operation], rng: random.Random) -> None:
    final = _final_poll(history, rng.choice(PARTITIONS))
    records = list(final.records)
    place = rng.randrange(len(records) - 1)
    records[place], records[place + 1] = records[place + 1], records[place]
    _swap(history, final, final._replace(records=tuple(records)))


def _stale_read(history: list[Operation], rng: random.Random) -> None:
    send = _pick(history, Send, rng, _is_acknowledged)
    records = _final_poll(history, send.partition).records
    before = tuple(record for record in records if record[0] < send.offset)
    at_ns = _last_ns(history)
    history.append(Snapshot("other", at_ns, at_ns + 1, send.partition, before))


def _sends_out_of_order(history: list[Operation], rng: random.Random) -> None:
    before = _pick(history, Send, rng, lambda send: _is_acknowledged(send) and _followers(history, send) != [])
    after = rng.choice(_followers(history, before))
    _swap(history, before, before._replace(offset=after.offset))
    _swap(history, after, after._replace(offset=before.offset))


def _followers(history: list[Operation], send: Send) -> list[Send]:
    return [
        other
        for other in history
        if isinstance(other, Send)
        and _is_acknowledged(other)
        and (other.process, other.partition) == (send.process, send.partition)
        and other.invoked_ns > send.invoked_ns
    ]


def _real_time_order(history: list[Operation], rng: random.Random) -> None:
    sends = [op for op in history if isinstance(op, Send) and _is_acknowledged(op)]
    late = rng.choice([s for s in sends if s.offset < max(t.offset for t in sends if t.partition == s.partition)])
    at_ns = _last_ns(history)
    _swap(history, late, late._replace(process="late", invoked_ns=at_ns, completed_ns=at_ns + 1))


def _watermark_went_back(history: list[Operation], rng: random.Random) -> None:
    mark = _pick(history, Watermark, rng, lambda mark: mark.high_watermark > 0)
    at_ns = _last_ns(history)
    history.append(mark._replace(completed_ns=at_ns, high_watermark=mark.high_watermark - 1))


def _latest_went_back(history: list[Operation], rng: random.Random) -> None:
    answer = _pick(history, LatestOffset, rng, lambda answer: answer.offset > 0)
    at_ns = _last_ns(history)
    other = rng.choice([asker for asker in ASKERS if asker != answer.process])
    history.append(LatestOffset(other, at_ns, at_ns + 1, answer.partition, answer.offset - 1))


def _silent(history: list[Operation], rng: random.Random) -> None:
    """A producer whose next acknowledgement comes too late, although all clients could be served."""
    began_ns = max(send.completed_ns for send in history if isinstance(send, Send) and _is_acknowledged(send)) + 1
    send = _pick(history, Send, rng, _is_acknowledged)
    ended_ns = began_ns + SILENCE_NS_MAX + rng.randrange(1, SILENCE_NS_MAX)
    history.append(Servable("run", began_ns, ended_ns, Served.CLIENTS))
    history.append(send._replace(value=f"{send.value}-late", invoked_ns=ended_ns, completed_ns=ended_ns + 1))


def _double_owner(history: list[Operation], rng: random.Random) -> None:
    given = _pick(history, Positioned, rng, lambda _: True)
    other = rng.choice([member for member in MEMBERS if member != given.process])
    history.append(given._replace(process=other, at_ns=_last_ns(history)))


def _stale_commit(history: list[Operation], rng: random.Random) -> None:
    partition = rng.choice(PARTITIONS)
    owner = [op for op in history if isinstance(op, Positioned) and op.partition == partition][-1].process
    other = rng.choice([member for member in MEMBERS if member != owner])
    at_ns = _last_ns(history)
    history.append(Commit(other, at_ns, at_ns + 1, Outcome.OK, partition, 1_000_000))


def _commit_lost(history: list[Operation], rng: random.Random) -> None:
    commit = _pick(history, Commit, rng, lambda commit: commit.outcome is Outcome.OK and commit.offset > 0)
    at_ns = _last_ns(history)
    history.append(Committed(commit.process, at_ns, at_ns + 1, commit.partition, rng.choice((-1, commit.offset - 1))))


def _commit_went_back(history: list[Operation], rng: random.Random) -> None:
    commit = _pick(history, Commit, rng, lambda commit: commit.outcome is Outcome.OK and commit.offset > 0)
    owner = [op for op in history if isinstance(op, Positioned) and op.partition == commit.partition][-1].process
    at_ns = _last_ns(history)
    history.append(Commit(owner, at_ns, at_ns + 1, Outcome.OK, commit.partition, commit.offset - 1))


def _reset(history: list[Operation], rng: random.Random) -> None:
    """A member that has just joined starts below the committed offset, or beyond any offset that may be committed."""
    partition = rng.choice(PARTITIONS)
    records = _final_poll(history, partition).records
    at_ns = _last_ns(history)
    middle = rng.randrange(1, len(records) - 1)
    if rng.random() < 0.5:
        history.append(Commit(MEMBERS[0], at_ns, at_ns + 1, Outcome.OK, partition, middle + 1))
        first = rng.choice((0, middle))
    else:
        tried = [op.offset for op in history if isinstance(op, Commit) and op.partition == partition]
        first = max([*tried, 0]) + 1
        # The values to skip, which the final reader also reads.
        final = _final_poll(history, partition)
        more = [(records[-1][0] + number, f"p0:more{number}") for number in range(1, first + 2 - len(records))]
        _swap(history, final, final._replace(records=(*records, *more)))
        records = (*records, *more)
    history.append(Positioned(LATE_MEMBER, at_ns + 2, partition, 1_000_000))
    history.append(Poll(LATE_MEMBER, at_ns + 3, at_ns + 4, partition, records[first:]))


def _not_delivered(history: list[Operation], rng: random.Random) -> None:
    send = _pick(history, Send, rng, _is_acknowledged)
    for place, operation in enumerate(history):
        if isinstance(operation, Poll) and operation.process in MEMBERS and operation.partition == send.partition:
            kept = tuple(record for record in operation.records if record[1] != send.value)
            history[place] = operation._replace(records=kept)


PLANTERS: Final[Mapping[Anomaly, Callable[[list[Operation], random.Random], None]]] = {
    Anomaly.INCONSISTENT_OFFSET: _inconsistent_offset,
    Anomaly.FAILED_WRITE_READ: _failed_write_read,
    Anomaly.DUPLICATE: _duplicate,
    Anomaly.LOST_WRITE: _lost_write,
    Anomaly.UNSEEN: _unseen,
    Anomaly.PHANTOM: _phantom,
    Anomaly.POLL_SKIP: _poll_skip,
    Anomaly.POLL_WENT_BACK: _poll_went_back,
    Anomaly.STALE_READ: _stale_read,
    Anomaly.SENDS_OUT_OF_ORDER: _sends_out_of_order,
    Anomaly.REAL_TIME_ORDER: _real_time_order,
    Anomaly.WATERMARK_WENT_BACK: _watermark_went_back,
    Anomaly.LATEST_WENT_BACK: _latest_went_back,
    Anomaly.SILENT: _silent,
    Anomaly.DOUBLE_OWNER: _double_owner,
    Anomaly.STALE_COMMIT: _stale_commit,
    Anomaly.COMMIT_LOST: _commit_lost,
    Anomaly.COMMIT_WENT_BACK: _commit_went_back,
    Anomaly.RESET: _reset,
    Anomaly.NOT_DELIVERED: _not_delivered,
}
