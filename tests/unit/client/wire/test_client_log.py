"""What clients log of connections, leaders and coordinators; and that docs/clients.md has every event."""

from __future__ import annotations

import ast
import logging
import re
from pathlib import Path

import pytest

from ottla.client.wire.client_log import PRODUCER
from ottla.client.wire.errors import ClientError
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.waiting import PATIENCE_MS, Waiting, warns_on
from ottla.observe.events import EventFormatter
from tests.unit.client.fake_cluster import FakeCluster, Fault

ROOT = Path(__file__).resolve().parents[4]


def attempt(fake: FakeCluster, cluster_refresh: object) -> None:
    assert callable(cluster_refresh)
    cluster_refresh(["clicks"], Deadline(fake.clock, 1_000))


def levels(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.fixture
def fake() -> FakeCluster:
    fake = FakeCluster(1)
    fake.add_topic("clicks", 1)
    return fake


def test_a_broker_that_is_down_is_named_once_until_it_is_reached(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.client")
    cluster = fake.client()
    fake.brokers[1].is_down = True
    for _ in range(3):
        with pytest.raises(ClientError):
            attempt(fake, cluster.refresh_once)
    fake.brokers[1].is_down = False
    attempt(fake, cluster.refresh_once)
    assert levels(caplog) == [
        ("INFO", "broker broker-1:9092 cannot be reached: no broker is at broker-1:9092"),
        ("INFO", "connected to broker broker-1:9092"),
    ]


def test_a_first_connection_and_its_close_are_of_level_debug(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "ottla.client")
    with fake.client(ClientOptions("a-client")) as cluster:
        attempt(fake, cluster.refresh_once)
    assert levels(caplog) == [
        ("DEBUG", "connected to broker broker-1:9092"),
        ("DEBUG", "the connection to broker broker-1:9092 is closed"),
    ]
    assert vars(caplog.records[0])["ottla_facts"]["client_id"] == "a-client"


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.SILENCE])
def test_a_connection_that_is_lost_is_logged_with_the_reason(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture, fault: Fault
) -> None:
    caplog.set_level(logging.INFO, "ottla.client")
    cluster = fake.client()
    attempt(fake, cluster.refresh_once)
    fake.brokers[1].fault_of = lambda api: fault
    with pytest.raises(ClientError) as failed:
        attempt(fake, cluster.refresh_once)
    assert levels(caplog) == [("INFO", f"the connection to broker broker-1:9092 is lost: {failed.value}")]


def test_another_leader_is_logged_and_the_first_is_not(fake: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottla.client.metadata")
    cluster = fake.client()
    [partition] = fake.partitions
    attempt(fake, cluster.refresh_once)
    attempt(fake, cluster.refresh_once)
    assert caplog.messages == []
    fake.move_leader(partition, -1)
    attempt(fake, cluster.refresh_once)
    fake.move_leader(partition, 1)
    attempt(fake, cluster.refresh_once)
    assert caplog.messages == [
        "the leader of clicks-0 is none, and was broker 1",
        "the leader of clicks-0 is broker 1, and was none",
    ]


def test_a_client_that_waits_warns_with_its_name(fake: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    waiting = Waiting(warns_on(PRODUCER, "producer of a:1"), fake.clock)
    reason = ClientError("no\nanswer")
    for _ in range(2):
        waiting.on_wait(reason)
        fake.clock.advance(PATIENCE_MS)
    assert levels(caplog) == [("WARNING", "producer of a:1: waiting: no\\nanswer")]


def test_a_sentence_is_an_event_for_ottlas_formatter(fake: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "ottla.client")
    attempt(fake, fake.client().refresh_once)
    line = EventFormatter().format(caplog.records[0])
    assert line.endswith(
        "DEBUG connection.opened broker=broker-1:9092 client_id=ottla security=PLAINTEXT round_trip_ms=0"
    )


def test_the_page_has_every_event_with_its_facts() -> None:
    rows = re.findall(r"^\| `ottla\.client\.\w+` \| \w+ \| `([\w.]+)` \| ([\w, ]+) \|", _page(), re.MULTILINE)
    documented = {(event, facts) for event, facts in rows}
    logged: set[tuple[str, str]] = set()
    for source in (ROOT / "src" / "ottla" / "client").rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "named":
                [event] = node.args
                assert isinstance(event, ast.Constant)
                assert isinstance(event.value, str)
                logged.add((event.value, ", ".join(str(keyword.arg) for keyword in node.keywords)))
    assert logged == documented


def _page() -> str:
    return (ROOT / "docs" / "clients.md").read_text()
