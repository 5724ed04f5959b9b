"""Records that a load's functions refuse: the first one by its place, or all of them, set aside as dead letters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa

from ottla.client.fetching.messages import Message
from ottla.dead_letters.letter import error_class_of
from ottla.dead_letters.writing import DeadLetters
from ottla.model.counted import counted
from ottla.model.identifiers import NO_TIMESTAMP
from ottla.spark.errors import ColumnsRefused, FunctionRefused, RecordsRefused
from ottla.spark.lake.rows import CALLER_FILE, PLACE_COLUMNS, FunctionFailed
from ottla.spark.options.connection import Connection
from ottla.spark.user_functions import trace_of

STAGE: Final = "LOAD"
_US_PER_MS: Final = 1_000

Refusal = FunctionFailed | RecordsRefused


@dataclass(frozen=True, slots=True)
class LetterTarget:
    """`topic`: of all letters; None: one for each topic."""

    connection: Connection
    topic: str | None = None


class RefusedRecords:
    """Those of one task.  `target` None: a load without dead letters.

    with RefusedRecords(target) as refused:
        for batch in batches:
            refused.take(batch, times, store)
    """

    def __init__(self, target: LetterTarget | None) -> None:
        self._target = target
        self._letters: DeadLetters | None = None
        self.counts: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._letters is not None:
            self._letters.close()

    def take(
        self, batch: pa.RecordBatch, times: pa.Array | None, store: Callable[[pa.RecordBatch, pa.Array | None], None]
    ) -> None:
        """`store` the records that it does not refuse, in parts; the others are stored as letters when this returns.

        A call of `store` that raises has stored nothing.  Without dead letters the first refusal is raised, as
        `RecordsRefused`; columns of all records together as `ColumnsRefused`.  A function that gives no columns, or
        those of a taken name, is refused with dead letters, too, also where another record fails first.
        """
        found: list[tuple[pa.RecordBatch, Refusal]] = []
        single: list[tuple[pa.RecordBatch, pa.Array | None, Refusal]] = []
        self._divide(batch, times, store, found, single)
        # After the larger parts: the first that is stored decides a new column's type for the others.
        for record, time, refusal in single:
            self._divide(record, time, store, found, single, refusal)
        if not found:
            return
        for _, refusal in found:
            reason = reason_of(refusal)
            self.counts[reason] = self.counts.get(reason, 0) + 1
        failures = [(message_of(record), _error_of(refusal)) for record, refusal in found]
        self._opened().put_all(failures)

    def _divide(
        self,
        batch: pa.RecordBatch,
        times: pa.Array | None,
        store: Callable[[pa.RecordBatch, pa.Array | None], None],
        found: list[tuple[pa.RecordBatch, Refusal]],
        single: list[tuple[pa.RecordBatch, pa.Array | None, Refusal]],
        of_all: Refusal | None = None,
    ) -> None:
        """Halves of halves: one bad record of 10,000 costs some 28 calls.

        `of_all`: what all of the records were refused for.  With dead letters parts of one record are left in `single`.
        """
        try:
            store(batch, times)
        except (FunctionFailed, RecordsRefused) as error:
            refusal: Refusal = error
            if isinstance(error, ColumnsRefused):
                if isinstance(error, FunctionRefused) or (of_all is None and self._target is None):
                    error.place = topic, partition, offset = _place_of(batch)
                    error.add_note(
                        f"for {counted(batch.num_rows, 'record')} together, "
                        f"the first at offset {offset} of {topic} partition {partition}"
                    )
                    raise
                # In a part the values of a column may all be null, and have no type.
                if of_all is not None:
                    refusal = of_all if self._target is None else _of_part(error, of_all)
            count = batch.num_rows
            if count > 1:
                half = count // 2
                for start, length in ((0, half), (half, count - half)):
                    part = None if times is None else times.slice(start, length)
                    if length == 1 and self._target is not None:
                        single.append((batch.slice(start, length), part, refusal))
                    else:
                        self._divide(batch.slice(start, length), part, store, found, single, refusal)
            elif self._target is None:
                raise refused(batch, refusal) from None
            else:
                found.append((batch, refusal))

    def _opened(self) -> DeadLetters:
        if self._letters is None:
            assert self._target is not None
            connection = self._target.connection
            self._letters = DeadLetters(
                connection.bootstrap, topic=self._target.topic, stage=STAGE, security=connection.security.settings()
            )
        return self._letters


def refused(record: pa.RecordBatch, refusal: Refusal) -> RecordsRefused:
    """What a load raises for one record; a function's traceback is a note of it."""
    if isinstance(refusal, RecordsRefused):
        return refusal
    cause = _error_of(refusal)
    topic, partition, offset = _place_of(record)
    error = RecordsRefused(
        f"{refusal.function} failed for the record at offset {offset} of {topic} partition {partition}: "
        f"{error_class_of(cause)}: {cause}",
        hint="let it give null for such a record, or set such records aside as dead letters",
        reason=refusal.function,
        place=(topic, partition, offset),
    )
    error.add_note(trace_of(cause, CALLER_FILE))
    return error


def _place_of(records: pa.RecordBatch) -> tuple[str, int, int]:
    """Topic, partition and offset of the first one."""
    topic, partition, offset = (records.column(name)[0].as_py() for name in PLACE_COLUMNS)
    return topic, partition, offset


def _of_part(error: ColumnsRefused, of_all: Refusal) -> RecordsRefused:
    if isinstance(of_all, ColumnsRefused):
        return error
    return RecordsRefused(error.args[0], hint=error.hint, reason=reason_of(of_all))


def reason_of(refusal: Refusal) -> str:
    return refusal.function if isinstance(refusal, FunctionFailed) else refusal.reason


def _error_of(refusal: Refusal) -> BaseException:
    if isinstance(refusal, RecordsRefused):
        return refusal
    assert refusal.__cause__ is not None
    return refusal.__cause__


def message_of(record: pa.RecordBatch) -> Message:
    """Of one record, with its headers where they were read."""
    found: dict[str, Any] = {name: record.column(name)[0].as_py() for name in ("key", "value", *PLACE_COLUMNS)}
    time_us = record.column("timestamp").cast(pa.int64())[0].as_py()
    headers = record.column("headers")[0].as_py() if "headers" in record.schema.names else None
    return Message(
        found["topic"],
        found["partition"],
        found["offset"],
        NO_TIMESTAMP if time_us is None else time_us // _US_PER_MS,
        found["key"],
        found["value"],
        tuple((each["key"], each["value"]) for each in headers or ()),
    )
