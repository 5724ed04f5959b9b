"""A lock between coroutines, for code that awaits but must not know which event loop carries it."""

from __future__ import annotations

from asyncio import Lock as Mutex

__all__ = ["Mutex"]
