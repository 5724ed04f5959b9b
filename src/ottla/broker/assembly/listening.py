"""The first step: the addresses are bound, so that a taken port is reported before a long recovery."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.assembly.broker_start import BrokerStart
from ottla.broker.net.advertising import Advertising
from ottla.broker.net.listener import bind
from ottla.model.errors import ConfigError
from ottla.model.listener import Listener

if TYPE_CHECKING:
    from ottla.broker.assembly.logins import LoginPlan
    from ottla.broker.security.tls_server import TlsServer

_CERTIFICATES_LOOKED_AT_S: Final = 10.0


class Listening(NamedTuple):
    """The bound sockets, one for each listener of the options, and the addresses that clients get."""

    sockets: Sequence[socket.socket]
    # Of `ServeOptions.shared`; they listen when requests are served, since another broker answers until then.
    shared: Sequence[socket.socket]
    # Of each listener; None: it does not use TLS.
    tls: Sequence[TlsServer | None]
    # The same of SASL.
    login_plans: Sequence[LoginPlan | None]
    addresses: Sequence[tuple[str, int]]
    advertising: Advertising


def bind_listeners(start: BrokerStart) -> Listening:
    """Nothing is changed on the disk yet.

    A member of a cluster may wait for ZooKeeper: its port refuses clients until then, so they try other brokers.
    """
    tls = [tls_of(start, each) for each in start.options.listeners]
    login_plans = [_login_plan(start, each) for each in start.options.listeners]
    # The process that started brokers with shared addresses keeps their ports bound: they share all of them.
    shares = bool(start.options.shared)
    sockets = [bind(each.host, each.port, listens=start.is_sole, shares=shares) for each in start.options.listeners]
    shared = [bind(each.host, each.port, listens=False, shares=True) for each in start.options.shared]
    for each in (*sockets, *shared):
        start.closing.callback(each.close)
    addresses = [each.getsockname()[:2] for each in sockets]
    own_id = start.node_id if start.is_sole else None
    return Listening(sockets, shared, tls, login_plans, addresses, Advertising(start.options, addresses, own_id=own_id))


def _login_plan(start: BrokerStart, listener: Listener) -> LoginPlan | None:
    """None: the listener has no SASL.  Raises `ConfigError`."""
    if not listener.uses_sasl:
        return None
    from ottla.broker.assembly.logins import plan_login

    return plan_login(start, listener)


class CertificateReloads:
    """Looks for changed certificates on a timer, and when the operator demands it."""

    def __init__(self, start: BrokerStart, servers: Sequence[TlsServer | None]) -> None:
        """`servers`: of each listener; None: it does not use TLS."""
        self._loop: Final = start.loop
        self._servers: Final = [each for each in servers if each is not None]
        self._timer: asyncio.TimerHandle | None = None
        if self._servers:
            start.closing.callback(self._stop)
            self._schedule()

    @property
    def are_needed(self) -> bool:
        return bool(self._servers)

    def days_left(self) -> Mapping[str, float]:
        """Until each listener's certificate expires."""
        return {server.listener: server.days_left for server in self._servers}

    def reload(self) -> None:
        for server in self._servers:
            server.reload(is_forced=True)

    def _look(self) -> None:
        for server in self._servers:
            server.reload()
        self._schedule()

    def _schedule(self) -> None:
        self._timer = self._loop.call_later(_CERTIFICATES_LOOKED_AT_S, self._look)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def tls_of(start: BrokerStart, listener: Listener) -> TlsServer | None:
    """None: the listener has no TLS.  Raises `ConfigError`."""
    if not listener.uses_tls:
        return None
    from ottla.broker.security.tls_server import TlsServer

    settings = start.settings.of_listener(listener.name)
    try:
        return TlsServer(settings, listener.name, start.clock.now_ms)
    except ConfigError as error:
        raise ConfigError(f"listener {listener.name}: {error}", hint=error.hint) from None
