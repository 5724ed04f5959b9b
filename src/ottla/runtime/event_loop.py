"""The only place that starts an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

try:
    import uvloop
except ImportError:  # not on this platform: asyncio's own loop is used
    uvloop = None  # type: ignore[assignment]

T = TypeVar("T")


def run(main: Coroutine[object, object, T]) -> T:
    """Run `main` to completion on the fastest installed loop."""
    factory = uvloop.new_event_loop if uvloop is not None else None
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)
