"""kafka-python: `send()`; plain iteration, or `poll()` for many at once."""

from __future__ import annotations

import time
from typing import Any, Final

from kafka import KafkaConsumer, KafkaProducer

from bench.client.contenders.loads import Latencies, check_whole
from bench.client.job import BATCH_BYTES, LINGER_MS, MESSAGES_PER_LOOK, SILENCE_S, Job
from bench.client.stopwatch import Stopwatch
from bench.client.values import values_of

POLL_MESSAGES: Final = 1000
FLUSH_S: Final = 40


def produce(job: Job) -> dict[str, float]:
    producer = KafkaProducer(
        bootstrap_servers=job.bootstrap,
        acks="all",
        enable_idempotence=True,
        linger_ms=LINGER_MS,
        batch_size=BATCH_BYTES,
        compression_type=job.compression,
    )
    values = values_of(job.value_bytes)
    topic = job.topic
    producer.send(topic, values[0]).get(FLUSH_S)
    sent = 0
    watch = Stopwatch()
    while watch.seconds < job.seconds:
        start = sent % len(values)
        for value in values[start : start + MESSAGES_PER_LOOK]:
            producer.send(topic, value)
            sent += 1
    producer.flush(FLUSH_S)
    figures = watch.figures(sent)
    producer.close()
    return figures


def open_consumer(job: Job) -> Any:
    return KafkaConsumer(
        job.topic,
        bootstrap_servers=job.bootstrap,
        group_id=f"{job.topic}-{job.contender}-{time.monotonic_ns()}",
        auto_offset_reset="earliest",
        consumer_timeout_ms=SILENCE_S * 1000,
    )


def consume(job: Job) -> dict[str, float]:
    consumer = open_consumer(job)
    seen, checksum = 1, next(consumer).value[-1]
    watch = Stopwatch()
    for message in consumer:
        checksum += message.value[-1]
        seen += 1
        if seen == job.messages:
            break
    figures = watch.figures(seen)
    check_whole(job, seen, checksum)
    consumer.close()
    return figures


def consume_by_many(job: Job) -> dict[str, float]:
    consumer = open_consumer(job)
    messages = consumer.poll(SILENCE_S * 1000, max_records=1)
    watch = Stopwatch()
    seen = checksum = 0
    while messages:
        for partition_messages in messages.values():
            for message in partition_messages:
                checksum += message.value[-1]
            seen += len(partition_messages)
        if seen >= job.messages:
            break
        messages = consumer.poll(SILENCE_S * 1000, max_records=POLL_MESSAGES)
    figures = watch.figures(seen)
    check_whole(job, seen, checksum)
    consumer.close()
    return figures


def wait_for_each(job: Job) -> dict[str, float]:
    consumer = open_consumer(job)
    latencies = Latencies(job)
    for message in consumer:
        if latencies.note(message.value):
            break
    consumer.close()
    return latencies.figures()
