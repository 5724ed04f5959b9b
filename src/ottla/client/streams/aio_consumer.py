"""The consumer for asyncio: the same threads below, and messages that are awaited on the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextvars import ContextVar
from datetime import datetime
from inspect import isawaitable
from itertools import islice
from types import TracebackType
from typing import Any, Final

from ottla.client.fetching.messages import Message
from ottla.client.groups.group_types import GroupOffsets
from ottla.client.streams.aio_connector import MessageStream
from ottla.client.streams.connector_core import CLOSE_TIMEOUT_MS
from ottla.client.streams.consumer_api import (
    DEFAULT_MESSAGES_COUNT,
    ConsumerApi,
    ConsumerSession,
    Offsets,
    checked_count,
)
from ottla.client.streams.errors import ConsumerBusy
from ottla.client.streams.interceptors import ConsumerInterceptors
from ottla.client.streams.message_stream import COMMIT_TIMEOUT_MS
from ottla.client.streams.reading import CommitOutcome
from ottla.client.streams.settings import KeyT, ValueT
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition

# The stream whose notice runs this code, also in tasks that the user's code starts.
_NOTIFYING: Final[ContextVar[object]] = ContextVar("notifying", default=None)


class PolledStream(MessageStream[KeyT, ValueT]):
    """The stream of a consumer: all partitions that it reads.  One task is in it at a time."""

    def __init__(
        self, session: ConsumerSession, notify: Callable[[ConsumerSession], Coroutine[Any, Any, None]]
    ) -> None:
        super().__init__(session.engine, session.buffer, None, None, session.hold)
        self._session = session
        self._notify_user = notify
        self._is_polled = False
        # The user's code is notified of changes: a cancelled request does not end that.
        self._notice: asyncio.Task[None] | None = None

    async def poll(self, timeout_ms: float | None) -> Message[Any, Any] | None:
        self._enter()
        try:
            await self.end_notice()
            if self._buffer.has_held:
                self._engine.pass_held(self._buffer)
            for message in self._messages:
                return message
            end_s = self._end_s(timeout_ms)
            while True:
                messages = await self._next_messages(self._left_s(end_s))
                if messages is None:
                    return None
                # A batch may have no message to hand out.
                for message in messages:
                    return message
        finally:
            self._is_polled = False

    async def poll_many(self, messages_max: int, timeout_ms: float | None) -> list[Message[Any, Any]]:
        self._enter()
        try:
            await self.end_notice()
            return await self._taken(messages_max, timeout_ms)
        finally:
            self._is_polled = False

    async def _taken(self, messages_max: int, timeout_ms: float | None) -> list[Message[Any, Any]]:
        taken: list[Message[Any, Any]] = []
        try:
            self._engine.begin_many(self._buffer)
            await self._take_many(taken, messages_max, timeout_ms)
        except OttlaError:
            # It is raised by the next request again: those before it come first.
            if not taken:
                raise
        except BaseException:
            # They do not reach the caller, as when its task was cancelled.
            self._engine.take_back(self._buffer)
            raise
        finally:
            self._buffer.end_many()
        return taken

    async def _take_many(self, taken: list[Message[Any, Any]], messages_max: int, timeout_ms: float | None) -> None:
        end_s = self._end_s(timeout_ms)
        taken.extend(islice(self._messages, messages_max))
        while len(taken) < messages_max:
            messages = await self._next_messages(self._left_s(end_s), holds=True, has_some=bool(taken))
            if messages is None:
                return
            taken.extend(islice(messages, messages_max - len(taken)))

    async def _following(self) -> Iterator[Message[Any, Any]] | None:
        self._enter()
        try:
            await self.end_notice()
            return await super()._following()
        finally:
            self._is_polled = False

    def _end_s(self, timeout_ms: float | None) -> float | None:
        return None if timeout_ms is None else self._loop.time() + timeout_ms / 1000

    def _left_s(self, end_s: float | None) -> float | None:
        return None if end_s is None else max(0.0, end_s - self._loop.time())

    def _enter(self) -> None:
        if self._is_polled or self._is_in_notice:
            raise ConsumerBusy("the consumer is being polled, by another task or by the code around this callback")
        self._is_polled = True

    async def _notify(self) -> None:
        self._notice = asyncio.create_task(self._run_notice())
        await self.end_notice()

    async def notify_before_releases(self, outcome: CommitOutcome) -> None:
        """As the stream for threads does it."""
        if self._is_polled or self._notice is not None:
            return
        self._is_polled = True
        try:
            if self._engine.await_releases(self._buffer, outcome):
                await self._notify()
        finally:
            self._is_polled = False

    async def _run_notice(self) -> None:
        _NOTIFYING.set(self)
        await self._notify_user(self._session)

    @property
    def _is_in_notice(self) -> bool:
        """Whether the user's code that is notified calls this: it cannot wait for its own end."""
        return self._notice is not None and _NOTIFYING.get() is self

    async def end_notice(self, timeout_ms: float | None = None) -> None:
        """Wait for the user's code that is notified of changes; what it raised is raised here."""
        notice = self._notice
        if notice is None or self._is_in_notice:
            return
        await asyncio.wait([notice], timeout=None if timeout_ms is None else timeout_ms / 1000)
        if notice.done():
            if self._notice is notice:
                self._notice = None
            notice.result()


class Consumer(ConsumerApi[KeyT, ValueT]):
    """`ottla.Consumer` for asyncio, with the same settings and the same rules.

        async with Consumer("localhost:9092", group="mailer", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["page-views"])
            async for message in consumer:
                print(message.topic, message.partition, message.offset, message.value)

    For one loop, and one task at a time reads.  What waits is awaited; `subscribe`, `assign`, `seek`, `pause` and their
    likes do not.  Callbacks may be coroutine functions; one that runs in a request which is cancelled runs on, and the
    next request, or `close`, waits for its end first.
    """

    _stream: PolledStream[KeyT, ValueT] | None = None

    async def __aenter__(self) -> Consumer[KeyT, ValueT]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _before_session(self) -> None:
        asyncio.get_running_loop()

    def _on_session(self, session: ConsumerSession) -> None:
        self._stream = PolledStream(session, _notify)

    def _polled(self) -> PolledStream[KeyT, ValueT]:
        self._opened()
        assert self._stream is not None
        return self._stream

    async def poll(self, timeout_ms: float | None = None) -> Message[KeyT | None, ValueT | None] | None:
        """The next message; None when none comes within `timeout_ms`, or the consumer is closed.  See the consumer for
        threads.
        """
        message = await self._polled().poll(timeout_ms)
        return message if message is None or self._interceptors is None else self._interceptors.on_message(message)

    async def poll_many(
        self, max_messages: int = DEFAULT_MESSAGES_COUNT, timeout_ms: float | None = None
    ) -> list[Message[KeyT | None, ValueT | None]]:
        """The messages that are there, up to so many, of all partitions; it waits as `poll` does for the first."""
        messages = await self._polled().poll_many(checked_count(max_messages), timeout_ms)
        return messages if self._interceptors is None else self._interceptors.on_consume(messages)

    def __aiter__(self) -> AsyncIterator[Message[KeyT | None, ValueT | None]]:
        """`async for message in consumer`: it waits for each, and ends when the consumer is closed or unsubscribed."""
        messages = self._polled().__aiter__()
        return messages if self._interceptors is None else _intercepted(self._interceptors, messages)

    async def commit(
        self,
        message: Message[Any, Any] | None = None,
        *,
        offsets: Offsets | None = None,
        timeout_ms: int | None = COMMIT_TIMEOUT_MS,
    ) -> None:
        """Commit all that was returned; or up to `message`, in its partition; or these offsets, each the next to read.

        Raises CommitFailed, RebalanceInProgress and NotAssigned, as the consumer for threads does.
        """
        engine, stream = self._of_group().engine, self._polled()
        outcome = self._request_commit(message, offsets)
        await stream.notify_before_releases(outcome)
        await asyncio.to_thread(engine.wait_for, outcome, timeout_ms)
        engine.check_not_deferred(outcome)

    async def group_offsets(self, *, timeout_ms: int | None = COMMIT_TIMEOUT_MS) -> GroupOffsets:
        """What was returned since the last call, for `Producer.send_offsets_to_transaction`; see the consumer for
        threads.
        """
        session = self._of_group()
        session.engine.mark_all_done(session.buffer)
        return await asyncio.to_thread(session.engine.group_offsets, [session.buffer], timeout_ms)

    async def committed(self, partitions: Iterable[tuple[str, int]] | None = None) -> dict[TopicPartition, int | None]:
        """The group's committed offsets of these partitions, or of the assignment; None: it has none."""
        self._check_group()
        return await asyncio.to_thread(self._open_queries().committed, self._named(partitions))

    async def beginning_offsets(self, partitions: Iterable[tuple[str, int]] | None = None) -> dict[TopicPartition, int]:
        """The first offset in the log of each of these partitions, or of the assignment.  Raises UnknownTopic."""
        return await asyncio.to_thread(self._open_queries().starts, self._named(partitions))

    async def end_offsets(self, partitions: Iterable[tuple[str, int]] | None = None) -> dict[TopicPartition, int]:
        """The offset after the last readable message of each; with "read_committed" before open transactions."""
        return await asyncio.to_thread(self._open_queries().ends, self._named(partitions))

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, datetime | int] | Mapping[tuple[str, int], datetime | int]
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after each time, a `datetime` or ms since 1970; None: there is none."""
        return await asyncio.to_thread(self._open_queries().at_times, self._named_times(times))

    async def lag(self) -> dict[TopicPartition, int | None]:
        """How many offsets each partition's position is before its end; None while the position is not known."""
        return await asyncio.to_thread(self._open_queries().lags, self.positions())

    async def partitions_for(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic.  Raises UnknownTopic."""
        return await asyncio.to_thread(self._open_queries().partitions_of, topic)

    async def topics(self) -> list[str]:
        """The topics that this client may describe, internal ones too."""
        return await asyncio.to_thread(self._open_queries().topics)

    async def unsubscribe(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Leave the group, or give up what was assigned, as `close` does; `subscribe` or `assign` may follow."""
        self._check_open()
        await self._end(timeout_ms)

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Leave the group: what was processed is committed, partitions are given back, `on_revoke` has run."""
        try:
            await self._end(timeout_ms)
        finally:
            self._is_closed = True
            await asyncio.to_thread(self._queries.close)

    async def _end(self, timeout_ms: int) -> None:
        session, stream = self._session, self._stream
        if session is None:
            return
        assert stream is not None
        loop, closer = asyncio.get_running_loop(), threading.get_ident()

        def notify() -> None:
            asyncio.run_coroutine_threadsafe(_notify(session), loop).result()

        def close() -> None:
            try:
                asyncio.run_coroutine_threadsafe(stream.end_notice(timeout_ms), loop).result()
            finally:
                # Tasks of this loop request no further message while they have one in hand: it does not wait for them.
                # The callbacks may still commit.
                session.core.close(timeout_ms, closer, notify)

        try:
            await asyncio.to_thread(close)
        finally:
            self._session = None


async def _intercepted(
    interceptors: ConsumerInterceptors, messages: AsyncIterator[Message[Any, Any]]
) -> AsyncIterator[Message[Any, Any]]:
    async for message in messages:
        yield interceptors.on_message(message)


async def _notify(session: ConsumerSession) -> None:
    """Run the user's code for what has changed; the first error of it is raised when all has run."""
    changes, calls = session.take_calls()
    first: Exception | None = None
    try:
        for call in calls:
            try:
                outcome = call()
                if isawaitable(outcome):
                    await outcome
            except Exception as error:  # noqa: BLE001 (the others must run, too)
                first = first or error
    finally:
        session.engine.on_notified(session.buffer, changes.revoked)
    if first is not None:
        raise first
