"""Blocking calls of long work, made where they delay no other work; and pauses between its short steps.

Long work is written once, as a coroutine that awaits an `Offload`.  On the event loop (runtime/loop_offload.py) a
blocking call runs in a thread and a pause lets other callbacks run; tools, tests and compaction's worker process run
the same coroutine to its end without a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Final, Protocol, TypeVar

T = TypeVar("T")


class Offload(Protocol):
    """After an `await` of either method other callbacks of the loop may have run: check again what they change."""

    async def __call__(self, work: Callable[[], T]) -> T:
        """Return `work()`, or raise what it raises.  It may run in another thread: it must touch the disk only."""
        ...

    async def pause(self) -> None:
        """Let others run when the caller has used up its slice of time.  Call it between short steps."""
        ...


class InlineOffload:
    """Calls at once, in the caller's thread, and never suspends: what awaits only this can be run by `run_inline`."""

    async def __call__(self, work: Callable[[], T]) -> T:
        return work()

    async def pause(self) -> None:
        return None


INLINE: Final = InlineOffload()


def run_inline(coroutine: Coroutine[object, object, T]) -> T:
    """Run a coroutine that never suspends to its end, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise AssertionError("the coroutine waits for something: it needs an event loop")
