"""A broker of a cluster that starts while its ZooKeeper is down."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing.broker import RunningBroker
from ottla.testing.zookeeper import RunningZooKeeper
from tests.eventually import eventually
from tests.zookeeper_or_skip import skips_without_zookeeper

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SESSION_TIMEOUT_MS = 1_000


@pytest.fixture
def zookeeper() -> Iterator[RunningZooKeeper]:
    """A ZooKeeper for this test, which stops it."""
    with skips_without_zookeeper(), RunningZooKeeper() as running:
        yield running


@pytest.fixture
def broker(zookeeper: RunningZooKeeper, tmp_path: Path) -> Iterator[RunningBroker]:
    settings = {
        "node.id": "1",
        "zookeeper.connect": f"{zookeeper.connect}/waits",
        "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    }
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    made = RunningBroker(tmp_path / "broker-1", settings=settings, listen=f"127.0.0.1:{port}")
    made.host, made.port = "127.0.0.1", port
    yield made
    made.close()


def waits_for(broker: RunningBroker, zookeeper: RunningZooKeeper) -> None:
    """The broker logs that it waits, and for which servers."""
    lines = eventually(
        lambda: [line for line in broker.log_lines if "zookeeper.awaited" in line or not broker.is_running]
    )
    assert broker.is_running, lines
    assert zookeeper.connect in lines[0]


def refuses_connections(broker: RunningBroker) -> bool:
    try:
        socket.create_connection((broker.host, broker.port), timeout=10).close()
    except ConnectionRefusedError:
        return True
    return False


def test_broker_waits_and_is_ready_when_zookeeper_is_back(broker: RunningBroker, zookeeper: RunningZooKeeper) -> None:
    zookeeper.kill()
    broker.launch()
    waits_for(broker, zookeeper)
    assert refuses_connections(broker)
    # The line comes after a session time-out; a start ended then.
    assert broker.is_running
    zookeeper.start()
    broker.wait_until_ready()
    assert not refuses_connections(broker)
    assert broker.stop() == 0


def test_broker_waits_also_with_the_session_of_its_former_process(
    broker: RunningBroker, zookeeper: RunningZooKeeper
) -> None:
    broker.start()
    broker.kill()
    zookeeper.kill()
    broker.launch()
    waits_for(broker, zookeeper)
    assert refuses_connections(broker)
    zookeeper.start()
    broker.wait_until_ready()
    assert broker.stop() == 0


def test_broker_can_be_stopped_while_it_waits(broker: RunningBroker, zookeeper: RunningZooKeeper) -> None:
    zookeeper.kill()
    broker.launch()
    waits_for(broker, zookeeper)
    assert broker.stop() == 0
    assert "broker.stopped" in broker.log_lines[-1]
    # Nothing prevents the next start.
    zookeeper.start()
    broker.start()
