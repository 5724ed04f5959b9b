"""Clients that are expensive for a registry: schemas with a long check, bodies that do not arrive, idle connections."""

from __future__ import annotations

import http.client
import json
import os
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ottla.model.limits import MIB
from ottla.registry.checkers import Checkers
from ottla.registry.checks import Answer, Comparison, KeptForm, Outcome, Source
from ottla.registry.errors import RegistryCode, RegistryError
from ottla.registry.http_app import BODIES_BYTES_MAX, REQUEST_BYTES_MAX
from ottla.registry.schema import SchemaType
from ottla.registry.server import CONNECTIONS_MAX
from ottla.runtime.clock import SystemClock
from ottla.testing import ControlledBroker
from tests.eventually import eventually
from tests.registry_process import CONTENT_TYPE, Server, ask, serving

NEVER_MS = 10**15
# Far beyond the 20 s in which a body must arrive.
ENDS_WITHIN_S = 120


@pytest.fixture(scope="module")
def broker() -> Iterator[ControlledBroker]:
    with ControlledBroker() as running:
        yield running


@pytest.fixture
def server(broker: ControlledBroker, request: pytest.FixtureRequest) -> Iterator[Server]:
    topic = f"schemas-{request.node.name[:60].replace('[', '-').rstrip(']')}"
    with serving(broker.bootstrap, "--topic", topic) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def unfinished_request(broker: ControlledBroker) -> Iterator[socket.socket]:
    """The connection of a request whose body does not arrive: its time passes while the other tests run."""
    with serving(broker.bootstrap, "--topic", "unfinished") as server, connected(server) as connection:
        connection.sendall(b"POST /subjects/s/versions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        connection.settimeout(ENDS_WITHIN_S)
        yield connection


def union_of_records(count: int, *more_fields: object) -> str:
    fields = [{"name": "a", "type": "int"}, *more_fields]
    return json.dumps([{"type": "record", "name": f"R{index}", "fields": fields} for index in range(count)])


def record_of_unions(count: int, inner: str) -> str:
    """`count` fields, each a union of `count` records: the comparison takes cubic time."""
    records = [
        {"type": "record", "name": f"A{each}", "fields": [{"name": "x", "type": inner}]} for each in range(count)
    ]
    names = [f"A{each}" for each in range(count)]
    rest = [{"name": f"f{each}", "type": names} for each in range(1, count)]
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "f0", "type": records}, *rest]})


def source(text: str) -> Source:
    return Source(SchemaType.AVRO, text)


def costly() -> Comparison:
    """A schema whose check takes minutes of CPU time."""
    return Comparison(source(record_of_unions(250, "string")), source(record_of_unions(250, "int")))


def outcome(checkers: Checkers, check: KeptForm | Comparison) -> Outcome:
    [found] = checkers.outcomes([check], NEVER_MS)
    return found


def test_check_that_takes_too_long_is_ended_and_remembered() -> None:
    others = children_of(os.getpid())
    clock = SystemClock()
    checkers = Checkers(clock, check_within_ms=1_000)
    refused = outcome(checkers, costly())
    assert isinstance(refused, RegistryError)
    assert refused.code is RegistryCode.SCHEMA_TOO_LARGE
    assert "it took more than 1 s" in str(refused)
    # The same object: no second check was made.
    assert outcome(checkers, costly()) is refused
    assert kept_text(outcome(checkers, KeptForm(source('"int"'), normalize=False))) == '"int"'
    checkers.close()
    assert children_of(os.getpid()) <= others


def kept_text(found: Outcome) -> Answer:
    assert not isinstance(found, RegistryError), found
    return found


def test_check_that_needs_too_much_memory_is_refused() -> None:
    checkers = Checkers(SystemClock(), check_within_ms=60_000)
    # A JSON text of 4 MB becomes some hundred MB of Python's objects.
    found = outcome(checkers, KeptForm(source("[" + "{}," * (4 * MIB) + "{}]"), normalize=False))
    assert isinstance(found, RegistryError)
    assert found.code is RegistryCode.SCHEMA_TOO_LARGE
    assert "MiB of memory" in str(found)
    assert kept_text(outcome(checkers, KeptForm(source('"int"'), normalize=False))) == '"int"'
    checkers.close()


def test_checks_that_wait_for_a_process_give_up_in_time() -> None:
    others = children_of(os.getpid())
    clock = SystemClock()
    checkers = Checkers(clock, check_within_ms=3_000)
    threads = [
        threading.Thread(target=outcome, args=(checkers, Comparison(source(record_of_unions(count, "string")), each)))
        for count, each in ((250, source(record_of_unions(250, "int"))), (251, source(record_of_unions(251, "int"))))
    ]
    for thread in threads:
        thread.start()
    eventually(lambda: children_of(os.getpid()) - others, lambda started: len(started) == len(threads))
    with pytest.raises(RegistryError, match="try again") as raised:
        checkers.outcomes([KeptForm(source('"int"'), normalize=False)], clock.monotonic_ms() + 200)
    assert (raised.value.code, raised.value.status) == (RegistryCode.OPERATION_TIMED_OUT, 500)
    for thread in threads:
        thread.join()
    checkers.close()


def test_others_are_served_while_a_large_schema_is_compared(server: Server) -> None:
    versions = f"{server.url}/subjects/union/versions"
    # 60 unions of 60 records are compared for seconds.
    assert ask("POST", versions, {"schema": record_of_unions(60, "int")})[0] == 200
    answers: list[tuple[int, object]] = []
    thread = threading.Thread(
        target=lambda: answers.append(ask("POST", versions, {"schema": record_of_unions(60, "string")}))
    )
    thread.start()
    served = 0
    while not answers:
        read = ask("GET", f"{server.url}/subjects")
        made = ask("POST", f"{server.url}/subjects/other-{served}/versions", {"schema": '"int"'})
        assert (read[0], made[0]) == (200, 200)
        served += not answers
    thread.join()
    # One read may be under way before the comparison has started.
    assert served >= 3
    assert answers[0][0] == 409


def test_union_of_some_hundred_records_is_compared_in_time(server: Server) -> None:
    """Branches with different names are not compared: it took a dozen seconds."""
    versions = f"{server.url}/subjects/union/versions"
    assert ask("POST", versions, {"schema": union_of_records(500)})[0] == 200
    more = {"name": "b", "type": "int", "default": 0}
    assert ask("POST", versions, {"schema": union_of_records(500, more)})[0] == 200
    assert ask("POST", versions, {"schema": union_of_records(501, more)})[0] == 200
    status, refused = ask("POST", versions, {"schema": union_of_records(400, more)})
    assert (status, refused["error_code"]) == (409, 40901)
    assert "reader union lacking writer type" in refused["message"]
    # 101 records are missing; their reasons are not repeated without end.
    assert len(refused["message"]) < 32_000


def resident_bytes(pid: int) -> int:
    [line] = [each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmRSS")]
    return int(line.split()[1]) * 1_024


def children_of(pid: int) -> set[str]:
    found: set[str] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # the thread has ended meanwhile
            found.update((task / "children").read_text().split())
    return found


def connected(server: Server) -> socket.socket:
    parts = urlsplit(server.url)
    assert parts.hostname is not None
    return socket.create_connection((parts.hostname, parts.port or 80), timeout=30)


def test_bodies_that_do_not_arrive_hold_little_memory(server: Server) -> None:
    before = resident_bytes(server.process.pid)
    count = 200
    head = (
        "POST /subjects/slow/versions HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: {CONTENT_TYPE}\r\nContent-Length: {REQUEST_BYTES_MAX}\r\n\r\n"
    ).encode()
    assert count * REQUEST_BYTES_MAX > 4 * BODIES_BYTES_MAX
    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(connected(server))
            connection.sendall(head + b" " * (REQUEST_BYTES_MAX - 1))
        # Another client is served, also with a body.
        assert ask("POST", f"{server.url}/subjects/orders/versions", {"schema": '"int"'})[0] == 200
        held = resident_bytes(server.process.pid) - before
        # Each connection has its object and the 64 KiB that have arrived and are not read yet.
        assert held < 3 * BODIES_BYTES_MAX, f"{held // MIB} MiB"


def test_connections_that_send_nothing_make_room_and_are_closed(server: Server) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 2_048), hard), hard))
    try:
        with ExitStack() as stack:
            idle = [stack.enter_context(connected(server)) for _ in range(CONNECTIONS_MAX + 50)]
            assert ask("GET", f"{server.url}/subjects") == (200, [])
            open_count = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
            assert open_count < CONNECTIONS_MAX + 40
            # The oldest made room, and the others have a deadline for their first request.
            for connection in (idle[0], idle[-1]):
                connection.settimeout(ENDS_WITHIN_S)
                assert ends(connection)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def ends(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_requests_that_a_web_page_can_send_are_refused(broker: ControlledBroker) -> None:
    def status(server: Server, **headers: str) -> int:
        parts = urlsplit(server.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", "/subjects/page/versions", json.dumps({"schema": '"int"'}), named)
        found = connection.getresponse().status
        connection.close()
        return found

    with serving(broker.bootstrap, "--topic", "schemas-page", "--allow-host", "schemas.example") as server:
        assert status(server, Content_Type="text/plain") == 415
        assert status(server, Content_Type="application/x-www-form-urlencoded") == 415
        assert status(server, Content_Type=CONTENT_TYPE, Origin="http://page.example") == 403
        assert status(server, Content_Type=CONTENT_TYPE, Host="rebound.example") == 403
        assert ask("GET", f"{server.url}/subjects") == (200, [])
        assert status(server, Content_Type=CONTENT_TYPE, Host="schemas.example:8081") == 200


def test_host_names_of_a_brokers_registry_are_a_setting() -> None:
    settings = {
        "schema.registry.listeners": "http://127.0.0.1:0",
        "schema.registry.allowed.hosts": "a.example,b.example",
    }
    with ControlledBroker(settings) as broker:
        parts = urlsplit(broker.schema_registry_url)
        for host, expected in (("b.example", 200), ("c.example", 403)):
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
            connection.request("GET", "/subjects", headers={"Host": host})
            assert connection.getresponse().status == expected
            connection.close()


def test_body_that_does_not_arrive_is_answered_and_its_connection_closed(unfinished_request: socket.socket) -> None:
    received = b""
    while data := unfinished_request.recv(65_536):
        received += data
    assert received.startswith(b"HTTP/1.1 408 ")
    assert b"did not arrive within 20 s" in received
