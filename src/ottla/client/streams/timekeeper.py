"""The thread that commits and gives back by the clock: a fetch that hangs must not hold that up."""

from __future__ import annotations

import logging
import threading

from ottla.client.streams.engine import StreamsEngine
from ottla.model.errors import OttlaError
from ottla.runtime.clock import Clock

log = logging.getLogger(__name__)


class Timekeeper:
    def __init__(self, engine: StreamsEngine, clock: Clock, due_earlier: threading.Event) -> None:
        """`due_earlier` is set when something is due earlier than it was."""
        self._engine = engine
        self._clock = clock
        self._due_earlier = due_earlier
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="ottla-commits", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._is_closing = True
        self._due_earlier.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._due_earlier.clear()
                next_ms = self._engine.on_time()
                self._due_earlier.wait(max(0, next_ms - self._clock.monotonic_ms()) / 1000)
        except Exception as error:
            log.exception("the thread that commits by the clock has failed")
            self._engine.on_failure(OttlaError(f"the committing thread failed: {type(error).__name__}: {error}"))
