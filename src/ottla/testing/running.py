"""The base of brokers, clusters and ZooKeepers that run as processes, with a directory for their data."""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self


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
