"""Something that is looked at again and again while a measurement goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Watch:
    """Calls `look` in a thread of its own: at enter, every `every_s`, and at exit."""

    def __init__(self, look: Callable[[], object], every_s: float) -> None:
        self._look_once = look
        self._every_s = every_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        self._look_once()
        while not self._is_over.wait(self._every_s):
            self._look_once()
        self._look_once()
