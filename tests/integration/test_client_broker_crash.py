"""The client across a broker that is killed and started again."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from ottla.client.admin.admin import Admin
from ottla.client.fetching.fetcher import Fetcher
from ottla.client.producing.produce_requests import DeliveryStatus
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.wire.cluster import Cluster
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import build_batch
from ottla.records.record import Record, decode_batch
from ottla.testing.broker import RunningBroker

BATCHES_COUNT = 600


def test_producer_and_fetcher_continue_when_the_broker_is_killed_and_restarted() -> None:
    with RunningBroker() as broker, Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic("t", 2, configs={"retention.ms": "-1"})
        partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
        seen: dict[TopicPartition, list[bytes | None]] = {partition: [] for partition in partitions}
        ends = dict.fromkeys(partitions, BATCHES_COUNT)
        with RawProducer(cluster) as producer, Fetcher(cluster, dict.fromkeys(partitions, 0), ends) as fetcher:
            results = []
            for number in range(BATCHES_COUNT):
                for partition in partitions:
                    producer.send(partition, build_batch([Record(0, 1000, None, b"%d" % number)]), number)
                results += producer.poll(0)
                if number in (150, 400):
                    killer = threading.Thread(target=kill_and_start, args=[broker])
                    killer.start()
                    results += producer.poll(200)
                    killer.join()
                for fetched in fetcher.poll(0):
                    seen[fetched.partition] += values_of(fetched.batches())
            results += producer.flush()
            for fetched in fetcher:
                seen[fetched.partition] += values_of(fetched.batches())
    assert {result.status for result in results} == {DeliveryStatus.ACKNOWLEDGED}
    assert len(results) == 2 * BATCHES_COUNT
    assert seen == {partition: [b"%d" % number for number in range(BATCHES_COUNT)] for partition in partitions}


def test_partition_whose_tree_is_older_than_its_log_is_led_in_an_epoch_above_both(tmp_path: Path) -> None:
    data_dir, copy, partition = tmp_path / "data", tmp_path / "copy", TopicPartition("t", 0)
    copy.mkdir()
    with RunningBroker(data_dir) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("t", 1)
        broker.stop()
        for file in data_dir.glob("tree.sqlite*"):
            shutil.copy(file, copy)
        broker.start()
        broker.kill()
        broker.start()
        with Cluster(broker.bootstrap) as cluster, RawProducer(cluster) as producer:
            producer.send(partition, build_batch([Record(0, 1000, None, b"under epoch 1")]))
            assert [result.status for result in producer.flush()] == [DeliveryStatus.ACKNOWLEDGED]
        broker.stop()
        for file in data_dir.glob("tree.sqlite*"):
            file.unlink()
        for file in copy.iterdir():
            shutil.copy(file, data_dir)
        broker.start()
        with Cluster(broker.bootstrap) as cluster:
            assert cluster.leader(partition).leader_epoch == 2
            with Fetcher(cluster, {partition: 0}, {partition: 1}) as fetcher:
                values = [value for fetched in fetcher for value in values_of(fetched.batches())]
    assert values == [b"under epoch 1"]


def kill_and_start(broker: RunningBroker) -> None:
    broker.kill()
    broker.start()


def values_of(batches: Iterator[memoryview]) -> list[bytes | None]:
    return [record.value for batch in batches for record in decode_batch(batch)]
