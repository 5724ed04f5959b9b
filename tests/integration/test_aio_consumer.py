from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from ottla import TopicPartition, aio
from ottla.client.groups.groups import GroupAdmin
from ottla.client.wire.cluster import Cluster
from ottla.errors import ConsumerBusy, ConsumerClosed
from ottla.runtime.event_loop import run
from tests.integration.conftest import NewTopicName
from tests.integration.test_message_streams import fill, numbers

IN_TIME_MS = 60_000


@pytest.fixture
def group() -> str:
    return f"aio-consumer-{uuid.uuid4().hex[:10]}"


async def take(consumer: aio.Consumer[Any, Any], count: int) -> list[tuple[int, int]]:
    taken: list[tuple[int, int]] = []
    while len(taken) < count:
        messages = await consumer.poll_many(count - len(taken), IN_TIME_MS)
        assert messages, f"only {len(taken)} of {count} came in time"
        taken += [(message.partition, message.offset) for message in messages]
    return taken


def test_an_aio_consumer_reads_its_share_commits_in_a_callback_and_leaves(
    cluster: Cluster, bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(2)
    for number in range(2):
        fill(cluster, topic, number, numbers(50))
    notices: list[tuple[str, list[int]]] = []

    async def on_assign(consumer: aio.Consumer[Any, Any], partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(0)
        notices.append(("assigned", [each.partition for each in partitions]))
        consumer.seek((topic, 1), 40)

    async def on_revoke(consumer: aio.Consumer[Any, Any], partitions: list[TopicPartition]) -> None:
        notices.append(("revoked", [each.partition for each in partitions]))
        await consumer.commit()

    async def main() -> list[tuple[int, int]]:
        settings: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with aio.Consumer(bootstrap, group=group, **settings) as consumer:
            consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
            seen = await take(consumer, 60)
            assert await consumer.lag() == {(topic, 0): 0, (topic, 1): 0}
        with pytest.raises(ConsumerClosed):
            await consumer.poll(0)
        return seen

    seen = run(main())
    assert sorted(seen) == [*((0, offset) for offset in range(50)), *((1, offset) for offset in range(40, 50))]
    assert notices == [("assigned", [0, 1]), ("revoked", [0, 1])]
    committed = GroupAdmin(cluster).committed(group)
    assert {partition: each.offset for partition, each in committed.items()} == {(topic, 0): 50, (topic, 1): 50}


def test_an_aio_consumer_is_for_one_task_and_a_cancelled_request_loses_nothing(
    cluster: Cluster, bootstrap: str, new_topic: NewTopicName
) -> None:
    topic = new_topic(2)
    fill(cluster, topic, 0, numbers(10))

    async def main() -> None:
        async with aio.Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            assert len(await take(consumer, 10)) == 10
            waiting = asyncio.create_task(consumer.poll_many(5))
            await asyncio.sleep(0)
            with pytest.raises(ConsumerBusy):
                await consumer.poll(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            fill(cluster, topic, 0, numbers(5))
            assert await take(consumer, 5) == [(0, offset) for offset in range(10, 15)]
            consumer.pause()
            assert await consumer.poll(0) is None
            consumer.resume()
            consumer.seek_to_beginning()
            async for message in consumer:
                if message.offset == 14:
                    break
            assert consumer.position((topic, 0)) == 15

    run(main())
