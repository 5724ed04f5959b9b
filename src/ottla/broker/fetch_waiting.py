"""Fetches that found too little and wait.  Each ends once: by data, by its deadline, or with its connection.

When partitions move a fetch only notes that; it looks again once at the end of the turn, however many have moved.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from ottla.broker.connection import Answer
from ottla.broker.fetch_read import FetchRead
from ottla.broker.fetch_session import FetchSession
from ottla.broker.fetch_session_read import SessionRead
from ottla.broker.partition import Partition
from ottla.broker.ready_connections import ReadyConnections
from ottla.protocol.fetch import FetchRequest

NOTHING_ASKED: Final = FetchRequest(-1, 0, 0, 0, 0, 0, -1, [], [], b"")


class FetchCall(NamedTuple):
    """A request with what its answer needs."""

    request: FetchRequest
    version: int
    correlation_id: int


class FetchService(Protocol):
    """What a waiting fetch asks of its handler."""

    ready: ReadyConnections
    # Partitions that waiting fetches hold on to.
    parked_partitions_count: int

    def read(self, request: FetchRequest) -> FetchRead: ...

    def is_enough(self, request: FetchRequest, read: FetchRead) -> bool: ...

    def complete(self, call: FetchCall, read: FetchRead, answer: Answer) -> None: ...

    def read_session(self, request: FetchRequest, session: FetchSession) -> SessionRead: ...

    def is_session_enough(self, request: FetchRequest, session: FetchSession, read: SessionRead) -> bool: ...

    def complete_session(self, call: FetchCall, session: FetchSession, read: SessionRead, answer: Answer) -> None: ...


class WaitingFetch:
    """A fetch that named all its partitions, and hangs on each of them."""

    __slots__ = ("_answer", "_call", "_partitions", "_service", "is_over")

    def __init__(self, service: FetchService, call: FetchCall, partitions: list[Partition], answer: Answer) -> None:
        self._service = service
        self._call = call
        self._answer = answer
        self._partitions = partitions
        self.is_over = False
        service.parked_partitions_count += len(partitions)
        for partition in partitions:
            partition.park_fetch(self)
        answer.connection.on_close = self.cancel

    def on_readable(self) -> None:
        """A partition's high watermark moved, or the partition is going away."""
        self._service.ready.wake(self)

    def look_again(self) -> None:
        if self.is_over:
            return
        read = self._service.read(self._call.request)
        if self._service.is_enough(self._call.request, read):
            self._finish(read)

    def on_expired(self) -> None:
        self._finish(self._service.read(self._call.request))

    def cancel(self) -> None:
        self.is_over = True
        for partition in self._partitions:
            partition.forget_fetch(self)
        self._service.parked_partitions_count -= len(self._partitions)
        # Its deadline keeps this object until its time comes; what is large goes now.
        self._partitions = []
        self._call = self._call._replace(request=NOTHING_ASKED)

    def _finish(self, read: FetchRead) -> None:
        call = self._call
        self.cancel()
        connection = self._answer.connection
        connection.on_close = None
        if not connection.is_closed:
            self._service.complete(call, read, self._answer)
            self._service.ready.add(connection)


class WaitingSessionFetch:
    """A fetch of a session: it hangs on the session, which its partitions tell when they move."""

    __slots__ = ("_answer", "_call", "_service", "_session", "is_over")

    def __init__(self, service: FetchService, call: FetchCall, session: FetchSession, answer: Answer) -> None:
        self._service = service
        self._call = call
        self._session = session
        self._answer = answer
        self.is_over = False
        service.parked_partitions_count += 1
        session.waiting = self
        session.watch_candidates()
        answer.connection.on_close = self.cancel

    def on_readable(self) -> None:
        self._service.ready.wake(self)

    def look_again(self) -> None:
        if self.is_over:
            return
        read = self._service.read_session(self._call.request, self._session)
        if self._service.is_session_enough(self._call.request, self._session, read):
            self._finish(read)
        else:
            self._session.watch_candidates()

    def on_expired(self) -> None:
        self._finish(self._service.read_session(self._call.request, self._session))

    def cancel(self) -> None:
        self.is_over = True
        self._service.parked_partitions_count -= 1
        if self._session.waiting is self:
            self._session.waiting = None

    def _finish(self, read: SessionRead) -> None:
        self.cancel()
        connection = self._answer.connection
        connection.on_close = None
        if not connection.is_closed:
            self._service.complete_session(self._call, self._session, read, self._answer)
            self._service.ready.add(connection)
