"""Runs a registry until SIGTERM or SIGINT: its topic, its claim, and HTTP."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ottla.broker.net.security_log import open_security_log
from ottla.broker.security.http_logins import HttpLogins, http_access
from ottla.broker.security.tls_acceptor import TlsAcceptor, certificate_principal
from ottla.broker.security.tls_server import TlsServer
from ottla.client.wire.security.settings import PLAINTEXT, ClientSecurity
from ottla.model import http_settings
from ottla.model.errors import ConfigError, WireError
from ottla.model.limits import KIB
from ottla.model.listener import Listener, address_text, without_mapping
from ottla.model.security_settings import CONNECTION_FAILED_AUTHENTICATION_DELAY_MS
from ottla.model.serve_options import RegistryOptions, require_registry_url
from ottla.model.settings import BrokerSettings
from ottla.observe.events import fields, frequent
from ottla.registry.checkers import Checkers
from ottla.registry.cluster_users import ClusterUsers
from ottla.registry.http_app import CERTIFICATE_PRINCIPAL, HttpApp
from ottla.registry.schema_topic import SchemaTopic
from ottla.registry.service import Registry
from ottla.runtime.clock import Clock, SystemClock
from ottla.runtime.event_loop import run
from ottla.runtime.installed import TOKENS, require_modules
from ottla.runtime.process import has_terminal
from ottla.security.http_access import HttpHosts

if TYPE_CHECKING:
    from ottla.broker.security.token_issuer import TokenIssuer

CONNECTIONS_MAX: Final = 512
# Of one address; a machine with many Spark executors, or a proxy, is one.
CONNECTIONS_OF_ADDRESS_MAX: Final = 384
# Of the head of a request.
HEAD_BYTES_MAX: Final = 16 * KIB
# Uvicorn closes one without a next request after that time.
KEEP_ALIVE_S: Final = 5
# For the head of a request to arrive, and for some of an answer to be received.
STALLED_AFTER_S: Final = 15.0
LOOK_EVERY_S: Final = 5.0


class BoundedConnection(H11Protocol):
    """Bounds uvicorn's connections: their number, and the time in which a client must send or receive something.

    Uvicorn limits neither those that never send a request nor those that receive no response.  Above `CONNECTIONS_MAX`,
    or above `CONNECTIONS_OF_ADDRESS_MAX` of one address, the one that has waited longest for its client is closed: the
    newest is served.
    """

    moved_s: float
    _unsent_bytes: int
    _look_task: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is no instance.
        super().connection_made(cast("asyncio.Transport", transport))
        self.moved_s = self.loop.time()
        self._unsent_bytes = 0
        self._look_task = self.loop.call_later(LOOK_EVERY_S, self._look)
        tls = cast("_Config", self.config).tls
        if tls is not None:
            try:
                principal = certificate_principal(tls, transport)
            except WireError as error:
                log.warning(
                    "connection.refused", extra=frequent(peer=self.host, listener=tls.listener, error=str(error))
                )
                self.transport.abort()
                return
            self.app_state = {**self.app_state, CERTIFICATE_PRINCIPAL: principal}
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

    @property
    def host(self) -> str:
        return "" if self.client is None else without_mapping(self.client[0])

    def _make_room(self) -> None:
        if len(self.connections) <= CONNECTIONS_OF_ADDRESS_MAX:
            return
        open_now = [
            each for each in self.connections if isinstance(each, BoundedConnection) and not each.transport.is_closing()
        ]
        of_address = [each for each in open_now if each.host == self.host]
        if len(of_address) > CONNECTIONS_OF_ADDRESS_MAX:
            open_now = of_address
        elif len(open_now) <= CONNECTIONS_MAX:
            return
        waiting = [each for each in open_now if each is not self and not each.is_answering]
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


log = logging.getLogger(__name__)

_CERTIFICATES_LOOKED_AT_S: Final = 10.0
# How long requests in progress may take after a request to stop.
STOPS_WITHIN_S = 10


def serve(
    options: RegistryOptions, bootstrap: str, *, until_eof: bool = False, security: ClientSecurity = PLAINTEXT
) -> None:
    """`until_eof`: it ends when its standard input does, as a part of the program that has the other end.

    Raises `OttlaError` when it cannot start.
    """
    require_registry_url(options.listener, options.advertised_url)
    clock, settings, scheme = SystemClock(), options.settings, options.listener.url_scheme
    tls = TlsServer(settings, options.listener.name, clock.now_ms) if options.listener.uses_tls else None
    methods = settings[http_settings.AUTHENTICATION_METHOD]
    users = ClusterUsers(bootstrap, security, clock) if http_settings.BASIC in methods else None
    issuer = _issuer(settings, clock) if http_settings.BEARER in methods else None
    with _bind(options.listener) as listening, ExitStack() as closing:
        host, port = listening.getsockname()[:2]
        url = options.advertised_url or f"{scheme}://{address_text(host, port)}"
        hosts = HttpHosts(_names(options, url), "schema.registry.allowed.hosts (--allow-host)")
        logins = HttpLogins(
            options.listener.name,
            http_access(settings, hosts),
            open_security_log(settings, clock, closing),
            clock,
            users=users,
            verify_token=None if issuer is None else issuer.tokens.verify,
            failure_delay_s=settings[CONNECTION_FAILED_AUTHENTICATION_DELAY_MS] / 1000,
        )
        closing.callback(logins.close)
        topic = SchemaTopic(bootstrap, options.topic, security)
        checkers = Checkers(clock)
        try:
            topic.prepare(options.replication_factor)
            registry = Registry(topic, url, checkers, clock)
            registry.claim()
            schemas_count = registry.read(lambda state: sum(len(state.versions(each)) for each in state.subjects()))
            log.info(
                "registry.ready",
                extra=fields(
                    scheme=scheme,
                    host=host,
                    port=port,
                    topic=options.topic,
                    schemas_count=schemas_count,
                    pid=os.getpid(),
                ),
            )
            app = HttpApp(registry, url, logins, peer_context=None if tls is None else lambda: tls.peer_context)
            _serve_http(app, listening, tls, issuer, until_eof=until_eof)
        finally:
            checkers.close()
            topic.close()
    log.info("registry.stopped")


def _issuer(settings: BrokerSettings, clock: Clock) -> TokenIssuer:
    require_modules("authentication.method=BEARER", TOKENS, "security")
    from ottla.broker.security.token_issuer import open_issuer

    return open_issuer(settings, clock.now_ms)


class _Config(uvicorn.Config):
    """With the TLS of the connections; uvicorn's own does not load a replaced certificate."""

    tls: TlsServer | None = None


class _Server(uvicorn.Server):
    """Handshakes are bounded apart from connections; without TLS it is uvicorn's."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        config = cast("_Config", self.config)
        if config.tls is None:
            await super().startup(sockets)
            return
        assert sockets is not None

        def connected() -> asyncio.Protocol:
            return BoundedConnection(config, self.server_state, self.lifespan.state)

        acceptors = [TlsAcceptor(each, config.tls, connected, STALLED_AFTER_S) for each in sockets]
        for acceptor in acceptors:
            acceptor.start()
        self.servers = cast("list[asyncio.base_events.Server]", acceptors)
        self.started = True


def _serve_http(
    app: HttpApp, listening: socket.socket, tls: TlsServer | None, issuer: TokenIssuer | None, *, until_eof: bool
) -> None:
    config = _Config(
        app,
        interface="asgi3",
        http=BoundedConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        # A client's own claim of its address and scheme counts for nothing.
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOPS_WITHIN_S,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
    )
    config.tls = tls
    server = _Server(config)
    if until_eof:
        threading.Thread(target=_end_with_input, args=(server,), daemon=True).start()
    run(_serve_until_stopped(server, listening, tls, issuer))


async def _serve_until_stopped(
    server: uvicorn.Server, listening: socket.socket, tls: TlsServer | None, issuer: TokenIssuer | None
) -> None:
    loop = asyncio.get_running_loop()
    reloads = None if tls is None else loop.create_task(_follow_certificates(tls))
    if tls is not None and not has_terminal():
        loop.add_signal_handler(signal.SIGHUP, lambda: tls.reload(is_forced=True))
    if issuer is not None:
        await issuer.keys.read()
        issuer.keys.start()
    try:
        await server.serve(sockets=[listening])
    finally:
        if reloads is not None:
            reloads.cancel()
        if issuer is not None:
            await issuer.keys.stop()


async def _follow_certificates(tls: TlsServer) -> None:
    while True:
        await asyncio.sleep(_CERTIFICATES_LOOKED_AT_S)
        tls.reload()


def _end_with_input(server: uvicorn.Server) -> None:
    while sys.stdin.buffer.read(65_536):
        pass
    server.should_exit = True


def _names(options: RegistryOptions, url: str) -> list[str]:
    """By which clients may reach this registry, besides addresses."""
    return [options.listener.host, urlsplit(url).hostname or "", socket.gethostname(), *options.allowed_hosts]


def _bind(listener: Listener) -> socket.socket:
    try:
        return socket.create_server((listener.host, listener.port), family=_family(listener), reuse_port=False)
    except OSError as error:
        raise ConfigError(
            f"the registry cannot listen on {listener.host or 'every interface'}:{listener.port}: {error.strerror}",
            hint="another program may have this port; port 0 selects a free one",
        ) from None


def _family(listener: Listener) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in listener.host else socket.AF_INET
