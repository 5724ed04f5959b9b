"""`Offload` on the running event loop, long work in slices, one in each turn of it, and parts of it as protocols."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

from ottla.runtime.steps import Steps

T = TypeVar("T")

# Other callbacks of the loop wait for a slice at most, and for the step that ends it.
SLICE_S: Final = 0.002


class Timers(Protocol):
    """The timers of an event loop, for what needs no more of it: tests advance them by hand."""

    def call_later(self, delay: float, callback: Callable[[], object]) -> asyncio.TimerHandle: ...


class TaskStarter(Protocol):
    """The tasks of an event loop."""

    def create_task(self, coro: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]: ...


class TimersAndTasks(Timers, TaskStarter, Protocol):
    """Both parts of an event loop."""


class _Turns:
    """All long works of one loop take slices in turn: however many there are, others wait for one slice at a time."""

    __slots__ = ("_is_called", "_waiting")

    def __init__(self) -> None:
        # Those that have used up a slice.
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_called = False

    @property
    def are_waited_for(self) -> bool:
        return bool(self._waiting)

    async def wait(self, loop: asyncio.AbstractEventLoop) -> None:
        """Until it is the caller's turn."""
        future = loop.create_future()
        self._waiting.append(future)
        if not self._is_called:
            self._is_called = True
            loop.call_soon(self._give, loop)
        await future

    def _give(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_called = False
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():  # else it was cancelled
                future.set_result(None)
                break
        if self._waiting:
            self._is_called = True
            loop.call_soon(self._give, loop)


_TURNS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns]] = WeakKeyDictionary()


async def next_turn() -> None:
    """Let others run: the loop's other callbacks, and a slice of each other long work."""
    loop = asyncio.get_running_loop()
    await _turns_of(loop).wait(loop)


async def first_turn() -> None:
    """Work that starts while other work waits for its turn waits as well: much may start in one turn of the loop."""
    loop = asyncio.get_running_loop()
    turns = _turns_of(loop)
    if turns.are_waited_for:
        await turns.wait(loop)


def _turns_of(loop: asyncio.AbstractEventLoop) -> _Turns:
    turns = _TURNS.get(loop)
    if turns is None:
        turns = _TURNS[loop] = _Turns()
    return turns


class LoopOffload:
    """Runs blocking calls in the loop's thread pool.  Make one for each piece of work: it measures its slices."""

    __slots__ = ("_slice_end_s",)

    def __init__(self) -> None:
        self._slice_end_s = perf_counter() + SLICE_S

    async def __call__(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(None, work)
        finally:
            self._slice_end_s = perf_counter() + SLICE_S

    async def pause(self) -> None:
        if perf_counter() >= self._slice_end_s:
            await next_turn()
            self._slice_end_s = perf_counter() + SLICE_S


def run_slice(steps: Steps[object]) -> bool:
    """Whether the steps ended within a slice of time; else `paced` continues with them."""
    slice_end_s = perf_counter() + SLICE_S
    return all(perf_counter() < slice_end_s for _ in steps)


def run_first_slice(steps: Steps[T]) -> tuple[bool, T | Steps[T]]:
    """True and the result, if the steps ended within a slice of time; else False and the steps, for `paced`."""
    slice_end_s = perf_counter() + SLICE_S
    try:
        while perf_counter() < slice_end_s:
            next(steps)
    except StopIteration as done:
        result: T = done.value
        return True, result
    return False, steps


async def paced(steps: Steps[T]) -> T:
    """All steps; others run whenever they have taken a slice of time.

    Raises what a step raises.  A step that is left to run (cancelled) is closed.
    """
    try:
        await first_turn()
        slice_end_s = perf_counter() + SLICE_S
        while True:
            next(steps)
            if perf_counter() >= slice_end_s:
                await next_turn()
                slice_end_s = perf_counter() + SLICE_S
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        steps.close()
