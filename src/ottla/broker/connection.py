"""One client's connection: bytes in, requests out to the router, answers back in the order of the requests.

The connection owns its socket.  There is no stream object, no task and no object for each record: several
requests are parsed in place per wake-up and their answers leave in one `send`.

Order (Kafka's contract): answers leave in request order.  A Produce may start while earlier Produces of this
connection still wait for their flush, so pipelined produces share one group commit; every other request starts
only when all before it are answered.

Memory: the receive buffer grows as bytes arrive, within a budget shared by all connections; reading stops while
answers are not taken, so a peer that does not read costs one answer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ottla.broker.limits import (
    ANSWERS_PENDING_MAX,
    PIPELINED_ANSWER_BYTES_MAX,
    RECEIVE_BUFFER_BYTES,
    RECEIVE_BUFFER_KEPT_BYTES,
    REQUEST_BYTES_MIN,
    SEND_TURN_BYTES,
)
from ottla.broker.receive_budget import ReceiveBudget
from ottla.observe.events import fields
from ottla.runtime.disk import FileRun

log = logging.getLogger(__name__)

_LENGTH: Final = struct.Struct(">i")
_API_KEY: Final = struct.Struct(">h")
_PRODUCE: Final = 0
_MSG_MORE: Final = getattr(socket, "MSG_MORE", 0)

# A large frame is read up to its end only, so that the next one starts at the buffer's begin without a move.
_LOOK_AHEAD_BYTES: Final = 256 * 1024

Piece = bytes | bytearray | memoryview | FileRun


class Answer:
    """The place of one request in its connection's order.  `pieces` is None until the answer is there."""

    __slots__ = ("connection", "pieces")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.pieces: Sequence[Piece] | None = None

    def complete(self, pieces: Sequence[Piece]) -> None:
        """Give the answer; it leaves with the connection's next `send_ready`.  Empty pieces: nothing is sent."""
        assert self.pieces is None, "a request was answered twice"
        self.pieces = pieces


class Router(Protocol):
    """What a connection asks of the broker for each whole frame."""

    def route(self, connection: Connection, buffer: bytearray, view: memoryview, position: int, end: int) -> None:
        """Handle the request in `buffer[position:end]` (behind its length prefix).

        The bytes are valid only during the call.  The handler calls `connection.answer_now`, or
        `connection.park`, or `connection.close`.
        """
        ...


class Connection:
    """A client's socket and its state; every method runs on the event loop's thread."""

    __slots__ = (
        "_blocked",
        "_budget",
        "_buffer",
        "_end",
        "_exclusive",
        "_grown_bytes",
        "_loop",
        "_on_closed",
        "_out",
        "_pending",
        "_processing",
        "_reading",
        "_request_bytes_max",
        "_router",
        "_socket",
        "_start",
        "_unsent",
        "_view",
        "_writing",
        "client_id",
        "closed_reason",
        "is_closed",
        "is_draining",
        "local_address",
        "on_close",
        "peer_name",
        "quiet_sweeps",
    )

    def __init__(
        self,
        peer: socket.socket,
        loop: asyncio.AbstractEventLoop,
        router: Router,
        budget: ReceiveBudget,
        request_bytes_max: int,
        on_closed: Callable[[Connection], None],
    ) -> None:
        self._socket = peer
        self._loop = loop
        self._router = router
        self._budget = budget
        self._request_bytes_max = request_bytes_max
        self._on_closed = on_closed
        self._buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._grown_bytes = 0
        self._out: list[bytes] = []
        self._unsent: deque[Piece] = deque()
        self._pending: deque[Answer] = deque()
        # The last of the pending requests is not a Produce, or a very large one: nothing starts behind it.
        self._exclusive = False
        # A request stands in the buffer that may not start yet.
        self._blocked = False
        self._processing = False
        self._writing = False
        self.is_closed = False
        self.is_draining = False
        self.closed_reason = ""
        self.quiet_sweeps = 0
        self.client_id: str | None = None
        # Undoes what the broker keeps for a parked request of this connection.
        self.on_close: Callable[[], None] | None = None
        self.local_address: tuple[str, int] = peer.getsockname()[:2]
        address = peer.getpeername()
        self.peer_name = f"{address[0]}:{address[1]}"
        self._reading = True
        loop.add_reader(peer.fileno(), self._on_readable)

    # What handlers use.

    def answer_now(self, data: bytes) -> None:
        """Answer the request that is being routed with these bytes (a whole frame)."""
        if self._pending:
            answer = Answer(self)
            answer.pieces = (data,)
            self._pending.append(answer)
            if len(data) > PIPELINED_ANSWER_BYTES_MAX:
                self._exclusive = True
        else:
            self._out.append(data)

    def answer_pieces(self, pieces: Sequence[Piece]) -> None:
        """Answer the request that is being routed with bytes and runs of files; nothing may be pending."""
        assert not self._pending, "only a produce is answered behind pending requests"
        self._flush_out()
        self._unsent.extend(pieces)

    def park(self, *, exclusive: bool) -> Answer:
        """Keep the place of the request that is being routed; its answer comes later.

        `exclusive`: no later request of this connection starts before it is answered.
        """
        answer = Answer(self)
        self._pending.append(answer)
        self._exclusive = exclusive
        return answer

    def send_ready(self) -> None:
        """Send the answers that are complete, up to the first that is not; then go on with waiting requests."""
        if self.is_closed:
            return
        pending = self._pending
        out = self._out
        while pending:
            pieces = pending[0].pieces
            if pieces is None:
                break
            pending.popleft()
            for piece in pieces:
                if type(piece) is bytes and not self._unsent:
                    out.append(piece)
                else:
                    self._flush_out()
                    self._unsent.append(piece)
        if not pending:
            self._exclusive = False
        self._send()
        if self._blocked and not self._processing and not self.is_closed and not self.is_draining:
            self._process()
        self._close_if_drained()

    @property
    def has_unanswered(self) -> bool:
        """Whether a request is under way or an answer is not fully sent."""
        return bool(self._pending or self._unsent or self._out)

    @property
    def is_stalled(self) -> bool:
        """Whether the peer owes us bytes: the rest of a frame, or room for an answer."""
        return bool(self._unsent) or (self._end > self._start and not self._blocked)

    def drain(self) -> None:
        """Start no further request; close when what is under way has been answered."""
        self.is_draining = True
        self._pause_reading()
        self._close_if_drained()

    def shrink(self) -> None:
        """Give back a grown buffer that holds nothing."""
        if self._grown_bytes and self._start == self._end and not self._processing:
            self._start = self._end = 0
            self._replace_buffer(RECEIVE_BUFFER_BYTES)

    def close(self, reason: str) -> None:
        """Close the socket and forget what waits; safe to call twice."""
        if self.is_closed:
            return
        self.is_closed = True
        self.closed_reason = reason
        self._pause_reading()
        if self._writing:
            self._loop.remove_writer(self._socket.fileno())
            self._writing = False
        self._socket.close()
        self._pending.clear()
        self._unsent.clear()
        self._out.clear()
        # What waits elsewhere may keep this object for a while; the buffer must not stay with it.
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        grown_bytes, self._grown_bytes = self._grown_bytes, 0
        self._budget.forget(self._on_budget)
        self._budget.give_back(grown_bytes)
        if self.on_close is not None:
            self.on_close()
            self.on_close = None
        self._on_closed(self)

    # Reading.

    def _on_readable(self) -> None:
        self.quiet_sweeps = 0
        try:
            received = self._socket.recv_into(self._view[self._end : self._receive_limit()])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(f"receive failed: {error}")
            return
        if not received:
            if self._end == self._start or self._blocked:
                self.close("the peer closed")
            else:
                self._refuse("the peer closed within a request")
            return
        self._end += received
        if self._blocked:
            # The bytes are kept; more are read only when the request in front may start.
            self._pause_reading()
            return
        self._process()

    def _refuse(self, reason: str) -> None:
        """Close a connection whose bytes make no request, with a line for whoever looks for the reason."""
        log.warning("request.refused", extra=fields(peer=self.peer_name, client_id=self.client_id, error=reason))
        self.close(reason)

    def _receive_limit(self) -> int:
        """Where reading stops: at a large frame's end, else where the buffer ends."""
        if self._end - self._start >= 4:
            (length,) = _LENGTH.unpack_from(self._buffer, self._start)
            frame_end = self._start + 4 + int(length)
            if frame_end - self._end > _LOOK_AHEAD_BYTES:
                return min(frame_end, len(self._buffer))
        return min(len(self._buffer), self._end + _LOOK_AHEAD_BYTES)

    def _process(self) -> None:
        """Route every whole frame that may start, then send what they answered."""
        self._processing = True
        self._blocked = False
        buffer, view, route = self._buffer, self._view, self._router.route
        start, end = self._start, self._end
        length_at = _LENGTH.unpack_from
        while end - start >= 4:
            (length,) = length_at(buffer, start)
            if length < REQUEST_BYTES_MIN or length > self._request_bytes_max:
                self._refuse(
                    f"a request of {length} bytes: {REQUEST_BYTES_MIN} to {self._request_bytes_max} are allowed "
                    "(socket.request.max.bytes)"
                )
                break
            frame_end = start + 4 + length
            if frame_end > end:
                break
            if (self._pending or self._unsent) and not self._may_start(buffer, start + 4):
                self._blocked = True
                if end == len(buffer):
                    self._pause_reading()
                break
            # The frame is consumed before it is routed: what a handler does to this connection sees a true state.
            self._start = frame_end
            route(self, buffer, view, start + 4, frame_end)
            if self.is_closed or self.is_draining:
                break
            start = frame_end
        self._processing = False
        if self.is_closed:
            return
        self._send()
        if self.is_closed or self.is_draining:
            return
        if self._blocked:
            # What blocked it may have been sent just now.
            if not self._pending and not self._unsent:
                self._loop.call_soon(self._resume)
            return
        self._make_room()

    def _resume(self) -> None:
        if not self.is_closed and self._blocked and not self._pending and not self._unsent:
            self._process()

    def _may_start(self, buffer: bytearray, position: int) -> bool:
        """Whether the request at `position` may start while earlier ones are unanswered: a Produce after Produces."""
        return (
            not self._exclusive
            and not self._unsent
            and len(self._pending) < ANSWERS_PENDING_MAX
            and _API_KEY.unpack_from(buffer, position)[0] == _PRODUCE
        )

    def _make_room(self) -> None:
        """See that the next `recv_into` has room for what is missing of the frame at the buffer's front."""
        start, end = self._start, self._end
        if start == end:
            self._start = self._end = 0
            if self._grown_bytes and (len(self._buffer) > RECEIVE_BUFFER_KEPT_BYTES or self._budget.is_contended):
                self._replace_buffer(RECEIVE_BUFFER_BYTES)
        else:
            size = len(self._buffer)
            frame_bytes = 4 + _LENGTH.unpack_from(self._buffer, start)[0] if end - start >= 4 else 4
            if end == size or start + frame_bytes > size:
                if end - start == size or (start == 0 and end == size):
                    # Full of one frame: double, so memory follows the bytes that came, not the length claimed.
                    target = min(max(frame_bytes, RECEIVE_BUFFER_BYTES), 2 * size)
                    if not self._grow(target):
                        return
                elif start:
                    self._replace_buffer(size)
        if not self._reading and not self.is_draining:
            self._reading = True
            self._loop.add_reader(self._socket.fileno(), self._on_readable)

    def _grow(self, target_bytes: int) -> bool:
        """Take a larger buffer within the shared budget; without room, wait for it with reading stopped."""
        grown = target_bytes - RECEIVE_BUFFER_BYTES
        if not self._budget.take(grown - self._grown_bytes, self._on_budget, held_bytes=self._grown_bytes):
            self._pause_reading()
            return False
        self._grown_bytes = grown
        self._replace_buffer(target_bytes)
        return True

    def _on_budget(self) -> None:
        if not self.is_closed:
            self._make_room()

    def _replace_buffer(self, size_bytes: int) -> None:
        """Move what is unread to the front of a buffer of this size (the same one where the size is the same)."""
        unread = self._end - self._start
        assert unread <= size_bytes
        if size_bytes == len(self._buffer):
            self._view[:unread] = bytes(self._view[self._start : self._end])
        else:
            buffer = bytearray(size_bytes)
            buffer[:unread] = self._view[self._start : self._end]
            self._buffer = buffer
            self._view = memoryview(buffer)
            if size_bytes <= RECEIVE_BUFFER_BYTES:
                self._budget.give_back(self._grown_bytes)
                self._grown_bytes = 0
        self._start, self._end = 0, unread

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._socket.fileno())

    # Writing.

    def _flush_out(self) -> None:
        if self._out:
            self._unsent.append(b"".join(self._out))
            self._out.clear()

    def _send(self) -> None:
        """Send what is ready; the rest waits for the socket."""
        if self._unsent:
            self._flush_out()
            if not self._writing:
                self._send_unsent()
            return
        out = self._out
        if not out:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self.close(f"send failed: {error}")
            return
        if sent < len(data):
            self._unsent.append(memoryview(data)[sent:])
            self._wait_writable()

    def _send_unsent(self) -> None:
        unsent = self._unsent
        turn_bytes = SEND_TURN_BYTES
        try:
            while unsent and turn_bytes > 0:
                turn_bytes -= self._send_piece(unsent)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self.close(f"send failed: {error}")
            return
        if unsent:
            self._wait_writable()

    def _send_piece(self, unsent: deque[Piece]) -> int:
        """Send from the first piece; returns the bytes that the socket took."""
        piece = unsent[0]
        if isinstance(piece, FileRun):
            sent = piece.file.send_to(self._socket, piece.position, piece.length_bytes)
            if sent == 0:
                raise OSError(f"{piece.file.path} ends before the {piece.length_bytes} bytes promised")
            if sent == piece.length_bytes:
                unsent.popleft()
            else:
                unsent[0] = FileRun(piece.file, piece.position + sent, piece.length_bytes - sent)
            return sent
        sent = self._socket.send(piece, _MSG_MORE if len(unsent) > 1 else 0)
        if sent == len(piece):
            unsent.popleft()
        else:
            unsent[0] = memoryview(piece)[sent:]
        return sent

    def _wait_writable(self) -> None:
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self._socket.fileno(), self._on_writable)

    def _on_writable(self) -> None:
        self.quiet_sweeps = 0
        self._send_unsent()
        if self.is_closed or self._unsent:
            return
        self._loop.remove_writer(self._socket.fileno())
        self._writing = False
        self.send_ready()

    def _close_if_drained(self) -> None:
        if self.is_draining and not self.is_closed and not self.has_unanswered:
            self.close("the broker is stopping")
