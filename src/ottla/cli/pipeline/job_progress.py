"""A job's progress on standard error: one line that is rewritten at a terminal, elsewhere a line at intervals."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, TextIO

from ottla.observe.text import safe_line

REWRITE_EVERY_S: Final = 0.2
LINE_EVERY_S: Final = 10.0
_ERASE_LINE: Final = "\r\x1b[K"


class JobProgress:
    """No thread draws: a job may call `show` as often as it has progress.

    with JobProgress() as progress:
        for batch in batches:
            ...
            progress.show(f"{rows_count:,} rows")
    """

    def __init__(self, stream: TextIO | None = None, now_s: Callable[[], float] = time.monotonic) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._now_s = now_s
        self._next_s = now_s() if self._is_terminal else now_s() + LINE_EVERY_S
        self._is_shown = False
        self._waiting = ""

    def show(self, text: str) -> None:
        """The state of now, in place of the one before; not every one is drawn."""
        self._waiting = text
        now_s = self._now_s()
        if now_s < self._next_s:
            return
        self._next_s = now_s + (REWRITE_EVERY_S if self._is_terminal else LINE_EVERY_S)
        self._draw()

    def say(self, text: str) -> None:
        """A line that stays."""
        self._erase()
        self._stream.write(f"{safe_line(text)}\n")
        self._stream.flush()

    def close(self) -> None:
        """The last state stays on a terminal."""
        if self._is_terminal:
            if self._waiting:
                self._draw()
            if self._is_shown:
                self._stream.write("\n")
                self._stream.flush()
        self._is_shown, self._waiting = False, ""

    def __enter__(self) -> JobProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _draw(self) -> None:
        text = safe_line(self._waiting)
        self._waiting = ""
        if self._is_terminal:
            # A line that wraps could not be rewritten.
            self._stream.write(_ERASE_LINE + text[: max(1, shutil.get_terminal_size().columns - 1)])
            self._is_shown = True
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()

    def _erase(self) -> None:
        if self._is_shown:
            self._stream.write(_ERASE_LINE)
            self._is_shown = False
