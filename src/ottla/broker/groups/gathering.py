"""One answer assembled from several replies, which arrive in any order, at once or later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, cast

T = TypeVar("T")


class Gathering(Generic[T]):
    """Calls `on_all` with `count` replies in the order of their places, once the last of them has arrived."""

    __slots__ = ("_missing", "_on_all", "_replies")

    def __init__(self, count: int, on_all: Callable[[list[T]], None]) -> None:
        self._replies: list[T | None] = [None] * count
        self._missing = count
        self._on_all = on_all
        if not count:
            on_all([])

    def place(self, index: int) -> Callable[[T], None]:
        """Takes the reply of this place."""

        def take(reply: T) -> None:
            self._replies[index] = reply
            self._missing -= 1
            if not self._missing:
                self._on_all(cast("list[T]", self._replies))

        return take
