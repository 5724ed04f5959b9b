"""The connector for asyncio: the same threads below, and streams that are iterated on the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

from typing_extensions import Unpack

from ottla.client.fetching.messages import Message
from ottla.client.groups.group_types import GroupOffsets
from ottla.client.groups.subscription import Subscription, TopicFilter
from ottla.client.streams.connector_core import CLOSE_TIMEOUT_MS, ConnectorApi, ConnectorHold
from ottla.client.streams.consume_machine import StreamEnded
from ottla.client.streams.engine import StreamsEngine
from ottla.client.streams.message_stream import COMMIT_TIMEOUT_MS, LEASE_POLL_S, StreamApi, weakly
from ottla.client.streams.settings import ConnectorArguments, KeyT, ValueT
from ottla.client.streams.stream_buffer import StreamBuffer


class MessageStream(StreamApi[KeyT, ValueT]):
    """Iterate over it in one task: `async for message in stream`.  It waits while nothing is there.

    It ends as `ottla.client.streams.message_stream.MessageStream` does, and commits the same.  Batches are handed over
    whole: a loop over messages that are there lets other tasks run between two batches.
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
        self._timeout_s = None if consumer_timeout_ms is None else consumer_timeout_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._is_rung = asyncio.Event()
        self._is_ringing = False
        buffer.ring_by(weakly(self._ring))

    async def __aiter__(self) -> AsyncIterator[Message[KeyT | None, ValueT | None]]:
        while True:
            # First those that a former loop has left.
            messages = self._messages
            for message in messages:
                yield message
            if self._messages is not messages:
                continue  # `anext` within this loop has started the next ones
            if await self._following() is None:
                return

    async def __anext__(self) -> Message[KeyT | None, ValueT | None]:
        """The next message, as `await anext(stream)`; raises StopAsyncIteration where a loop would end."""
        async for message in self:
            return message
        raise StopAsyncIteration

    async def commit(
        self, message: Message[Any, Any] | None = None, *, timeout_ms: int | None = COMMIT_TIMEOUT_MS
    ) -> None:
        """Commit what was passed; with `message`, that it is done, too, and all before it of its partition.

        Raises CommitFailed and NotAssigned, as the stream for threads does.
        """
        await asyncio.to_thread(self._engine.wait_for, self._request_commit(message), timeout_ms)

    async def group_offsets(
        self, message: Message[Any, Any], *, timeout_ms: int | None = COMMIT_TIMEOUT_MS
    ) -> GroupOffsets:
        """What was handed out since the last call up to `message`, for `Producer.send_offsets_to_transaction`; see the
        stream for threads.
        """
        return await asyncio.to_thread(self._group_offsets, message, timeout_ms)

    async def _following(self) -> Iterator[Message[Any, Any]] | None:
        return await self._next_messages(self._timeout_s)

    async def _next_messages(
        self, timeout_s: float | None, *, holds: bool = False, has_some: bool = False
    ) -> Iterator[Message[Any, Any]] | None:
        """As the stream for threads does it."""
        # A stream that always has messages must not keep others from running.
        await asyncio.sleep(0)
        end_s: float | None = None
        while True:
            self._is_rung.clear()
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
                await self._notify()
                continue
            if timeout_s is not None:
                end_s = self._loop.time() + timeout_s if end_s is None else end_s
                if self._loop.time() >= end_s:
                    return None
            await self._wait(None if end_s is None else end_s - self._loop.time())

    async def _notify(self) -> None:
        """The buffer has changes: only streams whose users are notified of them have any."""

    async def _wait(self, timeout_s: float | None) -> None:
        if self._buffer.readings and not self._engine.is_leased():
            timeout_s = LEASE_POLL_S if timeout_s is None else min(LEASE_POLL_S, timeout_s)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_rung.wait(), timeout_s)

    def _ring(self) -> None:
        """By any thread; the loop is woken once for all rings before it runs."""
        if not self._is_ringing:
            self._is_ringing = True
            with suppress(RuntimeError):  # the loop is closed: no task waits
                self._loop.call_soon_threadsafe(self._rung)

    def _rung(self) -> None:
        self._is_ringing = False
        self._is_rung.set()


class ConsumerConnector(ConnectorApi[KeyT, ValueT]):
    """`ottla.ConsumerConnector` for asyncio, with the same settings.

        async with ConsumerConnector("localhost:9092", group="jobs") as connector:
            streams = await connector.create_message_streams({"page-views": 2})
            async for message in streams["page-views"][0]:
                print(message.partition, message.offset, message.value)

    For one loop; each stream for one task.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        *,
        zookeeper: str | None = None,
        group: str,
        **settings: Unpack[ConnectorArguments[KeyT, ValueT]],
    ) -> None:
        super().__init__(bootstrap, zookeeper=zookeeper, group=group, **settings)

    async def __aenter__(self) -> ConsumerConnector[KeyT, ValueT]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def create_message_streams(self, topics: Mapping[str, int]) -> dict[str, list[MessageStream[KeyT, ValueT]]]:
        """Join the group, and read each topic by so many streams, which share its partitions here."""
        buffers = await asyncio.to_thread(self._core.open, Subscription.by_name(topics))
        return {topic: [self._stream(buffer, [topic]) for buffer in each] for topic, each in buffers.items()}

    async def create_message_streams_by_filter(
        self, streams_count: int = 1, *, allow: str, deny: str | None = None
    ) -> list[MessageStream[KeyT, ValueT]]:
        """Join the group, and read all topics whose whole names match `allow` and do not match `deny`."""
        subscription = Subscription({}, TopicFilter(allow, deny), streams_count)
        buffers = await asyncio.to_thread(self._core.open, subscription)
        return [self._stream(buffer, None) for each in buffers.values() for buffer in each]

    async def commit(self, *, timeout_ms: int | None = COMMIT_TIMEOUT_MS) -> None:
        """`MessageStream.commit` for all streams."""
        engine = self._core.opened()
        await asyncio.to_thread(engine.wait_for, engine.commit(self._core.buffers), timeout_ms)

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Leave the group: what was passed is committed, the streams end.  `async with` does the same."""
        # Tasks of this loop request no further message while they have one in hand: the close does not wait for them.
        await asyncio.to_thread(self._core.close, timeout_ms, threading.get_ident())

    def _stream(self, buffer: StreamBuffer, topics: Iterable[str] | None) -> MessageStream[KeyT, ValueT]:
        return MessageStream(self._core.opened(), buffer, topics, self._core.settings.consumer_timeout_ms, self._hold)
