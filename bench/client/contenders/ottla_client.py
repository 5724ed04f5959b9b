"""Ottla's own client: `send` of one message or of a set; plain iteration over a message stream."""

from __future__ import annotations

import time
from typing import Any, Final

import ottla
from bench.client.contenders.loads import Latencies, check_whole
from bench.client.job import BATCH_BYTES, BUFFER_BYTES, LINGER_MS, MESSAGES_PER_LOOK, SET_MESSAGES, SILENCE_S, Job
from bench.client.stopwatch import Stopwatch
from bench.client.values import values_of

# As many as confluent-kafka's `consume` is given.
MANY_MESSAGES: Final = 1_000


def open_producer(job: Job) -> ottla.Producer:
    compression: Any = job.compression or "none"
    return ottla.Producer(
        job.bootstrap,
        acks="all",
        enable_idempotence=True,
        compression=compression,
        linger_ms=LINGER_MS,
        batch_bytes=BATCH_BYTES,
        buffer_bytes=BUFFER_BYTES,
    )


def produce(job: Job) -> dict[str, float]:
    values = values_of(job.value_bytes)
    topic = job.topic
    with open_producer(job) as producer:
        producer.send(topic, values[0]).wait()
        sent = 0
        watch = Stopwatch()
        while watch.seconds < job.seconds:
            start = sent % len(values)
            for value in values[start : start + MESSAGES_PER_LOOK]:
                producer.send(topic, value)
                sent += 1
        producer.flush()
        return watch.figures(sent)


def produce_sets(job: Job) -> dict[str, float]:
    values = values_of(job.value_bytes)
    topic = job.topic
    with open_producer(job) as producer:
        producer.send(topic, values[0]).wait()
        sent = 0
        watch = Stopwatch()
        while watch.seconds < job.seconds:
            start = sent % len(values)
            messages = values[start : start + SET_MESSAGES]
            producer.send(topic, messages)
            sent += len(messages)
        producer.flush()
        return watch.figures(sent)


def open_stream(job: Job) -> tuple[ottla.ConsumerConnector, Any]:
    connector = ottla.ConsumerConnector(
        bootstrap=job.bootstrap,
        group=f"{job.topic}-{job.contender}-{time.monotonic_ns()}",
        auto_offset_reset="earliest",
        consumer_timeout_ms=round(SILENCE_S * 1000),
    )
    return connector, connector.create_message_streams({job.topic: 1})[job.topic][0]


def consume(job: Job) -> dict[str, float]:
    connector, stream = open_stream(job)
    with connector:
        seen, checksum = 1, next(stream).value[-1]
        watch = Stopwatch()
        for message in stream:
            checksum += message.value[-1]
            seen += 1
            if seen == job.messages:
                break
        figures = watch.figures(seen)
        check_whole(job, seen, checksum)
    return figures


def open_consumer(job: Job) -> ottla.Consumer:
    consumer = ottla.Consumer(
        job.bootstrap, group=f"{job.topic}-{job.contender}-{time.monotonic_ns()}", auto_offset_reset="earliest"
    )
    consumer.subscribe([job.topic])
    return consumer


def consume_one_by_one(job: Job) -> dict[str, float]:
    silence_ms = SILENCE_S * 1000
    with open_consumer(job) as consumer:
        seen, checksum = 0, 0
        watch = Stopwatch()
        while seen < job.messages and (message := consumer.poll(silence_ms)) is not None:
            if not seen:
                watch = Stopwatch()
            assert message.value is not None
            checksum += message.value[-1]
            seen += 1
        figures = watch.figures(seen)
        check_whole(job, seen, checksum)
    return figures


def consume_by_many(job: Job) -> dict[str, float]:
    silence_ms = SILENCE_S * 1000
    with open_consumer(job) as consumer:
        seen, checksum = 0, 0
        watch = Stopwatch()
        while seen < job.messages:
            messages = consumer.poll_many(min(MANY_MESSAGES, job.messages - seen), silence_ms)
            if not messages:
                break
            if not seen:
                watch = Stopwatch()
            for message in messages:
                assert message.value is not None
                checksum += message.value[-1]
            seen += len(messages)
        figures = watch.figures(seen)
        check_whole(job, seen, checksum)
    return figures


def wait_for_each(job: Job) -> dict[str, float]:
    connector, stream = open_stream(job)
    latencies = Latencies(job)
    with connector:
        for message in stream:
            if latencies.note(message.value):
                break
    return latencies.figures()
