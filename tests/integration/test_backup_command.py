"""`ottla backup` of running brokers, killed and repeated; its `ottla restore` is compared record by record."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
from pathlib import Path

from ottla.client.admin.admin import Admin
from ottla.client.fetching.fetch_requests import fetch_raw
from ottla.client.fetching.offsets import log_ranges
from ottla.client.groups.group_types import CommittedOffset
from ottla.client.groups.groups import GroupAdmin
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import build_batch
from ottla.records.record import Record, decode_batch
from ottla.testing.broker import RunningBroker
from tests.command_line import ottla, ottla_process
from tests.eventually import eventually

PARTITIONS = [TopicPartition("orders", index) for index in range(2)]
SETTINGS = {"log.segment.bytes": "100000", "log.retention.check.interval.ms": "500"}


class LiveProducer(threading.Thread):
    """Writes numbers to both partitions until it is stopped; `acknowledged` counts the batches of each."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.acknowledged = 0
        self.failure: ClientError | None = None
        self._servers = bootstrap
        self._stop_asked = threading.Event()

    def run(self) -> None:
        try:
            with Cluster(self._servers) as cluster, RawProducer(cluster) as producer:
                while not self._stop_asked.is_set():
                    for partition in PARTITIONS:
                        value = b"%d " % self.acknowledged + b"v" * 2_000
                        producer.send(partition, build_batch([Record(0, 1_000, None, value)]))
                    producer.flush()
                    self.acknowledged += 1
        except ClientError as error:
            self.failure = error

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()
        assert self.failure is None


def wait_until_begun(backup: subprocess.Popen[bytes], unfinished: Path) -> None:
    eventually(lambda: any(unfinished.glob("*/*.log")) or backup.poll() is not None)


def numbers(broker: RunningBroker, partition: TopicPartition) -> list[int]:
    found: list[int] = []
    with Cluster(broker.bootstrap) as cluster:
        end = log_ranges(cluster, [partition])[partition].stop
        while len(found) < end:
            fetched = fetch_raw(cluster, *partition, len(found), check_crc=True)
            records = [record for batch in fetched.batches() for record in decode_batch(batch)]
            found += [int((record.value or b"").split()[0]) for record in records]
    return found


def test_backup_under_live_producers_survives_its_kills_and_is_restored_whole(tmp_path: Path) -> None:
    target, again = tmp_path / "backup", tmp_path / "again, later"
    with RunningBroker(tmp_path / "data", settings=SETTINGS) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("orders", 2, configs={"retention.ms": "-1", "segment.bytes": "100000"})
        producer = LiveProducer(broker.bootstrap)
        producer.start()
        try:
            eventually(lambda: producer.acknowledged >= 300 or producer.failure is not None)
            with Cluster(broker.bootstrap) as cluster:
                read = {partition: CommittedOffset(producer.acknowledged) for partition in PARTITIONS}
                GroupAdmin(cluster).commit("readers", read)
            for _ in range(3):
                begun = subprocess.Popen(
                    [sys.executable, "-m", "ottla", "backup", str(target), "--data-dir", str(broker.data_dir)],
                    stdout=subprocess.DEVNULL,
                )
                wait_until_begun(begun, tmp_path / "backup.unfinished")
                begun.kill()
                if begun.wait() == 0:
                    target.rename(tmp_path / "backup-that-was-faster")
                assert not target.exists()
            acknowledged = producer.acknowledged
            told = ottla("backup", target, "--data-dir", broker.data_dir).out
            after = producer.acknowledged
        finally:
            producer.stop()
        assert not (tmp_path / "backup.unfinished").exists()
        assert "2 topics with " in told
        assert "is there already" in ottla("backup", target, "--data-dir", broker.data_dir, status=1).err
        assert "is a backup, not a data directory" in ottla_process("serve", "--data-dir", target, status=1).err
        assert "0 damages" in ottla("log", "verify", "--deep", target).err
        expected = [numbers(broker, partition) for partition in PARTITIONS]

    restored = ottla("restore", target, "--data-dir", again).out.splitlines()
    assert ": restored " in restored[0]
    assert shlex.split(restored[1])[-4:] == ["ottla", "serve", "--data-dir", str(again)], "it can be typed as it stands"
    assert "is not empty" in ottla("restore", target, "--data-dir", again, status=1).err
    # The tests may run as root, and on a machine whose disk is almost full.
    with RunningBroker(again, settings={"log.dir.low.bytes": "0"}) as broker:
        warnings = [line for line in broker.log_lines if "WARN" in line or "ERROR" in line]
        assert not [line for line in warnings if "broker.runs_as_root" not in line]
        with Cluster(broker.bootstrap) as cluster:
            committed = GroupAdmin(cluster).committed("readers")
            ends = {partition: ends.stop for partition, ends in log_ranges(cluster, PARTITIONS).items()}
        for partition, all_of_it in zip(PARTITIONS, expected, strict=True):
            found = numbers(broker, partition)
            assert acknowledged <= len(found) <= after + 1
            assert found == all_of_it[: len(found)]
            assert committed[partition].offset == read[partition].offset <= ends[partition]
        shown = json.loads(ottla("topic", "describe", "orders", "--json", "-b", broker.bootstrap).out)
        assert shown["configs"]["segment.bytes"] == "100000"
        assert shown["configs"]["retention.ms"] == "-1"
        with Cluster(broker.bootstrap) as cluster, RawProducer(cluster) as producing:
            producing.send(PARTITIONS[0], build_batch([Record(0, 1_000, None, b"77")]))
            producing.flush()
        assert numbers(broker, PARTITIONS[0])[-1] == 77


def test_backup_of_a_stopped_and_of_a_killed_broker(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "data", settings=SETTINGS) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("orders", 2)
            with RawProducer(cluster) as producer:
                for number in range(120):
                    producer.send(PARTITIONS[0], build_batch([Record(0, 1_000, None, b"%d " % number + b"v" * 2_000)]))
                producer.flush()
        broker.kill()
        ottla("backup", tmp_path / "killed", "--data-dir", broker.data_dir, "--link")
        broker.start()
        broker.stop()
        ottla("backup", tmp_path / "stopped", "--data-dir", broker.data_dir)
    for name in ("killed", "stopped"):
        ottla("restore", tmp_path / name, "--data-dir", tmp_path / f"{name}-again")
        with RunningBroker(tmp_path / f"{name}-again") as broker:
            assert numbers(broker, PARTITIONS[0]) == list(range(120))
        assert "0 damages" in ottla("log", "verify", "--deep", tmp_path / name).err
