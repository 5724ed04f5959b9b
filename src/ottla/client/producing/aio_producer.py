"""`ottla.aio.Producer`: the same producer for coroutines."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TypeVar, overload

from ottla.client.groups.group_types import GroupOffsets, NamedOffsets, group_offsets_of
from ottla.client.producing.delivery import Delivery, Receipt
from ottla.client.producing.errors import MessageRefused, TransactionOutcomeUnknown
from ottla.client.producing.interceptors import ProducerInterceptors, SendArguments, arguments_of
from ottla.client.producing.producer import MessageSet
from ottla.client.producing.producer_api import ProducerApi
from ottla.client.producing.send_steps import SendStep, TransactionStep
from ottla.client.producing.serializing import HeadersLike, SerializedMessages, is_set
from ottla.client.producing.settings import KeyT, ValueT
from ottla.client.wire.errors import CallTimedOut, ClientError


class LoopCalls:
    """`put` from any thread: `call` runs on the loop.  The loop is woken once for all that come until it runs them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._calls: deque[Callable[[], object]] = deque()
        self._is_scheduled = False

    def put(self, call: Callable[[], object]) -> None:
        self._calls.append(call)
        if not self._is_scheduled:
            self._is_scheduled = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits any more
                self.loop.call_soon_threadsafe(self._run)

    def future(self) -> tuple[asyncio.Future[None], Callable[[], None]]:
        """A future of the loop, and what ends it from any thread."""
        future: asyncio.Future[None] = self.loop.create_future()

        def end() -> None:
            if not future.done():  # it may have been cancelled
                future.set_result(None)

        return future, lambda: self.put(end)

    def _run(self) -> None:
        # First: what is put from now on, and is not seen below, wakes the loop again.
        self._is_scheduled = False
        while self._calls:
            self._calls.popleft()()


Taken = TypeVar("Taken")


class Producer(ProducerApi[KeyT, ValueT]):
    """Sends messages from coroutines: the producer of `ottla.Producer`, with the same settings.

    async with ottla.aio.Producer("localhost:9092") as producer:
        receipt = await producer.send("page-views", b"/jobs", key=b"ada")

    `send` ends when the message is acknowledged.  Many at a time go into one batch: as tasks, or as a set of messages.

    async with asyncio.TaskGroup() as tasks:
        for path in paths:
            tasks.create_task(producer.send("page-views", path))

    It belongs to one event loop, which it never holds up: its sockets are on a separate thread.
    """

    # Of the loop that was seen last.
    _calls: LoopCalls | None = None

    async def __aenter__(self) -> Producer[KeyT, ValueT]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @overload
    async def send(  # type: ignore[overload-overlap]  # a value may be of any type; the rule is in `is_set`
        self,
        topic: str,
        messages: MessageSet[ValueT],
        *,
        key: KeyT | None = None,
        keys: Iterable[KeyT | None] | None = None,
        partition: int | None = None,
        headers: HeadersLike | None = None,
        timestamp_ms: int | None = None,
    ) -> list[Receipt]: ...

    @overload
    async def send(
        self,
        topic: str,
        messages: ValueT | None,
        *,
        key: KeyT | None = None,
        partition: int | None = None,
        headers: HeadersLike | None = None,
        timestamp_ms: int | None = None,
    ) -> Receipt: ...

    async def send(
        self,
        topic: str,
        messages: object,
        *,
        key: object = None,
        keys: Iterable[object] | None = None,
        partition: int | None = None,
        headers: HeadersLike | None = None,
        timestamp_ms: int | None = None,
    ) -> Receipt | list[Receipt]:
        """Take one message, or a set of them, and wait until the broker has acknowledged it: the receipt, or a list.

        See `ottla.Producer.send`.  Back-pressure is awaited, too.  Raises MessageNotDelivered, of a set
        MessagesNotDelivered.  A cancelled `send` takes nothing back: a message that was taken is sent.
        """
        arguments = (topic, messages, key, keys, partition, headers, timestamp_ms)
        if self._interceptors is None:
            return await self._receipt(await self._take(*arguments, as_set=is_set(messages)))
        return await self._receipt(await self._intercept(self._interceptors, arguments))

    async def _intercept(
        self, interceptors: ProducerInterceptors, arguments: SendArguments
    ) -> Delivery[Receipt] | Delivery[list[Receipt]]:
        outgoing = interceptors.on_send(*arguments)
        try:
            delivery = await self._take(*arguments_of(outgoing), as_set=outgoing.is_set)
        except BaseException as error:
            interceptors.on_refused(outgoing, error)
            raise
        interceptors.watch(outgoing, delivery)
        return delivery

    async def _take(
        self,
        topic: str,
        messages: object,
        key: object,
        keys: Iterable[object] | None,
        partition: int | None,
        headers: HeadersLike | None,
        timestamp_ms: int | None,
        *,
        as_set: bool,
    ) -> Delivery[Receipt] | Delivery[list[Receipt]]:
        until_s = asyncio.get_running_loop().time() + self._core.settings.max_block_ms / 1000
        if as_set:
            assert isinstance(messages, Iterable)
            return await self._send_set(
                self._serializer.messages(topic, messages, key, keys, partition, headers, timestamp_ms), until_s
            )
        if keys is not None:
            raise MessageRefused("keys are for a set of messages; one message has a key")
        message = self._serializer.message(topic, messages, key, partition, headers, timestamp_ms)
        return await self._send_one(message, until_s)

    async def init_transactions(self, timeout_ms: float | None = None) -> None:
        """As `ottla.Producer.init_transactions`."""
        await self._wait_for(self._core.init_step(), timeout_ms)

    def begin_transaction(self) -> None:
        """From now on messages are in a transaction, those of all tasks.  Nothing is waited for."""
        self._core.begin_transaction()

    async def commit_transaction(self, timeout_ms: float | None = None) -> None:
        """As `ottla.Producer.commit_transaction`."""
        await self._wait_for(self._core.commit_step(), timeout_ms)

    async def abort_transaction(self, timeout_ms: float | None = None) -> None:
        """As `ottla.Producer.abort_transaction`."""
        await self._wait_for(self._core.abort_step(), timeout_ms)

    async def send_offsets_to_transaction(
        self, offsets: GroupOffsets | NamedOffsets, *, group: str | None = None, timeout_ms: float | None = None
    ) -> None:
        """As `ottla.Producer.send_offsets_to_transaction`."""
        await self._wait_for(self._core.offsets_step(group_offsets_of(offsets, group)), timeout_ms)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Producer[KeyT, ValueT]]:
        """A block whose messages are one transaction: it commits at the end, and aborts with any exception, also when
        its task is cancelled.

        async with producer.transaction():
            await producer.send("page-views", b"/jobs", key=b"ada")
        """
        self.begin_transaction()
        try:
            yield self
            if not self._core.has_ended_transaction:
                await self.commit_transaction()
        except TransactionOutcomeUnknown:
            raise  # the caller asks again
        except BaseException:
            with contextlib.suppress(ClientError):
                await self.abort_transaction()
            raise

    async def flush(self, timeout_ms: float | None = None) -> None:
        """Send everything now, and wait until each message taken so far is stored or has failed.

        Raises MessagesNotDelivered for those that failed and that no `send` has raised, because it was cancelled;
        CallTimedOut after `timeout_ms`.
        """
        ends = []
        for batch_delivery in self._core.begin_flush():
            future, end = self._loop_calls().future()
            batch_delivery.on_settled(None, end)
            ends.append(future)
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                for future in ends:
                    await future
        except TimeoutError:
            raise CallTimedOut(
                f"not everything is acknowledged after {timeout_ms:g} ms", hint="it still may be"
            ) from None
        self._raise_failures()

    async def close(self, timeout_ms: float | None = None) -> None:
        """`flush`, then the end: nothing is taken any more.  `async with` does the same.

        After `timeout_ms` what is still under way fails, and is raised as MessagesNotDelivered.
        """
        core = self._core
        core.finish()
        if not await asyncio.to_thread(core.join, None if timeout_ms is None else timeout_ms / 1000):
            await asyncio.to_thread(core.abandon, timeout_ms or 0)
        self._raise_failures()

    async def _send_one(self, messages: SerializedMessages, until_s: float) -> Delivery[Receipt]:
        partition = messages.partition
        key = messages.keys[0]
        if partition is None and key is not None:
            count = await self._wait(self._core.topic_step(messages), until_s)
            partition = self._serializer.partition(key, count)
        return await self._wait(self._core.message_step(messages, partition), until_s)

    async def _send_set(self, messages: SerializedMessages, until_s: float) -> Delivery[list[Receipt]]:
        count = await self._wait(self._core.topic_step(messages), until_s) if messages.has_keys else None
        return await self._wait(self._core.set_step(messages, self._serializer.runs(messages, count)), until_s)

    async def _wait_for(self, step: TransactionStep, timeout_ms: float | None) -> None:
        waited_ms = self._core.settings.max_block_ms if timeout_ms is None else timeout_ms
        await self._wait(step, asyncio.get_running_loop().time() + waited_ms / 1000, waited_ms)

    async def _wait(self, step: SendStep[Taken], until_s: float, waited_ms: float | None = None) -> Taken:
        monitor = self._core.monitor
        while True:
            with monitor.lock:
                taken = step.attempt()
                if taken is not None:
                    return taken
                changed, end = self._loop_calls().future()
                monitor.watch(end)
            try:
                async with asyncio.timeout_at(until_s):
                    await changed
            except TimeoutError:
                with monitor.lock:
                    late_ms = self._core.settings.max_block_ms if waited_ms is None else waited_ms
                    raise step.too_late(late_ms) from None

    async def _receipt(self, delivery: Delivery[Receipt] | Delivery[list[Receipt]]) -> Receipt | list[Receipt]:
        done, end = self._loop_calls().future()
        delivery.when_done(end)
        await done
        return delivery.wait(0)

    def _loop_calls(self) -> LoopCalls:
        loop = asyncio.get_running_loop()
        if self._calls is None or self._calls.loop is not loop:
            self._calls = LoopCalls(loop)
        return self._calls
