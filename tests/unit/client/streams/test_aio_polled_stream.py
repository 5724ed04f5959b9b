"""A cancelled request of an asyncio consumer does not cancel the user's code that it runs: without threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.client.streams.aio_consumer import PolledStream
from ottla.client.streams.consumer_api import ConsumerSession
from ottla.client.streams.errors import ConsumerBusy
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.runtime.event_loop import run
from tests.unit.client.streams.scripted import Desk

T0 = TopicPartition("t", 0)


class AioDesk(Desk):
    """One consumer whose user's code begins, and waits for `may_end`."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = self.buffers[0]
        self.buffer.notify(notifies=True)
        self.begins = asyncio.Event()
        self.may_end = asyncio.Event()
        self.ended: list[list[TopicPartition]] = []
        # The user's code, after `may_end`.
        self.on_revoked: Callable[[], Awaitable[object]] = asyncio.Event().wait
        session = SimpleNamespace(engine=self.engine, buffer=self.buffer, hold=None)
        self.stream: PolledStream[Any, Any] = PolledStream(cast("ConsumerSession", session), self._notify)

    async def _notify(self, _session: ConsumerSession) -> None:
        changes = self.engine.take_changes(self.buffer)
        try:
            if changes.revoked:
                self.begins.set()
                await self.may_end.wait()
                await self.on_revoked()
                self.ended.append(changes.revoked)
        finally:
            self.engine.on_notified(self.buffer, changes.revoked)

    async def cancel_a_poll_in_the_callback(self) -> None:
        """The callback is that of a partition which is revoked; another one has messages."""
        self.start(1, 0)
        claim = self.start(0, 0)
        assert await self.stream.poll(0) is None
        self.revoke(0, claim)
        self.bring(1, [b"a"] * 2)
        polling = asyncio.create_task(self.stream.poll(None))
        await self.begins.wait()
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling


async def nothing() -> None: ...


async def failing() -> None:
    raise OttlaError("the callback failed")


def test_a_partition_is_given_back_after_the_callback_of_a_cancelled_poll_has_run_to_its_end() -> None:
    async def main() -> None:
        desk = AioDesk()
        desk.on_revoked = nothing
        await desk.cancel_a_poll_in_the_callback()
        assert (desk.ended, desk.membership.stopped) == ([], [])
        next_one = asyncio.create_task(desk.stream.poll(None))
        await asyncio.sleep(0)
        assert not next_one.done(), "it waits for the callback"
        desk.may_end.set()
        message = await next_one
        assert message is not None
        assert (message.partition, message.offset) == (1, 0)
        assert desk.ended == [[T0]]
        assert [partition for partition, _, _ in desk.membership.stopped] == [T0]

    run(main())


def test_a_request_of_many_and_a_loop_wait_for_the_callback_of_a_cancelled_poll_too() -> None:
    async def first_of_loop(desk: AioDesk) -> object:
        return await anext(desk.stream)

    async def main(request: Callable[[AioDesk], Awaitable[object]]) -> None:
        desk = AioDesk()
        desk.on_revoked = nothing
        await desk.cancel_a_poll_in_the_callback()
        waiting = asyncio.ensure_future(request(desk))
        await asyncio.sleep(0)
        desk.may_end.set()
        assert await waiting
        assert desk.ended == [[T0]]

    run(main(lambda desk: desk.stream.poll_many(1, None)))
    run(main(first_of_loop))


def test_an_error_of_the_callback_of_a_cancelled_poll_is_raised_by_the_next_one() -> None:
    async def main() -> None:
        desk = AioDesk()
        desk.on_revoked = failing
        await desk.cancel_a_poll_in_the_callback()
        desk.may_end.set()
        with pytest.raises(OttlaError, match="the callback failed"):
            await desk.stream.poll(None)
        assert await desk.stream.poll(None) is not None

    run(main())


def test_the_callback_of_a_cancelled_poll_cannot_poll_and_does_not_wait_for_its_own_end() -> None:
    async def main() -> None:
        desk = AioDesk()
        refused: list[ConsumerBusy] = []

        async def poll_and_close() -> None:
            try:
                await asyncio.create_task(desk.stream.poll(None))
            except ConsumerBusy as error:
                refused.append(error)
            # As a close does first.
            await asyncio.create_task(desk.stream.end_notice())

        desk.on_revoked = poll_and_close
        await desk.cancel_a_poll_in_the_callback()
        desk.may_end.set()
        assert await desk.stream.poll(None) is not None
        assert (len(refused), desk.ended) == (1, [[T0]])

    run(main())


def test_the_end_of_a_callback_that_hangs_is_waited_for_so_long_and_no_longer() -> None:
    async def main() -> None:
        desk = AioDesk()
        await desk.cancel_a_poll_in_the_callback()
        await desk.stream.end_notice(timeout_ms=0)
        assert desk.ended == []

    run(main())


def test_an_aio_commit_of_all_that_was_returned_runs_the_callback_and_waits_for_the_release() -> None:
    async def main() -> None:
        desk = AioDesk()
        desk.on_revoked = nothing
        desk.may_end.set()
        claim = desk.start(0, 0)
        assert await desk.stream.poll(0) is None
        desk.bring(0, [b"a"] * 3)
        assert len(await desk.stream.poll_many(2, None)) == 2
        desk.revoke(0, claim)
        outcome = desk.engine.commit_all(desk.buffer)
        await desk.stream.notify_before_releases(outcome)
        assert desk.ended == [[T0]]
        assert (desk.membership.stopped, outcome.is_known) == ([(T0, claim, 2)], False)
        desk.release(0, claim)
        assert (outcome.is_known, outcome.error) == (True, None)

    run(main())
