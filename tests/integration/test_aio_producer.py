"""`ottla.aio.Producer` against real brokers."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

import ottla.aio
from ottla.client.producing.errors import BufferFull, MessageNotDelivered, MessagesNotDelivered, ProducerClosed
from ottla.client.producing.partitioner import partition_of_key
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import CallTimedOut, UnknownTopic
from ottla.runtime.event_loop import run
from ottla.testing.broker import RunningBroker
from tests.integration.conftest import NewTopicName
from tests.integration.test_paper_producer import fragile, values_of

__all__ = ["fragile"]
WAIT_MS: Final = 120_000


def test_send_waits_for_the_acknowledgement(bootstrap: str, cluster: Cluster, new_topic: NewTopicName) -> None:
    topic = new_topic(3)

    async def send() -> None:
        async with ottla.aio.Producer(bootstrap) as producer:
            receipt = await producer.send(topic, b"a", key=b"k")
            assert receipt[:3] == (topic, partition_of_key(b"k", 3), 0)
            receipts = await producer.send(topic, [b"b", b"c"], key=b"k")
            assert [each.offset for each in receipts] == [1, 2]
            assert await producer.send(topic, []) == []

    run(send())
    assert values_of(cluster, topic, partition_of_key(b"k", 3)) == [b"a", b"b", b"c"]


def test_tasks_share_batches_and_keep_their_order(bootstrap: str, cluster: Cluster, new_topic: NewTopicName) -> None:
    topic = new_topic()

    async def send() -> list[int]:
        async with ottla.aio.Producer(bootstrap, buffer_bytes=50_000) as producer:
            receipts = await asyncio.gather(*(producer.send(topic, b"%d" % number) for number in range(3000)))
        return [receipt.offset for receipt in receipts]

    offsets = run(send())
    stored = values_of(cluster, topic)
    assert [stored[offset] for offset in offsets] == [b"%d" % number for number in range(3000)]
    assert sorted(offsets) == list(range(3000))


def test_error_of_a_message_is_raised_where_it_is_awaited(bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic(max_message_bytes="5000")

    async def send() -> None:
        async with ottla.aio.Producer(bootstrap) as producer:
            with pytest.raises(MessageNotDelivered, match="MESSAGE_TOO_LARGE"):
                await producer.send(topic, bytes(6000))
            with pytest.raises(MessagesNotDelivered):
                await producer.send(topic, [bytes(6000)])
            with pytest.raises(UnknownTopic):
                await producer.send(topic, b"v", partition=7)
            await producer.flush(WAIT_MS)
        with pytest.raises(ProducerClosed):
            await producer.send(topic, b"v")

    run(send())


def test_back_pressure_is_awaited_and_the_loop_continues(fragile: RunningBroker) -> None:
    async def send() -> None:
        async with ottla.aio.Producer(fragile.bootstrap, buffer_bytes=20_000, linger_ms=0) as producer:
            await producer.send("t", b"v")
            fragile.pause()
            tasks = [asyncio.create_task(producer.send("t", bytes(1000))) for _ in range(100)]
            done, _ = await asyncio.wait(tasks, timeout=0.2)
            assert not done
            fragile.resume()
            offsets = [receipt.offset for receipt in await asyncio.gather(*tasks)]
            assert sorted(offsets) == list(range(1, 101))

    run(send())


def test_send_gives_up_in_time_without_room(fragile: RunningBroker) -> None:
    async def send() -> None:
        async with ottla.aio.Producer(fragile.bootstrap, buffer_bytes=2000, linger_ms=0, max_block_ms=3000) as producer:
            await producer.send("t", b"v")
            fragile.pause()
            first = asyncio.create_task(producer.send("t", bytes(1500)))
            await asyncio.sleep(0)
            with pytest.raises(BufferFull):
                await producer.send("t", bytes(1500))
            with pytest.raises(CallTimedOut):
                await producer.flush(50)
            fragile.resume()
            assert (await first).offset == 1

    run(send())


def test_cancelled_send_withdraws_nothing_and_flush_raises_its_failure(bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic(max_message_bytes="5000")

    async def send() -> None:
        producer = ottla.aio.Producer(bootstrap, linger_ms=60_000, batch_count_max=2)
        await producer.send(topic, [b"v", b"v"])  # the topic is known now: the next one is taken at once
        task = asyncio.create_task(producer.send(topic, bytes(6000)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(MessagesNotDelivered):
            await producer.flush(WAIT_MS)
        await producer.close(WAIT_MS)

    run(send())
