"""Coroutines that serve long requests of the hot APIs, each for one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from ottla.broker.connection import Connection
from ottla.broker.failed_request import close_failed
from ottla.model.errors import WireError


class StartedTasks:
    """Keeps them until they end.  One that fails closes its connection."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, connection: Connection, serving: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(_guarded(connection, serving))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _guarded(connection: Connection, serving: Coroutine[object, object, None]) -> None:
    try:
        await serving
    except WireError as error:
        connection.refuse(str(error))
    except Exception as error:  # noqa: BLE001 (close_failed logs it, with its traceback)
        # A bug of ours must leave no client waiting.
        close_failed(connection, error, client_id=connection.client_id)
