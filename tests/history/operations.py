"""The operations of clients: the input of the checker.

Times are of the machine's monotonic clock, in nanoseconds, so those of several processes can be compared.  Each
operation was invoked, and completed with an outcome:

* `OK`: it happened, and the client got the confirmation.
* `FAILED`: it did not happen and never will (an error that guarantees this).
* `UNKNOWN`: a time-out, a lost connection, a client that died: it may have happened, or may still happen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias


class Outcome(StrEnum):
    """How an operation ended."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Send(NamedTuple):
    """One record sent.  `value` is unique per partition.

    `offset` is -1 unless the outcome is OK, and also then when the library reports none.
    """

    process: str
    invoked_ns: int
    completed_ns: int
    outcome: Outcome
    partition: int
    value: str
    offset: int


class Poll(NamedTuple):
    """Records of one partition that a consumer received, in that order."""

    process: str
    invoked_ns: int
    completed_ns: int
    partition: int
    # (offset, value)
    records: tuple[tuple[int, str], ...]


class Snapshot(NamedTuple):
    """A whole partition as it was read at once, from its start to the log end at the start of the read."""

    process: str
    invoked_ns: int
    completed_ns: int
    partition: int
    # (offset, value)
    records: tuple[tuple[int, str], ...]

    @property
    def poll(self) -> Poll:
        """The same as reads of a separate consumer."""
        return Poll(f"{self.process}@{self.invoked_ns}", *self[1:])


class Watermark(NamedTuple):
    """A high watermark in a response to a client."""

    process: str
    invoked_ns: int
    completed_ns: int
    partition: int
    high_watermark: int


class LatestOffset(NamedTuple):
    """The latest offset in a leader's ListOffsets response."""

    process: str
    invoked_ns: int
    completed_ns: int
    partition: int
    offset: int


class Served(StrEnum):
    """The clients that a replica could serve."""

    CLIENTS = "producers, and readers outside of the group"
    # Separate: a group also stops when its members are killed or slow.
    GROUP = "the group"


class Servable(NamedTuple):
    """Between two times, a replica could serve these clients despite faults of other replicas."""

    process: str
    began_ns: int
    ended_ns: int
    whom: Served


class Ended(NamedTuple):
    """A client was killed or stopped: its silence from now on is no anomaly."""

    process: str
    at_ns: int


class Positioned(NamedTuple):
    """A consumer received a partition or sought in it: its next record need not follow its last one.

    `generation` is the group's generation or the member's epoch, -1 where there is none.
    """

    process: str
    at_ns: int
    partition: int
    generation: int


class Revoked(NamedTuple):
    """A consumer released or lost a partition, and knows it."""

    process: str
    at_ns: int
    partition: int


class Commit(NamedTuple):
    """A committed offset: the next record to read.

    `error` is the library's, where the outcome is UNKNOWN; empty when the client died meanwhile.
    """

    process: str
    invoked_ns: int
    completed_ns: int
    outcome: Outcome
    partition: int
    offset: int
    error: str = ""


class Committed(NamedTuple):
    """A committed offset as it was read back; -1 when there was none."""

    process: str
    invoked_ns: int
    completed_ns: int
    partition: int
    offset: int


class Transaction(NamedTuple):
    """A transaction that consumed inputs, wrote results, and committed the offsets of its inputs with them.

    Recorded at its start as FAILED, since nothing may commit it before its commit is requested; at this request as
    UNKNOWN; and when it is settled: the last record counts.
    """

    process: str
    invoked_ns: int
    completed_ns: int
    outcome: Outcome
    # Unique; the values of its results start with it.
    name: str
    # (partition, first offset, next offset) of what it consumed
    inputs: tuple[tuple[int, int, int], ...]
    # (partition, value): the last result of the owner of each of these partitions that it knew; "" for none
    states: tuple[tuple[int, str], ...]
    # (partition, value, offset) in the order of sending; the first ones are its results as the owner of its inputs, one
    # for each.  The offset is -1 where none was acknowledged.
    results: tuple[tuple[int, str, int], ...]
    error: str = ""


class CommittedRead(NamedTuple):
    """Results of one partition that a `read_committed` reader received, in that order; it starts at offset 0."""

    process: str
    invoked_ns: int
    completed_ns: int
    partition: int
    # (offset, value)
    records: tuple[tuple[int, str], ...]


class LastStableOffset(NamedTuple):
    """The last stable offset of a partition of the results, and the high watermark that was read after it.

    The high watermark is -1 where it was not read.
    """

    process: str
    invoked_ns: int
    completed_ns: int
    partition: int
    offset: int
    high_watermark: int = -1


Operation: TypeAlias = (
    Send
    | Poll
    | Snapshot
    | Watermark
    | LatestOffset
    | Servable
    | Ended
    | Positioned
    | Revoked
    | Commit
    | Committed
    | Transaction
    | CommittedRead
    | LastStableOffset
)
_KINDS: Final = {
    kind.__name__: kind
    for kind in (
        Send,
        Poll,
        Snapshot,
        Watermark,
        LatestOffset,
        Servable,
        Ended,
        Positioned,
        Revoked,
        Commit,
        Committed,
        Transaction,
        CommittedRead,
        LastStableOffset,
    )
}


def to_line(operation: Operation) -> str:
    """One line of JSON, without its end."""
    return json.dumps([type(operation).__name__, *operation])


def from_line(line: str) -> Operation:
    name, *values = json.loads(line)
    operation: Operation = _KINDS[name](*values)
    if isinstance(operation, Poll | Snapshot | CommittedRead):
        return operation._replace(records=tuple((offset, value) for offset, value in operation.records))
    if isinstance(operation, Transaction):
        return operation._replace(
            outcome=Outcome(operation.outcome),
            inputs=tuple((partition, first, next_offset) for partition, first, next_offset in operation.inputs),
            states=tuple((partition, value) for partition, value in operation.states),
            results=tuple((partition, value, offset) for partition, value, offset in operation.results),
        )
    if isinstance(operation, Send | Commit):
        return operation._replace(outcome=Outcome(operation.outcome))
    if isinstance(operation, Servable):
        return operation._replace(whom=Served(operation.whom))
    return operation


class GrowingHistories:
    """The operations of files that processes still write, each of which is parsed once.

    The last line of a file counts when its end is written: that of a killed process may be truncated.
    """

    def __init__(self) -> None:
        self._read_bytes: dict[Path, int] = {}
        self._operations: dict[Path, list[Operation]] = {}

    def read(self, paths: Iterable[Path]) -> list[Operation]:
        """All operations of these files so far, in the order of the paths."""
        found: list[Operation] = []
        for path in paths:
            known = self._operations.setdefault(path, [])
            with path.open("rb") as file:
                file.seek(self._read_bytes.get(path, 0))
                whole, end, _ = file.read().rpartition(b"\n")
            known += map(from_line, whole.decode().splitlines())
            self._read_bytes[path] = self._read_bytes.get(path, 0) + len(whole) + len(end)
            found += known
        return found


def read_lines(paths: Iterable[Path]) -> Iterator[Operation]:
    """Read the operations from files of processes; the last line of a killed process may be truncated."""
    for path in paths:
        for line in path.read_text().splitlines():
            if line.endswith("]"):
                yield from_line(line)
