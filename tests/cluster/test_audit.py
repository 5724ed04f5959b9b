"""The brokers of a cluster count each record once while leaders die and come back."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from uuid import UUID

import pytest

import ottla
from ottla.audit import AuditTopic
from ottla.audit.count import BROKER
from ottla.client.admin.admin import Admin
from ottla.client.fetching.fetch_requests import fetch_raw
from ottla.client.fetching.offsets import log_ranges
from ottla.client.wire.cluster import Cluster
from ottla.lost_offsets import LostRange, write_losses
from ottla.model.identifiers import TopicPartition
from ottla.records.record import decode_batch
from ottla.testing.cluster import RunningCluster
from tests.eventually import eventually
from tests.zookeeper_or_skip import skips_without_zookeeper

SIZE_MS = 600_000
PARTITIONS_COUNT = 3
KILLS = 3
SETTINGS = {
    "audit.enable": "true",
    "audit.interval.ms": "300",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "zookeeper.session.timeout.ms": "4000",
    # The records have old timestamps.
    "log.retention.ms": "-1",
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def cluster(has_zookeeper: bool) -> Iterator[RunningCluster]:
    with skips_without_zookeeper():
        cluster = RunningCluster(3, settings=SETTINGS, has_zookeeper=has_zookeeper)
    with cluster:
        yield cluster


def counted(bootstrap: str) -> Counter[int]:
    found: Counter[int] = Counter()
    with AuditTopic(bootstrap) as topic:
        for count in topic.read().counts:
            if (count.key.topic, count.key.tier) == ("clicks", BROKER):
                found[count.key.window.start_ms] += count.records
    return found


def stored(bootstrap: str) -> Counter[int]:
    """A full read, record by record."""
    found: Counter[int] = Counter()
    with Cluster(bootstrap) as cluster:
        partitions = [TopicPartition("clicks", each) for each in range(PARTITIONS_COUNT)]
        for partition, offsets in log_ranges(cluster, partitions).items():
            offset = offsets.start
            while offset < offsets.stop:
                fetched = fetch_raw(cluster, "clicks", partition.partition, offset)
                for batch in fetched.batches():
                    found.update(each.timestamp_ms // SIZE_MS * SIZE_MS for each in decode_batch(batch))
                offset = fetched.next_offset
    return found


def test_counts_are_those_of_the_logs_through_the_death_of_leaders(cluster: RunningCluster) -> None:
    with Cluster(cluster.bootstrap) as client:
        Admin(client).create_topic("clicks", PARTITIONS_COUNT, 3)
        # Its record of a loss survives the loss of a disk with any default of the brokers.
        write_losses(client, "other-ledger", "test", [LostRange("clicks", UUID(int=7), 0, 0, 5, "deleted")])
        (losses,) = client.refresh(["other-ledger"])
        assert len(losses.partitions[0].replicas) == 3
    cluster.wait_for_isr("clicks", 0)
    is_over = threading.Event()
    sent: Counter[int] = Counter()

    def send() -> None:
        number = 0
        with ottla.Producer(cluster.bootstrap, linger_ms=1, delivery_timeout_ms=600_000) as producer:
            while not is_over.is_set():
                time_ms = number * 7_000
                producer.send("clicks", [b"%d" % number] * 20, timestamp_ms=time_ms).wait()
                sent[time_ms // SIZE_MS * SIZE_MS] += 20
                number += 1

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for number in range(KILLS):
            seen = counted(cluster.bootstrap).total()
            eventually(lambda seen=seen: counted(cluster.bootstrap).total() > seen, every_s=0.2)  # type: ignore[misc]
            partition = number % PARTITIONS_COUNT
            leader = cluster.leader_of("clicks", partition)
            cluster.broker(leader).kill()
            cluster.wait_for_leader("clicks", partition, other_than=leader)
            seen = counted(cluster.bootstrap).total()
            eventually(lambda seen=seen: counted(cluster.bootstrap).total() > seen, every_s=0.2)  # type: ignore[misc]
            cluster.broker(leader).start()
            cluster.wait_until_replicated()
    finally:
        is_over.set()
        sender.join()
    expected = stored(cluster.bootstrap)
    assert expected == sent, "an idempotent producer, acknowledged by two replicas"
    eventually(lambda: counted(cluster.bootstrap), lambda found: found == expected, every_s=0.5)
