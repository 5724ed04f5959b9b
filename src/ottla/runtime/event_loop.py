"""The only place that starts an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Final, TypeVar

try:
    import uvloop
except ImportError:  # not on this platform: asyncio's own loop is used
    uvloop = None  # type: ignore[assignment]

T = TypeVar("T")

_FACTORY: Final = uvloop.new_event_loop if uvloop is not None else None


def run(main: Coroutine[object, object, T]) -> T:
    """Run `main` to completion on the fastest installed loop."""
    with asyncio.Runner(loop_factory=_FACTORY) as runner:
        return runner.run(main)


class BlockingLoop:
    """A loop for a caller that blocks: runs one coroutine after the other; tasks that they started stay alive between
    them.

    Nothing moves while none runs.
    """

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=_FACTORY)

    def run(self, main: Coroutine[object, object, T]) -> T:
        return self._runner.run(main)

    def close(self) -> None:
        self._runner.close()
