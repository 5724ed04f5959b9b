"""aiokafka: `await send()`; `async for`, or `getmany()` for many at once."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from bench.client.contenders.loads import Latencies, check_whole
from bench.client.job import BATCH_BYTES, LINGER_MS, MESSAGES_PER_LOOK, SILENCE_S, Job
from bench.client.stopwatch import Stopwatch
from bench.client.values import values_of

GETMANY_MESSAGES: Final = 1000


def produce(job: Job) -> dict[str, float]:
    return asyncio.run(_produce(job))


def consume(job: Job) -> dict[str, float]:
    return asyncio.run(_consume(job))


def consume_by_many(job: Job) -> dict[str, float]:
    return asyncio.run(_consume_by_many(job))


def wait_for_each(job: Job) -> dict[str, float]:
    return asyncio.run(_wait_for_each(job))


async def _produce(job: Job) -> dict[str, float]:
    producer = AIOKafkaProducer(
        bootstrap_servers=job.bootstrap,
        acks="all",
        enable_idempotence=True,
        linger_ms=LINGER_MS,
        max_batch_size=BATCH_BYTES,
        compression_type=job.compression,
    )
    await producer.start()
    values = values_of(job.value_bytes)
    topic = job.topic
    await producer.send_and_wait(topic, values[0])
    sent = 0
    watch = Stopwatch()
    while watch.seconds < job.seconds:
        start = sent % len(values)
        for value in values[start : start + MESSAGES_PER_LOOK]:
            await producer.send(topic, value)
            sent += 1
    await producer.flush()
    figures = watch.figures(sent)
    await producer.stop()
    return figures


async def _open_consumer(job: Job) -> Any:
    consumer = AIOKafkaConsumer(
        job.topic,
        bootstrap_servers=job.bootstrap,
        group_id=f"{job.topic}-{job.contender}-{time.monotonic_ns()}",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    return consumer


async def _consume(job: Job) -> dict[str, float]:
    consumer = await _open_consumer(job)
    seen, checksum = 1, (await consumer.getone()).value[-1]
    watch = Stopwatch()
    async for message in consumer:
        checksum += message.value[-1]
        seen += 1
        if seen == job.messages:
            break
    figures = watch.figures(seen)
    check_whole(job, seen, checksum)
    await consumer.stop()
    return figures


async def _consume_by_many(job: Job) -> dict[str, float]:
    consumer = await _open_consumer(job)
    messages = await consumer.getmany(timeout_ms=SILENCE_S * 1000, max_records=1)
    watch = Stopwatch()
    seen = checksum = 0
    while messages:
        for partition_messages in messages.values():
            for message in partition_messages:
                checksum += message.value[-1]
            seen += len(partition_messages)
        if seen >= job.messages:
            break
        messages = await consumer.getmany(timeout_ms=SILENCE_S * 1000, max_records=GETMANY_MESSAGES)
    figures = watch.figures(seen)
    check_whole(job, seen, checksum)
    await consumer.stop()
    return figures


async def _wait_for_each(job: Job) -> dict[str, float]:
    consumer = await _open_consumer(job)
    latencies = Latencies(job)
    async for message in consumer:
        if latencies.note(message.value):
            break
    await consumer.stop()
    return latencies.figures()
