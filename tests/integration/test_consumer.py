from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from ottla import Consumer, Message, TopicPartition
from ottla.client.groups.groups import GroupAdmin
from ottla.client.wire.cluster import Cluster
from ottla.errors import CommitFailed, ConfigError, ConsumerClosed
from tests.eventually import eventually
from tests.integration.conftest import NewTopicName
from tests.integration.test_message_streams import fill, numbers

IN_TIME_MS = 60_000


@pytest.fixture
def group() -> str:
    return f"consumer-{uuid.uuid4().hex[:10]}"


OpenConsumer = Callable[..., Consumer[Any, Any]]


@pytest.fixture
def open_consumer(bootstrap: str) -> Iterator[OpenConsumer]:
    """Consumers that start at the earliest message; they are closed at the end of the test."""
    opened: list[Consumer[Any, Any]] = []

    def open_one(group: str | None = None, **settings: Any) -> Consumer[Any, Any]:
        opened.append(Consumer(bootstrap, group=group, **({"auto_offset_reset": "earliest"} | settings)))
        return opened[-1]

    yield open_one
    for consumer in opened:
        consumer.close()


def take(consumer: Consumer[Any, Any], count: int) -> list[Message[Any, Any]]:
    """So many messages, by batches."""
    taken: list[Message[Any, Any]] = []
    while len(taken) < count:
        messages = consumer.poll_many(count - len(taken), IN_TIME_MS)
        assert messages, f"only {len(taken)} of {count} came in time"
        taken += messages
    return taken


def wait_for_assignment(consumer: Consumer[Any, Any], count: int) -> None:
    """Messages that come meanwhile are not expected."""

    def has_them() -> bool:
        assert consumer.poll(20) is None
        return len(consumer.assignment) == count

    eventually(has_them)


def test_assigned_partitions_are_read_from_their_places_without_a_group(
    cluster: Cluster, new_topic: NewTopicName, open_consumer: OpenConsumer
) -> None:
    topic = new_topic(3)
    for number in range(3):
        fill(cluster, topic, number, numbers(20))
    first, second, third = (TopicPartition(topic, number) for number in range(3))
    consumer = open_consumer()
    consumer.assign({first: 15, second: "latest", third: datetime.fromtimestamp(18, UTC)})
    seen = take(consumer, 8)
    assert sorted((each.partition, each.offset) for each in seen) == [
        *((0, offset) for offset in range(15, 20)),
        *((2, offset) for offset in range(17, 20)),
    ]
    eventually(lambda: consumer.positions() == dict.fromkeys([first, second, third], 20))
    assert consumer.lag() == dict.fromkeys([first, second, third], 0)

    consumer.seek(second, 18)
    consumer.seek_to_beginning([third])
    assert consumer.lag()[second] == 2
    assert len(take(consumer, 22)) == 22
    # The first partition continues; the others are given up.
    consumer.assign([first])
    fill(cluster, topic, 0, numbers(2))
    fill(cluster, topic, 1, numbers(2))
    assert [(each.partition, each.offset) for each in take(consumer, 2)] == [(0, 20), (0, 21)]
    assert consumer.poll(0) is None
    assert consumer.beginning_offsets([first, second]) == {first: 0, second: 0}
    assert consumer.end_offsets([first, second]) == {first: 22, second: 22}
    times: dict[TopicPartition, int | datetime] = {first: 18_000, second: datetime(2100, 1, 1, tzinfo=UTC)}
    assert consumer.offsets_for_times(times) == {first: 17, second: None}
    assert consumer.partitions_for(topic) == [first, second, third]
    assert topic in consumer.topics()


def test_a_paused_partition_lets_the_others_continue(
    cluster: Cluster, new_topic: NewTopicName, open_consumer: OpenConsumer
) -> None:
    topic = new_topic(2)
    for number in range(2):
        fill(cluster, topic, number, numbers(300))
    consumer = open_consumer()
    consumer.assign([(topic, 0), (topic, 1)])
    seen = take(consumer, 100)
    consumer.pause([(topic, 0)])
    assert consumer.paused == [(topic, 0)]
    has_of_second = sum(each.partition == 1 for each in seen)
    rest = take(consumer, 300 - has_of_second)
    assert {each.partition for each in rest} == {1}
    assert consumer.poll(0) is None
    consumer.resume()
    seen += rest + take(consumer, 600 - len(seen) - len(rest))
    for number in range(2):
        assert [each.offset for each in seen if each.partition == number] == list(range(300))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_share_a_topic_and_hand_partitions_over_where_they_stopped(
    cluster: Cluster, new_topic: NewTopicName, open_consumer: OpenConsumer, group: str, protocol: str
) -> None:
    topic = new_topic(4)
    settings: dict[str, Any] = {
        "group_protocol": protocol,
        "heartbeat_interval_ms": 100,
        "enable_auto_commit": False,
    }
    notices: list[tuple[str, str, int]] = []

    def subscribe(consumer: Consumer[Any, Any], name: str) -> None:
        def on_assign(notified: Consumer[Any, Any], partitions: list[TopicPartition]) -> None:
            assert notified is consumer
            notices.append((name, "assigned", len(partitions)))

        def on_revoke(notified: Consumer[Any, Any], partitions: list[TopicPartition]) -> None:
            notices.append((name, "revoked", len(partitions)))
            notified.commit()

        consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)

    one, other = open_consumer(group, **settings), open_consumer(group, **settings)
    subscribe(one, "one")
    wait_for_assignment(one, 4)
    for number in range(4):
        fill(cluster, topic, number, numbers(50))
    seen = take(one, 120)
    subscribe(other, "other")
    seen += share_until(one, other, 200)
    assert sorted((each.partition, each.offset) for each in seen) == [
        (partition, offset) for partition in range(4) for offset in range(50)
    ]
    # What was revoked was committed in the callback, so none of it came twice.
    assert len(one.assignment) == len(other.assignment) == 2
    assert sum(count for name, what, count in notices if (name, what) == ("one", "revoked")) >= 2
    other.close()
    assert ("other", "revoked", 2) in notices
    wait_for_assignment(one, 4)
    one.commit()
    committed = GroupAdmin(cluster).committed(group)
    assert {partition: each.offset for partition, each in committed.items()} == {
        TopicPartition(topic, number): 50 for number in range(4)
    }
    assert one.committed() == {TopicPartition(topic, number): 50 for number in range(4)}


def share_until(one: Consumer[Any, Any], other: Consumer[Any, Any], end: int) -> list[Message[Any, Any]]:
    """Both are polled, each by its thread, until they share the partitions and everything was read."""
    seen: list[list[Message[Any, Any]]] = [[], []]
    is_over = threading.Event()

    def read(consumer: Consumer[Any, Any], mine: list[Message[Any, Any]]) -> None:
        while not is_over.is_set():
            mine += consumer.poll_many(20, 50)

    threads = [threading.Thread(target=read, args=each) for each in zip((one, other), seen, strict=True)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: len(one.assignment) == len(other.assignment) == 2 and sum(map(len, seen)) >= end - 120)
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    return seen[0] + seen[1]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_subscription_is_changed_to_other_topics_and_to_a_pattern(
    cluster: Cluster, new_topic: NewTopicName, open_consumer: OpenConsumer, group: str, protocol: str
) -> None:
    first, second = new_topic(), new_topic()
    fill(cluster, first, 0, numbers(3))
    fill(cluster, second, 0, numbers(3))
    consumer = open_consumer(group, group_protocol=protocol, heartbeat_interval_ms=100)
    consumer.subscribe(first)
    assert {each.topic for each in take(consumer, 3)} == {first}
    consumer.subscribe([second])
    assert {each.topic for each in take(consumer, 3)} == {second}
    assert consumer.assignment == [(second, 0)]
    consumer.subscribe(pattern=f"{first[:-1]}.|{second}", exclude=second)
    fill(cluster, first, 0, numbers(2))
    assert [(each.topic, each.offset) for each in take(consumer, 2)] == [(first, 3), (first, 4)]
    assert consumer.poll(0) is None
    with pytest.raises(ConfigError, match="not both"):
        consumer.assign([(first, 0)])
    consumer.unsubscribe()
    assert consumer.assignment == []
    assert consumer.committed([(first, 0), (second, 0)]) == {(first, 0): 5, (second, 0): 3}


def test_assigned_partitions_commit_to_a_group_that_has_no_members(
    cluster: Cluster, new_topic: NewTopicName, open_consumer: OpenConsumer, group: str
) -> None:
    topic = new_topic()
    fill(cluster, topic, 0, numbers(30))
    consumer = open_consumer(group, enable_auto_commit=False)
    consumer.assign([(topic, 0)])
    messages = take(consumer, 10)
    consumer.commit(messages[3])
    assert consumer.committed() == {(topic, 0): 4}
    consumer.commit(offsets={(topic, 0): 7})
    consumer.close()
    with pytest.raises(ConsumerClosed):
        consumer.poll(0)

    member = open_consumer(group, enable_auto_commit=False)
    member.subscribe([topic])
    assert take(member, 1)[0].offset == 7
    late = open_consumer(group, enable_auto_commit=False)
    late.assign([(topic, 0)])
    assert take(late, 1)[0].offset == 7
    with pytest.raises(CommitFailed, match="UNKNOWN_MEMBER_ID"):
        late.commit()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_static_member_that_returns_has_its_partitions_without_a_rebalance(
    cluster: Cluster, new_topic: NewTopicName, open_consumer: OpenConsumer, group: str, protocol: str
) -> None:
    topic = new_topic(2)
    settings: dict[str, Any] = {"group_protocol": protocol, "heartbeat_interval_ms": 100}
    changes: list[str] = []
    stays = open_consumer(group, group_instance_id="stays", **settings)
    stays.subscribe([topic], on_revoke=lambda *_: changes.append("revoked"))
    returns = open_consumer(group, group_instance_id="returns", **settings)
    returns.subscribe([topic])

    def both_have_one() -> bool:
        for consumer in (stays, returns):
            consumer.poll(20)
        return len(stays.assignment) == len(returns.assignment) == 1

    eventually(both_have_one)
    changes.clear()
    before = returns.assignment
    returns.close()
    again = open_consumer(group, group_instance_id="returns", **settings)
    again.subscribe([topic])

    def has_it_again() -> bool:
        stays.poll(20)
        again.poll(20)
        return again.assignment == before

    eventually(has_it_again)
    assert len(stays.assignment) == 1
    assert changes == []


def test_close_ends_a_poll_that_waits_in_another_thread(
    new_topic: NewTopicName, open_consumer: OpenConsumer, group: str
) -> None:
    topic = new_topic()
    consumer = open_consumer(group)
    consumer.subscribe([topic])
    polled: list[object] = []
    thread = threading.Thread(target=lambda: polled.append(consumer.poll()))
    thread.start()
    consumer.close()
    thread.join()
    assert polled == [None]


def test_iteration_returns_messages_until_the_consumer_is_closed(
    cluster: Cluster, new_topic: NewTopicName, open_consumer: OpenConsumer, group: str
) -> None:
    topic = new_topic()
    fill(cluster, topic, 0, numbers(25))
    consumer = open_consumer(group, value_deserializer=int)
    consumer.subscribe([topic])
    values: list[int | None] = []
    for message in consumer:
        values.append(message.value)
        if len(values) == 25:
            consumer.close()
    assert values == list(range(25))
