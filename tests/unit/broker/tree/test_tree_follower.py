"""Changes of the tree are followed by one pass at a time, and none is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ottla.broker.tree.tree_follower import RETRY_AFTER_S_MAX, RETRY_AFTER_S_MIN, TreeFollower
from ottla.coordination.tree import SessionLost


class Handle:
    def __init__(self, delay_s: float, callback: Callable[[], object]) -> None:
        self.delay_s = delay_s
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Passes:
    """A follower whose passes the test lets end, and whose timers it lets ring."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_end = asyncio.Event()
        self.error: Exception | None = None
        self.timers: list[Handle] = []
        self.follower = TreeFollower(self)

    async def follow(self) -> None:
        self.begun += 1
        await self.may_end.wait()
        if self.error is not None:
            raise self.error

    def call_later(self, delay: float, callback: Callable[[], object]) -> Any:
        self.timers.append(Handle(delay, callback))
        return self.timers[-1]

    def create_task(self, coro: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(coro, name=name)

    async def settle(self) -> None:
        """What can run without the test runs."""
        for _ in range(10):
            await asyncio.sleep(0)

    def ring(self) -> float:
        (timer,) = [timer for timer in self.timers if not timer.is_cancelled]
        self.timers.clear()
        timer.callback()
        return timer.delay_s


async def started() -> Passes:
    passes = Passes()
    passes.follower.start(passes.follow)
    return passes


async def test_changes_during_a_pass_are_followed_by_one_more() -> None:
    passes = await started()
    passes.follower.on_stale()
    await passes.settle()
    for _ in range(5):
        passes.follower.on_stale()
    await passes.settle()
    assert passes.begun == 1

    passes.may_end.set()
    await passes.settle()
    assert passes.begun == 2


async def test_nothing_runs_without_a_change() -> None:
    passes = await started()
    await passes.settle()
    assert passes.begun == 0


async def test_changes_before_the_start_are_followed_after_it() -> None:
    passes = Passes()
    passes.follower.on_stale()
    await passes.settle()
    assert passes.begun == 0
    passes.follower.start(passes.follow)
    await passes.settle()
    assert passes.begun == 1


async def test_failed_pass_is_repeated_after_pauses_that_grow() -> None:
    passes = await started()
    passes.may_end.set()
    passes.error = SessionLost("/changes")
    passes.follower.on_stale()
    await passes.settle()
    pauses = []
    for _ in range(9):
        pauses.append(passes.ring())
        await passes.settle()
    assert pauses[:3] == [RETRY_AFTER_S_MIN, RETRY_AFTER_S_MIN * 2, RETRY_AFTER_S_MIN * 4]
    assert pauses[-1] == RETRY_AFTER_S_MAX
    assert passes.begun == 10

    passes.error = None
    passes.ring()
    await passes.settle()
    assert passes.timers == []
    passes.error = SessionLost("/changes")
    passes.follower.on_stale()
    await passes.settle()
    assert passes.ring() == RETRY_AFTER_S_MIN


async def test_bug_in_a_pass_does_not_end_the_following() -> None:
    passes = await started()
    passes.may_end.set()
    passes.error = KeyError("bug")
    passes.follower.on_stale()
    await passes.settle()
    passes.ring()
    await passes.settle()
    assert passes.begun == 2


async def test_change_is_followed_at_once_also_during_the_pause_of_a_failure() -> None:
    passes = await started()
    passes.may_end.set()
    passes.error = SessionLost("/changes")
    passes.follower.on_stale()
    await passes.settle()
    passes.error = None
    passes.follower.on_stale()
    await passes.settle()
    assert passes.begun == 2
    assert all(timer.is_cancelled for timer in passes.timers)


async def test_stop_waits_for_the_pass_that_runs_and_begins_no_other() -> None:
    passes = await started()
    passes.follower.on_stale()
    await passes.settle()
    passes.follower.on_stale()
    stopping = asyncio.get_running_loop().create_task(passes.follower.stop())
    await passes.settle()
    assert not stopping.done()
    passes.may_end.set()
    await stopping
    passes.follower.on_stale()
    await passes.settle()
    assert passes.begun == 1
    assert passes.timers == []
