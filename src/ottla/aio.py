"""Ottla's client for asyncio: the same as `ottla`'s, with `await` and `async for`.

Producer    sends messages     ottla.client.producing.aio_producer
"""

from __future__ import annotations

from ottla.client.producing.aio_producer import Producer

__all__ = ["Producer"]
