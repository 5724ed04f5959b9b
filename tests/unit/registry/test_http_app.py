"""What waits for the cluster holds up no answer that is in memory."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import MutableMapping
from typing import Any

from ottla.registry import decisions
from ottla.registry.http_app import WAITING_MAX, HttpApp
from ottla.registry.request_rules import RequestRules
from ottla.registry.state import RegistryState
from tests.unit.registry.small_registry import DirectAnswers, MemoryLog, record, registry_over, schema

# Far beyond what a busy machine needs.
ENDS_WITHIN_S = 120


class StoppedLog(MemoryLog):
    """A topic that answers only while `goes_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()
        self.goes_on.set()

    def read(self, state: RegistryState) -> None:
        self.goes_on.wait()
        super().read(state)


async def ask(app: HttpApp, target: str) -> tuple[int, Any]:
    path, _, query = target.partition("?")
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [],
    }
    await app(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_known_schemas_are_answered_while_requests_wait_for_the_cluster_and_not_all_may_wait() -> None:
    log = StoppedLog()
    registry = registry_over(log)
    registry.claim()
    registry.change(lambda state: decisions.register(state, "orders", schema(record("a")), DirectAnswers()))
    app = HttpApp(registry, "http://here", RequestRules([]))

    async def run() -> None:
        log.goes_on.clear()
        waiting = [asyncio.create_task(ask(app, "/subjects")) for _ in range(WAITING_MAX)]
        try:
            await asyncio.sleep(0)
            async with asyncio.timeout(ENDS_WITHIN_S):
                status, found = await ask(app, "/schemas/ids/1")
                assert (status, "schema" in found) == (200, True)
                assert (await ask(app, "/subjects"))[0] == 503
        finally:
            log.goes_on.set()
            answers = await asyncio.gather(*waiting)
        assert answers == [(200, ["orders"])] * WAITING_MAX

    asyncio.run(run())
