"""The screen: at a terminal one picture that changes, elsewhere a plain line at intervals.  No thread draws."""

from __future__ import annotations

import time
from types import TracebackType
from typing import IO, Final

from rich.console import Console, RenderableType
from rich.live import Live

REFRESH_EVERY_S: Final = 0.1
LINE_EVERY_S: Final = 2.0
# Without a terminal there is no width; tables need one.
PLAIN_WIDTH: Final = 80


class Screen:
    """`say` stays on the screen; `show` is replaced by the next one, or prints a line where it cannot be replaced."""

    def __init__(self, file: IO[str] | None = None) -> None:
        console = Console(file=file, highlight=False)
        self.is_live = console.is_terminal and not console.is_dumb_terminal
        self.console = (
            console if self.is_live else Console(file=file, highlight=False, width=PLAIN_WIDTH, color_system=None)
        )
        self._live: Live | None = None
        self._next_s = 0.0
        self._line = ""

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.settle()

    def say(self, text: RenderableType) -> None:
        self.console.print(text, soft_wrap=isinstance(text, str), markup=False)

    def show(self, picture: RenderableType, line: str, line_every_s: float = LINE_EVERY_S) -> None:
        """The same in two forms; drawn at most at the refresh interval, or printed at that of lines."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        if self.is_live:
            self._next_s = now_s + REFRESH_EVERY_S
            self._draw(picture)
        elif line != self._line:
            self._next_s = now_s + line_every_s
            self._line = line
            self.say(line)

    def settle(self, picture: RenderableType | None = None, line: str | None = None) -> None:
        """Keep the last picture and continue below it."""
        self._next_s = 0.0
        if self.is_live:
            if picture is not None:
                self._draw(picture)
            if self._live is not None:
                self._live.stop()
                self._live = None
        elif line is not None and line != self._line:
            self.say(line)

    def _draw(self, picture: RenderableType) -> None:
        if self._live is None:
            # Nothing else writes to the terminal, so nothing must be captured.
            self._live = Live(
                console=self.console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False, transient=False
            )
            self._live.start()
        self._live.update(picture, refresh=True)
