from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest

from ottla import aio
from ottla.client.groups.groups import GroupAdmin
from ottla.client.streams.errors import PoisonMessage
from ottla.client.wire.cluster import Cluster
from ottla.model.identifiers import TopicPartition
from ottla.runtime.event_loop import run
from tests.integration.conftest import NewTopicName
from tests.integration.test_message_streams import fill, numbers


@pytest.fixture
def group() -> str:
    return f"aio-{uuid.uuid4().hex[:10]}"


def test_aio_streams_of_one_loop_share_a_topic(
    cluster: Cluster, bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic(4)
    for partition in range(4):
        fill(cluster, topic, partition, numbers(200))

    seen: list[list[tuple[int, int]]] = [[], []]

    async def read(stream: aio.MessageStream[Any, Any], found: list[tuple[int, int]], are_read: asyncio.Event) -> None:
        async for message in stream:
            found.append((message.partition, message.offset))
            if sum(map(len, seen)) == 4 * 200:
                are_read.set()

    async def main() -> None:
        are_read = asyncio.Event()
        async with aio.ConsumerConnector(bootstrap, group=group, auto_offset_reset="earliest") as connector:
            streams = (await connector.create_message_streams({topic: 2}))[topic]
            readers = asyncio.gather(
                *(read(stream, found, are_read) for stream, found in zip(streams, seen, strict=True))
            )
            await are_read.wait()
            await connector.close()
            await readers

    run(main())
    assert sorted(seen[0] + seen[1]) == [(partition, offset) for partition in range(4) for offset in range(200)]
    assert [len({partition for partition, _ in each}) for each in seen] == [2, 2]


def test_aio_stream_commits_processed_messages_and_continues_in_the_next_loop(
    cluster: Cluster, bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic()
    fill(cluster, topic, 0, numbers(30))

    async def main() -> list[int]:
        offsets: list[int] = []
        async with aio.ConsumerConnector(bootstrap, group=group, auto_offset_reset="earliest") as connector:
            (stream,) = (await connector.create_message_streams({topic: 1}))[topic]
            async for message in stream:
                offsets.append(message.offset)
                if message.offset == 11:
                    break
            offsets.append((await anext(stream)).offset)
            await stream.commit()
        return offsets

    assert run(main()) == list(range(13))
    assert GroupAdmin(cluster).committed(group)[TopicPartition(topic, 0)].offset == 12


def test_aio_stream_names_a_poison_message_and_skips_it(
    cluster: Cluster, bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic()
    fill(cluster, topic, 0, [b"1", b"no json", b"3"])

    async def main() -> list[object]:
        values: list[object] = []
        async with aio.ConsumerConnector(
            bootstrap, group=group, auto_offset_reset="earliest", value_deserializer=json.loads
        ) as connector:
            (stream,) = (await connector.create_message_streams({topic: 1}))[topic]
            values.append((await anext(stream)).value)
            for _ in range(2):
                with pytest.raises(PoisonMessage, match=f"{topic}-0, offset 1"):
                    await anext(stream)
            stream.skip()
            values.append((await anext(stream)).value)
        return values

    assert run(main()) == [1, 3]


def test_close_by_another_task_ends_an_aio_stream_that_waits(
    bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic()

    async def main() -> list[object]:
        connector = aio.ConsumerConnector(bootstrap, group=group)
        (stream,) = (await connector.create_message_streams({topic: 1}))[topic]
        reading = asyncio.ensure_future(_all(stream))
        await asyncio.sleep(0)
        await connector.close()
        return await reading

    assert run(main()) == []


async def _all(stream: aio.MessageStream[Any, Any]) -> list[object]:
    return [message async for message in stream]


def test_anext_within_a_loop_returns_the_message_after_the_one_of_the_loop(
    cluster: Cluster, bootstrap: str, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic()
    fill(cluster, topic, 0, numbers(30), batch_count=5)

    async def main() -> list[tuple[int, int]]:
        pairs: list[tuple[int, int]] = []
        async with aio.ConsumerConnector(bootstrap, group=group, auto_offset_reset="earliest") as connector:
            (stream,) = (await connector.create_message_streams({topic: 1}))[topic]
            async for message in stream:
                pairs.append((message.offset, (await anext(stream)).offset))
                if len(pairs) == 15:
                    break
        return pairs

    assert run(main()) == [(first, first + 1) for first in range(0, 30, 2)]
