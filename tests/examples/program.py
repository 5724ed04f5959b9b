"""An example as a process, as a user starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from tests.eventually import eventually
from tests.integration.page_snippets import ROOT

# Only reached by a program that hangs.
ENDS_WITHIN_S: Final = 240.0


class Program:
    """`python -m MODULE ARGUMENTS`, in its own process group; killed at the end of the block if it still runs."""

    def __init__(self, module: str, *arguments: str) -> None:
        # A file: it is not read while the program runs, and a pipe would fill up.
        self._output = tempfile.TemporaryFile("w+")
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env=environment,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()
        if error is not None:
            error.add_note(self.said)
        self._output.close()

    @property
    def said(self) -> str:
        self._output.seek(0)
        return self._output.read()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def wait_for(self, text: str) -> None:
        eventually(lambda: self.said, lambda said: text in said)

    def kill(self) -> None:
        """SIGKILL, with the processes that it has started."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait_killed(self) -> None:
        """Wait until it has killed itself."""
        assert self._process.wait(ENDS_WITHIN_S) == -signal.SIGKILL, self.said
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # what it has started

    def stop(self) -> None:
        """SIGTERM, as from a supervisor; it ends regularly."""
        self._process.send_signal(signal.SIGTERM)
        self.wait_ended()

    def wait_ended(self) -> None:
        assert self._process.wait(ENDS_WITHIN_S) == 0, self.said
