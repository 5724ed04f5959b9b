"""A member of a group that consumes inputs and appends results, in transactions, through any library.

Its transactions are planned from its name, so a seed gives the same choices; the order in which records, rebalances and
faults reach it is that of real processes.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from tests.history.operations import Committed, CommittedRead, Outcome, Poll, Positioned, Transaction
from tests.history.recorder import Recorder, now_ns

# In a value: an append to a list that its transaction does not own.
GUEST_MARK: Final = "~"
GUESTS: Final = (0, 4)
# Intended aborts, and transactions that wait for their acknowledgements before they commit the offsets.
ABORT_SHARE: Final = 0.1
FLUSH_SHARE: Final = 0.5
# While a transaction is open, and between two of them.
OPEN_S: Final = (0.0, 0.1)
PAUSE_S: Final = (0.0, 0.05)
# At most, of one transaction: few, or all that wait after a fault.
INPUTS_MAX: Final = (10, 100, 2_000)
# Some end by the coordinator's time-out while their client waits for a leader or is paused, others survive that.
TIMEOUTS_MS: Final = (3_000, 10_000, 30_000)

# The start of the error of a transaction whose library did nothing any more.
GAVE_UP: Final = "gave up"

Record = tuple[int, str]
NO_ASSIGNMENT: Final = -1


def results_topic(topic: str) -> str:
    """Where the results are of a topic of inputs."""
    return f"{topic}-results"


class MustAbort(Exception):
    """The transaction can only be aborted."""


class ProducerEnded(Exception):
    """The producer can do nothing any more: another one must take its place."""

    def __init__(self, error: str, *, is_fenced: bool) -> None:
        super().__init__(error)
        self.is_fenced = is_fenced


class Inputs(NamedTuple):
    """Of one poll: records by partition, none empty, and which assignment they are of."""

    assignment: int
    records: Mapping[int, Sequence[Record]]


class TransactionalClient(Protocol):
    """A library's consumer and producer.  What is sent to the producer raises `MustAbort` or `ProducerEnded`."""

    def poll(self, count: int) -> Inputs:
        """Inputs of partitions that `position` has named; serves rebalances."""
        ...

    def assigned(self) -> tuple[int, frozenset[int]]:
        """A number that rises with each assignment, and its partitions.  Nothing is read before `position`."""
        ...

    def position(self, offsets: Mapping[int, int]) -> None:
        """Read these partitions from these offsets on."""
        ...

    def committed(self, partitions: Iterable[int]) -> Mapping[int, int] | None:
        """The stable committed offsets, -1 for none; None when the request failed."""
        ...

    def read_results(self, partitions: Iterable[int]) -> tuple[Mapping[int, Sequence[Record]], bool]:
        """Committed results since the last call, and whether all below the present high watermarks are read."""
        ...

    def begin(self) -> None: ...

    def send(self, partition: int, value: str, acknowledged: Callable[[int], None]) -> None: ...

    def flush(self) -> None: ...

    def send_offsets(self, offsets: Mapping[int, int]) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def renew(self, *, is_fenced: bool) -> None:
        """The first producer, or another one: with a fresh transactional id after it was fenced, so that two do not
        fence each other in turn."""
        ...


class Worker:
    """Calls come from one thread."""

    def __init__(
        self,
        name: str,
        client: TransactionalClient,
        recorder: Recorder,
        partitions_count: int,
        *,
        open_s: tuple[float, float] = OPEN_S,
        pause_s: tuple[float, float] = PAUSE_S,
    ) -> None:
        self._name = name
        self._open_s = open_s
        self._pause_s = pause_s
        self._client = client
        self._recorder = recorder
        self._partitions_count = partitions_count
        self._random = random.Random(name)
        self._number = 0
        self._assignment = NO_ASSIGNMENT
        # Of the partitions that are positioned: the next input.
        self._next: dict[int, int] = {}
        # The last element of each list that an owner appended, of all that was read.
        self._states: dict[int, str] = {}

    def run(self, stopping: threading.Event) -> None:
        self._renew(stopping, is_fenced=False)
        while not stopping.is_set():
            try:
                self._turn(stopping)
            except ProducerEnded as ended:
                self._renew(stopping, is_fenced=ended.is_fenced)
            stopping.wait(self._random.uniform(*self._pause_s))

    def _turn(self, stopping: threading.Event) -> None:
        invoked_ns = now_ns()
        polled = self._client.poll(self._random.choice(INPUTS_MAX))
        assignment, partitions = self._client.assigned()
        if assignment != self._assignment:
            self._assignment = assignment
            self._next.clear()
        if self._next.keys() != partitions:
            self._restore(partitions)
        elif polled.assignment == assignment:
            for partition, records in polled.records.items():
                self._recorder.add(Poll(self._name, invoked_ns, now_ns(), partition, tuple(records)))
            if any(records[0][0] < self._next[partition] for partition, records in polled.records.items()):
                # Of a position before the last one.
                self._next.clear()
            elif polled.records:
                consumed = {partition: records[-1][0] + 1 for partition, records in polled.records.items()}
                self._transact(consumed, stopping)

    def _restore(self, partitions: Iterable[int]) -> None:
        """Find the offsets and the lists as the last committed transaction left them; tried again at the next turn.

        The offsets first: when they are stable, all results of the transactions that committed them are below the high
        watermark.
        """
        invoked_ns = now_ns()
        offsets = self._client.committed(partitions)
        if offsets is None:
            return
        completed_ns = now_ns()
        for partition, offset in offsets.items():
            self._recorder.add(Committed(self._name, invoked_ns, completed_ns, partition, offset))
        invoked_ns = now_ns()
        read, is_complete = self._client.read_results(partitions)
        for partition, records in read.items():
            self._recorder.add(CommittedRead(f"{self._name}.state", invoked_ns, now_ns(), partition, tuple(records)))
            for _, value in records:
                if not value.endswith(GUEST_MARK):
                    self._states[partition] = value
        if not is_complete:
            return
        self._next = {partition: max(offset, 0) for partition, offset in offsets.items()}
        for partition in self._next:
            self._recorder.add(Positioned(self._name, now_ns(), partition, -1))
        self._client.position(self._next)

    def _transact(self, consumed: Mapping[int, int], stopping: threading.Event) -> None:
        planned = self._plan(consumed)
        offsets = [-1] * len(planned.results)
        error, is_requested, is_intended = "", False, self._random.random() < ABORT_SHARE

        def settle(outcome: Outcome) -> None:
            results = tuple(
                (partition, value, offset)
                for (partition, value, _), offset in zip(planned.results, offsets, strict=True)
            )
            settled = planned._replace(completed_ns=now_ns(), outcome=outcome, results=results, error=error)
            self._recorder.add(settled)

        settle(Outcome.FAILED)
        try:
            self._send(planned, offsets, stopping)
            self._client.send_offsets(consumed)
            if is_intended:
                raise MustAbort("intended")
            is_requested = True
            settle(Outcome.UNKNOWN)
            self._client.commit()
        except MustAbort as reason:
            error = str(reason)
            self._next.clear()
            try:
                self._client.abort()
            except ProducerEnded as ended:
                error = f"{error}, then {ended}"
                settle(Outcome.UNKNOWN if is_requested else Outcome.FAILED)
                raise
            settle(Outcome.FAILED)
        except ProducerEnded as ended:
            error = str(ended)
            self._next.clear()
            settle(Outcome.UNKNOWN if is_requested else Outcome.FAILED)
            raise
        else:
            settle(Outcome.OK)
            self._next.update(consumed)
            for partition, value, _ in planned.results[: len(planned.inputs)]:
                self._states[partition] = value

    def _send(self, planned: Transaction, offsets: list[int], stopping: threading.Event) -> None:
        def note(place: int) -> Callable[[int], None]:
            def acknowledged(offset: int) -> None:
                offsets[place] = offset

            return acknowledged

        self._client.begin()
        for place, (partition, value, _) in enumerate(planned.results):
            self._client.send(partition, value, note(place))
        if self._random.random() < FLUSH_SHARE:
            self._client.flush()
            stopping.wait(self._random.uniform(*self._open_s))

    def _plan(self, consumed: Mapping[int, int]) -> Transaction:
        name = f"{self._name}:{self._number}"
        self._number += 1
        owned = sorted(consumed)
        guests = [self._random.randrange(self._partitions_count) for _ in range(self._random.randint(*GUESTS))]
        results = [(partition, f"{name}#{place}", -1) for place, partition in enumerate(owned)]
        results += [
            (partition, f"{name}#{place}{GUEST_MARK}", -1) for place, partition in enumerate(guests, len(owned))
        ]
        started_ns = now_ns()
        return Transaction(
            self._name,
            started_ns,
            started_ns,
            Outcome.FAILED,
            name,
            tuple((partition, self._next[partition], consumed[partition]) for partition in owned),
            tuple((partition, self._states.get(partition, "")) for partition in owned),
            tuple(results),
        )

    def _renew(self, stopping: threading.Event, *, is_fenced: bool) -> None:
        self._next.clear()
        while not stopping.is_set():
            try:
                self._client.renew(is_fenced=is_fenced)
                return
            except ProducerEnded as again:
                is_fenced = again.is_fenced
