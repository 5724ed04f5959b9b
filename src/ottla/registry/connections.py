"""uvicorn's connections, bounded: their number, and the time in which each must get on.

uvicorn itself limits neither those that never send a request nor those that take no answer.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from ottla.observe.events import fields

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 512
# Uvicorn closes one without a next request after that time.
KEEP_ALIVE_S: Final = 5
# For the head of a request to arrive, and for some of an answer to be received.
STALLED_AFTER_S: Final = 15.0
LOOK_EVERY_S: Final = 5.0


class BoundedConnection(H11Protocol):
    """Above `CONNECTIONS_MAX` the one that has waited longest for its client is closed: the newest is served."""

    moved_s: float
    _unsent_bytes: int
    _look_task: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self.moved_s = self.loop.time()
        self._unsent_bytes = 0
        self._look_task = self.loop.call_later(LOOK_EVERY_S, self._look)
        if len(self.connections) > CONNECTIONS_MAX:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._look_task.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self.moved_s = self.loop.time()
        super().on_response_complete()

    @property
    def is_answering(self) -> bool:
        """The whole request is here, and its answer is not complete."""
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    @property
    def is_receiving(self) -> bool:
        """The body is on its way; it has a deadline of its own (http_app.py)."""
        return self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete

    def _make_room(self) -> None:
        open_now = [each for each in self.connections if not each.transport.is_closing()]
        if len(open_now) <= CONNECTIONS_MAX:
            return
        waiting = [
            each
            for each in open_now
            if isinstance(each, BoundedConnection) and each is not self and not each.is_answering
        ]
        closed = min(waiting, key=lambda each: each.moved_s, default=self)
        log.debug("connection.closed_for_room", extra=fields(client=closed.client))
        closed.transport.abort()

    def _look(self) -> None:
        now_s = self.loop.time()
        unsent_bytes = self.transport.get_write_buffer_size()
        if unsent_bytes < self._unsent_bytes:
            self.moved_s = now_s
        self._unsent_bytes = unsent_bytes
        waits_for_client = unsent_bytes > 0 or not (self.is_answering or self.is_receiving)
        if waits_for_client and now_s - self.moved_s > STALLED_AFTER_S:
            log.debug("connection.stalled", extra=fields(client=self.client, unsent_bytes=unsent_bytes))
            self.transport.abort()
            return
        self._look_task = self.loop.call_later(LOOK_EVERY_S, self._look)
