"""Idempotent produce with acks=all through kills of the broker, and the records that remain afterwards."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from ottla.client.admin.admin import Admin
from ottla.client.producing.produce_requests import BatchResult, DeliveryStatus
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.producing.settings import ProducerOptions
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError, ProducerStopped
from ottla.client.wire.options import ClientOptions
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import BatchBuilder
from ottla.testing.broker import RunningBroker

TOPIC: Final = "killed"
PARTITIONS_COUNT: Final = 3
RECORDS_OF_BATCH: Final = 20
VALUE_FILLING: Final = b"x" * 180
# About fifteen batches: segments roll again and again during the run.
SEGMENT_BYTES: Final = 65_536
DRAIN_S: Final = 180.0
QUIET_KILLS_SHARE: Final = 0.25


@dataclass(repr=False)
class Outcome:
    """Counts of one run.  Values are numbered per partition, so that order and repetition can be checked."""

    kills: int = 0
    kills_with_unanswered_requests: int = 0
    acknowledged: int = 0
    segments: int = 0
    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    unsettled: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Counts, and the first few problems."""
        counts = (
            f"kills={self.kills} kills_with_unanswered_requests={self.kills_with_unanswered_requests} "
            f"acknowledged={self.acknowledged} segments={self.segments}"
        )
        wrongs = {name: getattr(self, name) for name in ("lost", "duplicated", "disordered", "moved", "unsettled")}
        return " ".join([counts, *(f"{name}={len(found)}{found[:3] or ''}" for name, found in wrongs.items())])

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.duplicated or self.disordered or self.moved or self.unsettled)


class KillRun:
    """One producer, one broker, many kills; `outcome` is complete after `run`."""

    def __init__(self, broker: RunningBroker, seed: int) -> None:
        self._broker = broker
        self._random = random.Random(seed)
        self._next_number = [0] * PARTITIONS_COUNT
        # (partition, first number of a batch) -> the offset it was acknowledged at
        self._acknowledged: dict[tuple[int, int], int] = {}
        self.outcome = Outcome()

    def run(self, kills: int) -> Outcome:
        # Every kill breaks the connection: the client's usual pauses between attempts would be most of the run.
        with Cluster(self._broker.bootstrap, ClientOptions(retry_backoff_max_ms=100)) as cluster:
            Admin(cluster).create_topic(TOPIC, PARTITIONS_COUNT, 1, {"segment.bytes": str(SEGMENT_BYTES)})
            with RawProducer(cluster, ProducerOptions(delivery_timeout_ms=120_000)) as producer:
                try:
                    for _ in range(kills):
                        self._produce_and_kill(producer)
                    self._settle(producer.flush(DRAIN_S * 1_000))
                except ProducerStopped as error:
                    self.outcome.unsettled.append(str(error))
        self._check()
        return self.outcome

    def _produce_and_kill(self, producer: RawProducer) -> None:
        for _ in range(self._random.randrange(1, 12)):
            self._send(producer)
        self._settle(producer.poll(self._random.choice((0, 0, 5, 20))))
        if self._random.random() < QUIET_KILLS_SHARE:
            # The last batch of every partition is acknowledged: a recovery that truncates one too many loses it.
            self._settle(producer.flush(DRAIN_S * 1_000))
        else:
            for _ in range(self._random.randrange(1, 8)):
                self._send(producer)
            # The latest sends or their responses are in flight.
            time.sleep(self._random.random() * 0.003)
        self._broker.kill()
        self.outcome.kills += 1
        try:
            self._settle(producer.poll(20))
        except ClientError as error:
            self.outcome.unsettled.append(str(error))
        self.outcome.kills_with_unanswered_requests += producer.pending_count > 0
        self._broker.start()

    def _send(self, producer: RawProducer) -> None:
        partition = self._random.randrange(PARTITIONS_COUNT)
        first = self._next_number[partition]
        builder = BatchBuilder()
        now_ms = time.time_ns() // 1_000_000
        for number in range(first, first + RECORDS_OF_BATCH):
            builder.append(now_ms, None, b"%d:%d:%s" % (partition, number, VALUE_FILLING))
        self._next_number[partition] += RECORDS_OF_BATCH
        producer.send(TopicPartition(TOPIC, partition), builder.build(), tag=(partition, first))

    def _settle(self, results: list[BatchResult]) -> None:
        for result in results:
            if result.status is DeliveryStatus.ACKNOWLEDGED:
                assert isinstance(result.tag, tuple)
                self._acknowledged[result.tag] = result.base_offset
            else:
                self.outcome.unsettled.append(f"{result.tag}: {result.status} {result.error}")

    def _check(self) -> None:
        outcome = self.outcome
        outcome.acknowledged = len(self._acknowledged) * RECORDS_OF_BATCH
        outcome.segments = sum(1 for _ in self._broker.data_dir.glob(f"{TOPIC}-*/*.log"))
        for partition in range(PARTITIONS_COUNT):
            stored = read_with_another_library(self._broker.bootstrap, partition)
            numbers = [number for _, number in stored]
            offset_of = {number: offset for offset, number in stored}
            counts = Counter(numbers)
            outcome.duplicated += [f"{partition}:{number}" for number, count in counts.items() if count > 1]
            first_seen = list(dict.fromkeys(numbers))
            if first_seen != sorted(first_seen):
                outcome.disordered.append(f"partition {partition}")
            for (of_partition, first), base_offset in self._acknowledged.items():
                if of_partition != partition:
                    continue
                for number in range(first, first + RECORDS_OF_BATCH):
                    if number not in offset_of:
                        outcome.lost.append(f"{partition}:{number}")
                    elif counts[number] == 1 and offset_of[number] != base_offset + number - first:
                        outcome.moved.append(f"{partition}:{number}")


def read_with_another_library(bootstrap: str, partition: int) -> list[tuple[int, int]]:
    """(offset, number) of every record, as kafka-python reads them."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, check_crcs=True)
    try:
        assigned = KafkaTopicPartition(TOPIC, partition)
        consumer.assign([assigned])
        end_offset = consumer.end_offsets([assigned])[assigned]
        consumer.seek_to_beginning(assigned)
        stored: list[tuple[int, int]] = []
        give_up_s = time.monotonic() + DRAIN_S
        while consumer.position(assigned) < end_offset and time.monotonic() < give_up_s:
            for records in consumer.poll(timeout_ms=500).values():
                for record in records:
                    of_partition, number, _ = record.value.split(b":", 2)
                    assert int(of_partition) == partition
                    stored.append((record.offset, int(number)))
        return stored
    finally:
        consumer.close()


def run_kills(
    kills: int, *, seed: int, mutation: str | None = None, settings: Mapping[str, str] | None = None
) -> Outcome:
    """A fresh broker, `kills` kills, and the outcome."""
    command = [sys.executable, "-m", "ottla"]
    if mutation is not None:
        command = [sys.executable, "-m", "tests.kill.mutated_broker", mutation]
    with RunningBroker(settings=settings, command=command) as broker:
        return KillRun(broker, seed).run(kills)
