"""`--admin-listen` on a real broker: metrics change with real clients, health is reported, bad requests are refused."""

from __future__ import annotations

import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer

from ottla.broker.monitoring.server import CONNECTIONS_MAX, REQUEST_TIMEOUT_S
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually

Scrape = Callable[[], dict[str, float]]
_SAMPLE = re.compile(r"([a-z_][a-z0-9_]*(?:\{(?:[a-z_]+=\"(?:[^\"\\]|\\.)*\",?)*\})?) ([0-9.e+-]+|\+Inf)\Z")
PRODUCE_COUNT = 'kafka_network_requestmetrics_requests_total{request="Produce"}'


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker(serves_metrics=True) as running:
        yield running


def get(broker: RunningBroker, path: str) -> tuple[int, str, str]:
    """Status, content type, body."""
    try:
        with urllib.request.urlopen(broker.admin_url + path, timeout=30) as response:
            return response.status, response.headers["Content-Type"], response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


@pytest.fixture
def scrape(broker: RunningBroker) -> Scrape:
    def samples() -> dict[str, float]:
        status, content_type, body = get(broker, "/metrics")
        assert status == 200
        assert content_type == "text/plain; version=0.0.4; charset=utf-8"
        found = {}
        for line in body.splitlines():
            if not line.startswith("# "):
                parts = _SAMPLE.match(line)
                assert parts is not None, f"not a sample of Prometheus' text format: {line!r}"
                assert parts[1] not in found, f"twice: {line!r}"
                found[parts[1]] = float(parts[2])
        return found

    return samples


def test_ready_broker_reports_ready(broker: RunningBroker) -> None:
    assert get(broker, "/healthz") == (200, "text/plain; charset=utf-8", "ok\n")
    assert get(broker, "/readyz") == (200, "text/plain; charset=utf-8", "ok\n")


def test_produced_records_and_bytes_are_counted(broker: RunningBroker, scrape: Scrape) -> None:
    before = scrape()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 0})
    for number in range(40):
        producer.produce("counted", str(number).encode(), partition=0)
        producer.flush()
    after = scrape()
    moved = {name: value - before.get(name, 0) for name, value in after.items()}
    assert after['kafka_server_brokertopicmetrics_messagesin_total{topic="counted"}'] == 40
    bytes_in = after['kafka_server_brokertopicmetrics_bytesin_total{topic="counted"}']
    assert bytes_in > 40 * 61
    assert bytes_in == after['kafka_log_log_size{topic="counted",partition="0"}']
    assert after['kafka_log_log_logendoffset{topic="counted",partition="0"}'] == 40
    assert moved[PRODUCE_COUNT] == 40
    # One in 32 is timed and counts as 32.
    assert moved['kafka_network_requestmetrics_totaltimems_count{request="Produce"}'] in (32, 64)
    assert moved["kafka_log_logflushstats_logflushrateandtimems_count"] > 0
    assert after["kafka_server_replicamanager_leadercount"] >= 1
    assert after["kafka_server_replicamanager_offlinereplicacount"] == 0
    assert after["process_resident_memory_bytes"] > 10_000_000
    assert 0 < after["process_open_fds"] < after["process_max_fds"]
    assert 0 < after["process_cpu_seconds_total"] < 3_600


def test_group_shows_its_members_committed_offsets_and_lag(broker: RunningBroker, scrape: Scrape) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce("lagging", str(number).encode(), partition=0)
    producer.flush()
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": 'the "slow" ones',
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    with closing(consumer):
        consumer.subscribe(["lagging"])
        eventually(lambda: consumer.poll(0.1), lambda message: message is not None and message.error() is None)
        bytes_out = scrape()["kafka_server_brokertopicmetrics_bytesout_total"]
        assert bytes_out > 0
        consumer.commit(asynchronous=False)
        place = 'consumergroup="the \\"slow\\" ones",topic="lagging",partition="0"'
        seen = scrape()
        offset = seen[f"kafka_consumergroup_current_offset{{{place}}}"]
        assert offset >= 1
        assert seen[f"kafka_consumergroup_lag{{{place}}}"] == 10 - offset
        assert seen['kafka_consumergroup_members{consumergroup="the \\"slow\\" ones"}'] == 1
        assert seen['ottla_groups{kind="classic",state="Stable"}'] == 1
        assert seen["kafka_coordinator_group_groupmetadatamanager_numgroups"] == 1
        assert any(name.startswith("kafka_server_socket_server_metrics_connection_count{") for name in seen)
        # The consumer has read everything, and now waits for more.
        waiting = 'kafka_server_delayedoperationpurgatory_purgatorysize{delayedoperation="Fetch"}'
        eventually(lambda: (consumer.poll(0), scrape()[waiting])[1], lambda count: count == 1)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b"405"),
        (b"\x00\x00\r\n\r\n", b"400"),
        (b"GET /metrics?name[]=up HTTP/1.1\r\n\r\n", b"200"),
    ],
)
def test_each_request_gets_its_status(broker: RunningBroker, request_bytes: bytes, status: bytes) -> None:
    assert _answer(broker, request_bytes).startswith(b"HTTP/1.1 " + status)


def test_request_that_is_too_long_is_closed_without_an_answer(broker: RunningBroker) -> None:
    assert _answer(broker, b"GET /" + b"x" * 100_000) == b""


HEALTH, SCRAPE = b"GET /healthz HTTP/1.1\r\n\r\n", b"GET /metrics HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize("sent", [b"", HEALTH[:-1], SCRAPE])
def test_health_is_answered_while_others_hold_every_place(broker: RunningBroker, sent: bytes) -> None:
    """Silent connections, and those that read nothing, are closed to make room for newer ones."""
    host, port = broker.admin_url.removeprefix("http://").split(":")
    opened: list[socket.socket] = []
    try:
        for _ in range(CONNECTIONS_MAX + 10):
            opened.append(socket.create_connection((host, int(port)), timeout=30))
            opened[-1].sendall(sent)
        began_s = time.monotonic()
        assert _answer(broker, HEALTH).endswith(b"ok\n")
        assert time.monotonic() - began_s < REQUEST_TIMEOUT_S, "it waited until the others had timed out"
    finally:
        for connection in opened:
            connection.close()


def test_silent_connection_is_closed_after_a_few_seconds(broker: RunningBroker) -> None:
    host, port = broker.admin_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        assert connection.recv(1) == b""


def _answer(broker: RunningBroker, request_bytes: bytes) -> bytes:
    """Everything that comes until the broker closes; nothing when it closed before it read all."""
    host, port = broker.admin_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        try:
            connection.sendall(request_bytes)
            parts = []
            while part := connection.recv(65_536):
                parts.append(part)
        except ConnectionError:
            return b""
    return b"".join(parts)
