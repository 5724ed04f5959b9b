"""Brings a failed sync from the thread that met it to the event loop's, which takes the directory offline for it."""

from __future__ import annotations

import threading
from collections.abc import Callable


class FailedSyncs:
    """Made in the event loop's thread."""

    def __init__(self, stop_flushes: Callable[[], None], on_failed: Callable[[OSError], None]) -> None:
        """`stop_flushes` is called in any thread, `on_failed` in the loop's."""
        self._stop_flushes = stop_flushes
        self._on_failed = on_failed
        self._thread_id = threading.get_ident()
        # Of another thread, until `check` reports it on the loop.
        self._failed: OSError | None = None

    def report(self, error: OSError) -> None:
        """Any sync failed, in any thread; other threads' callers bring their error to the loop, or `check` does.

        Linux reports a lost write-back once for a descriptor: a flush that succeeds from now on proves nothing.
        """
        self._stop_flushes()
        if threading.get_ident() == self._thread_id:
            self._on_failed(error)
        elif self._failed is None:
            self._failed = error

    def check(self) -> None:
        """Whether another thread's sync failed: then it counts from now on."""
        if self._failed is not None:
            self._on_failed(self._failed)
