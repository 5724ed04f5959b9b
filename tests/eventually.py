"""Waiting for a state that a test hopes for, instead of sleeping and hoping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

# Generous: it is only reached when the state never comes, and a machine with other work may be ten times as slow.
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
    """Look again and again until what is seen is right, and return it.  In the end an AssertionError shows it."""
    give_up_s = time.monotonic() + within_s
    while not is_right(seen := look()):
        assert time.monotonic() < give_up_s, f"not right after {within_s:g} s; last seen: {seen!r}"
        time.sleep(every_s)
    return seen


async def eventually_on_loop(
    look: Callable[[], Seen],
    is_right: Callable[[Seen], object] = bool,
    *,
    within_s: float = WITHIN_S,
    every_s: float = LOOK_EVERY_S,
) -> Seen:
    """The same for what happens on the event loop of the test."""
    give_up_s = time.monotonic() + within_s
    while not is_right(seen := look()):
        assert time.monotonic() < give_up_s, f"not right after {within_s:g} s; last seen: {seen!r}"
        await asyncio.sleep(every_s)
    return seen
