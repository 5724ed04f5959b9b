"""`ottla doctor --zookeeper` beside three brokers, and when one of them is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from ottla.cli.program import run
from ottla.testing.cluster import RunningCluster
from tests.cluster.traffic import make_topic
from tests.zookeeper_or_skip import skips_without_zookeeper

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    with (
        skips_without_zookeeper(),
        RunningCluster(3, settings={"zookeeper.session.timeout.ms": "4000"}, has_zookeeper=True) as running,
    ):
        yield running


def test_doctor_checks_the_whole_cluster(cluster: RunningCluster, capsys: pytest.CaptureFixture[str]) -> None:
    make_topic(cluster.bootstrap, "orders", 3, 3, {"min.insync.replicas": "3"})
    cluster.wait_until_replicated()

    def doctor(connect: str) -> list[tuple[str, str, str]]:
        arguments = ["--zookeeper", connect, "--data-dir", str(cluster.broker(1).data_dir), "--json"]
        run(["doctor", *arguments, "--listen", cluster.broker(1).bootstrap])
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return [(each["area"], each["level"], each["text"]) for each in found]

    connect = cluster.zookeeper.connect
    found = doctor(connect)
    texts = [text for _, _, text in found]
    assert "1 topic, 3 partitions: all led, all replicas in sync" in texts
    assert [text for area, _, text in found if area == "address"][-3:] == [
        f"broker {node_id} answers at {broker.bootstrap}" for node_id, broker in cluster.brokers.items()
    ]
    assert any("registered brokers: 1, 2, 3" in text for text in texts)
    assert any("apart when they registered" in text for text in texts)
    assert any(text.startswith("it is node 1's of cluster ") for text in texts)
    assert [text for area, level, text in found if level == "problem" and area in ("cluster", "zookeeper")] == []

    cluster.broker(3).kill()
    cluster.wait_for_brokers([1, 2])
    texts = [text for _, level, text in doctor(connect) if level == "problem"]
    assert "below min.insync.replicas, so acks=all is refused: orders-0, orders-1, orders-2" in texts

    assert ("zookeeper", "warning", "there is no cluster at this chroot yet") in doctor(f"{connect}/elsewhere")
