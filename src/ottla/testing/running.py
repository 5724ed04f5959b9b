"""The processes of tests: the base of brokers, clusters and ZooKeepers, where they run, their freeze and their logs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

LOG_BYTES_MAX: Final = 16 << 20
STOPPED_WITHIN_S: Final = 30.0


class Running(ABC):
    """Starts with `with`, and is closed at its end.  Without `data_dir` it gets a temporary one, removed with it."""

    def __init__(self, data_dir: str | Path | None, temporary_prefix: str) -> None:
        self._temporary = None if data_dir is not None else tempfile.mkdtemp(prefix=temporary_prefix)
        self.data_dir = Path(data_dir if data_dir is not None else self._temporary or "")

    @abstractmethod
    def start(self) -> Self:
        """Start processes that do not run.  Those that have started when this raises run until `close`."""

    @abstractmethod
    def _end(self) -> None:
        """Stop what runs."""

    def close(self) -> None:
        """Stop what runs, and remove the data directory if it was a temporary one."""
        try:
            self._end()
        finally:
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Place(NamedTuple):
    """Where a process runs: the address that it listens on, and the words before its command, as those of `nsenter`.

    On this machine's loopback unless the test has namespaces of its own.  The words must end in the process itself (an
    `exec`), since it is signalled by the id of what was started.
    """

    host: str = "127.0.0.1"
    enter: tuple[str, ...] = ()


LOOPBACK: Final = Place()


def pause_process(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Freeze it: send SIGSTOP and wait until the whole process is stopped, or has ended.

    The signal is only a request: a thread that runs on another processor continues until the kernel interrupts it
    there, and on a busy machine that is time enough to answer a request.  The parent is notified when the last thread
    stops.
    """
    process.send_signal(signal.SIGSTOP)
    if hasattr(os, "waitid"):  # Python on macOS has it from 3.13 on
        with suppress(ChildProcessError):  # another thread has reaped it
            # WNOWAIT: an end that is seen here is still there for `process` to reap.
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


class RunningProcess(Running):
    """A process that writes its own log: its `start` sets `_process`."""

    def __init__(self, data_dir: str | Path | None, temporary_prefix: str) -> None:
        super().__init__(data_dir, temporary_prefix)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.data_dir} has no running process"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Stop it as an operator would (SIGTERM)."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOPPED_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        self._process = None

    def kill(self) -> None:
        """End it without warning (SIGKILL), as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay open and nothing is answered."""
        assert self._process is not None, f"{self.data_dir} has no running process"
        pause_process(self._process)

    def resume(self) -> None:
        assert self._process is not None, f"{self.data_dir} has no running process"
        self._process.send_signal(signal.SIGCONT)

    def _end(self) -> None:
        self.stop()


def former_log(path: Path) -> Path:
    """Where the lines before the present ones are; older ones are lost."""
    return path.with_name(f"{path.name}.1")


def retire_large_log(path: Path) -> None:
    """No process writes it now."""
    if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
        path.replace(former_log(path))


class ProcessLog:
    """The log file of a process that may run for weeks: one that has grown large makes room for a new one.

    Lines are appended, and are in the file when `add` returns.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        retire_large_log(path)
        self._file = path.open("a", encoding="utf-8")

    def add(self, line: str) -> None:
        self._file.write(line)
        self._file.flush()
        if self._file.tell() > LOG_BYTES_MAX:
            self._file.close()
            retire_large_log(self._path)
            self._file = self._path.open("a", encoding="utf-8")

    def close(self) -> None:
        self._file.close()
