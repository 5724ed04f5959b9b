"""Errors between record batches, a cluster and Spark, each with what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, WireError

P = ParamSpec("P")
T = TypeVar("T")


def first_line(error: Exception) -> str:
    """Of an error of Spark, whose other lines are the query's plan."""
    return str(error).strip().partition("\n")[0].rstrip(";")


def with_brief_errors(function: Callable[P, T]) -> Callable[P, T]:
    """For what Spark calls.  It shows its user a failure as the text of Python's traceback, so an error that says what
    was wrong comes without our frames, and with its hint."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except OttlaError as error:
            raise error.with_traceback(None) from None

    return called


def rows_with_brief_errors(function: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """The same for what it iterates over."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from function(*args, **kwargs)
        except OttlaError as error:
            raise error.with_traceback(None) from None

    return called


class CorruptRecords(WireError):
    """Fetched bytes are not valid record batches; names topic, partition and the offset where reading stopped."""

    error_code = ErrorCode.CORRUPT_MESSAGE
    hint = "nothing of this batch was read; the partition's log is damaged or the peer is not a Kafka broker"

    def __init__(self, topic: str, partition: int, offset: int, problem: str) -> None:
        super().__init__(f"topic {topic!r} partition {partition}, at offset {offset}: {problem}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.problem = problem

    def with_advice(self, advice: str) -> CorruptRecords:
        """The same with what to do in its text: Spark shows its user nothing else."""
        return CorruptRecords(self.topic, self.partition, self.offset, f"{self.problem}; {advice}")

    def __reduce__(self) -> tuple[type[CorruptRecords], tuple[str, int, int, str]]:
        return type(self), (self.topic, self.partition, self.offset, self.problem)


class UnreadableElement(Exception):
    """Inside the decoder only: the element with this index breaks the format; becomes `CorruptRecords` there."""

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(f"element {index}: {problem}")
        self.index = index
        self.problem = problem


class SparkUserError(OttlaError):
    """Spark shows its user only `str(error)`, so the hint is part of it."""

    def __str__(self) -> str:
        message = super().__str__()
        return message if self.hint is None else f"{message}; {self.hint}"


class SparkOptionError(SparkUserError):
    """An option of the data source is unknown, malformed, or contradicts another; the message names it."""

    error_code = ErrorCode.INVALID_CONFIG


class NotInThisSpark(SparkOptionError):
    """What an option requests needs a later Spark than the one that runs; the message has both versions."""


class DataLoss(SparkUserError):
    """Records that a query should read are gone (deleted by retention, or the topic was recreated)."""

    hint = "set the option failOnDataLoss to false to continue with the remaining records, or start a new query"


class BadCheckpoint(SparkUserError):
    """A stream's checkpoint does not hold offsets of this source, or those of a newer version."""

    hint = "start a new query with another checkpointLocation"


class ReadTimedOut(SparkUserError):
    """Records did not come in time.  Nothing is known to be lost; the same read may succeed later."""

    hint = (
        "the read can be repeated, nothing was skipped; start the broker, or allow more time with "
        "the option kafka.default.api.timeout.ms"
    )


class UnencodableColumn(SparkUserError):
    """A column for the sink has a type or a value that a Kafka record cannot hold."""


class NotWritten(SparkUserError):
    """The cluster refused a batch of the sink, or its outcome is unknown; the task fails and may be retried."""


class LakeError(SparkUserError):
    """A change of a lake table failed.

    Its commit is not in the table, unless the message says that it is.  Those that the load made before stay; another
    run continues after them.
    """


class TableRefused(LakeError):
    """The table is not one into which a load with these settings can write."""


class RecordsRefused(LakeError):
    """Records that no load with these settings can load: a repetition would not help.

    A function of the user failed for them, they have no key, or are no events of the table's changes.  A load with dead
    letters sets them aside.  `reason`: a word, by which they are counted.  `place`: topic, partition and offset of the
    first one, where a load has found it.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        reason: str = "change",
        place: tuple[str, int, int] | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason
        self.place = place


class ColumnsRefused(RecordsRefused):
    """Columns that the table does not take, of a batch of records: one of them may be the cause, or all are."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, reason="columns")


class FunctionRefused(ColumnsRefused):
    """A function of the user gives no columns at all, or one with a name that is taken.

    No record is the cause, and no dead letter would help.
    """
