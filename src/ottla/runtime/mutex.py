"""A lock between coroutines, for code that awaits but must not depend on an event loop."""

from __future__ import annotations

from asyncio import Lock as Mutex

__all__ = ["Mutex"]
