"""confluent-kafka (librdkafka): `produce()` with its deliveries counted; `consume(1000)`, or `poll()` for each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from confluent_kafka import Consumer, Producer

from bench.client.contenders.loads import Latencies, NotWhole, check_whole
from bench.client.job import BATCH_BYTES, BUFFER_BYTES, LINGER_MS, MESSAGES_PER_LOOK, SILENCE_S, Job
from bench.client.stopwatch import Stopwatch
from bench.client.values import values_of

CONSUME_MESSAGES: Final = 1000
FLUSH_S: Final = 40
OWN_BATCH_BYTES: Final = 1_000_000
QUEUE_BACKOFF_MS: Final = 5
# How many messages of a filled topic go to one partition before the next one's turn.
FILL_RUN: Final = 100


class Deliveries:
    """Counts what was acknowledged; the first error is kept."""

    def __init__(self) -> None:
        self.count = 0
        self.error: object = None

    def __call__(self, error: object, message: object) -> None:
        if error is None:
            self.count += 1
        else:
            self.error = self.error or error


def open_producer(
    job: Job, deliveries: Deliveries, linger_ms: float = LINGER_MS, batch_bytes: int = BATCH_BYTES
) -> Any:
    return Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": linger_ms,
            "batch.size": batch_bytes,
            "compression.type": job.compression or "none",
            "queue.buffering.max.kbytes": BUFFER_BYTES >> 10,
            "queue.buffering.max.messages": 1_000_000,
            "on_delivery": deliveries,
        }
    )


def produce(job: Job) -> dict[str, float]:
    return _produce(job, BATCH_BYTES, MESSAGES_PER_LOOK)


def produce_large_batches(job: Job) -> dict[str, float]:
    """In batches of its own default size."""
    return _produce(job, OWN_BATCH_BYTES, MESSAGES_PER_LOOK)


def produce_polling_each(job: Job) -> dict[str, float]:
    """`poll(0)` after each message, as its introduction shows it."""
    return _produce(job, BATCH_BYTES, 1)


def _produce(job: Job, batch_bytes: int, messages_per_poll: int) -> dict[str, float]:
    deliveries = Deliveries()
    producer = open_producer(job, deliveries, batch_bytes=batch_bytes)
    values = values_of(job.value_bytes)
    topic = job.topic
    _send(producer, topic, values[0])
    _flush(producer, deliveries, 1)
    sent = 0
    watch = Stopwatch()
    while watch.seconds < job.seconds:
        for _ in range(0, MESSAGES_PER_LOOK, messages_per_poll):
            start = sent % len(values)
            for value in values[start : start + messages_per_poll]:
                try:
                    producer.produce(topic, value)
                except BufferError:
                    _send(producer, topic, value)
                sent += 1
            producer.poll(0)
    _flush(producer, deliveries, sent + 1)
    return watch.figures(sent)


def fill(job: Job) -> dict[str, float]:
    """`job.messages` to all partitions alike; not measured."""
    deliveries = Deliveries()
    producer = open_producer(job, deliveries)
    values = values_of(job.value_bytes)
    watch = Stopwatch()
    for index in range(job.messages):
        _send(producer, job.topic, values[index % len(values)], index // FILL_RUN % job.partitions)
    _flush(producer, deliveries, job.messages)
    return watch.figures(job.messages)


def pace(job: Job) -> dict[str, float]:
    """`job.messages` a second for `job.seconds`, one by one; each value begins with the moment of its sending."""
    deliveries = Deliveries()
    producer = open_producer(job, deliveries, linger_ms=0)
    count = round(job.messages * job.seconds)
    rest = bytes(job.value_bytes - Latencies.STAMP_BYTES)
    watch = Stopwatch()
    for index in range(count):
        while (early_s := index / job.messages - watch.seconds) > 0:
            time.sleep(early_s)
        _send(producer, job.topic, Latencies.stamp() + rest)
        producer.poll(0)
    _flush(producer, deliveries, count)
    return watch.figures(count)


def _send(producer: Any, topic: str, value: bytes, partition: int = -1) -> None:
    """Waits while the buffer is full."""
    while True:
        try:
            producer.produce(topic, value, partition=partition)
            return
        except BufferError:
            producer.poll(0.01)


def _flush(producer: Any, deliveries: Deliveries, expected: int) -> None:
    producer.flush(FLUSH_S)
    if deliveries.error is not None or deliveries.count != expected:
        raise NotWhole(f"{deliveries.count} of {expected} messages were acknowledged: {deliveries.error}")


def open_consumer(job: Job) -> Any:
    consumer = Consumer(
        {
            "bootstrap.servers": job.bootstrap,
            "group.id": f"{job.topic}-{job.contender}-{time.monotonic_ns()}",
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            # By default it does not ask again for a whole second when it has 100,000 messages waiting.
            "fetch.queue.backoff.ms": QUEUE_BACKOFF_MS,
        }
    )
    consumer.subscribe([job.topic])
    return consumer


def consume(job: Job) -> dict[str, float]:
    """By thousands."""
    consumer = open_consumer(job)
    messages = consumer.consume(1, SILENCE_S)
    watch = Stopwatch()
    seen = checksum = 0
    while messages:
        for message in messages:
            checksum += message.value()[-1]
        seen += len(messages)
        # It waits for as many as it was asked for, so at the end it is asked for no more than there are.
        messages = (
            consumer.consume(min(CONSUME_MESSAGES, job.messages - seen), SILENCE_S) if seen < job.messages else []
        )
    figures = watch.figures(seen)
    check_whole(job, seen, checksum)
    consumer.close()
    return figures


def consume_one_by_one(job: Job) -> dict[str, float]:
    consumer = open_consumer(job)
    message = consumer.poll(SILENCE_S)
    watch = Stopwatch()
    seen = checksum = 0
    while message is not None:
        checksum += message.value()[-1]
        seen += 1
        if seen == job.messages:
            break
        message = consumer.poll(SILENCE_S)
    figures = watch.figures(seen)
    check_whole(job, seen, checksum)
    consumer.close()
    return figures


def wait_for_each(job: Job) -> dict[str, float]:
    consumer = open_consumer(job)
    latencies = Latencies(job)
    for value in _values(consumer):
        if latencies.note(value):
            break
    consumer.close()
    return latencies.figures()


def _values(consumer: Any) -> Iterator[bytes]:
    while (message := consumer.poll(SILENCE_S)) is not None:
        yield message.value()
