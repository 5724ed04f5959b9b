"""The ZooKeeper of `ottla.testing` is a real one, and its crashes, pauses and restarts are real too."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from ottla.testing.zookeeper import RunningEnsemble, RunningZooKeeper, ZooKeeperDidNotStart
from tests.eventually import eventually
from tests.zookeeper_or_skip import skips_without_zookeeper


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[RunningZooKeeper]:
    with skips_without_zookeeper(), RunningZooKeeper() as running:
        yield running


@contextmanager
def client_of(connect: str, *, session_timeout_s: float = 5) -> Iterator[KazooClient]:
    client = KazooClient(connect, timeout=session_timeout_s)
    try:
        client.start(timeout=30)
        yield client
    finally:
        client.stop()
        client.close()


def state_of(task: Path) -> str:
    """Of a process or a thread: `T` is stopped (proc(5); the name before it, in parentheses, may have spaces)."""
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


def test_node_survives_a_crash_and_a_stop_on_the_same_port(zookeeper: RunningZooKeeper) -> None:
    with client_of(zookeeper.connect) as client:
        client.create("/kept", b"data")
    address = zookeeper.connect
    for end in (zookeeper.kill, zookeeper.stop):
        end()
        assert not zookeeper.is_running
        assert zookeeper.ask("ruok") == ""
        zookeeper.start()
        assert zookeeper.connect == address
        with client_of(zookeeper.connect) as client:
            assert client.get("/kept")[0] == b"data"


def test_paused_server_answers_when_it_is_resumed(zookeeper: RunningZooKeeper) -> None:
    zookeeper.pause()
    try:
        assert {state_of(thread) for thread in Path(f"/proc/{zookeeper.pid}/task").iterdir()} == {"T"}
        with socket.create_connection(("127.0.0.1", zookeeper.port), timeout=30) as connection:
            connection.sendall(b"ruok")
            connection.settimeout(0.2)
            with pytest.raises(TimeoutError):
                connection.recv(4)
            zookeeper.resume()
            connection.settimeout(30)
            assert connection.recv(4) == b"imok"
    finally:
        zookeeper.resume()


def test_sessions_of_a_second_are_granted(zookeeper: RunningZooKeeper) -> None:
    with client_of(zookeeper.connect, session_timeout_s=1):
        assert "to=1000" in zookeeper.ask("cons")


def test_server_that_cannot_start_reports_the_reason(zookeeper: RunningZooKeeper, tmp_path: Path) -> None:
    second = RunningZooKeeper(tmp_path, port=zookeeper.port)
    with pytest.raises(ZooKeeperDidNotStart, match="BindException"):
        second.start()
    assert not second.is_running


def test_temporary_data_is_removed_at_the_end() -> None:
    with skips_without_zookeeper(), RunningZooKeeper() as running:
        assert running.data_dir.is_dir()
    assert not running.data_dir.exists()


def test_ensemble_works_without_its_leader_and_lets_it_rejoin() -> None:
    with skips_without_zookeeper():
        ensemble = RunningEnsemble()
    with ensemble, client_of(ensemble.connect) as client:
        client.create("/kept", b"1")
        first = ensemble.leader()
        first.kill()
        eventually(lambda: [server.ask("srvr") for server in ensemble.servers], lambda said: "leader" in "".join(said))
        assert ensemble.leader() is not first
        client.retry(client.set, "/kept", b"2")
        ensemble.start()
        first_modes = first.ask("srvr")
        assert "Mode: follower" in first_modes
        with client_of(first.connect) as alone:
            alone.sync("/")
            assert alone.get("/kept")[0] == b"2"
