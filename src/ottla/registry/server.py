"""Runs a registry until SIGTERM or SIGINT: its topic, its claim, and HTTP."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
from typing import Final
from urllib.parse import urlsplit

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ottla.client.wire.security.settings import PLAINTEXT, ClientSecurity
from ottla.model.errors import ConfigError
from ottla.model.listener import Listener, address_text
from ottla.model.serve_options import RegistryOptions, require_registry_url
from ottla.observe.events import fields
from ottla.registry.checkers import Checkers
from ottla.registry.http_app import HttpApp
from ottla.registry.request_rules import RequestRules
from ottla.registry.schema_topic import SchemaTopic
from ottla.registry.service import Registry
from ottla.runtime.clock import SystemClock
from ottla.runtime.event_loop import run

CONNECTIONS_MAX: Final = 512
# Uvicorn closes one without a next request after that time.
KEEP_ALIVE_S: Final = 5
# For the head of a request to arrive, and for some of an answer to be received.
STALLED_AFTER_S: Final = 15.0
LOOK_EVERY_S: Final = 5.0


class BoundedConnection(H11Protocol):
    """Bounds uvicorn's connections: their number, and the time in which a client must send or receive something.

    Uvicorn limits neither those that never send a request nor those that receive no response.  Above `CONNECTIONS_MAX`
    the one that has waited longest for its client is closed: the newest is served.
    """

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


log = logging.getLogger(__name__)

# How long requests in progress may take after a request to stop.
STOPS_WITHIN_S = 10


def serve(
    options: RegistryOptions, bootstrap: str, *, until_eof: bool = False, security: ClientSecurity = PLAINTEXT
) -> None:
    """`until_eof`: it ends when its standard input does, as a part of the program that has the other end.

    Raises `OttlaError` when it cannot start.
    """
    require_registry_url(options.listener, options.advertised_url)
    with _bind(options.listener) as listening:
        host, port = listening.getsockname()[:2]
        url = options.advertised_url or f"http://{address_text(host, port)}"
        topic = SchemaTopic(bootstrap, options.topic, security)
        clock = SystemClock()
        checkers = Checkers(clock)
        try:
            topic.prepare(options.replication_factor)
            registry = Registry(topic, url, checkers, clock)
            registry.claim()
            schemas_count = registry.read(lambda state: sum(len(state.versions(each)) for each in state.subjects()))
            log.info(
                "registry.ready",
                extra=fields(host=host, port=port, topic=options.topic, schemas_count=schemas_count, pid=os.getpid()),
            )
            _serve_http(HttpApp(registry, url, RequestRules(_names(options, url))), listening, until_eof=until_eof)
        finally:
            checkers.close()
            topic.close()
    log.info("registry.stopped")


def _serve_http(app: HttpApp, listening: socket.socket, *, until_eof: bool) -> None:
    config = uvicorn.Config(
        app,
        interface="asgi3",
        http=BoundedConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOPS_WITHIN_S,
    )
    server = uvicorn.Server(config)
    if until_eof:
        threading.Thread(target=_end_with_input, args=(server,), daemon=True).start()
    run(server.serve(sockets=[listening]))


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
