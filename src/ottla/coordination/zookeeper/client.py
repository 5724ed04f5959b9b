"""kazoo's client for one session, and the place where its thread meets the event loop.

kazoo connects, authenticates, keeps the session alive, finds another server and matches answers to requests, in one
separate thread.  Changed here, because a `Tree` promises more than kazoo does:

* Callbacks do not run on kazoo's worker threads (one for answers, one for watches, so that a watch may overtake an
  answer): all go to the event loop, in the order in which kazoo read them.
* A request is never kept for a later connection: it is sent on the present one or fails.  kazoo itself repeats none.
* An expired session stays so: kazoo would start another under the same object.
* The negotiated session timeout is known (kazoo keeps it to itself), and a connection can be dropped: kazoo notices a
  server that is silent only while nothing is being sent.
* The session depends on the event loop's progress: while the loop hangs, no ping is sent and no connection is made.

It relies on these inner names of kazoo (the tests of this folder run against the installed version):
`KazooClient._call`, `_session_callback`, `_connection`, `_conn_retry`, `_state`, `_stopped`, and
`ConnectionHandler._invoke`, `_connect`, `_send_ping`, `_socket`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.utils import create_socket_pair
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import Callback, KazooState, KeeperState
from kazoo.retry import KazooRetry

from ottla.coordination.zookeeper.access import SessionCredentials
from ottla.coordination.zookeeper.security import UNSECURED, ZooKeeperSecurity
from ottla.coordination.zookeeper.tls import (
    CLOSED_HINT,
    NO_TLS_HINT,
    TlsFailure,
    connect_socket,
    select_sockets,
    shut_down,
    tls_failure,
)
from ottla.runtime.clock import Clock

# Whether the event loop makes progress, as kazoo's thread sees it.
#
# kazoo's thread keeps a session alive as long as it runs.  A broker whose loop hangs serves no client: its session has
# to end as that of a paused process does, so that others lead.  The loop beats, and without a recent beat the thread
# sends nothing and does not connect.


class LoopPulse:
    """The loop calls `beat`, any thread reads `has_stopped`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._beaten_ms = clock.boottime_ms()

    def beat(self) -> None:
        self._beaten_ms = self._clock.boottime_ms()

    def has_stopped(self, limit_ms: float) -> bool:
        """Whether the last beat is older than this."""
        return self._clock.boottime_ms() - self._beaten_ms > limit_ms


RECONNECT_DELAY_S_MIN: Final = 0.05
RECONNECT_DELAY_S_MAX: Final = 1.0
# Its warnings are reported as states; its errors are bugs.
_LOG: Final = logging.getLogger("ottla.kazoo")
_LOG.setLevel(logging.ERROR)


class Request(Protocol):
    """The interface that kazoo requires of a request."""

    @property
    def type(self) -> int: ...

    def serialize(self) -> bytes: ...


class Answer(Protocol):
    """Where kazoo puts the answer to a request; called from its thread."""

    def set(self, value: object) -> None: ...

    def set_exception(self, error: Exception) -> None: ...


class ConnectTimeout(Exception):
    """kazoo raises it when a server is silent; it never leaves kazoo's thread."""


class LoopHandler:
    """kazoo's interface to threads and callbacks: one thread for the connection, all callbacks on the event loop."""

    name: Final = "ottla"
    timeout_exception: Final = ConnectTimeout
    sleep_func = staticmethod(time.sleep)
    running: Final = True

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connect_timeout_s: float, context: ssl.SSLContext | None
    ) -> None:
        self._loop = loop
        self._context = context
        self._connect_timeout_s = connect_timeout_s

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def call_soon(self, function: Callable[..., object], *arguments: object) -> None:
        """From any thread.  Nothing is called once the loop is closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def dispatch_callback(self, callback: Callback) -> None:
        self.call_soon(callback.func, *callback.args)

    def select(self, *arguments: Any, **options: Any) -> Any:
        return select_sockets(*arguments, **options)

    def create_connection(self, *arguments: Any, **options: Any) -> Any:
        """kazoo would wait a whole session timeout for a server that does not answer, and lose the session by it."""
        options["timeout"] = min(options.get("timeout") or self._connect_timeout_s, self._connect_timeout_s)
        return connect_socket(self._context, *arguments, **options)

    def create_socket_pair(self) -> Any:
        return create_socket_pair(socket)

    def event_object(self) -> threading.Event:
        return threading.Event()

    def lock_object(self) -> Any:
        return threading.Lock()

    def rlock_object(self) -> Any:
        return threading.RLock()

    def spawn(self, function: Callable[..., object], *arguments: Any, **options: Any) -> threading.Thread:
        thread = threading.Thread(target=function, args=arguments, kwargs=options, name="zookeeper", daemon=True)
        thread.start()
        return thread


# A session is requested again after this part of its time-out without an answer.
HANDSHAKES_PER_SESSION: Final = 4
HANDSHAKE_S_MIN: Final = 1.0
# The loop beats six times per session timeout, and sends a write each time, which keeps the session as a ping does.  A
# loop that is so late sends nothing, and kazoo must not keep the session in its place.
BEAT_LATE_AFTER_TIMEOUTS: Final = 1 / 4


class ConnectProblem(NamedTuple):
    """Why a server gave no session.  `is_distrust`: TLS with it failed, which no repetition helps."""

    text: str = ""
    hint: str | None = None
    is_distrust: bool = False

    @classmethod
    def of(cls, error: BaseException, host: str, port: int, *, has_tls: bool) -> ConnectProblem:
        """kazoo's error of a connection, whose context is that of the socket."""
        where, cause = f"{host}:{port}", error.__context__
        if isinstance(cause, ssl.SSLError):
            cause = tls_failure(cause, host)
        if isinstance(cause, TlsFailure):
            return cls(f"{where}: {cause.problem}", cause.hint, is_distrust=cause.is_final)
        was_closed = isinstance(error, ConnectionDropped) and (cause is None or isinstance(cause, ConnectionResetError))
        # A server that is only starting does so, too: it is tried again.
        closed_hint = CLOSED_HINT if has_tls else NO_TLS_HINT
        return cls(f"{where}: {str(error) or type(error).__name__}", closed_hint if was_closed else None)


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, which also reports what its server granted and why a server was left."""

    client: SessionClient

    def drop(self) -> None:
        """Break the connection; kazoo's thread notices and reconnects."""
        connected = self._socket
        if connected is not None:
            shut_down(connected)

    def _invoke(self, timeout: float, request: Request, xid: int | None = None) -> Any:
        if isinstance(request, Connect):
            # kazoo waits for as long as the session lasts.  A server that is just starting may take the question and
            # never answer it: a repeated request is answered, before the session has passed.
            timeout = max(timeout / HANDSHAKES_PER_SESSION, HANDSHAKE_S_MIN)
        try:
            answer = super()._invoke(timeout, request, xid)
        except ConnectionDropped as dropped:
            if not isinstance(request, Connect) or not request.session_id:
                raise
            self.client.is_ahead = True
            raise ConnectionDropped(
                f"it does not continue the session, as a server that has not seen change {request.last_zxid_seen:#x}: "
                "one that lags, or has lost data"
            ) from dropped
        if isinstance(request, Connect):
            # Before the state becomes CONNECTED: a listener of that state may read it.
            self.client.note_timeout(answer[0].time_out)
        return answer

    def _send_ping(self, connect_timeout: float) -> None:
        if not self.client.is_loop_stopped:
            super()._send_ping(connect_timeout)

    def _connect(self, host: str, *address: Any) -> Any:
        if self.client.is_loop_stopped:
            # A server counts a connection as a heartbeat.
            raise ConnectionDropped("the event loop makes no progress")
        try:
            return super()._connect(host, *address)
        except Exception as error:
            self.client.note_problem(ConnectProblem.of(error, host, int(address[-1]), has_tls=self.client.has_tls))
            raise


class SessionClient(KazooClient):  # type: ignore[misc]
    """One session.  `on_state` is called on the loop with every new state of kazoo's; LOST, the last, may come twice.

    `session` takes a former session over.  After a session ended, the thread ends; `release` waits for it.
    """

    def __init__(
        self,
        servers: Sequence[str],
        timeout_ms: int,
        on_state: Callable[[KazooState], None],
        pulse: LoopPulse,
        *,
        security: ZooKeeperSecurity = UNSECURED,
        session: SessionCredentials | None = None,
    ) -> None:
        self._pulse = pulse
        self.negotiated_timeout_ms = timeout_ms
        self.problem = ConnectProblem()
        self.is_refused = False
        # A server that answers does not continue the session.
        self.is_ahead = False
        self.has_tls = security.tls is not None
        self._on_state = on_state
        self._sending = threading.RLock()
        # A connection must be had and the session found alive within its timeout, so no server may use it all.
        handler = LoopHandler(
            asyncio.get_running_loop(),
            timeout_ms / 1000 / (len(servers) + 1),
            None if security.tls is None else security.tls.context(),
        )
        super().__init__(
            hosts=",".join(servers),
            timeout=timeout_ms / 1000,
            client_id=session,
            handler=handler,
            auth_data=security.auth_data,
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=RECONNECT_DELAY_S_MIN,
                max_delay=RECONNECT_DELAY_S_MAX,
                sleep_func=handler.sleep_func,
            ),
            logger=_LOG,
        )
        self._connection = _Connection(self, self._conn_retry.copy(), logger=_LOG)
        self.add_listener(lambda state: handler.call_soon(on_state, state))

    @property
    def is_loop_stopped(self) -> bool:
        """Whether the event loop hangs; read in kazoo's thread."""
        return self._pulse.has_stopped(self.negotiated_timeout_ms * BEAT_LATE_AFTER_TIMEOUTS)

    @property
    def credentials(self) -> SessionCredentials | None:
        """Of the session, once it exists."""
        return None if self._session_id is None else SessionCredentials(self._session_id, self._session_passwd)

    def send(self, request: Request, answer: Answer) -> bool:
        """Send on the present connection; the answer is a failure when that breaks.  False: there is none now.

        With the lock no request slips in between the failure of all requests and the change of the state, where kazoo
        would keep it for a later connection.
        """
        with self._sending:
            if self._state != KeeperState.CONNECTED:
                return False
            self._call(request, answer)
            return True

    def drop_connection(self) -> None:
        """The server is silent: find another, or the same again."""
        self._connection.drop()

    def release(self) -> None:
        """Wait for the thread's end and free its resources; blocks.  Ends the session if it is still alive."""
        try:
            self.stop()
            self._connection.stop()
        finally:
            if self._connection.connection_stopped.is_set():
                self.close()

    def note_timeout(self, timeout_ms: int) -> None:
        """A server granted this session timeout; 0: the session has expired."""
        if timeout_ms > 0:
            self.negotiated_timeout_ms = timeout_ms
            self.problem = ConnectProblem()

    def note_problem(self, problem: ConnectProblem) -> None:
        # Of a host with two addresses one may refuse the connection, which explains less.
        if problem.is_distrust or not self.problem.is_distrust:
            self.problem = problem

    def _session_callback(self, state: KeeperState) -> None:
        with self._sending:
            super()._session_callback(state)
            if state in (KeeperState.EXPIRED_SESSION, KeeperState.AUTH_FAILED):
                self.is_refused = state == KeeperState.AUTH_FAILED
                self._stopped.set()
                # kazoo calls no listener if the session was never connected here.
                self.handler.call_soon(self._on_state, KazooState.LOST)
