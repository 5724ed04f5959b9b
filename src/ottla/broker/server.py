"""`serve`: a broker from its options to its end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal

from ottla.broker.broker import Broker
from ottla.model.serve_options import ServeOptions
from ottla.observe.events import fields
from ottla.runtime.clock import SystemClock
from ottla.runtime.limits_of_process import raise_open_files_limit

log = logging.getLogger(__name__)

# The broker makes almost no garbage with cycles, and a young collection walks what one turn allocated: rarely is
# enough, and the parts that live for ever are taken out of its sight.
_COLLECT_AFTER_ALLOCATIONS = 50_000


async def serve(options: ServeOptions) -> None:
    """Run a broker until SIGTERM or SIGINT; then answer what is under way, flush, and return.

    Raises `OttlaError` when it cannot start.
    """
    clock = SystemClock()
    started_ms = clock.monotonic_ms()
    open_files = raise_open_files_limit()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    broker = await Broker.start(options, clock=clock, open_files_max=None if open_files is None else open_files.now)
    try:
        gc.collect()
        gc.freeze()
        gc.set_threshold(_COLLECT_AFTER_ALLOCATIONS, 20, 20)
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
        await stop.wait()
        log.info("broker.stopping")
    finally:
        await broker.stop()
    log.info("broker.stopped")
