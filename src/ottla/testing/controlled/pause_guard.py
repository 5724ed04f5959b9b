"""Lets a paused broker go on when its test is gone."""

from __future__ import annotations

import subprocess
from typing import Final

# It reads until the other end of its standard input is closed, or gone with its process.
_PROGRAM: Final = 'read -r _; kill -CONT "$0"'


class PauseGuard:
    """A process that waits for the end of this one, however that comes.

    A paused broker cannot read that its channel has ended; when it goes on it does, and ends.
    """

    def __init__(self, pid: int) -> None:
        self._process: Final = subprocess.Popen(
            ["/bin/sh", "-c", _PROGRAM, str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Who kills the test's whole group does not kill it.
            start_new_session=True,
        )

    def end(self) -> None:
        """The broker goes on, if it is still there."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
