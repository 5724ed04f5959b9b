"""Ctrl-C and SIGTERM as a request to end in order, for verbs that have something to finish."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """The first signal requests the end, a second one interrupts.

    with StopRequest() as stop:
        while not stop.is_made():
            ...
    """

    def __init__(self) -> None:
        self._is_made = False
        self._former: dict[signal.Signals, Callable[[int, FrameType | None], Any] | int | None] = {}

    def is_made(self) -> bool:
        return self._is_made

    def __enter__(self) -> StopRequest:
        for number in _SIGNALS:
            self._former[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._is_made:
            raise KeyboardInterrupt
        self._is_made = True
