"""Waiting for a state that a test expects, instead of sleeping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

# Generous: it is reached only when the state never comes, and a busy machine may be ten times as slow.
WITHIN_S: Final = 120.0
LOOK_EVERY_S: Final = 0.02

Seen = TypeVar("Seen")


def eventually(
    look: Callable[[], Seen],
    is_right: Callable[[Seen], object] = bool,
    *,
    within_s: float = WITHIN_S,
    every_s: float = LOOK_EVERY_S,
) -> Seen:
    """Read a state until it is as expected, and return it.  After the limit an AssertionError shows the last one.

    It sleeps as long as a look takes, at least: many looks start a client or a program, and the processor is for the
    system that is to reach the state.
    """
    began_s = time.monotonic()
    give_up_s = began_s + within_s
    while not is_right(seen := look()):
        now_s = time.monotonic()
        assert now_s < give_up_s, f"not right after {within_s:g} s; last seen: {seen!r}"
        time.sleep(max(every_s, now_s - began_s))
        began_s = time.monotonic()
    return seen


async def eventually_on_loop(
    look: Callable[[], Seen],
    is_right: Callable[[Seen], object] = bool,
    *,
    within_s: float = WITHIN_S,
    every_s: float = LOOK_EVERY_S,
) -> Seen:
    """The same for a state on the event loop of the test."""
    give_up_s = time.monotonic() + within_s
    while not is_right(seen := look()):
        assert time.monotonic() < give_up_s, f"not right after {within_s:g} s; last seen: {seen!r}"
        await asyncio.sleep(every_s)
    return seen
