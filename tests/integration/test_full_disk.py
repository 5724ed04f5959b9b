"""A broker's small disk is filled by produces and by another program: reads continue, and all functions recover.

The file system is a real one of 40 MB, with what ext4 does to a writer: blocks that are freed late, short writes.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import confluent_kafka as ck
import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaStorageError, KafkaTimeoutError

from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigChange, ConfigOperation, ConfigResource, ResourceType
from ottla.client.wire.cluster import Cluster
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually
from tests.small_disk import MIB, empty, fill, free_bytes, small_disk

VALUE_BYTES: Final = 100_000
BYTES_PER_S_MAX: Final = 20_000_000
SETTINGS: Final = {
    # The default; the brokers of other tests have less.
    "log.dir.reserve.bytes": str(32 * MIB),
    "log.segment.bytes": str(4 * MIB),
    "log.segment.delete.delay.ms": "100",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
}
RESERVE_BYTES_MIN: Final = 2 * MIB


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, 40) as at:
        yield at


class Sent:
    """The records that an idempotent librdkafka producer sent, and which were acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: list[int] = []
        self.failed: list[ck.KafkaError] = []
        self._topic = topic
        self._next = 0
        self._producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 300_000,
                "linger.ms": 0,
                "reconnect.backoff.max.ms": 200,
            }
        )

    def send(self) -> None:
        number = self._next
        self._next += 1

        def on_delivery(error: ck.KafkaError | None, _: ck.Message) -> None:
            if error is None:
                self.acknowledged.append(number)
            else:
                self.failed.append(error)

        value = b"%08d" % number + os.urandom(VALUE_BYTES)
        self._producer.produce(self._topic, value, partition=0, on_delivery=on_delivery)
        self._producer.poll(0)

    def send_until(self, is_reached: Callable[[], bool]) -> None:
        """One at a time, so that acknowledged records fill the disk.

        No faster than 20 MB/s: the bytes between two checks of the disk, 50 ms apart, are less than the 2.5 MB below
        which produces are refused.
        """
        while not is_reached():
            time.sleep(VALUE_BYTES / BYTES_PER_S_MAX)
            if self.waiting_count < 1:
                self.send()
            self._producer.poll(0.02)

    @property
    def waiting_count(self) -> int:
        return self._next - len(self.acknowledged) - len(self.failed)

    def all_are_acknowledged(self) -> bool:
        self._producer.poll(0.05)
        assert not self.failed
        return self.waiting_count == 0


def numbers_in(bootstrap: str, topic: str, group: str, count: int) -> list[int]:
    """The first records, by a consumer of a group that commits them."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        found: list[int] = []
        while len(found) < count:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                value = message.value()
                assert isinstance(value, bytes)
                found.append(int(value[:8]))
        consumer.commit(asynchronous=False)
        return found
    finally:
        consumer.close()


def committed(bootstrap: str, topic: str, group: str) -> int:
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        offset: int = consumer.committed([ck.TopicPartition(topic, 0)], timeout=60)[0].offset
        return offset
    finally:
        consumer.close()


def alter(cluster: Cluster, topic: str, setting: str, value: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    Admin(cluster).alter_configs(resource, [ConfigChange(setting, ConfigOperation.SET, value)])


def events(broker: RunningBroker) -> list[str]:
    found = (re.search(r" ((?:disk|append)\.\w+)( |$)", line) for line in broker.log_lines)
    return [each[1] for each in found if each is not None]


def test_broker_with_a_full_disk_refuses_only_produces_and_recovers_automatically(disk: Path) -> None:
    with RunningBroker(disk / "data", settings=SETTINGS, serves_metrics=True) as broker:
        bootstrap = broker.bootstrap
        with Cluster(bootstrap) as cluster:
            for topic in ("filling", "doomed", "aged"):
                Admin(cluster).create_topic(topic, 1)
            for topic in ("doomed", "aged"):
                other = Sent(bootstrap, topic)
                for _ in range(60):
                    other.send()
                eventually(other.all_are_acknowledged)
            sent = Sent(bootstrap, "filling")
            sent.send_until(lambda: "append.refused" in events(broker))
            count = len(sent.acknowledged)
            # Records took nothing from the reserve.
            assert (disk / "data" / "reserve.bin").stat().st_blocks * 512 >= RESERVE_BYTES_MIN

            another = KafkaProducer(bootstrap_servers=bootstrap, delivery_timeout_ms=1_500, request_timeout_ms=1_000)
            with pytest.raises((KafkaStorageError, KafkaTimeoutError)):
                another.send("doomed", b"x").get(timeout=60)
            another.close()

            # Another program takes the rest; readers, groups and admins continue.
            fill(disk)
            assert numbers_in(bootstrap, "filling", "readers", count) == list(range(count))
            alter(cluster, "doomed", "retention.bytes", str(64 * MIB))
            assert committed(bootstrap, "filling", "readers") == count

        # A stop and a kill, while it is full and the producer waits.
        broker.stop()
        broker.start()
        assert committed(bootstrap, "filling", "readers") == count
        broker.kill()
        broker.start()
        assert numbers_in(bootstrap, "filling", "others", count) == list(range(count))
        assert events(broker).count("disk.full") == 3
        assert "disk.room_returned" not in events(broker)
        assert sent.waiting_count > 0

        # Room returns: by a deletion, by retention, by the other program.
        with Cluster(bootstrap) as cluster:
            before = free_bytes(disk)
            assert Admin(cluster).delete_topics(["doomed"]) == {"doomed": None}
            eventually(lambda: free_bytes(disk) > before + 5 * MIB)
            eventually(sent.all_are_acknowledged)
            sent.send_until(lambda: events(broker).count("disk.full") == 4)
            before = free_bytes(disk)
            alter(cluster, "aged", "retention.ms", "1")
            eventually(lambda: free_bytes(disk) > before + 4 * MIB or "disk.room_returned" in events(broker)[-1:])
        empty(disk)
        eventually(sent.all_are_acknowledged)
        eventually(lambda: (disk / "data" / "reserve.bin").exists())
        count = len(sent.acknowledged)
        assert numbers_in(bootstrap, "filling", "last", count) == list(range(count))
        assert broker.stop() == 0


def test_broker_whose_disk_was_filled_by_another_program_starts_and_serves_its_logs(disk: Path) -> None:
    with RunningBroker(disk / "data", settings=SETTINGS) as broker:
        bootstrap = broker.bootstrap
        with Cluster(bootstrap) as cluster:
            Admin(cluster).create_topic("orders", 1)
        sent = Sent(bootstrap, "orders")
        for _ in range(10):
            sent.send()
        eventually(sent.all_are_acknowledged)
        broker.kill()
        fill(disk)
        broker.start()
        sent.send()
        eventually(lambda: "append.refused" in events(broker))
        assert numbers_in(bootstrap, "orders", "readers", 10) == list(range(10))
        empty(disk)
        eventually(sent.all_are_acknowledged)
        assert numbers_in(bootstrap, "orders", "others", 11) == list(range(11))
