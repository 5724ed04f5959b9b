"""`ottla cluster status` and `ottla doctor` when brokers are cut off from ZooKeeper, and brokers found by ZooKeeper."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.program import run
from ottla.testing.cluster import RunningCluster
from tests.cluster.traffic import make_topic
from tests.eventually import eventually
from tests.zookeeper_or_skip import skips_without_zookeeper

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunningCluster]:
    """`request.param`: the session time-out in ms."""
    # Where no ./ottla-cluster is.
    monkeypatch.chdir(tmp_path)
    settings = {"zookeeper.session.timeout.ms": str(request.param)}
    with skips_without_zookeeper(), RunningCluster(2, settings=settings, has_zookeeper=True) as running:
        make_topic(running.bootstrap, "orders", 4, 2)
        running.wait_until_replicated()
        yield running


class Status:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, dict[str, Any], str]:
        status = run(["cluster", "status", "--json", *arguments])
        captured = self._capsys.readouterr()
        return status, json.loads(captured.out) if captured.out.strip() else {}, captured.err


@pytest.mark.parametrize("cluster", [2_000], indirect=True)
def test_brokers_found_by_zookeeper_are_not_ok_when_it_is_dead(
    cluster: RunningCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    ask, zookeeper = Status(capsys), cluster.zookeeper.connect
    status, told, _ = ask("--zookeeper", zookeeper)
    assert (status, told["is_well"]) == (0, True)
    assert {each["address"] for each in told["brokers"]} == {each.bootstrap for each in cluster.brokers.values()}

    cluster.zookeeper.kill()
    status, told, _ = eventually(
        lambda: ask("-b", cluster.broker(1).bootstrap),
        lambda found: all(each["problem"] for each in found[1]["brokers"]),
    )
    assert (status, told["is_well"]) == (1, False)
    assert {each["node_id"]: each["problem"] for each in told["brokers"]} == dict.fromkeys(
        (1, 2), "cut off from ZooKeeper: it leads nothing"
    )
    assert [each["leads_count"] for each in told["brokers"]] == [0, 0]
    assert told["offline_count"] == told["partitions_count"] >= 4
    assert [each["problem"] for each in told["zookeeper"]] == ["it does not answer"]

    # Never the broker at localhost:9092, which may be that of another cluster.
    status, told, said = ask("--zookeeper", zookeeper)
    assert (status, told["brokers"], told["is_well"]) == (1, [], False)
    assert "name one with --bootstrap-server" in said

    broker = cluster.broker(1)
    arguments = ["--zookeeper", zookeeper, "--data-dir", str(broker.data_dir), "--listen", broker.bootstrap, "--json"]
    assert run(["doctor", *arguments]) == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    problems = [each["text"] for each in found if each["level"] == "problem"]
    assert f"{broker.bootstrap} is cut off from ZooKeeper: it leads nothing" in problems


# It stays registered for the whole test.
@pytest.mark.parametrize("cluster", [30_000], indirect=True)
def test_broker_that_closes_its_connections_is_not_ok(
    cluster: RunningCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = Status(capsys)
    second = cluster.broker(2)
    port = int(second.bootstrap.rpartition(":")[2])
    second.kill()
    with hanging_up(port):
        status, told, _ = ask("-b", cluster.broker(1).bootstrap, "--zookeeper", cluster.zookeeper.connect)
    assert (status, told["is_well"]) == (1, False)
    shown = {each["node_id"]: (each["is_live"], each["leads_count"], each["problem"]) for each in told["brokers"]}
    assert shown[2] == (True, 0, "closes connections without an answer: cut off from ZooKeeper?")
    assert shown[1][2] is None


@contextmanager
def hanging_up(port: int) -> Iterator[None]:
    """Accepts connections and closes them."""
    with socket.create_server(("127.0.0.1", port)) as listening:

        def accept() -> None:
            while True:
                try:
                    listening.accept()[0].close()
                except OSError:
                    return

        thread = threading.Thread(target=accept)
        thread.start()
        yield
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()
