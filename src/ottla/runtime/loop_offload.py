"""`Offload` on the running event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Final, TypeVar

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
