"""The consumer that a program polls: topics of a group, or partitions that the program assigns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from types import TracebackType
from typing import Any, Final

from ottla.client.fetching.messages import Message
from ottla.client.groups.group_types import GroupOffsets
from ottla.client.streams.connector_core import CLOSE_TIMEOUT_MS
from ottla.client.streams.consumer_api import (
    DEFAULT_MESSAGES_COUNT,
    ConsumerApi,
    ConsumerSession,
    Offsets,
    checked_count,
)
from ottla.client.streams.errors import ConsumerBusy
from ottla.client.streams.message_stream import COMMIT_TIMEOUT_MS, MessageStream
from ottla.client.streams.reading import CommitOutcome
from ottla.client.streams.settings import KeyT, ValueT
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import boottime_ns

_NS_PER_MS: Final = 1_000_000


class PolledStream(MessageStream[KeyT, ValueT]):
    """The stream of a consumer: all partitions that it reads.  One thread is in it at a time.

    A message counts as passed when the next one is requested, and those of `poll_many` when the next request is made.
    """

    def __init__(self, session: ConsumerSession, notify: Callable[[ConsumerSession], None]) -> None:
        super().__init__(session.engine, session.buffer, None, None, session.hold)
        self._session = session
        self._notify_user = notify
        self._turn = threading.Lock()

    def poll(self, timeout_ms: float | None) -> Message[Any, Any] | None:
        self._enter()
        try:
            if self._buffer.has_held:
                self._engine.pass_held(self._buffer)
            for message in self._messages:
                return message
            end_ns = None if timeout_ms is None else boottime_ns() + int(timeout_ms * _NS_PER_MS)
            while True:
                left_ms = None if end_ns is None else max(0.0, (end_ns - boottime_ns()) / _NS_PER_MS)
                messages = self._next_messages(left_ms)
                if messages is None:
                    return None
                # A batch may have no message to hand out.
                for message in messages:
                    return message
        finally:
            self._turn.release()

    def poll_many(self, messages_max: int, timeout_ms: float | None) -> list[Message[Any, Any]]:
        self._enter()
        taken: list[Message[Any, Any]] = []
        try:
            self._engine.begin_many(self._buffer)
            self._take_many(taken, messages_max, timeout_ms)
        except OttlaError:
            # It is raised by the next request again: those before it come first.
            if not taken:
                raise
        except BaseException:
            # They do not reach the caller.
            self._engine.take_back(self._buffer)
            raise
        finally:
            self._buffer.end_many()
            self._turn.release()
        return taken

    def _take_many(self, taken: list[Message[Any, Any]], messages_max: int, timeout_ms: float | None) -> None:
        end_ns = None if timeout_ms is None else boottime_ns() + int(timeout_ms * _NS_PER_MS)
        taken.extend(islice(self._messages, messages_max))
        while len(taken) < messages_max:
            left_ms = None if end_ns is None else max(0.0, (end_ns - boottime_ns()) / _NS_PER_MS)
            messages = self._next_messages(left_ms, holds=True, has_some=bool(taken))
            if messages is None:
                return
            taken.extend(islice(messages, messages_max - len(taken)))

    def _following(self) -> Iterator[Message[Any, Any]] | None:
        self._enter()
        try:
            return super()._following()
        finally:
            self._turn.release()

    def _enter(self) -> None:
        if not self._turn.acquire(blocking=False):
            raise ConsumerBusy("the consumer is being polled, by another thread or by the code around this callback")

    def notify_before_releases(self, outcome: CommitOutcome) -> None:
        """A commit waits for this, between two requests: partitions that are being given back wait for the user's code.

        In another thread than that which reads it does not run, nor for messages that are not committed yet.
        """
        if self._buffer.requester != threading.get_ident() or not self._turn.acquire(blocking=False):
            return
        try:
            if self._engine.await_releases(self._buffer, outcome):
                self._notify()
        finally:
            self._turn.release()

    def _notify(self) -> None:
        self._notify_user(self._session)


class Consumer(ConsumerApi[KeyT, ValueT]):
    """Reads topics as one of a group's members, or partitions that the program assigns.

        with Consumer("localhost:9092", group="mailer", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["page-views"])
            while True:
                message = consumer.poll(timeout_ms=1_000)
                if message is not None:
                    print(message.topic, message.partition, message.offset, message.value)

    Messages come from `poll`, `poll_many`, and by iterating over the consumer.  At least once: a message counts as
    processed when the next one is requested, those of `poll_many` with the next call, or when `commit` is called;
    `close` alone does not count those that were returned last.

    One thread at a time reads: another one gets ConsumerBusy, as does a callback that polls.  By iteration the consumer
    is busy between two batches only, so that a message costs no lock: two threads that iterate at a time are noticed
    at the end of a batch, or by Python ("generator already executing").  The other methods may be called from any
    thread; `close` ends a `poll` that waits, which then returns None.

    group                     its name; without one only `assign` reads, and nothing is committed
    auto_offset_reset         where to start without a committed offset, or when it is not in the log any more:
                              "latest", "earliest", or "error", which `poll` raises
    enable_auto_commit        commit what was processed every `auto_commit_interval_ms`, and when partitions are given
                              back; without it only `commit` does, but for the place where a group without an
                              offset starts: "latest" would be another one at the next start
    isolation_level           "read_uncommitted", or "read_committed": messages of transactions when they are committed,
                              and none of aborted ones
    key_deserializer,         called with the bytes of a key or a value; a null stays None.  An error of theirs is
    value_deserializer        raised as a PoisonMessage
    group_instance_id         of a static member (KIP-345): closed, it keeps its partitions for the session timeout, and
                              gets them again when it is back by then.  One process at a time has the id
    max_poll_interval_ms      a rebalance waits so long for this consumer's next poll, in which it gives partitions
                              back; then they are lost to it
    session_timeout_ms,       the group removes a member that it has not heard of for so long; a member sends its
    heartbeat_interval_ms     heartbeats so often, in a thread.  With KIP-848 the broker decides both
    group_protocol            "auto", "consumer" (KIP-848) or "classic"
    stream_buffer_bytes       so much is fetched ahead, as it is stored
    max_partition_fetch_bytes, fetch_max_bytes, fetch_min_bytes, fetch_max_wait_ms, check_crcs, metadata_max_age_ms,
    request_timeout_ms, client_id   as in Kafka
    connection_timeout_ms     when no broker can be reached for so long at first, `poll` raises that; once there was
                              contact, it is tried again for ever
    security                  TLS and SASL: a mapping of librdkafka's or Kafka's names, or a `ClientSecurity`
    interceptors              of `ottla.interceptors.ConsumerInterceptor`: code that sees messages before they are
                              returned, and commits
    on_statistics             called with `metrics()` every `statistics_interval_ms`, on a thread of the consumer

    Raises ConfigError for a setting that cannot be used.
    """

    _stream: PolledStream[KeyT, ValueT] | None = None

    def __enter__(self) -> Consumer[KeyT, ValueT]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _on_session(self, session: ConsumerSession) -> None:
        self._stream = PolledStream(session, _notify)

    def _polled(self) -> PolledStream[KeyT, ValueT]:
        self._opened()
        assert self._stream is not None
        return self._stream

    def poll(self, timeout_ms: float | None = None) -> Message[KeyT | None, ValueT | None] | None:
        """The next message; None when none comes within `timeout_ms` (None: it waits), or the consumer is closed.

        The message before it counts as processed.  The callbacks of `subscribe` run in here.

        Raises PoisonMessage for a message that cannot be read, at each call until `skip` or `seek`; NoPosition;
        ConsumerBusy; ConsumerClosed; BrokerUnreachable, where no broker is reached at first; BrokerRefused for what
        time does not mend, such as a right that is missing.
        """
        message = self._polled().poll(timeout_ms)
        return message if message is None or self._interceptors is None else self._interceptors.on_message(message)

    def poll_many(
        self, max_messages: int = DEFAULT_MESSAGES_COUNT, timeout_ms: float | None = None
    ) -> list[Message[KeyT | None, ValueT | None]]:
        """The messages that are there, up to so many, of all partitions; it waits as `poll` does for the first.

        All of them count as processed with the next call, or `commit`.  Each partition's are in order.
        """
        messages = self._polled().poll_many(checked_count(max_messages), timeout_ms)
        return messages if self._interceptors is None else self._interceptors.on_consume(messages)

    def __iter__(self) -> Iterator[Message[KeyT | None, ValueT | None]]:
        """`for message in consumer`: it waits for each, and ends when the consumer is closed or unsubscribed."""
        messages = iter(self._polled())
        return messages if self._interceptors is None else map(self._interceptors.on_message, messages)

    def commit(
        self,
        message: Message[Any, Any] | None = None,
        *,
        offsets: Offsets | None = None,
        wait: bool = True,
        timeout_ms: int | None = COMMIT_TIMEOUT_MS,
    ) -> None:
        """Commit all that was returned; or up to `message`, in its partition; or these offsets, each the next to read.

        Raises CommitFailed when it was not committed, or is not known to be within `timeout_ms`.  With `wait=False` it
        returns at once, and a failure is logged only.  Raises NotAssigned for a partition that the group has given to
        others meanwhile, ConfigError without a group.

        A partition that is being given back is committed with that.  If the commit includes all that was returned, and
        waits, `on_revoke` runs in here, as it does in `poll`; else in the next `poll`, and RebalanceInProgress, a
        CommitFailed, is raised.
        """
        engine, stream = self._of_group().engine, self._polled()
        outcome = self._request_commit(message, offsets)
        if wait:
            stream.notify_before_releases(outcome)
            engine.wait_for(outcome, timeout_ms)
            engine.check_not_deferred(outcome)

    def group_offsets(self, *, timeout_ms: int | None = COMMIT_TIMEOUT_MS) -> GroupOffsets:
        """What was returned since the last call, for `Producer.send_offsets_to_transaction`.

        After an aborted transaction `seek` back to its first messages.  Raises NotAssigned when the group has given a
        partition to another member meanwhile: abort then.  ConfigError with automatic commits or without a group;
        CommitFailed while an earlier commit is not answered.
        """
        session = self._of_group()
        session.engine.mark_all_done(session.buffer)
        return session.engine.group_offsets([session.buffer], timeout_ms)

    def committed(self, partitions: Iterable[tuple[str, int]] | None = None) -> dict[TopicPartition, int | None]:
        """The group's committed offsets of these partitions, or of the assignment; None: it has none."""
        self._check_group()
        return self._open_queries().committed(self._named(partitions))

    def beginning_offsets(self, partitions: Iterable[tuple[str, int]] | None = None) -> dict[TopicPartition, int]:
        """The first offset in the log of each of these partitions, or of the assignment.  Raises UnknownTopic."""
        return self._open_queries().starts(self._named(partitions))

    def end_offsets(self, partitions: Iterable[tuple[str, int]] | None = None) -> dict[TopicPartition, int]:
        """The offset after the last readable message of each; with "read_committed" before open transactions."""
        return self._open_queries().ends(self._named(partitions))

    def offsets_for_times(
        self, times: Mapping[TopicPartition, datetime | int] | Mapping[tuple[str, int], datetime | int]
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after each time, a `datetime` or ms since 1970; None: there is none."""
        return self._open_queries().at_times(self._named_times(times))

    def lag(self) -> dict[TopicPartition, int | None]:
        """How many offsets each partition's position is before its end; None while the position is not known."""
        return self._open_queries().lags(self.positions())

    def partitions_for(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic.  Raises UnknownTopic."""
        return self._open_queries().partitions_of(topic)

    def topics(self) -> list[str]:
        """The topics that this client may describe, internal ones too."""
        return self._open_queries().topics()

    def unsubscribe(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Leave the group, or give up what was assigned, as `close` does; `subscribe` or `assign` may follow."""
        self._check_open()
        self._end(timeout_ms)

    def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Leave the group: what was processed is committed, partitions are given back, `on_revoke` has run.

        It waits up to `timeout_ms` for the group.  `with` does the same.
        """
        try:
            self._end(timeout_ms)
        finally:
            self._is_closed = True
            self._queries.close()

    def _end(self, timeout_ms: int) -> None:
        session = self._session
        if session is None:
            return
        try:
            # The callbacks may still commit.
            session.core.close(timeout_ms, threading.get_ident(), lambda: _notify(session))
        finally:
            self._session = None


def _notify(session: ConsumerSession) -> None:
    """Run the user's code for what has changed; the first error of it is raised when all has run."""
    changes, calls = session.take_calls()
    first: Exception | None = None
    try:
        for call in calls:
            try:
                call()
            except Exception as error:  # noqa: BLE001 (the others must run, too)
                first = first or error
    finally:
        session.engine.on_notified(session.buffer, changes.revoked)
    if first is not None:
        raise first
