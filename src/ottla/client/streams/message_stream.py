"""A stream of messages: an iterator that never ends, over the partitions that its consumer has of the group."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain
from typing import Any, Final, Generic

from ottla.client.fetching.messages import Message
from ottla.client.groups.group_types import GroupOffsets
from ottla.client.streams.connector_core import ConnectorHold
from ottla.client.streams.consume_machine import StreamEnded
from ottla.client.streams.engine import StreamsEngine
from ottla.client.streams.errors import PoisonMessage
from ottla.client.streams.reading import CommitOutcome, HandOut
from ottla.client.streams.seek_target import Place, target_of
from ottla.client.streams.settings import KeyT, ValueT
from ottla.client.streams.stream_buffer import StreamBuffer
from ottla.model.errors import ConfigError
from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import boottime_ns

COMMIT_TIMEOUT_MS: Final = 60_000
# While nothing may be handed out, the lease is checked so often: no event announces it.
LEASE_POLL_S: Final = 0.02


def weakly(ring: Callable[[], None]) -> Callable[[], None]:
    """A call of a stream's method that does not keep the stream: the connector's threads have it."""
    method = weakref.WeakMethod(ring)

    def call() -> None:
        found = method()
        if found is not None:
            found()

    return call


class StreamApi(Generic[KeyT, ValueT]):
    """What a stream can do besides handing out; nothing here waits."""

    def __init__(
        self, engine: StreamsEngine, buffer: StreamBuffer, topics: Iterable[str] | None, hold: ConnectorHold | None
    ) -> None:
        self._engine = engine
        self._buffer = buffer
        self._hold = hold
        self._topics = None if topics is None else frozenset(topics)
        # The batch that is being handed out: the next loop continues it when one is left.
        self._messages: Iterator[Message[Any, Any]] = iter(())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._buffer.name}>"

    @property
    def partitions(self) -> list[TopicPartition]:
        """What it reads now; that changes as consumers come and go."""
        with self._engine.lock:
            return sorted(self._buffer.readings)

    @property
    def assignments_count(self) -> int:
        """How often the group has given it a partition so far."""
        return self._buffer.assignments_count

    def position(self, partition: int | tuple[str, int]) -> int | None:
        """What would be committed now: everything below was passed.  None while that is still to be found out.

        Raises NotAssigned.
        """
        return self._engine.position(self._buffer, self._named(partition))

    def seek(
        self,
        partition: int | tuple[str, int],
        to: Place | None = None,
        *,
        timestamp_ms: int | None = None,
    ) -> None:
        """Read a partition on from `to`: an offset, a `datetime`, "earliest" or "latest"; or from a timestamp.

        The partition is its number, or `(topic, number)`.  A time is that of the first message which has this timestamp
        or a later one.  What is handed out next comes from there, and so does what is committed: a `seek` back sets the
        committed offset back.  Raises NotAssigned.
        """
        self._engine.seek(self._buffer, [self._named(partition)], target_of(to, timestamp_ms))

    def seek_all(self, to: Place | None = None, *, timestamp_ms: int | None = None) -> None:
        """`seek` in all partitions that the stream reads now."""
        if isinstance(to, int):
            raise ConfigError("an offset is of one partition", hint="seek(partition, offset)")
        self._engine.seek(self._buffer, None, target_of(to, timestamp_ms))

    def skip(self) -> None:
        """Step over the message that cannot be read, or its damaged batch: after a PoisonMessage."""
        self._engine.skip(self._buffer)

    def _group_offsets(self, message: Message[Any, Any], timeout_ms: int | None) -> GroupOffsets:
        self._engine.mark_done(self._buffer, TopicPartition(message.topic, message.partition), message.offset)
        return self._engine.group_offsets([self._buffer], timeout_ms)

    def _request_commit(self, message: Message[Any, Any] | None) -> CommitOutcome:
        if message is not None:
            self._engine.mark_done(self._buffer, TopicPartition(message.topic, message.partition), message.offset)
        return self._engine.commit([self._buffer])

    def _named(self, partition: int | tuple[str, int]) -> TopicPartition:
        if isinstance(partition, tuple):
            return TopicPartition(*partition)
        if self._topics is None or len(self._topics) != 1:
            raise ConfigError(f"partition {partition} of which topic?", hint="seek((topic, partition), ...)")
        return TopicPartition(next(iter(self._topics)), partition)

    def _handed_out(self, hand_out: HandOut) -> Generator[Message[Any, Any], None, None]:
        """The messages of a batch.  All that a message costs, besides its decoding, is the loop in here."""
        clock_ns = boottime_ns
        try:
            for run in hand_out.take_runs():
                for message in run.messages:
                    if clock_ns() >= hand_out.until_ns and not self._engine.may_hand_out(self._buffer, hand_out):
                        return
                    yield message
                if run.has_left:
                    raise RuntimeError("it raised StopIteration")
        except PoisonMessage as damage:
            if self._engine.on_poison(self._buffer, hand_out, damage, is_of_one_message=False):
                raise
        except Exception as error:
            poison = hand_out.run.poison(error) if hand_out.run is not None else None
            if poison is None:
                raise
            if self._engine.on_poison(self._buffer, hand_out, poison, is_of_one_message=True):
                raise poison from error


class MessageStream(StreamApi[KeyT, ValueT]):
    """Iterate over it in one thread: `for message in stream`.  It waits while nothing is there.

    It ends when the connector is closed, or when `consumer_timeout_ms` pass without a message; in the latter case it
    can be iterated again.  Asking for the next message says that the one before is done: that is what is committed.
    Leaving the loop does not say so of the last one.
    """

    def __init__(
        self,
        engine: StreamsEngine,
        buffer: StreamBuffer,
        topics: Iterable[str] | None,
        consumer_timeout_ms: int | None,
        hold: ConnectorHold | None,
    ) -> None:
        super().__init__(engine, buffer, topics, hold)
        self._timeout_ms = consumer_timeout_ms
        self._bell = threading.Condition(engine.lock)
        self._is_rung = False
        buffer.ring_by(weakly(self._ring))

    def __iter__(self) -> Iterator[Message[KeyT | None, ValueT | None]]:
        # A chain asks for the next batch when the last one has ended, and lives on when a batch raises an error.
        return chain.from_iterable(_Batches(self._messages_now, self._following))

    def __next__(self) -> Message[KeyT | None, ValueT | None]:
        """The next message; raises StopIteration where a loop would end."""
        for message in self:
            return message
        raise StopIteration

    def commit(
        self,
        message: Message[Any, Any] | None = None,
        *,
        wait: bool = True,
        timeout_ms: int | None = COMMIT_TIMEOUT_MS,
    ) -> None:
        """Commit what was passed; with `message`, that it is done, too, and all before it of its partition.

        Raises CommitFailed when it was not committed, or is not known to be within `timeout_ms`.  With `wait=False` it
        returns at once, and a failure is logged only.  Raises NotAssigned for a message of a partition that the group
        has given to others meanwhile.
        """
        outcome = self._request_commit(message)
        if wait:
            self._engine.wait_for(outcome, timeout_ms)

    def group_offsets(self, message: Message[Any, Any], *, timeout_ms: int | None = COMMIT_TIMEOUT_MS) -> GroupOffsets:
        """What was handed out since the last call up to `message`, for `Producer.send_offsets_to_transaction`.

        After an aborted transaction `seek` back to its first messages.  Raises NotAssigned when the group has given a
        partition to another consumer meanwhile: abort then.  ConfigError with automatic commits, or without brokers
        that coordinate the group; CommitFailed while an earlier commit is not answered.
        """
        return self._group_offsets(message, timeout_ms)

    def _messages_now(self) -> Iterator[Message[Any, Any]]:
        return self._messages

    def _following(self) -> Iterator[Message[Any, Any]] | None:
        return self._next_messages(self._timeout_ms)

    def _next_messages(
        self, timeout_ms: float | None, *, holds: bool = False, has_some: bool = False
    ) -> Iterator[Message[Any, Any]] | None:
        """Those of the next batch; None when the stream ends, or nothing has come in time.

        `has_some`: the caller has messages already, and does not wait for more.
        """
        end_ns: int | None = None
        while True:
            # Before the request: what comes after it rings again.
            self._is_rung = False
            try:
                hand_out = self._engine.next_hand_out(self._buffer, holds=holds, has_some=has_some)
            except StreamEnded:
                return None
            if hand_out is not None:
                self._messages = messages = self._handed_out(hand_out)
                hand_out.begin(messages)
                return self._messages
            if has_some:
                return None
            if self._buffer.has_changes:
                self._notify()
                continue
            if timeout_ms is None:
                self._wait(None)
                continue
            left_ns = int(timeout_ms * 1_000_000)
            if end_ns is None:
                end_ns = boottime_ns() + left_ns
            else:
                left_ns = end_ns - boottime_ns()
            if left_ns <= 0:
                return None
            self._wait(left_ns / 1e9)

    def _notify(self) -> None:
        """The buffer has changes: only streams whose users are notified of them have any."""

    def _wait(self, timeout_s: float | None) -> None:
        """Until `ring` is called, or the lease may allow more."""
        with self._engine.lock:
            if self._buffer.readings and not self._engine.is_leased():
                timeout_s = LEASE_POLL_S if timeout_s is None else min(LEASE_POLL_S, timeout_s)
            self._bell.wait_for(lambda: self._is_rung, timeout_s)

    def _ring(self) -> None:
        self._is_rung = True
        self._bell.notify_all()


class _Batches(Iterator[Iterator[Message[Any, Any]]]):
    """The batch that a former loop has left, then the next ones.

    Also one that another loop over the stream has started meanwhile, as `next(stream)` within a loop does.
    """

    def __init__(
        self,
        present: Callable[[], Iterator[Message[Any, Any]]],
        following: Callable[[], Iterator[Message[Any, Any]] | None],
    ) -> None:
        self._present = present
        self._following = following
        self._given: Iterator[Message[Any, Any]] | None = None

    def __next__(self) -> Iterator[Message[Any, Any]]:
        present = self._present()
        if present is not self._given:
            self._given = present
            return present
        try:
            messages = self._following()
        except Exception as error:  # noqa: BLE001 - it is raised for the caller of `next`
            return _Raising(error)
        if messages is None:
            raise StopIteration
        self._given = messages
        return messages


class _Raising(Iterator[Message[Any, Any]]):
    """Raises an error once, for the next message; the loop around it can continue after it."""

    def __init__(self, error: Exception) -> None:
        self._error: Exception | None = error

    def __next__(self) -> Message[Any, Any]:
        error, self._error = self._error, None
        if error is None:
            raise StopIteration
        raise error
