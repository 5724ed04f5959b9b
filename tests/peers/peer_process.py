"""The base of the benchmark's peers: a process with its own directory, both removed afterwards."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from tests.peers import process_usage
from tests.peers.answering import NotAnswering

STOP_TIMEOUT_S: Final = 30
_LOOK_EVERY_S: Final = 0.05


class PeerProcess:
    """A context manager around `_start`, which launches the process and waits until it answers.

    Its directory is made in `parent_dir`, the system's place for temporary files otherwise.
    """

    NAME: ClassVar[str]

    def __init__(self, parent_dir: Path | None = None) -> None:
        self._parent_dir = parent_dir
        self._cleanup = contextlib.ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._install()
        prefix = f"{self.NAME.lower().replace(' ', '-')}-"
        scratch = tempfile.TemporaryDirectory(prefix=prefix, dir=self._parent_dir, ignore_cleanup_errors=True)
        self._home = Path(self._cleanup.enter_context(scratch))
        self._cleanup.callback(self.stop)
        try:
            self._start()
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._cleanup.close()

    @property
    def log_path(self) -> Path:
        return self._home / "server.log"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the peer has not been started"
        return self._process.pid

    def cpu_seconds(self) -> float:
        return process_usage.cpu_seconds(self.pid)

    def rss_bytes(self) -> int:
        return process_usage.rss_bytes(self.pid)

    def rss_peak_bytes(self) -> int:
        return process_usage.rss_peak_bytes(self.pid)

    def stop(self) -> None:
        """SIGTERM (a clean shutdown), and SIGKILL when that takes too long.  Harmless when it has ended already."""
        if self._process is not None:
            stop_process(self._process)

    def _install(self) -> None:
        """Provide the files of the process.  Raises PeerUnavailable with the reason."""
        raise NotImplementedError

    def _start(self) -> None:
        raise NotImplementedError

    def _wait_until(self, is_answering: Callable[[], bool], timeout_s: float) -> None:
        """`OSError` of `is_answering` means not yet.  Raises NotAnswering with the end of the peer's log."""
        assert self._process is not None
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(OSError):
                if is_answering():
                    return
            time.sleep(_LOOK_EVERY_S)
        story = self.log_path.read_text(errors="replace")[-2000:]
        raise NotAnswering(f"{self.NAME} did not answer; its log ends:\n{story}")


def stop_process(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
