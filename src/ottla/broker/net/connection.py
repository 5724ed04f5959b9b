"""One client's connection: bytes in, requests out to the router, answers back in the order of the requests.

The connection owns its socket.  There is no stream object, no task and no object for each record: several
requests are parsed in place per wake-up and their answers leave in one `send`.

Order (Kafka's contract): answers leave in request order.  A Produce may start while earlier Produces of this
connection still wait for their flush, so pipelined produces share one group commit; every other request starts
only when all before it are answered.

Memory: the receive buffer grows as bytes arrive, within a budget shared by all connections; reading stops while
the peer does not receive its answers, so a peer that does not read costs one answer.  The listener closes a peer that
sends a frame too slowly (`frame_pace`).
"""

from __future__ import annotations

import itertools
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from time import perf_counter
from typing import Final, Protocol

from ottla.broker.net.access import AccessOf
from ottla.broker.net.auto_creations import AutoCreations
from ottla.broker.net.client_quotas import ClientQuotas, QuotasOf
from ottla.broker.net.frame_pace import UnfinishedFrame, UnreadAnswer
from ottla.broker.net.limits import ANSWERS_PENDING_MAX, PIPELINED_ANSWER_BYTES_MAX, REQUEST_BYTES_MIN
from ottla.broker.net.outbox import Outbox, Piece
from ottla.broker.net.receive_buffer import LENGTH_BYTES, ReceiveBudget, ReceiveBuffer
from ottla.broker.net.socket_loop import PeerSocket, SocketLoop
from ottla.model.listener import DEFAULT_LISTENER_NAME, without_mapping
from ottla.observe.events import frequent
from ottla.protocol.primitives import RequestBytes
from ottla.security.acl import ANONYMOUS as ANONYMOUS

log = logging.getLogger(__name__)

_LENGTH: Final = struct.Struct(">i")
_API_KEY: Final = struct.Struct(">h")
_KEY_AND_VERSION: Final = struct.Struct(">hh")
_PRODUCE: Final = 0
# A handshake record of TLS 1.x, which a plain listener reads as the length of a request.
_CLIENT_HELLO: Final = 0x1603
# On Linux the first byte is the connection's state; elsewhere such a peer is noticed when it is answered.
_TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None)
_TCP_CLOSE_WAIT: Final = 8
_NUMBERS: Final = itertools.count()


class Answer:
    """The position of one request in its connection's order.  `pieces` is None until the answer is there."""

    __slots__ = ("_on_complete", "connection", "pieces")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.pieces: Sequence[Piece] | None = None
        self._on_complete: Callable[[], None] | None = None

    def complete(self, pieces: Sequence[Piece]) -> None:
        """Set the answer; the connection's next `send_ready` sends it.  Empty pieces: nothing is sent."""
        assert self.pieces is None, "a request was answered twice"
        self.pieces = pieces
        if self._on_complete is not None:
            self._on_complete()

    def watch_complete(self, on_complete: Callable[[], None]) -> None:
        """Call it when the answer is set: it measures the request's time."""
        self._on_complete = on_complete


class Router(Protocol):
    """What a connection calls for each whole frame."""

    def route(self, connection: Connection, buffer: RequestBytes, view: memoryview, position: int, end: int) -> None:
        """Handle the request in `buffer[position:end]` (after its length prefix).

        The bytes are valid only during the call.  The handler calls `connection.answer_now`, or
        `connection.park`, or `connection.close`.
        """
        ...


class SlowReports(Protocol):
    """Takes the times of requests; see `SlowRequests` of request_meter.py."""

    @property
    def limit_s(self) -> float: ...

    def note(self, connection: Connection, api_key: int, version: int, **parts_s: float) -> None: ...


class Connection:
    """A client's socket and its state; every method runs on the event loop's thread."""

    __slots__ = (
        "_access_of",
        "_blocked",
        "_buffer",
        "_exclusive",
        "_is_held",
        "_loop",
        "_mute",
        "_on_close",
        "_on_closed",
        "_on_peer_closed",
        "_outbox",
        "_pending",
        "_principal",
        "_processing",
        "_quotas_of",
        "_reading",
        "_received_bytes",
        "_release_reason",
        "_request_bytes_max",
        "_request_bytes_min",
        "_router",
        "_slow",
        "_slow_after_s",
        "_socket",
        "_swept_bytes",
        "_waits_for_room_since_s",
        "access",
        "answered_in_vain",
        "auto_creations",
        "client_id",
        "closed_reason",
        "is_closed",
        "is_draining",
        "listener_name",
        "local_address",
        "number",
        "peer_name",
        "quiet_sweeps",
        "quotas",
    )

    def __init__(
        self,
        peer: PeerSocket,
        loop: SocketLoop,
        router: Router,
        budget: ReceiveBudget,
        request_bytes_max: int,
        on_closed: Callable[[Connection], None],
        slow: SlowReports | None = None,
        *,
        listener_name: str = DEFAULT_LISTENER_NAME,
        principal: str = ANONYMOUS,
        access_of: AccessOf | None = None,
        quotas_of: QuotasOf | None = None,
    ) -> None:
        """`principal`: of the client's certificate; a login changes it.

        `access_of` gives its rights; None: there is no authorizer.  `quotas_of` gives its quotas.
        """
        self.listener_name: Final = listener_name
        # In the order of their acceptance.
        self.number: Final = next(_NUMBERS)
        self._slow = slow
        self._slow_after_s = inf if slow is None else slow.limit_s
        self._waits_for_room_since_s = 0.0
        self._socket = peer
        self._loop = loop
        self._router = router
        self._request_bytes_min = REQUEST_BYTES_MIN
        self._request_bytes_max = request_bytes_max
        self._on_closed = on_closed
        self._buffer = ReceiveBuffer(budget, self._on_budget)
        self._outbox = Outbox(peer, loop, self._on_progress, self.close)
        self._pending: deque[Answer] = deque()
        # The last of the pending requests is not a Produce, or a very large one: no request starts until it is
        # answered.
        self._exclusive = False
        # The buffer holds a request that may not start yet.
        self._blocked = False
        self._processing = False
        # A request is being read in the buffer, step by step.
        self._is_held = False
        self.is_closed = False
        self.is_draining = False
        # Why it is closed when it is idle; empty: it stays.
        self._release_reason = ""
        self.closed_reason = ""
        # All bytes that came, now and at the last sweep.
        self._received_bytes = self._swept_bytes = 0
        # Sweeps since a byte came, or were sent to a peer that was slow.
        self.quiet_sweeps = 0
        self.client_id: str | None = None
        self.auto_creations = AutoCreations()
        # How often it requested leaders or coordinators while this broker might not lead, by API key.
        self.answered_in_vain: dict[int, int] = {}
        self._on_close: Callable[[], None] | None = None
        self._on_peer_closed: Callable[[], None] | None = None
        self.local_address: tuple[str, int] = peer.getsockname()[:2]
        address = peer.getpeername()
        self.peer_name = f"{without_mapping(address[0])}:{address[1]}"
        self._access_of = access_of
        self._quotas_of = quotas_of
        # The last place in the queue while the connection is muted.
        self._mute: Answer | None = None
        # None: its client has none.
        self.quotas: ClientQuotas | None = None
        self.principal = principal
        self._reading = True
        loop.add_reader(peer.fileno(), self._on_readable)

    @property
    def peer_host(self) -> str:
        return self.peer_name.rpartition(":")[0]

    @property
    def principal(self) -> str:
        """`Type:name`, as ACLs name it."""
        return self._principal

    @principal.setter
    def principal(self, principal: str) -> None:
        """The client has logged in: requests from now on have the rights of this principal."""
        self._principal = principal
        access_of = self._access_of
        # None: there is no authorizer, and everything is allowed.
        self.access = None if access_of is None else access_of(principal, self.peer_host, self.listener_name)
        self._set_quotas(None if self._quotas_of is None else self._quotas_of(self, principal))

    def follow_quotas(self) -> None:
        """The first quota of the broker was set, or the last one deleted."""
        if self._quotas_of is not None and not self.is_closed:
            self._set_quotas(self._quotas_of(self, self._principal))

    def _set_quotas(self, quotas: ClientQuotas | None) -> None:
        if self.quotas is not None:
            self.quotas.end()
        self.quotas = quotas

    # Called by handlers.

    def answer_now(self, data: bytes) -> None:
        """Answer the request that is being routed with these bytes (a whole frame)."""
        if self._pending:
            answer = Answer(self)
            answer.pieces = (data,)
            self._pending.append(answer)
            if len(data) > PIPELINED_ANSWER_BYTES_MAX:
                self._exclusive = True
        else:
            self._outbox.add(data)

    def answer_pieces(self, pieces: Sequence[Piece]) -> None:
        """Answer the request that is being routed with bytes and runs of files; nothing may be pending."""
        assert not self._pending, "only a produce is answered after pending requests"
        self._outbox.add_pieces(pieces)

    def park(self, *, exclusive: bool) -> Answer:
        """Reserve the position of the request that is being routed; its answer comes later.

        `exclusive`: no later request of this connection starts before it is answered.
        """
        answer = Answer(self)
        self._pending.append(answer)
        self._exclusive = exclusive
        return answer

    def hold(self) -> Answer:
        """Park the request that is being routed, exclusively, and leave its bytes in the buffer until `let_go`.

        Nothing is received meanwhile; the bytes stay in the budget of all buffers.
        """
        self._is_held = True
        self._pause_reading()
        return self.park(exclusive=True)

    def let_go(self, *, exclusive: bool = True) -> None:
        """The bytes of the request are not needed any more: continue with what follows them.

        Not `exclusive`: later produces of this connection may start before the request is answered.
        """
        if self._is_held:
            self._is_held = False
            self._exclusive = exclusive or self._mute is not None
            if not self.is_closed and not self.is_draining and not self._processing:
                self._process()

    def mute(self) -> None:
        """Start no further request until `unmute`; those in progress are answered."""
        self._mute = self.park(exclusive=True)

    def unmute(self) -> None:
        mute, self._mute = self._mute, None
        if mute is not None and not self.is_closed:
            mute.complete(())
            self.send_ready()

    def send_ready(self) -> None:
        """Send the answers that are complete, up to the first that is not; then start waiting requests."""
        if self.is_closed:
            return
        pending = self._pending
        outbox = self._outbox
        while pending:
            pieces = pending[0].pieces
            if pieces is None:
                break
            pending.popleft()
            outbox.add_pieces(pieces)
        if not pending:
            self._exclusive = False
        outbox.send()
        if self._blocked and not self._processing and not self.is_closed and not self.is_draining:
            self._process()
        self._close_if_drained()

    @property
    def newest_unanswered(self) -> Answer | None:
        """The last request of the queue: unanswered, or answered and waiting behind one that is not."""
        return self._pending[-1] if self._pending else None

    @property
    def has_unanswered(self) -> bool:
        """Whether a request is in progress or an answer is not fully sent."""
        return bool(self._pending) or not self._outbox.is_empty

    @property
    def is_stalled(self) -> bool:
        """Whether the peer owes us something: the rest of a frame, or room for an answer."""
        return bool(self._outbox.unsent) or self._owes_frame

    @property
    def unfinished_frame(self) -> UnfinishedFrame | None:
        """The frame of which the peer owes us the rest."""
        if not self._owes_frame:
            return None
        buffer = self._buffer
        unread_bytes = buffer.end - buffer.start
        return UnfinishedFrame(self._received_bytes - unread_bytes, unread_bytes, buffer.is_grown)

    @property
    def unread_answer(self) -> UnreadAnswer | None:
        """The large answer of which the peer has not taken all."""
        answer = self._outbox.unsent_answer
        return None if answer is None else UnreadAnswer(answer.number, answer.sent_bytes)

    @property
    def _owes_frame(self) -> bool:
        # While we do not read, it waits for us.
        return self._reading and not (self._buffer.is_empty or self._blocked)

    def count_sweep(self) -> None:
        """One more sweep has passed, quiet unless bytes came."""
        if self._received_bytes != self._swept_bytes:
            self._swept_bytes = self._received_bytes
            self.quiet_sweeps = 0
        self.quiet_sweeps += 1

    @property
    def has_lost_peer(self) -> bool:
        """Whether the peer has closed while nothing is read, because a request waits for one that is parked."""
        if self._reading or not self._blocked or self._outbox.unsent or _TCP_INFO is None:
            return False
        state: int = self._socket.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0]
        return state == _TCP_CLOSE_WAIT

    def drain(self) -> None:
        """Start no further request; close when those in progress have been answered."""
        self.is_draining = True
        self._pause_reading()
        if self.quotas is not None:
            self.quotas.end()
        self._close_if_drained()

    def end(self, reason: str) -> None:
        """Start no further request, whether or not one is received; close when those in progress are answered."""
        self.is_draining = True
        self._release_reason = reason
        self._pause_reading()

    def authenticate(self, principal: str) -> None:
        """The client has proved its identity."""
        self.principal = principal

    def accept_tokens(self) -> None:
        """The next frames are tokens of a login without a request's head."""
        self._request_bytes_min = 0

    def accept_requests(self, request_bytes_max: int) -> None:
        """The client has logged in."""
        self._request_bytes_min, self._request_bytes_max = REQUEST_BYTES_MIN, request_bytes_max

    def release(self, reason: str) -> None:
        """Close when every request that has been received is answered."""
        self._release_reason = reason

    def shrink(self) -> None:
        """Release a grown buffer that is empty."""
        if not self._processing and not self._is_held:
            self._buffer.shrink()

    def close(self, reason: str) -> None:
        """Close the socket and drop waiting requests; safe to call twice."""
        if self.is_closed:
            return
        self.is_closed = True
        self.closed_reason = reason
        self._pause_reading()
        self._outbox.close()
        self._socket.close()
        self._pending.clear()
        if self.quotas is not None:
            self.quotas.end()
        # Waiting requests elsewhere may keep this object for a while; the buffer must not live as long.
        self._buffer.close()
        if self._on_close is not None:
            self._on_close()
            self._on_close = None
        if self._on_peer_closed is not None:
            self._on_peer_closed()
        self._on_closed(self)

    def watch_close(self, on_close: Callable[[], None]) -> None:
        """Call it when the connection is closed: it undoes what the broker keeps for the parked request."""
        self._on_close = on_close

    def unwatch_close(self) -> None:
        """The parked request is answered."""
        self._on_close = None

    @property
    def is_peer_watched(self) -> bool:
        return self._on_peer_closed is not None

    def watch_peer(self, on_peer_closed: Callable[[], None]) -> None:
        """Call it when the connection is closed, whether or not a request is parked then."""
        self._on_peer_closed = on_peer_closed

    # Reading.

    def _on_readable(self) -> None:
        try:
            received = self._socket.recv_into(self._buffer.window())
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(f"receive failed: {error}")
            return
        if not received:
            if self._buffer.is_empty or self._blocked:
                self.close("the peer closed")
            else:
                self.refuse("the peer closed within a request")
            return
        self._buffer.end += received
        self._received_bytes += received
        if self._blocked:
            # The bytes are kept; more are read only when the first request in the buffer may start.
            self._pause_reading()
            return
        self._process()

    def refuse(self, reason: str) -> None:
        """Close a connection whose bytes are not a valid request, with a log line that gives the reason."""
        facts = frequent(peer=self.peer_name, principal=self.principal, client_id=self.client_id, error=reason)
        log.warning("request.refused", extra=facts)
        self.close(reason)

    def _refuse_length(self, length: int) -> None:
        if length >> 16 == _CLIENT_HELLO:
            self.refuse(
                f"the client uses TLS, and the listener {self.listener_name} does not: set the client's "
                "security.protocol, or connect it to a listener with TLS"
            )
            return
        self.refuse(
            f"a request of {length} bytes: {self._request_bytes_min} to {self._request_bytes_max} are allowed "
            "(socket.request.max.bytes, and before a login sasl.server.max.receive.size)"
        )

    def _process(self) -> None:
        """Route every whole frame that may start, then send their answers."""
        began_s, routed_at = perf_counter(), 0
        self._processing = True
        self._blocked = False
        received, outbox, route = self._buffer, self._outbox, self._router.route
        pending, unsent = self._pending, outbox.unsent
        data, view, start, end = received.data, received.view, received.start, received.end
        length_at = _LENGTH.unpack_from
        while end - start >= LENGTH_BYTES:
            (length,) = length_at(data, start)
            if length < self._request_bytes_min or length > self._request_bytes_max:
                self._refuse_length(length)
                break
            frame_at = start + LENGTH_BYTES
            frame_end = frame_at + length
            if frame_end > end:
                break
            if (pending or unsent) and not self._may_start(data, frame_at):
                self._blocked = True
                if received.is_full:
                    self._pause_reading()
                break
            # The frame is consumed before it is routed: a handler that acts on this connection sees a consistent state.
            received.start = frame_end
            routed_at = frame_at
            route(self, data, view, frame_at, frame_end)
            if self.is_closed or self.is_draining or self._is_held:
                break
            start = frame_end
        self._processing = False
        if self.is_closed:
            return
        outbox.send()
        if perf_counter() - began_s > self._slow_after_s and routed_at and self._slow is not None:
            # The last of them: which one it was of several is not known.
            self._slow.note(self, *_KEY_AND_VERSION.unpack_from(data, routed_at), turn=perf_counter() - began_s)
        if self.is_closed or self.is_draining or self._is_held:
            return
        if self._blocked:
            # The answer that blocked it may have been sent just now.
            if not pending and not unsent:
                self._loop.call_soon(self._resume)
            return
        has_room = received.make_room()
        if not (has_room and self._reading):
            self._read_on(has_room)

    def _resume(self) -> None:
        if not self.is_closed and self._blocked and not self._pending and not self._outbox.unsent:
            self._process()

    def _may_start(self, data: RequestBytes, position: int) -> bool:
        """Whether the request at `position` may start while earlier ones are unanswered: a Produce after Produces."""
        return (
            not self._exclusive
            and not self._outbox.unsent
            and len(self._pending) < ANSWERS_PENDING_MAX
            and _API_KEY.unpack_from(data, position)[0] == _PRODUCE
        )

    def _read_on(self, has_room: bool) -> None:
        """Read as soon as there is something, if the buffer has room for it."""
        if not has_room:
            self._pause_reading()
            if not self._waits_for_room_since_s:
                self._waits_for_room_since_s = perf_counter()
        elif not self._reading and not self.is_draining:
            self._reading = True
            self._loop.add_reader(self._socket.fileno(), self._on_readable)

    def _on_budget(self) -> None:
        if not self.is_closed and not self._is_held:
            self._read_on(self._buffer.make_room())
            if self._reading and self._waits_for_room_since_s:
                self._note_wait_for_room()

    def _note_wait_for_room(self) -> None:
        waited_s, self._waits_for_room_since_s = perf_counter() - self._waits_for_room_since_s, 0.0
        buffer = self._buffer
        if self._slow is not None and buffer.end - buffer.start >= LENGTH_BYTES + _KEY_AND_VERSION.size:
            key, version = _KEY_AND_VERSION.unpack_from(buffer.data, buffer.start + LENGTH_BYTES)
            self._slow.note(self, key, version, memory=waited_s)

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._socket.fileno())

    def _on_progress(self) -> None:
        """The peer has received some of what was waiting for it."""
        self.quiet_sweeps = 0
        if not self._outbox.unsent:
            self.send_ready()

    def _close_if_drained(self) -> None:
        if self.is_closed or self.has_unanswered:
            return
        if self.is_draining:
            self.close(self._release_reason or "the broker is stopping")
        elif self._release_reason and self._buffer.is_empty:
            self.close(self._release_reason)
