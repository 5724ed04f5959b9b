"""Long work for requests of the hot APIs, beside others: coroutines for one connection each, and work for none."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from ottla.broker.net.connection import Connection
from ottla.broker.net.failed_request import close_failed
from ottla.model.errors import WireError
from ottla.runtime.loop_offload import paced, run_slice
from ottla.runtime.steps import Steps


class StartedTasks:
    """Keeps them until they end.  One that fails closes its connection."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, connection: Connection, serving: Coroutine[object, object, None]) -> None:
        self._add(_guarded(connection, serving))

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
