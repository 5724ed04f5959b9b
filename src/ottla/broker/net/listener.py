"""The listening socket: accepts connections, bounds their number, and closes idle and stalled ones."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from ottla.broker.net.access import AccessOf
from ottla.broker.net.address_limits import AddressLimits
from ottla.broker.net.client_quotas import QuotasOf
from ottla.broker.net.connection import ANONYMOUS, Connection, Router, SlowReports
from ottla.broker.net.frame_pace import AnswerPace, FramePace, PaceRules
from ottla.broker.net.limits import (
    ACCEPTS_PER_TURN,
    KIB,
    LISTEN_BACKLOG,
    LOGIN_MS,
    LOGINS_PENDING_MAX,
    LOGINS_PENDING_PER_ADDRESS_MAX,
    RECEIVE_BUDGET_BYTES,
    SHRINK_AFTER_SWEEPS,
    STALLED_PEER_CONTENDED_MS,
    STALLED_PEER_MS,
    SWEEP_INTERVAL_MS,
    THROTTLED_SOCKETS_MAX,
)
from ottla.broker.net.receive_buffer import ReceiveBudget
from ottla.broker.net.response_budget import ResponseBudget
from ottla.broker.net.socket_loop import PeerSocket, SocketLoop
from ottla.broker.net.tls_channel import TlsChannel
from ottla.broker.net.tls_handshakes import TlsHandshake, TlsHandshakes
from ottla.model.errors import ConfigError, WireError
from ottla.model.listener import DEFAULT_LISTENER_NAME, without_mapping
from ottla.observe.events import fields, frequent

log = logging.getLogger(__name__)

# Out of descriptors or memory: accepting again at once would spin.
_ACCEPT_PAUSE_S = 0.1
_EXHAUSTED_REPORT_SWEEPS = 10_000 // SWEEP_INTERVAL_MS
_EXHAUSTED_HINT = "raise the limit of open files (ulimit -Hn, LimitNOFILE=), or find the clients that connect so often"
_ADDRESS_FULL_HINT = "the address has as many connections as max.connections.per.ip allows"
CHOOSE_ANOTHER: Final = "choose another port (--listen, --admin-listen), or port 0 for a free one"
_BIND_HINTS = {
    errno.EADDRINUSE: f"another broker may run there: {CHOOSE_ANOTHER}",
    errno.EACCES: "ports below 1024 need a privilege: choose one above, such as 9092",
    errno.EADDRNOTAVAIL: "no interface of this machine has it: --listen takes an address of this machine, and "
    "advertised.listeners the one that clients use",
}
_ACCEPT_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
T = TypeVar("T", bound=Hashable)


class PendingLimits(NamedTuple):
    pending_max: int = LOGINS_PENDING_MAX
    per_address_max: int = LOGINS_PENDING_PER_ADDRESS_MAX
    sweeps_max: int = LOGIN_MS // SWEEP_INTERVAL_MS


class PendingLogins(Generic[T]):
    """Connections that have not completed their handshake and login: how many there may be, and for how long.

    Each with its address and the number of the sweep at which it was accepted, the oldest first.  A client that logs in
    takes some milliseconds, so where there are too many, the oldest is the one that will not.
    """

    def __init__(self, limits: PendingLimits = PendingLimits()) -> None:  # noqa: B008 (an immutable value)
        self._limits: Final = limits
        self._pending: Final[dict[T, tuple[str, int]]] = {}
        self._by_address: Final[dict[str, dict[T, None]]] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[T]:
        return iter(self._pending)

    def add(self, entry: T, address: str, sweep: int) -> T | None:
        """Returns the one that must be closed for it, if there is one; its owner removes it."""
        same = self._by_address.get(address, {})
        victim = None
        if len(same) >= self._limits.per_address_max:
            victim = next(iter(same))
        elif len(self._pending) >= self._limits.pending_max:
            victim = next(iter(self._pending))
        self._pending[entry] = address, sweep
        self._by_address.setdefault(address, {})[entry] = None
        return victim

    def replace(self, entry: T, successor: T) -> None:
        """The same client in its next step, which inherits the time that has passed."""
        address, sweep = self._pending[entry]
        self.remove(entry)
        self._pending[successor] = address, sweep
        self._by_address.setdefault(address, {})[successor] = None

    def remove(self, entry: T) -> None:
        """It is logged in, or closed."""
        found = self._pending.pop(entry, None)
        if found is not None:
            same = self._by_address[found[0]]
            del same[entry]
            if not same:
                del self._by_address[found[0]]

    def overdue(self, sweep: int) -> Iterator[T]:
        for entry, (_, since) in list(self._pending.items()):
            if sweep - since > self._limits.sweeps_max:
                yield entry


class ConnectionLimits(NamedTuple):
    """The settings that bound connections; a buffer size of -1 leaves the operating system's."""

    connections_max: int
    request_bytes_max: int
    idle_ms_max: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    # Large requests of all connections of this listener; -1 is RECEIVE_BUDGET_BYTES.
    receive_budget_bytes: int = -1
    # Of a frame that has started.
    receive_min_bytes_s: int = 16 * KIB


class TlsContexts(Protocol):
    """The TLS of a listener; see broker/security/tls_server.py."""

    @property
    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        ...

    def principal_of(self, der: bytes | None) -> str:
        """Raises `WireError` for a certificate without a principal."""
        ...


class ListenerSecurity(NamedTuple):
    """The security protocol of a listener.  The default is PLAINTEXT.

    `login` constructs the router of a connection, with a function that it calls when the client has logged in; before
    that it serves only the requests of the login, of at most `login_bytes_max`.
    """

    name: str = DEFAULT_LISTENER_NAME
    tls: TlsContexts | None = None
    login: Callable[[Callable[[Connection], None]], Router] | None = None
    login_bytes_max: int = 0


def bind(host: str, port: int, *, listens: bool = True, shares: bool = False) -> socket.socket:
    """A listening socket; `ConfigError` says why the address cannot be bound.

    Without `listens` it has its address, and connections are refused until `listen`.  With `shares` other processes
    of this user that share may have the same address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shares:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise _not_bound(host, port, error) from error
    listening.setblocking(False)
    if listens:
        listen(listening)
    return listening


def hold(host: str, port: int, *, is_in_use: bool = False) -> socket.socket:
    """A socket that keeps an address for processes of this user that `bind` it with `shares`, and does not listen.

    Raises `ConfigError` when another program, or the holder of other processes, has the address.  With `is_in_use`
    some of the processes have it already, so holders are not found.
    """
    holding = bind(host, port, listens=False, shares=is_in_use)
    if not is_in_use:
        # Of two that have bound the address at the same time only one can listen.
        listen(holding)
    # From here on only sockets that share can bind it.  To bind without REUSEADDR at first would be refused for the
    # minute in which the kernel keeps connections that were closed.
    holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if not is_in_use:
        # It keeps its address, and gets no connections.
        holding.shutdown(socket.SHUT_RDWR)
    return holding


def listen(listening: socket.socket) -> None:
    """Let connections wait for `Listener.start`.  Raises `ConfigError` when another socket listens at the address."""
    try:
        listening.listen(LISTEN_BACKLOG)
    except OSError as error:
        host, port = listening.getsockname()[:2]
        listening.close()
        raise _not_bound(host, port, error) from error


class AddressTaken(ConfigError):
    """Another program listens at this address."""

    def __init__(self, host: str, port: int, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.host: Final = host
        self.port: Final = port


def _not_bound(host: str, port: int, error: Exception) -> ConfigError:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        message = f"cannot listen on {host}:{port}: {error.strerror}"
        return AddressTaken(host, port, message, hint=_BIND_HINTS[errno.EADDRINUSE])
    return ConfigError(
        f"cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}",
        hint=_BIND_HINTS.get(getattr(error, "errno", 0), "is HOST:PORT an address of this machine?"),
    )


def _facts(connection: Connection) -> Mapping[str, object]:
    return frequent(peer=connection.peer_name, principal=connection.principal, client_id=connection.client_id)


class Listener:
    """One listening socket and the connections that it accepted."""

    def __init__(
        self,
        listening: socket.socket,
        loop: asyncio.AbstractEventLoop,
        router: Router,
        limits: ConnectionLimits,
        on_sweep: Callable[[], None],
        sockets: SocketLoop | None = None,
        slow: SlowReports | None = None,
        responses: ResponseBudget | None = None,
        security: ListenerSecurity = ListenerSecurity(),  # noqa: B008 (an immutable value)
        access_of: AccessOf | None = None,
        quotas_of: QuotasOf | None = None,
        addresses: AddressLimits | None = None,
    ) -> None:
        """`sockets`: serves the connections; the loop itself unless a test has something between.

        `slow` takes the times of requests; `responses` counts the large answers of these and other connections.
        `access_of` gives the rights of a connection; None: there is no authorizer.  `quotas_of` gives its quotas.
        `addresses` limits the connections of an address, also those of other listeners.
        """
        self._quotas_of = quotas_of
        self._addresses = addresses
        # Those that wait to be closed.
        self._refused: dict[socket.socket, asyncio.TimerHandle] = {}
        self._security = security
        self._responses = responses
        self._access_of = access_of
        self._listening = listening
        self._loop = loop
        self._sockets: SocketLoop = sockets or loop
        self._slow = slow
        self._router = router
        self._limits = limits
        self._on_sweep = on_sweep
        self._budget = ReceiveBudget(
            RECEIVE_BUDGET_BYTES if limits.receive_budget_bytes < 0 else limits.receive_budget_bytes
        )
        self._connections: dict[Connection, None] = {}
        self._handshakes = TlsHandshakes(self._sockets, self._on_handshake_done, self._on_handshake_failed)
        # Handshakes, then connections without a login.
        self._pending: PendingLogins[TlsHandshake | Connection] = PendingLogins()
        self._pace_rules = PaceRules(
            limits.receive_min_bytes_s * SWEEP_INTERVAL_MS // 1000,
            STALLED_PEER_MS // SWEEP_INTERVAL_MS,
            STALLED_PEER_CONTENDED_MS // SWEEP_INTERVAL_MS,
        )
        # Of connections that were within a frame at the last sweep.
        self._paces: dict[Connection, FramePace] = {}
        # Of connections that had an answer to take while others waited for room for theirs.
        self._answer_paces: dict[Connection, AnswerPace] = {}
        self._sweeps_count = 0
        self._handshakes_count = 0
        self._spare_fd: int | None = None
        # By the count of sweeps.
        self._report_exhausted_at = 0
        self._all_closed = asyncio.Event()
        self._all_closed.set()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self.address: tuple[str, int] = listening.getsockname()[:2]

    @property
    def connections_count(self) -> int:
        return len(self._connections)

    def start(self) -> None:
        self._hold_spare()
        self._loop.add_reader(self._listening.fileno(), self._on_acceptable)
        self._sweep_timer = self._loop.call_later(SWEEP_INTERVAL_MS / 1000, self._sweep)

    def stop_accepting(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        self._loop.remove_reader(self._listening.fileno())
        self._listening.close()
        if self._spare_fd is not None:
            os.close(self._spare_fd)
            self._spare_fd = None
        for peer in list(self._refused):
            self._close_refused(peer)

    def begin_drain(self) -> None:
        """Start no further request on any connection; each closes when its requests in progress are answered."""
        for pending in list(self._pending):
            if isinstance(pending, TlsHandshake):
                pending.close("the broker is stopping")
        for connection in list(self._connections):
            connection.drain()

    async def drain(self, timeout_ms: int) -> None:
        """Wait for the connections that drain; those not answered in time are closed."""
        try:
            await asyncio.wait_for(self._all_closed.wait(), timeout_ms / 1000)
        except TimeoutError:
            log.warning("connections.cut", extra=fields(connections_count=len(self._connections)))
        for connection in list(self._connections):
            connection.close("the broker is stopping")

    def _on_acceptable(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                peer, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in _ACCEPT_EXHAUSTED:
                    self._turn_away(error)
                    self._pause_accepting()
                else:
                    log.warning("connection.not_accepted", extra=frequent(error=str(error)))
                return
            self._adopt(peer, without_mapping(address[0]))

    def _turn_away(self, error: OSError) -> None:
        """Close those who wait to be accepted, by the spare descriptor: they know at once, and may try again."""
        if self._sweeps_count >= self._report_exhausted_at:
            self._report_exhausted_at = self._sweeps_count + _EXHAUSTED_REPORT_SWEEPS
            facts = fields(error=str(error), connections_count=len(self._connections), hint=_EXHAUSTED_HINT)
            log.warning("connection.not_accepted", extra=facts)
        if self._spare_fd is None:
            return
        os.close(self._spare_fd)
        self._spare_fd = None
        with contextlib.suppress(OSError):  # no connection waits any more
            for _ in range(ACCEPTS_PER_TURN):
                self._listening.accept()[0].close()
        self._hold_spare()

    def _hold_spare(self) -> None:
        """Keep a descriptor for the time when there is no other."""
        if self._spare_fd is None:
            with contextlib.suppress(OSError):
                self._spare_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _pause_accepting(self) -> None:
        self._loop.remove_reader(self._listening.fileno())
        self._loop.call_later(_ACCEPT_PAUSE_S, self._resume_accepting)

    def _resume_accepting(self) -> None:
        if self._listening.fileno() >= 0:
            self._loop.add_reader(self._listening.fileno(), self._on_acceptable)

    def _adopt(self, peer: socket.socket, host: str) -> None:
        limits = self._limits
        # Of the pending ones, handshakes are no connections yet.
        if len(self._connections) + self._handshakes_count >= limits.connections_max:
            log.warning("connection.refused", extra=frequent(connections_max=limits.connections_max))
            peer.close()
            return
        if self._addresses is not None and not self._admits(peer, host, self._addresses):
            return
        try:
            peer.setblocking(False)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if limits.send_buffer_bytes > 0:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
            if limits.receive_buffer_bytes > 0:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer_bytes)
            tls = self._security.tls
            if tls is None:
                self._connect(peer, self._sockets, ANONYMOUS)
            else:
                self._start_handshake(peer, tls.context)
        except OSError as error:
            # The peer disconnected between its connect and our accept.
            log.debug("connection.lost", extra=fields(error=str(error)))
            peer.close()

    def _admits(self, peer: socket.socket, host: str, addresses: AddressLimits) -> bool:
        """Whether the peer's address may have one more connection; else that is closed."""
        if addresses.is_full(host):
            log.warning("connection.refused", extra=frequent(peer=host, hint=_ADDRESS_FULL_HINT))
            peer.close()
            return False
        throttle_ms = addresses.throttle_ms(host)
        if not throttle_ms:
            return True
        log.warning("connection.throttled", extra=frequent(peer=host, throttle_ms=throttle_ms))
        if len(self._refused) < THROTTLED_SOCKETS_MAX:
            # A client that is closed at once comes back at once.
            self._refused[peer] = self._loop.call_later(throttle_ms / 1_000, self._close_refused, peer)
        else:
            peer.close()
        return False

    def _close_refused(self, peer: socket.socket) -> None:
        self._refused.pop(peer).cancel()
        peer.close()

    def follow_quotas(self) -> None:
        """The first quota of a client was set, or the last one deleted."""
        for connection in list(self._connections):
            connection.follow_quotas()

    def _connect(
        self,
        peer: PeerSocket,
        sockets: SocketLoop,
        principal: str,
        handshake: TlsHandshake | None = None,
    ) -> None:
        """Serve it.  After a handshake the login, if there is one, has the rest of the time."""
        security, router, bytes_max = self._security, self._router, self._limits.request_bytes_max
        if security.login is not None:
            router, bytes_max = security.login(self._on_login), security.login_bytes_max
        connection = Connection(
            peer,
            sockets,
            router,
            self._budget,
            bytes_max,
            self._forget,
            self._slow,
            listener_name=security.name,
            principal=principal,
            access_of=self._access_of,
            quotas_of=self._quotas_of,
        )
        self._connections[connection] = None
        if self._addresses is not None:
            self._addresses.add(connection.peer_host)
        self._all_closed.clear()
        if security.login is not None:
            if handshake is not None:
                self._pending.replace(handshake, connection)
            else:
                self._add_pending(connection, connection.peer_name.rpartition(":")[0])
        elif handshake is not None:
            self._pending.remove(handshake)

    def _start_handshake(self, peer: socket.socket, context: ssl.SSLContext) -> None:
        host, port = peer.getpeername()[:2]
        host = without_mapping(host)
        channel = TlsChannel(peer, context, self._sockets)
        handshake = TlsHandshake(self._handshakes, channel, f"{host}:{port}")
        self._handshakes_count += 1
        self._add_pending(handshake, host)
        handshake.start()

    def _add_pending(self, entry: TlsHandshake | Connection, host: str) -> None:
        victim = self._pending.add(entry, host, self._sweeps_count)
        if victim is not None:
            facts = frequent(listener=self._security.name, logins_count=len(self._pending))
            log.warning("logins.too_many", extra=facts)
            victim.close("too many connections that are not logged in")

    def _on_handshake_done(self, handshake: TlsHandshake) -> None:
        self._handshakes_count -= 1
        channel, tls = handshake.channel, self._security.tls
        assert tls is not None
        try:
            principal = tls.principal_of(channel.peer_certificate)
            self._connect(channel, channel, principal, handshake)
        except (WireError, OSError) as error:
            log.warning("connection.refused", extra=frequent(peer=handshake.peer_name, error=str(error)))
            self._pending.remove(handshake)
            channel.close()

    def _on_handshake_failed(self, handshake: TlsHandshake) -> None:
        self._handshakes_count -= 1
        self._pending.remove(handshake)

    def _on_login(self, connection: Connection) -> None:
        self._pending.remove(connection)
        connection.accept_requests(self._limits.request_bytes_max)

    def _forget(self, connection: Connection) -> None:
        if connection in self._connections:
            del self._connections[connection]
            if self._addresses is not None:
                self._addresses.remove(connection.peer_host)
        if self._security.login is not None:
            self._pending.remove(connection)
        self._paces.pop(connection, None)
        self._answer_paces.pop(connection, None)
        if not self._connections:
            self._all_closed.set()

    def _sweep(self) -> None:
        """Close connections that are idle, too slow or stalled for too long.  One pass for all, no timer for each."""
        self._sweep_timer = self._loop.call_later(SWEEP_INTERVAL_MS / 1000, self._sweep)
        idle_sweeps = self._limits.idle_ms_max // SWEEP_INTERVAL_MS
        stalled_sweeps = STALLED_PEER_MS // SWEEP_INTERVAL_MS
        self._sweeps_count += 1
        self._hold_spare()
        for pending in self._pending.overdue(self._sweeps_count):
            pending.close("no login in time")
        for connection in list(self._connections):
            connection.count_sweep()
            is_owed = connection.has_unanswered
            if self._is_too_slow(connection):
                log.info("connection.slow", extra=_facts(connection))
                connection.close("the peer sent a request too slowly")
            elif self._keeps_others_waiting(connection) or (
                connection.quiet_sweeps > stalled_sweeps and connection.is_stalled
            ):
                log.info("connection.stalled", extra=_facts(connection))
                connection.close("the peer stalled within a request or an answer")
            elif connection.has_lost_peer:
                connection.close("the peer closed")
            elif 0 <= idle_sweeps < connection.quiet_sweeps and not is_owed:
                connection.close("idle for connections.max.idle.ms")
            elif connection.quiet_sweeps >= SHRINK_AFTER_SWEEPS:
                connection.shrink()
                if is_owed and not connection.is_stalled:
                    # It waits for our answer: its own idle time starts when it is answered.
                    connection.quiet_sweeps = SHRINK_AFTER_SWEEPS
        self._on_sweep()

    def _keeps_others_waiting(self, connection: Connection) -> bool:
        """Whether it does not take a large answer, while those of others wait for its memory."""
        answer = connection.unread_answer if self._responses is not None and self._responses.is_contended else None
        if answer is None:
            self._answer_paces.pop(connection, None)
            return False
        pace = self._answer_paces.get(connection)
        if pace is None or not pace.is_of(answer):
            self._answer_paces[connection] = AnswerPace(self._pace_rules, self._sweeps_count, answer)
            return False
        return pace.is_too_slow(self._sweeps_count, answer)

    def _is_too_slow(self, connection: Connection) -> bool:
        """Whether it is within a frame and sends that at less than the least rate."""
        frame = connection.unfinished_frame
        if frame is None:
            self._paces.pop(connection, None)
            return False
        pace = self._paces.get(connection)
        if pace is None or not pace.is_of(frame):
            self._paces[connection] = FramePace(self._pace_rules, self._sweeps_count, frame)
            return False
        return pace.is_too_slow(self._sweeps_count, frame, is_contended=self._budget.is_contended)
