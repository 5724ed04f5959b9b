"""Long work in short steps: the loop serves others in between, and a thread does what blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Final, TypeVar

T = TypeVar("T")

# Work of this length goes on without a pause; everybody else waits at most a little longer.
STEPS_S: Final = 0.002


async def run_steps(steps: Generator[Callable[[], None] | None, None, T]) -> T:
    """Run a generator to its end; a function that it yields is called in a thread, and its `OSError` thrown back."""
    loop = asyncio.get_running_loop()
    pause_at_s = loop.time() + STEPS_S
    try:
        work = next(steps)
        while True:
            if work is not None:
                try:
                    await loop.run_in_executor(None, work)
                except OSError as error:
                    work = steps.throw(error)
                    continue
            elif loop.time() >= pause_at_s:
                await asyncio.sleep(0)
                pause_at_s = loop.time() + STEPS_S
            work = next(steps)
    except StopIteration as done:
        result: T = done.value
        return result
