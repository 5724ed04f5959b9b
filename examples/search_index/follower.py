"""Reads a topic's partitions on from where the index is, for as long as the program runs.

The offsets are the index's own: no group is joined, and nothing is committed to the brokers.  The topic is read by its
id, so that another one of its name cannot be taken for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, NamedTuple, Self

from ottla.client.fetching.fetch_machine import FetchFailure
from ottla.client.fetching.fetch_requests import FetchedPartition, FetchLimits
from ottla.client.fetching.fetcher import Fetcher
from ottla.client.fetching.messages import Message
from ottla.client.fetching.offsets import log_ranges
from ottla.client.streams.message_run import Deserializers, message_runs
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError, OffsetOutOfRange, TopicRecreated, UnknownTopic
from ottla.client.wire.options import ClientOptions
from ottla.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.model.limits import MIB

from .index import Advance, LogIndex, Position, TopicId

# How soon new partitions are found, and how long a call to brokers that are away holds up the end of the program.
OPTIONS: Final = ClientOptions(
    "search-index", metadata_max_age_ms=2_000, call_timeout_ms=5_000, unknown_topic_wait_ms=1_000
)
LIMITS: Final = FetchLimits(max_bytes=4 * MIB, partition_max_bytes=1 * MIB, check_crc=True)
_AS_BYTES: Final = Deserializers(None, None)


class LogLost(OttlaError):
    """The log ends before what was indexed, and it is the same topic: the brokers have lost records."""


class Part(NamedTuple):
    """Messages of a partition from `position.next_offset` up to `next_offset`."""

    position: Position
    next_offset: int
    messages: list[Message]


class Follower:
    """`say` receives what a person should know: a recreated topic, deleted records, unreachable brokers."""

    def __init__(self, cluster: Cluster, topic: str, index: LogIndex, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._name = topic
        self._index = index
        self._say = say
        self._topic: TopicId | None = None
        self._fetcher: Fetcher | None = None
        self._positions: dict[TopicPartition, Position] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._trouble = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    @property
    def behind(self) -> int:
        """How many offsets were not indexed yet, as the last fetches said."""
        return sum(max(0, end - self._positions[place].next_offset) for place, end in self._ends.items())

    @property
    def is_at_end(self) -> bool:
        """Whether everything is indexed that was there when the partitions were found, or in later fetches."""
        return self._fetcher is not None and self.behind == 0

    def poll(self, wait_ms: float) -> list[Part]:
        """What has come, or comes within `wait_ms`; pass each part to `advanced` before the next call.

        Brokers and topics that are away are waited for.  Raises `LogLost`, `PoisonMessage` (a damaged batch).
        """
        try:
            fetcher = self._open()
            outcomes = fetcher.poll_each(wait_ms)
            parts = [self._part(each) for each in outcomes if isinstance(each, FetchedPartition)]
            for failure in outcomes:
                if isinstance(failure, FetchFailure):
                    self._on_failure(failure)
        except ClientError as error:
            self._wait_or_raise(error)
            return []
        if parts:
            self._trouble = ""
        return parts

    def advanced(self, positions: Iterable[Position]) -> None:
        """The index is at these positions now."""
        for position in positions:
            self._positions[TopicPartition(self._name, position.partition)] = position

    def _open(self) -> Fetcher:
        """The reader of all partitions that there are now."""
        if self._fetcher is None:
            self._cluster.forget([self._name])
        found = self._cluster.topic(self._name)
        topic = TopicId(self._cluster.info.cluster_id or "", self._name, found.topic_id)
        if self._fetcher is None or self._topic is None:
            self._tell_if_made_anew(topic)
            self._topic, self._positions, self._ends = topic, {}, {}
            self._fetcher = Fetcher(self._cluster, {}, topic_ids={self._name: topic.id}, limits=LIMITS)
        if topic == self._topic:
            places = [TopicPartition(self._name, number) for number in found.partitions]
            self._begin(self._fetcher, self._topic, [place for place in places if place not in self._positions])
        return self._fetcher

    def _begin(self, fetcher: Fetcher, topic: TopicId, places: list[TopicPartition]) -> None:
        if not places:
            return
        for place, log in log_ranges(self._cluster, places).items():
            position = self._index.begin(topic, place.partition, log.start)
            self._positions[place], self._ends[place] = position, log.stop
            fetcher.seek(place, position.next_offset)

    def _tell_if_made_anew(self, topic: TopicId) -> None:
        ids = {each.topic.id for each in self._index.positions() if each.topic[:2] == topic[:2]}
        if ids and topic.id not in ids:
            self._say(
                f"{self._name} was deleted and recreated since it was indexed: the new topic is read from its "
                "beginning, and the lines of the former one stay in the index"
            )

    def _part(self, fetched: FetchedPartition) -> Part:
        place = fetched.partition
        messages = [
            message
            for batch in fetched.batches()
            for run in message_runs(place, batch, fetched.fetch_offset, _AS_BYTES, check_crc=False)
            for message in run.messages
        ]
        self._ends[place] = fetched.high_watermark
        position = self._positions[place]
        assert position.next_offset == fetched.fetch_offset, "what was fetched before was indexed"
        return Part(position, fetched.next_offset, messages)

    def _on_failure(self, failure: FetchFailure) -> None:
        if isinstance(failure.error, OffsetOutOfRange):
            self._on_out_of_range(failure)
            return
        if isinstance(failure.error, TopicRecreated):
            self._close()  # there is more to say when the new one is opened
        else:
            self._wait_or_raise(failure.error)

    def _on_out_of_range(self, failure: FetchFailure) -> None:
        place, offset = failure.partition, failure.offset
        log = log_ranges(self._cluster, [place])[place]
        (found,) = self._cluster.refresh([self._name])
        if self._topic is None or self._fetcher is None or found.topic_id != self._topic.id:
            self._close()  # that was the log of another topic
            return
        if offset > log.stop:
            raise LogLost(
                f"{place} was indexed up to offset {offset}, and its log ends at {log.stop}",
                hint="the brokers have lost records; index the topic into a new file, or continue with another topic",
            )
        if offset < log.start:
            self._say(f"{place}: offsets {offset} to {log.start - 1} were deleted before they could be indexed")
            self.advanced(self._index.add([Advance(self._positions[place], log.start, [])]))
        self._fetcher.seek(place, max(offset, log.start))

    def _wait_or_raise(self, error: OttlaError) -> None:
        """Brokers come back, and topics are created; other errors are permanent."""
        if not (isinstance(error, UnknownTopic) or (isinstance(error, ClientError) and error.is_retriable)):
            raise error
        self._close()
        text = f"{error}; trying again"
        if text != self._trouble:  # once, and not at each attempt
            self._trouble = text
            self._say(text)

    def _close(self) -> None:
        if self._fetcher is not None:
            self._fetcher.close()
            self._fetcher = None
