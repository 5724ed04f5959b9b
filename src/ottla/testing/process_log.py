"""The log file of a process that may run for weeks: one that has grown large makes room for a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

LOG_BYTES_MAX: Final = 16 << 20


def former_log(path: Path) -> Path:
    """Where the lines before the present ones are; older ones are lost."""
    return path.with_name(f"{path.name}.1")


def retire_large_log(path: Path) -> None:
    """No process writes it now."""
    if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
        path.replace(former_log(path))


class ProcessLog:
    """Lines are appended, and are in the file when `add` returns."""

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
