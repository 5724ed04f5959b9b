"""`serve`: runs a broker from its options until it stops."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable

from ottla.broker.broker import Broker
from ottla.broker.child_processes import registry_process
from ottla.broker.late_imports import import_late
from ottla.broker.net.advertising import reachable
from ottla.broker.net.socket_loop import SocketLoop
from ottla.model.broker_settings import LOG_RECORD_VALIDATION, PROCESSES_COMMAND_CONFIG
from ottla.model.serve_options import RegistryOptions, ServeOptions
from ottla.observe.events import fields
from ottla.records.record_bounds import COMPILED
from ottla.runtime.clock import Clock, SystemClock
from ottla.runtime.installed import SCHEMAS, require_modules
from ottla.runtime.posix_disk import PosixDisk
from ottla.runtime.process import READY, STOPPING, has_terminal, is_root, notify, raise_open_files_limit

log = logging.getLogger(__name__)

# The broker makes almost no garbage with cycles, and a young collection walks what one turn allocated: rarely is
# enough, and the long-lived objects are frozen, so that it skips them.
_COLLECT_AFTER_ALLOCATIONS = 50_000
_UNCHECKED_HINT = (
    "log.record.validation=auto checks no records without the compiled check: install a wheel for this platform, build "
    "one with a C compiler and Python's headers, or set log.record.validation"
)


async def serve(
    options: ServeOptions,
    *,
    clock: Clock | None = None,
    disk: PosixDisk | None = None,
    sockets: SocketLoop | None = None,
    on_started: Callable[[Broker], None] | None = None,
) -> None:
    """Run a broker until SIGTERM, SIGINT or SIGHUP; then answer requests in progress, flush, and return.

    SIGHUP loads the certificates of TLS listeners instead, where the process has no terminal that could have closed.

    Raises `OttlaError` when it cannot start.  `clock`, `disk`, `sockets`: the machine's own, unless a test has
    something between; `on_started` is called before readiness is reported.
    """
    clock = clock or SystemClock()
    started_ms = clock.monotonic_ms()
    if options.registry is not None:
        require_modules("schema.registry.listeners", SCHEMAS, "schemas")
        _check_registry(options.registry, clock)
    open_files = raise_open_files_limit()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # As Apache Kafka: a terminal that closes ends it in order, and `nohup` keeps it.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop.set)
    starting = loop.create_task(
        Broker.start(
            options,
            clock=clock,
            open_files_max=None if open_files is None else open_files.now,
            disk=disk,
            sockets=sockets,
        )
    )
    broker = await _started_before(stop, starting)
    if broker is None:
        log.info("broker.stopped")
        return
    registry = None
    if options.registry is not None:
        index = options.processes_listener_index
        assert index is not None, "the options were checked"
        config = options.settings[PROCESSES_COMMAND_CONFIG]
        registry = registry_process(options.registry, reachable(broker.addresses[index]), config, clock)
    try:
        # Objects made at start are long-lived: a collection would walk all of them (20-40 ms) and free almost none.
        gc.freeze()
        gc.set_threshold(_COLLECT_AFTER_ALLOCATIONS, 20, 20)
        gc.enable()
        if broker.certificates.are_needed and not has_terminal():
            loop.add_signal_handler(signal.SIGHUP, broker.certificates.reload)
        if on_started is not None:
            on_started(broker)
        for listener, (host, port) in zip(options.listeners, broker.addresses, strict=True):
            facts = fields(name=listener.name, protocol=listener.protocol, host=host, port=port)
            log.info("listener.opened", extra=facts)
        host, port = broker.addresses[0]
        log.info(
            "broker.ready",
            extra=fields(
                host=host,
                port=port,
                node_id=broker.node_id,
                cluster_id=broker.cluster_id,
                data_dir=options.data_dir,
                pid=os.getpid(),
                took_ms=clock.monotonic_ms() - started_ms,
            ),
        )
        if is_root():
            log.warning("broker.runs_as_root", extra=fields(hint="run it as a user without rights on this machine"))
        if COMPILED is None and options.settings[LOG_RECORD_VALIDATION] == "auto":
            log.warning("broker.records_unchecked", extra=fields(hint=_UNCHECKED_HINT))
        notify(READY)
        if registry is not None:
            registry.start()
        late = loop.create_task(import_late())
        await stop.wait()
        late.cancel()
        log.info("broker.stopping")
        notify(STOPPING)
    finally:
        try:
            if registry is not None:
                await registry.stop()
        finally:
            await broker.stop()
    log.info("broker.stopped")


def _check_registry(options: RegistryOptions, clock: Clock) -> None:
    """Raises `ConfigError` for what its process would refuse, again and again."""
    # Few brokers have one, and all would pay for these imports.
    from ottla.broker.security.http_logins import http_access
    from ottla.broker.security.tls_server import TlsServer
    from ottla.security.http_access import HttpHosts

    if options.listener.uses_tls:
        TlsServer(options.settings, options.listener.name, clock.now_ms)
    http_access(options.settings, HttpHosts((), ""))


async def _started_before(stop: asyncio.Event, starting: asyncio.Task[Broker]) -> Broker | None:
    """None when the broker was stopped first: a start may wait for ZooKeeper for ever."""
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        starting.cancel()
        raise
    finally:
        stopping.cancel()
    if not starting.done():
        log.info("broker.stopping")
        notify(STOPPING)
        starting.cancel()
        await asyncio.wait((starting,))
        if starting.cancelled():
            return None
    return await starting
