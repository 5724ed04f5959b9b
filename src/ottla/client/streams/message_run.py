"""Messages of a batch, a run at a time, which knows how far it was read: also when asked from another thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import length_hint
from typing import Any, TypeAlias, cast

from ottla.client.fetching.messages import Message, messages_of_columns
from ottla.client.streams.errors import PoisonMessage
from ottla.model.errors import WireError
from ottla.model.identifiers import TopicPartition
from ottla.records.header import read_header
from ottla.records.record import Headers
from ottla.records.record_run import RecordRun, read_runs

Deserializer: TypeAlias = Callable[[bytes], Any]


class Deserializers:
    """Plain callables from bytes for keys and for values: applied to the columns of a run, item by item, on request.

    A null stays None.
    """

    def __init__(self, key: Deserializer | None, value: Deserializer | None) -> None:
        self._key = key
        self._value = value

    def columns(self, run: RecordRun, offsets: Iterable[int], headers: Iterable[Headers]) -> list[Iterable[object]]:
        """The columns of a message after topic and partition; `offsets` and `headers` replace the run's own."""
        return [
            offsets,
            run.timestamps_ms,
            _applied(self._key, run.keys),
            _applied(self._value, run.values),
            headers,
        ]


def _applied(deserializer: Deserializer | None, column: Sequence[bytes | None]) -> Iterable[object]:
    if deserializer is None:
        return column
    if None not in column:
        return map(deserializer, cast("Sequence[bytes]", column))
    return (None if content is None else deserializer(content) for content in column)


class MessageRun:
    """Messages of a run of records, each made when it is asked for.

    Nothing is counted for each message: its offset is taken from an iterator, which knows how many are left.
    """

    __slots__ = ("_deserializers", "_left", "_made_left", "_partition", "_run", "messages")

    def __init__(self, partition: TopicPartition, run: RecordRun, deserializers: Deserializers) -> None:
        self._partition = partition
        self._run = run
        self._deserializers = deserializers
        # The first and the last column of a message: between them a deserializer may stop everything.
        self._left = iter(run.offsets)
        self._made_left = iter(run.headers)
        self.messages: Iterator[Message[Any, Any]] = messages_of_columns(
            partition.topic, partition.partition, deserializers.columns(run, self._left, self._made_left)
        )

    @property
    def taken_count(self) -> int:
        """How many messages were taken, one that could not be read included."""
        return len(self._run.offsets) - length_hint(self._left)

    @property
    def has_left(self) -> bool:
        """Whether messages were not made: where `messages` has ended, a deserializer raised StopIteration."""
        return length_hint(self._made_left) > 0

    @property
    def last_taken(self) -> int:
        """The offset of the message that was taken last; before the first, of the first."""
        return self._run.offsets[max(0, self.taken_count - 1)]

    def poison(self, error: Exception) -> PoisonMessage:
        """For the message that was taken last: a deserializer raised `error`."""
        return PoisonMessage(self._partition, self.last_taken, "a deserializer failed", error)

    def from_last(self) -> MessageRun:
        """The message that was taken last, and those after it."""
        return MessageRun(self._partition, self._run.from_offset(self.last_taken), self._deserializers)

    def rest(self) -> MessageRun:
        """The messages after the one that was taken last, which could not be read."""
        return MessageRun(self._partition, self._run.from_offset(self.last_taken + 1), self._deserializers)


def message_runs(
    partition: TopicPartition, batch: memoryview, first_offset: int, deserializers: Deserializers, *, check_crc: bool
) -> Iterator[MessageRun]:
    """The runs of a whole batch, from `first_offset` on; none of a control batch.

    Raises PoisonMessage for a damaged batch, after the runs before the damage.
    """
    header = read_header(batch)
    if header.is_control:
        return
    offset = max(header.base_offset, first_offset)
    try:
        for run in read_runs(batch, check_crc=check_crc):
            if run.offsets[0] < first_offset:
                run = run.from_offset(first_offset)
            if run.offsets:
                yield MessageRun(partition, run, deserializers)
                offset = run.offsets[-1] + 1
    except WireError as error:
        raise PoisonMessage(partition, offset, "its batch is damaged", error) from error
