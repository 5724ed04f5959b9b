"""`Offload` on the running event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Final, TypeVar

from ottla.runtime.steps import Steps

T = TypeVar("T")

# Other callbacks of the loop wait for a slice at most, and for the step that ends it.
SLICE_S: Final = 0.002


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
            await asyncio.sleep(0)
            self._slice_end_s = perf_counter() + SLICE_S


def run_slice(steps: Steps[object]) -> bool:
    """Whether the steps ended within a slice of time; else `paced` goes on with them."""
    slice_end_s = perf_counter() + SLICE_S
    return all(perf_counter() < slice_end_s for _ in steps)


def began(steps: Steps[T]) -> tuple[bool, T | Steps[T]]:
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
    slice_end_s = perf_counter() + SLICE_S
    try:
        while True:
            next(steps)
            if perf_counter() >= slice_end_s:
                await asyncio.sleep(0)
                slice_end_s = perf_counter() + SLICE_S
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        steps.close()
