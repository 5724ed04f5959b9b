"""A coroutine waits for a reply that comes by callback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def reply_of(submit: Callable[[Callable[[T], None]], None]) -> T:
    """What `submit` gives to its callback, during the call or later; a reply to a cancelled caller is dropped."""
    reply: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def take(value: T) -> None:
        if not reply.done():
            reply.set_result(value)

    submit(take)
    return await reply
