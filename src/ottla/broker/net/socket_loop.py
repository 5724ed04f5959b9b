"""The part of an event loop that the sockets of clients use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class SocketLoop(Protocol):
    """Any asyncio loop is one."""

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> object: ...

    def remove_reader(self, fd: int, /) -> bool: ...

    def add_writer(self, fd: int, callback: Callable[[], object], /) -> object: ...

    def remove_writer(self, fd: int, /) -> bool: ...

    def call_soon(self, callback: Callable[[], object], /) -> object: ...
