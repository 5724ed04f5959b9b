"""Messages: records with their partition and offset, and those of a topic between two offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import Any, Final, Generic, NamedTuple

from typing_extensions import TypeVar

from ottla.client.fetching.fetch_requests import committed_batches
from ottla.client.fetching.fetcher import Fetcher
from ottla.client.fetching.offsets import IsolationLevel, log_ranges
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import OffsetOutOfRange
from ottla.model.identifiers import TopicPartition
from ottla.records.record import Headers, check_batch
from ottla.records.record_run import RecordRun, read_runs

KeyT = TypeVar("KeyT", default=bytes | None)
ValueT = TypeVar("ValueT", default=bytes | None)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# A key or value is shown up to so many characters.
_SHOWN_CHARS_MAX: Final = 80


class Message(NamedTuple, Generic[KeyT, ValueT]):
    """One message of a partition; immutable.

    Without deserializers `key` and `value` are the bytes that were sent; None is a null, which is not b"".
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: KeyT
    value: ValueT
    headers: Headers = ()

    @property
    def timestamp(self) -> datetime | None:
        """`timestamp_ms` as a time in UTC; None without one, or beyond what a `datetime` holds."""
        if self.timestamp_ms < 0:
            return None
        try:
            return _EPOCH + timedelta(milliseconds=self.timestamp_ms)
        except OverflowError:
            return None

    def header(self, name: str) -> bytes | None:
        """The last header called `name`; None without one (or with a null)."""
        return next((content for each, content in reversed(self.headers) if each == name), None)

    def __repr__(self) -> str:
        shown = f"key={_shown(self.key)}, value={_shown(self.value)}"
        headers = f", headers={_shown(self.headers)}" if self.headers else ""
        return (
            f"Message({self.topic}-{self.partition}@{self.offset}, timestamp_ms={self.timestamp_ms}, {shown}{headers})"
        )


def messages_of(topic: str, partition: int, run: RecordRun) -> Iterator[Message]:
    """The messages of a run, each made when the iterator reaches it."""
    return messages_of_columns(topic, partition, run)


def messages_of_columns(topic: str, partition: int, columns: Iterable[Iterable[object]]) -> Iterator[Message[Any, Any]]:
    """Messages from the columns of a `RecordRun`; keys and values may be of any type.

    Each message takes one item of each column, in their order.
    """
    # Calling the class would run Python's code for every message, and take twice as long.
    return map(tuple.__new__, repeat(Message), zip(repeat(topic), repeat(partition), *columns))


def messages_between(
    cluster: Cluster,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Iterator[Message]:
    """The messages from `starts` up to `ends` (exclusive), each partition's in order, without control records.

    What retention deletes meanwhile is left out.  READ_COMMITTED waits for the ends of transactions that are open below
    `ends`, and leaves aborted messages out.
    """
    positions = {partition: offset for partition, offset in starts.items() if offset < ends[partition]}
    if not positions:
        return
    with Fetcher(cluster, positions, ends, isolation=isolation) as fetcher:
        while not fetcher.is_finished:
            try:
                fetched = fetcher.poll(cluster.options.request_timeout_ms)
            except OffsetOutOfRange as error:
                partition = error.partition
                log_start = log_ranges(cluster, [partition])[partition].start
                if log_start <= error.offset:
                    raise  # the log became shorter: what was below `ends` is lost
                fetcher.seek(partition, log_start)
                continue
            for part in fetched:
                topic, number = part.partition
                end = ends[part.partition]
                for batch in committed_batches(part):
                    if check_batch(batch).is_control:
                        continue
                    for run in read_runs(batch):
                        for message in messages_of(topic, number, run.from_offset(part.fetch_offset)):
                            if message.offset < end:
                                yield message


def _shown(content: object) -> str:
    """`content`, cut where it is long; a large one is cut before it is written out."""
    if isinstance(content, bytes) and len(content) > _SHOWN_CHARS_MAX:
        return f"{content[:_SHOWN_CHARS_MAX]!r}... ({len(content):,} bytes)"
    text = repr(content)
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}... ({len(text):,} characters)"
