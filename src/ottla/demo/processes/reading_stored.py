"""The second count: a full read of the topics by a client library that shares no code with the broker."""

from __future__ import annotations

import time
from collections import Counter
from typing import Final

from kafka import KafkaConsumer, TopicPartition

from ottla.demo.counts import Bucket, Counts, to_rows
from ottla.demo.day import HOUR_MS
from ottla.demo.messages import Reading, ReadStored, Stored, send_message
from ottla.demo.processes.entry import run_task
from ottla.demo.services import TOPICS
from ottla.model.errors import OttlaError
from ottla.runtime.clock import SystemClock

REPORT_EVERY_S: Final = 0.25
STILL_FOR_S_MAX: Final = 30.0


class NotReadToTheEnd(OttlaError):
    """No more records arrived although the topics have more."""


def read_stored(task: ReadStored) -> None:
    clock = SystemClock()
    began_ms = clock.monotonic_ms()
    consumer = KafkaConsumer(bootstrap_servers=task.bootstrap, client_id="stored", enable_auto_commit=False)
    partitions = [TopicPartition(topic, index) for topic, count in TOPICS.items() for index in range(count)]
    consumer.assign(partitions)
    consumer.seek_to_beginning()
    counts: Counts = Counter()
    ends = consumer.end_offsets(partitions)
    _read(consumer, ends, counts)
    consumer.close()
    send_message(Stored(to_rows(counts), clock.monotonic_ms() - began_ms))


def _read(consumer: KafkaConsumer, ends: dict[TopicPartition, int], counts: Counts) -> None:
    tell_at_s = 0.0
    moved_at_s = time.monotonic()
    while any(consumer.position(partition) < end for partition, end in ends.items()):
        fetched = consumer.poll(timeout_ms=200, max_records=5_000)
        for partition, records in fetched.items():
            for record in records:
                counts[Bucket(partition.topic, record.timestamp // HOUR_MS)] += 1
        now_s = time.monotonic()
        if fetched:
            moved_at_s = now_s
        elif now_s > moved_at_s + STILL_FOR_S_MAX:
            raise NotReadToTheEnd(f"no records arrived for {STILL_FOR_S_MAX:.0f} s, after {counts.total()} records")
        if now_s >= tell_at_s:
            send_message(Reading(counts.total()))
            tell_at_s = now_s + REPORT_EVERY_S


if __name__ == "__main__":
    run_task(ReadStored, read_stored)
