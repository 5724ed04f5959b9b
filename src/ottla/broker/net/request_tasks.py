"""Long work for requests of the hot APIs, beside others: coroutines for one connection each, and work for none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from ottla.broker.net.client_quotas import timed
from ottla.broker.net.connection import Connection
from ottla.model.errors import WireError
from ottla.observe.events import frequent
from ottla.runtime.loop_offload import paced, run_slice
from ottla.runtime.steps import Steps
from ottla.storage.errors import lacks_descriptors

log = logging.getLogger(__name__)


def close_failed(connection: Connection, error: Exception, **facts: object) -> None:
    """A request failed unexpectedly: log it and close its connection: no later request could be answered in order.

    Too few descriptors are no bug, also when a handler's module is first imported: one line is logged, and the client's
    next attempt may succeed.
    """
    facts = {"peer": connection.peer_name, **facts}
    if lacks_descriptors(error):
        log.error("request.without_files", extra=frequent(**facts, error=error))
        connection.close("no more files may be open")
        return
    log.error("request.failed", extra=frequent(**facts), exc_info=error)
    connection.close("the request failed inside the broker")


class RequestTasks:
    """Keeps them until they end.  One that fails closes its connection."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, connection: Connection, serving: Coroutine[object, object, None]) -> None:
        self._add(timed(_guarded(connection, serving), connection.quotas))

    def run(self, steps: Steps[None]) -> None:
        """Take the steps: at once, when a slice of time is enough for all."""
        if not run_slice(steps):
            self._add(paced(steps))

    def _add(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _guarded(connection: Connection, serving: Coroutine[object, object, None]) -> None:
    try:
        await serving
    except WireError as error:
        connection.refuse(str(error))
    except Exception as error:  # noqa: BLE001 (close_failed logs it, with its traceback)
        # A bug here must leave no client waiting.
        close_failed(connection, error, client_id=connection.client_id)
