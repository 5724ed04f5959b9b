"""Work in a thread of its own beside a measurement."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self

from bench.raw_client.load import LoadFailed


class Loop(ABC):
    """A thread that runs while the context is open; what failed in it is raised at the end."""

    def __init__(self) -> None:
        self.is_stopping = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run_noting_failure, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.is_stopping.set()
        self._thread.join()
        if self._failure is not None and error is None:
            raise LoadFailed(f"{type(self).__name__}: {self._failure}") from self._failure

    @abstractmethod
    def run(self) -> None:
        """Until `is_stopping`."""

    def _run_noting_failure(self) -> None:
        try:
            self.run()
        except Exception as failure:  # noqa: BLE001 - raised again where the context ends
            self._failure = failure


class Watch(Loop):
    """Calls `look` at once, every `every_s`, and at the end."""

    def __init__(self, look: Callable[[], object], every_s: float) -> None:
        super().__init__()
        self._look_once = look
        self._every_s = every_s

    def run(self) -> None:
        self._look_once()
        while not self.is_stopping.wait(self._every_s):
            self._look_once()
        self._look_once()
