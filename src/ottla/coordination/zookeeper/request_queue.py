"""The requests of one session: begun in order, a bounded number under way, the others waiting."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from kazoo.exceptions import ConnectionLoss as LossOfConnection

from ottla.coordination.tree import ConnectionLoss, Lease, TreeError
from ottla.coordination.zookeeper.client import Answer, Request
from ottla.runtime.clock import Clock

# The pipe to kazoo's thread takes a byte per request and blocks when it is full: on Linux at some 270.
REQUESTS_MAX: Final = 64


class Sender(Protocol):
    """The part of `SessionClient` that the queue uses."""

    def send(self, request: Request, answer: Answer) -> bool:
        """False: there is no connection now, and nothing was sent."""
        ...


class Call:
    """A request, its place in time, and the future of its answer.  kazoo answers from its own thread."""

    __slots__ = ("_on_answer", "begun_ms", "future", "is_write", "path", "request", "sent_ms")

    def __init__(
        self,
        request: Request,
        path: str,
        begun_ms: int,
        on_answer: Callable[[Call, Any, Exception | None], None],
        *,
        is_write: bool,
    ) -> None:
        self.request = request
        self.path = path
        self.is_write = is_write
        self.begun_ms = begun_ms
        self.sent_ms = begun_ms
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._on_answer = on_answer

    def send(self, sender: Sender, now_ms: int) -> bool:
        self.sent_ms = now_ms
        return sender.send(self.request, self)

    def set(self, value: object) -> None:
        self._on_answer(self, value, None)

    def set_exception(self, error: Exception) -> None:
        self._on_answer(self, None, error)


class RequestQueue:
    """While it is open it sends; while the connection is broken, calls wait until `fail_waiting` gives them up.

    Every answer to a write extends the lease, counted from the moment when that write was sent.
    """

    def __init__(self, sender: Sender, clock: Clock, lease: Lease) -> None:
        self._sender = sender
        self._clock = clock
        self._lease = lease
        self._lease_ms = 0
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Call] = deque()
        self._under_way: dict[Call, None] = {}
        self._is_open = False
        self._ended: type[TreeError] | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def submit(self, request: Request, path: str, *, is_write: bool = False) -> asyncio.Future[Any]:
        """Begin a request after all that were submitted before.  Its errors are kazoo's, or `TreeError`."""
        call = Call(request, path, self._clock.boottime_ms(), self._hand_over, is_write=is_write)
        if self._ended is not None:
            call.future.set_exception(self._ended(path))
            return call.future
        self._waiting.append(call)
        self._idle.clear()
        self._send_waiting()
        return call.future

    def open(self, lease_ms: int) -> None:
        """There is a connection; a write's answer now gives this lease."""
        self._lease_ms = lease_ms
        self._is_open = True
        self._send_waiting()

    def hold(self) -> None:
        """The connection broke."""
        self._is_open = False

    def oldest(self) -> Call | None:
        """The call that has been without an answer for longest."""
        return next(iter(self._under_way), None)

    def fail_waiting(self, begun_before_ms: int) -> None:
        """Give up those that have waited for a connection since before then: they were not sent, and will not be."""
        while not self._is_open and self._waiting and self._waiting[0].begun_ms < begun_before_ms:
            call = self._waiting.popleft()
            _fail(call, ConnectionLoss(call.path))
        self._note_idle()

    def end(self, error: type[TreeError]) -> None:
        """The session is over: nothing more is sent or answered."""
        self._is_open = False
        self._ended = error
        for call in (*self._under_way, *self._waiting):
            _fail(call, error(call.path))
        self._under_way.clear()
        self._waiting.clear()
        self._note_idle()

    async def wait_until_idle(self) -> None:
        await self._idle.wait()

    def _send_waiting(self) -> None:
        while self._is_open and self._waiting and len(self._under_way) < REQUESTS_MAX:
            call = self._waiting.popleft()
            if call.future.done():
                continue  # the caller was cancelled: nobody needs it any more
            self._under_way[call] = None
            if not call.send(self._sender, self._clock.boottime_ms()):
                # The connection broke, which this loop has yet to hear: the next one takes it.
                del self._under_way[call]
                self._waiting.appendleft(call)
                self._is_open = False
        self._note_idle()

    def _hand_over(self, call: Call, value: Any, error: Exception | None) -> None:
        """From kazoo's thread to the loop; a loop that is closed has no callers."""
        try:
            self._loop.call_soon_threadsafe(self._on_answer, call, value, error)
        except RuntimeError:
            return

    def _on_answer(self, call: Call, value: Any, error: Exception | None) -> None:
        if call not in self._under_way:
            return  # it ended with the session
        del self._under_way[call]
        if isinstance(error, LossOfConnection):
            self._is_open = False  # hearing of it may come later, and so may the next connection
        if error is not None:
            _fail(call, error)
        else:
            if call.is_write:
                self._lease.extend(call.sent_ms + self._lease_ms)
            if not call.future.done():
                call.future.set_result(value)
        self._send_waiting()

    def _note_idle(self) -> None:
        if not self._waiting and not self._under_way:
            self._idle.set()


def _fail(call: Call, error: Exception) -> None:
    if not call.future.done():
        call.future.set_exception(error)
