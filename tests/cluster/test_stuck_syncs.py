"""Three brokers, one of them on a disk whose syncs take 20 s: the others serve its partitions meanwhile."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.testing.broker import RunningBroker
from ottla.testing.cluster import RunningCluster
from tests.cluster.delayed_syncs import DelayedSyncs
from tests.cluster.traffic import WITHIN_S
from tests.eventually import eventually
from tests.zookeeper_or_skip import skips_without_zookeeper

TOPIC: Final = "orders"
PARTITIONS_COUNT: Final = 6
STUCK_SYNC_MS: Final = 20_000
STUCK_S: Final = 45.0
# 5 s until the flush counts as stuck, the rest for the elections and for clients to find the new leaders.
SILENT_S_MAX: Final = 10.0


@pytest.fixture
def syncs(tmp_path: Path) -> DelayedSyncs:
    return DelayedSyncs(tmp_path)


@pytest.fixture
def cluster(syncs: DelayedSyncs, has_zookeeper: bool) -> Iterator[RunningCluster]:
    command = (*syncs.command, sys.executable, "-m", "ottla")
    with skips_without_zookeeper(), RunningCluster(3, command=command, has_zookeeper=has_zookeeper) as running:
        yield running


class Writer:
    """One record after the other with acks=all to one partition; records the longest time between two responses."""

    def __init__(self, bootstrap: str, partition: int) -> None:
        self.partition = partition
        self.acknowledged_count = 0
        self.silent_s = 0.0
        self.errors: list[str] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
        self._is_over = False
        self._since_s = time.monotonic()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def restart(self) -> None:
        """Count silence from now on."""
        self.silent_s, self._since_s = 0.0, time.monotonic()

    def stop(self) -> None:
        self._is_over = True
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over:
            self._producer.produce(TOPIC, b"x" * 100, partition=self.partition, on_delivery=self._on_delivery)
            self._producer.flush()
            time.sleep(0.01)

    def _on_delivery(self, error: object, _message: object) -> None:
        now_s = time.monotonic()
        self.silent_s, self._since_s = max(self.silent_s, now_s - self._since_s), now_s
        if error is None:
            self.acknowledged_count += 1
        else:
            self.errors.append(str(error))


def says(broker: RunningBroker, event: str) -> list[str]:
    return [line for line in broker.log_lines if event in line]


@pytest.mark.timeout(600)
def test_partitions_of_a_broker_with_a_stuck_disk_are_served_by_others_until_it_has_recovered(
    cluster: RunningCluster, syncs: DelayedSyncs
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    made = admin.create_topics([NewTopic(TOPIC, PARTITIONS_COUNT, 3, config={"min.insync.replicas": "2"})])
    made[TOPIC].result(WITHIN_S)
    cluster.wait_until_replicated()
    stuck = cluster.broker(1)
    led = [index for index in range(PARTITIONS_COUNT) if cluster.leader_of(TOPIC, index) == 1]
    assert led, "it leads some and follows in others"
    writers = [Writer(cluster.bootstrap, index) for index in range(PARTITIONS_COUNT)]
    try:
        for writer in writers:
            eventually(lambda writer=writer: writer.acknowledged_count)  # type: ignore[misc]
        for writer in writers:
            writer.restart()
        with syncs.delayed(stuck.pid, STUCK_SYNC_MS):
            time.sleep(STUCK_S)
            led_while_stuck = [index for index in range(PARTITIONS_COUNT) if cluster.leader_of(TOPIC, index) == 1]
        # All replicas are in sync again, while records are produced.
        for index in range(PARTITIONS_COUNT):
            eventually(lambda index=index: _in_sync(cluster, index), lambda nodes: nodes == [1, 2, 3])  # type: ignore[misc]
    finally:
        for writer in writers:
            writer.stop()
    silent_s = {writer.partition: round(writer.silent_s, 1) for writer in writers}
    seen = f"led by the stuck broker: {led}; longest silence in seconds: {silent_s}"
    sys.stdout.write(f"{seen}\n")
    assert not [error for writer in writers for error in writer.errors]
    assert max(silent_s.values()) <= SILENT_S_MAX, "\n".join([seen, *cluster.last_lines()])
    assert led_while_stuck == []
    assert says(stuck, "flush.stuck"), cluster.last_lines()
    assert says(stuck, "flush.recovered"), cluster.last_lines()


def _in_sync(cluster: RunningCluster, index: int) -> list[int]:
    found = cluster.partition(TOPIC, index)
    return [] if found is None else sorted(found.in_sync_replicas)
