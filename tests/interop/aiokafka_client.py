"""aiokafka as producer and consumer of one partition."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.interop.expected_records import Sent

DEADLINE_S = 120.0


def produce(bootstrap: str, topic: str, sent: Sequence[Sent], codec: str, *, idempotent: bool = False) -> list[int]:
    """Send in order with acks=all; the offsets at which they were acknowledged."""
    return asyncio.run(_produce(bootstrap, topic, sent, codec, idempotent))


def consume(bootstrap: str, topic: str, count: int) -> list[Sent]:
    return asyncio.run(_consume(bootstrap, topic, count))


async def _produce(bootstrap: str, topic: str, sent: Sequence[Sent], codec: str, idempotent: bool) -> list[int]:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        compression_type=None if codec == "none" else codec,
        enable_idempotence=idempotent,
    )
    await producer.start()
    try:
        futures = [
            await producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=0,
                timestamp_ms=record.timestamp_ms,
            )
            for record in sent
        ]
        acknowledged = await asyncio.wait_for(asyncio.gather(*futures), DEADLINE_S)
        return [metadata.offset for metadata in acknowledged]
    finally:
        await producer.stop()


async def _consume(bootstrap: str, topic: str, count: int) -> list[Sent]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, check_crcs=True)
    await consumer.start()
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        read: list[Sent] = []
        async with asyncio.timeout(DEADLINE_S):
            while len(read) < count:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    read += [Sent(r.key, r.value, tuple(r.headers), r.timestamp) for r in records]
        return read
    finally:
        await consumer.stop()
