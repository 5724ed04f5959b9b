"""What waits for the cluster holds up no answer that is in memory."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import MutableMapping
from typing import Any

from ottla.registry import decisions
from ottla.registry.http_app import CERTIFICATE_PRINCIPAL, WAITING_MAX, HttpApp
from ottla.registry.state import RegistryState
from ottla.security.http_access import HttpAccess, HttpHosts, HttpRoles, Method
from tests.unit.registry.small_registry import DirectAnswers, MemoryLog, logins, record, registry_over, schema

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
    status, _, found = await request(app, "GET", target)
    return status, found


async def request(
    app: HttpApp, method: str, target: str, principal: str | None = None, body: bytes = b"", **headers: str
) -> tuple[int, list[tuple[bytes, bytes]], Any]:
    """`principal`: of a client's certificate."""
    path, _, query = target.partition("?")
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("192.0.2.7", 1),
        "scheme": "https",
        "state": {CERTIFICATE_PRINCIPAL: principal},
    }
    await app(scope, receive, send)
    return sent[0]["status"], sent[0]["headers"], json.loads(sent[1]["body"])


def test_known_schemas_are_answered_while_requests_wait_for_the_cluster_and_not_all_may_wait() -> None:
    log = StoppedLog()
    registry = registry_over(log)
    registry.claim()
    registry.change(lambda state: decisions.register(state, "orders", schema(record("a")), DirectAnswers()))
    app = HttpApp(registry, "http://here", logins())

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


def test_roles_are_checked_before_the_body_is_read_and_refusals_have_the_registrys_form() -> None:
    registry = registry_over(MemoryLog())
    registry.claim()
    rules = HttpAccess(HttpHosts([], ""), [Method.BASIC], HttpRoles.parse("read=*;write=User:CN=writer"))
    app = HttpApp(registry, "https://here", logins(rules))

    async def run() -> None:
        status, headers, found = await request(app, "GET", "/subjects")
        assert (status, found["error_code"]) == (401, 40101)
        assert (b"www-authenticate", b'Basic realm="ottla", charset="UTF-8"') in headers
        assert (b"connection", b"close") in headers
        text = json.dumps({"schema": record("a")}).encode()
        for method, target in (("POST", "/subjects/a/versions"), ("PUT", "/config"), ("DELETE", "/subjects/a")):
            status, _, found = await request(app, method, target, "User:CN=reader", text)
            assert (status, found["error_code"]) == (403, 40301), target
        assert (await request(app, "GET", "/subjects", "User:CN=reader"))[::2] == (200, [])
        status, _, found = await request(app, "POST", "/subjects/a", "User:CN=reader", text)
        assert (status, found["error_code"]) == (404, 40401)
        assert (await request(app, "POST", "/subjects/a/versions", "User:CN=writer", text))[0] == 200
        assert (await request(app, "GET", "/subjects", "User:CN=reader"))[::2] == (200, ["a"])

    asyncio.run(run())


def test_hosts_and_types_of_web_pages_are_refused_with_the_registrys_form() -> None:
    registry = registry_over(MemoryLog())
    app = HttpApp(registry, "https://here", logins())

    async def run() -> None:
        status, _, found = await request(app, "GET", "/subjects", host="attacker.example")
        assert (status, found["error_code"]) == (403, 403)
        more = {"content-type": "text/plain", "content-length": "2"}
        assert (await request(app, "PUT", "/config", body=b"{}", **more))[0] == 415

    asyncio.run(run())
