"""One partition by its offsets: the paper's low level, without a group, a thread or anything read ahead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Generic, Literal

from ottla.client.fetching.fetch_requests import FetchedPartition, committed_batches, fetch_raw
from ottla.client.fetching.messages import Message
from ottla.client.fetching.offsets import EARLIEST, LATEST, Isolation, isolation_level_of, list_offsets
from ottla.client.streams.errors import PoisonMessage
from ottla.client.streams.message_run import Deserializers, MessageRun, message_runs
from ottla.client.streams.seek_target import question_of, timestamp_ms_of
from ottla.client.streams.settings import KeyT, ValueT
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.destination.arguments import destination_and_security
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.other_clients import refuse_mapping
from ottla.client.wire.security.settings import ClientSecurity
from ottla.model.errors import ConfigError
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from ottla.model.limits import MIB


class SimpleConsumer(Generic[KeyT, ValueT]):
    """Reads one partition from offsets that the caller names; it keeps no position and commits nothing.

        with SimpleConsumer("localhost:9092", "page-views", 0) as consumer:
            offset = consumer.earliest()
            while messages := consumer.fetch(offset):
                offset = messages[-1].offset + 1

    Deserializers are called with the bytes of a key or a value; a null stays None.  With `isolation_level`
    "read_committed" messages of aborted transactions are left out, and it reads up to the first that is open.
    `bootstrap` None: chosen as for `ottla.Producer`.  `security`: TLS and SASL, a mapping of librdkafka's or Kafka's
    names or a `ClientSecurity`.  Not for several threads at once.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None,
        topic: str,
        partition: int,
        *,
        key_deserializer: Callable[[bytes], KeyT] | None = None,
        value_deserializer: Callable[[bytes], ValueT] | None = None,
        check_crcs: bool = True,
        isolation_level: Isolation = "read_uncommitted",
        client_id: str = "ottla",
        security: ClientSecurity | Mapping[str, object] | None = None,
    ) -> None:
        if isinstance(bootstrap, Mapping):
            refuse_mapping("SimpleConsumer", bootstrap, {"client_id", "isolation_level", "check_crcs"})
        destination, checked = destination_and_security(bootstrap, security)
        self._cluster = Cluster(destination, ClientOptions(client_id=client_id, security=checked))
        self._partition = TopicPartition(topic, partition)
        self._deserializers = Deserializers(key_deserializer, value_deserializer)
        self._check_crcs = check_crcs
        self._isolation = isolation_level_of(isolation_level)

    def __enter__(self) -> SimpleConsumer[KeyT, ValueT]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._cluster.close()

    def fetch(
        self, offset: int, max_bytes: int = 1 * MIB, *, max_wait_ms: int = 500, timeout_ms: float | None = None
    ) -> list[Message[KeyT | None, ValueT | None]]:
        """Messages from `offset` on: about `max_bytes` of them as they are stored, but at least one.

        Waits up to `max_wait_ms` for the first; empty when there is none.  Raises `CallTimedOut` when no broker has
        answered within `timeout_ms` (a minute).  The next fetch begins at the last message's
        `offset + 1`.  Raises `OffsetOutOfRange`, `UnknownTopic`, and `PoisonMessage` when the first message cannot be
        read (one further on ends the list before it).
        """
        if question_of(offset) is not None:
            raise ConfigError(f"{offset!r} is not an offset", hint="earliest() and offset_at(time) give one")
        if max_bytes < 1:
            raise ConfigError(f"max_bytes is {max_bytes}", hint="it is at least 1")
        topic, partition = self._partition
        deadline = self._cluster.retrying.deadline(timeout_ms)
        while True:
            fetched = fetch_raw(
                self._cluster,
                topic,
                partition,
                offset,
                max_bytes=max_bytes,
                max_wait_ms=max_wait_ms,
                isolation=self._isolation,
                timeout_ms=deadline.remaining_ms,
            )
            messages = self._messages(fetched)
            # Batches of nothing but transaction markers, of aborted transactions, or that compaction has emptied, are
            # no messages.
            if messages or not len(fetched.records):
                return messages
            offset = fetched.next_offset

    def earliest(self) -> int:
        """The first offset that can be read."""
        return self._offset_of(EARLIEST)

    def latest(self) -> int:
        """The end of what can be read: the offset of the next message."""
        return self._offset_of(LATEST)

    def offset_at(self, time: datetime | int) -> int | None:
        """The offset of the first message with this timestamp (in ms, or a `datetime`) or a later one; None without."""
        offset = self._offset_of(timestamp_ms_of(time))
        return None if offset == NO_OFFSET else offset

    def offsets_before(self, time: datetime | int | Literal["earliest", "latest"], max_count: int = 1) -> list[int]:
        """Up to `max_count` offsets to read from what was sent before `time`, the newest first: getOffsetsBefore.

        The first is the end of what was sent before: that of the first message with this timestamp or a later one.  The
        last one, if there are two or more, is the earliest that can be read; those between are evenly spread.
        """
        if max_count < 1:
            raise ConfigError(f"max_count is {max_count}", hint="ask for at least one offset")
        earliest = self.earliest()
        if time == "earliest":
            return [earliest]
        newest = self.latest()
        if time != "latest":
            at = self._offset_of(timestamp_ms_of(time))
            newest = newest if at == NO_OFFSET else at
        # The records between may have been deleted since.
        span = max(0, newest - earliest)
        steps_count = min(max_count - 1, span)
        return [newest - span * step // steps_count for step in range(steps_count + 1)] if steps_count else [newest]

    def _offset_of(self, question: int) -> int:
        answers = list_offsets(self._cluster, {self._partition: question}, isolation=self._isolation)
        return answers[self._partition].offset

    def _messages(self, fetched: FetchedPartition) -> list[Message[KeyT | None, ValueT | None]]:
        messages: list[Message[KeyT | None, ValueT | None]] = []
        try:
            for batch in committed_batches(fetched):
                for run in message_runs(
                    self._partition, batch, fetched.fetch_offset, self._deserializers, check_crc=self._check_crcs
                ):
                    _take(run, messages)
        except PoisonMessage:
            if not messages:
                raise
        return messages


def _take(run: MessageRun, messages: list[Message[KeyT | None, ValueT | None]]) -> None:
    try:
        messages += run.messages
    except Exception as error:
        raise run.poison(error) from error
    if run.has_left:
        raise run.poison(RuntimeError("it raised StopIteration"))
