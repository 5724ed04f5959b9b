"""Subscriptions that change while a membership lasts, at every home that has them: below and through the two consumers
that are polled.  Streams keep theirs, and so do groups of the tree."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from ottla import Consumer, Message, TopicPartition, aio
from ottla.client.groups.subscription import Subscription
from ottla.testing import Record, produce
from tests.contract.membership.conftest import KAFKA_HOMES
from tests.contract.membership.membership_homes import HEARTBEAT_MS, KafkaGroupHome, new_name
from tests.contract.membership.reader import Ledger, Reader
from tests.eventually import eventually

pytestmark = pytest.mark.parametrize("home", KAFKA_HOMES, indirect=True)


def partitions_of(*topics: str, count: int = 2) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for topic in topics for number in range(count)}


def test_changed_subscription_gives_one_topic_back_and_starts_another(home: KafkaGroupHome, ledger: Ledger) -> None:
    views, orders = home.make_topic(2), home.make_topic(2)
    membership = home.membership(new_name("group"))
    with Reader(membership, Subscription({views: 1}), ledger, "a") as reader:
        eventually(lambda: set(reader.held), lambda held: held == partitions_of(views))
        reader.commit(TopicPartition(views, 0), 5)
        membership.subscribe(Subscription({orders: 1}))
        eventually(lambda: set(reader.held), lambda held: held == partitions_of(orders))
        membership.subscribe(Subscription({views: 1, orders: 1}))
        eventually(lambda: set(reader.held), lambda held: held == partitions_of(views, orders))
        assert reader.starts()[TopicPartition(views, 0)] == 5
        reader.leave()


class Polled(NamedTuple):
    """A consumer of either kind, for a caller that blocks."""

    consumer: Consumer[Any, Any] | aio.Consumer[Any, Any]
    poll: Callable[[], list[Message[Any, Any]]]
    # To the topics that this pattern matches.
    subscribe: Callable[[str], None]


OpenConsumer = Callable[[KafkaGroupHome, str], Polled]
POLL_MS = 20


@pytest.fixture(params=["blocking", "asyncio"])
def open_consumer(request: pytest.FixtureRequest) -> Iterator[OpenConsumer]:
    with ExitStack() as closing:

        def open_blocking(home: KafkaGroupHome, group: str) -> Polled:
            consumer = closing.enter_context(
                Consumer(
                    home.bootstrap,
                    group=group,
                    group_protocol=home.protocol,
                    auto_offset_reset="earliest",
                    heartbeat_interval_ms=HEARTBEAT_MS,
                )
            )
            return Polled(
                consumer,
                lambda: consumer.poll_many(100, POLL_MS),
                lambda pattern: consumer.subscribe(pattern=pattern),
            )

        def open_aio(home: KafkaGroupHome, group: str) -> Polled:
            consumer = aio.Consumer(
                home.bootstrap,
                group=group,
                group_protocol=home.protocol,
                auto_offset_reset="earliest",
                heartbeat_interval_ms=HEARTBEAT_MS,
            )
            closing.callback(lambda: runner.run(consumer.close()))

            async def subscribe(pattern: str) -> None:
                consumer.subscribe(pattern=pattern)

            return Polled(
                consumer,
                lambda: runner.run(consumer.poll_many(100, POLL_MS)),
                lambda pattern: runner.run(subscribe(pattern)),
            )

        runner = closing.enter_context(asyncio.Runner())
        yield open_blocking if request.param == "blocking" else open_aio


def test_consumer_that_reads_another_topic_leaves_its_share_to_the_other_member(
    home: KafkaGroupHome, open_consumer: OpenConsumer
) -> None:
    views, orders = home.make_topic(2), home.make_topic(2)
    produce(views, [Record(str(number), partition=number % 2) for number in range(20)], bootstrap=home.bootstrap)
    group = new_name("group")
    moving, staying = open_consumer(home, group), open_consumer(home, group)
    seen: list[tuple[str, int, int]] = []

    def assignments() -> tuple[set[TopicPartition], set[TopicPartition]]:
        for each in (moving, staying):
            seen.extend((message.topic, message.partition, message.offset) for message in each.poll())
        return set(moving.consumer.assignment), set(staying.consumer.assignment)

    for each in (moving, staying):
        each.subscribe(views)
    eventually(
        assignments, lambda both: both[0] | both[1] == partitions_of(views) and len(both[0]) == len(both[1]) == 1
    )
    moving.subscribe(f"{orders[:-1]}.")
    eventually(assignments, lambda both: both == (partitions_of(orders), partitions_of(views)))
    produce(orders, [Record("paid", partition=1)], bootstrap=home.bootstrap)
    produce(views, [Record("20", partition=0), Record("21", partition=1)], bootstrap=home.bootstrap)
    expected = {(orders, 1, 0), *((views, partition, offset) for partition in range(2) for offset in range(11))}
    eventually(lambda: assignments() and set(seen), lambda found: found == expected)
    # Each place was given on where it was left.
    assert len(seen) == len(expected)
