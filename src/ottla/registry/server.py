"""Runs a registry until SIGTERM or SIGINT: its topic, its claim, and HTTP."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from urllib.parse import urlsplit

import uvicorn

from ottla.model.errors import ConfigError
from ottla.model.listener import Listener, address_text
from ottla.model.serve_options import RegistryOptions, require_registry_url
from ottla.observe.events import fields
from ottla.registry.checkers import Checkers
from ottla.registry.connections import KEEP_ALIVE_S, BoundedConnection
from ottla.registry.http_app import HttpApp
from ottla.registry.request_rules import RequestRules
from ottla.registry.schema_topic import SchemaTopic
from ottla.registry.service import Registry
from ottla.runtime.clock import SystemClock
from ottla.runtime.event_loop import run

log = logging.getLogger(__name__)

# How long requests in progress may take after a request to stop.
STOPS_WITHIN_S = 10


def serve(options: RegistryOptions, bootstrap: str, *, until_eof: bool = False) -> None:
    """`until_eof`: it ends when its standard input does, as a part of the program that has the other end.

    Raises `OttlaError` when it cannot start.
    """
    require_registry_url(options.listener, options.advertised_url)
    with _bind(options.listener) as listening:
        host, port = listening.getsockname()[:2]
        url = options.advertised_url or f"http://{address_text(host, port)}"
        topic = SchemaTopic(bootstrap, options.topic)
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
