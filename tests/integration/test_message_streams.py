from __future__ import annotations

import gc
import json
import os
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ottla import ConsumerConnector, Message
from ottla.client.admin.admin import Admin
from ottla.client.groups.groups import GroupAdmin
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.streams.errors import ConsumerClosed, NoPosition, NotAssigned, PoisonMessage
from ottla.client.streams.message_stream import MessageStream
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerUnreachable
from ottla.model.errors import ConfigError
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.header import HEADER, read_header
from ottla.records.record import Record, split_batches
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually
from tests.integration.conftest import NewTopicName

IN_TIME_MS = 60_000


def fill(cluster: Cluster, topic: str, partition: int, values: list[bytes], *, batch_count: int = 10) -> None:
    """Each message one second after the one before; the first at second 1."""
    with RawProducer(cluster) as producer:
        for first in range(0, len(values), batch_count):
            rows = enumerate(values[first : first + batch_count], first)
            records = [Record(n - first, 1000 * (n + 1), None, value) for n, value in rows]
            producer.send(TopicPartition(topic, partition), build_batch(records, Codec.LZ4))
        assert {result.error for result in producer.flush()} == {None}


def numbers(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


@pytest.fixture
def open_connector(bootstrap: str) -> Iterator[Callable[..., ConsumerConnector[Any, Any]]]:
    """Opens connectors that start at the earliest message; they are closed at the end of the test."""
    opened: list[ConsumerConnector[Any, Any]] = []

    def open_one(group: str, **settings: Any) -> ConsumerConnector[Any, Any]:
        settings = {"auto_offset_reset": "earliest"} | settings
        opened.append(ConsumerConnector(bootstrap, group=group, **settings))
        return opened[-1]

    yield open_one
    for connector in opened:
        connector.close()


OpenConnector = Callable[..., ConsumerConnector[Any, Any]]


@pytest.fixture
def group() -> str:
    return f"streams-{uuid.uuid4().hex[:10]}"


def take(stream: MessageStream[Any, Any], count: int) -> list[Message[Any, Any]]:
    """Read this many messages; the last one stays uncommitted."""
    taken: list[Message[Any, Any]] = []
    for message in stream:
        taken.append(message)
        if len(taken) == count:
            break
    return taken


def test_stream_returns_all_messages_of_a_topic_in_the_order_of_each_partition(
    cluster: Cluster, new_topic: NewTopicName, open_connector: OpenConnector, group: str
) -> None:
    topic = new_topic(3)
    for partition in range(3):
        fill(cluster, topic, partition, numbers(200))
    (stream,) = open_connector(group).create_message_streams({topic: 1})[topic]
    seen: dict[int, list[tuple[int, object]]] = {}
    for message in take(stream, 600):
        seen.setdefault(message.partition, []).append((message.offset, message.value))
    assert seen == {partition: list(enumerate(numbers(200))) for partition in range(3)}


def test_group_continues_after_the_last_processed_message(
    cluster: Cluster, new_topic: NewTopicName, open_connector: OpenConnector, group: str
) -> None:
    topic = new_topic()
    fill(cluster, topic, 0, numbers(100))
    with open_connector(group) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        assert take(stream, 31)[-1].offset == 30
    with open_connector(group) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        assert take(stream, 1)[0].offset == 30, "it was handed out, but nothing after it was asked for"


def test_explicit_commit_of_a_message_includes_it(
    cluster: Cluster, new_topic: NewTopicName, open_connector: OpenConnector, group: str
) -> None:
    topic = new_topic()
    fill(cluster, topic, 0, numbers(50))
    (stream,) = open_connector(group, enable_auto_commit=False).create_message_streams({topic: 1})[topic]
    last = take(stream, 20)[-1]
    stream.commit()
    committed = GroupAdmin(cluster).committed(group)
    assert committed[TopicPartition(topic, 0)].offset == 19
    stream.commit(last)
    committed = GroupAdmin(cluster).committed(group)
    assert committed[TopicPartition(topic, 0)].offset == 20


def test_offsets_are_committed_by_time(
    cluster: Cluster, new_topic: NewTopicName, open_connector: OpenConnector, group: str
) -> None:
    topic = new_topic()
    fill(cluster, topic, 0, numbers(50))
    (stream,) = open_connector(group, auto_commit_interval_ms=50).create_message_streams({topic: 1})[topic]
    take(stream, 20)

    def committed() -> int:
        offsets = GroupAdmin(cluster).committed(group)
        return offsets[TopicPartition(topic, 0)].offset if TopicPartition(topic, 0) in offsets else -1

    eventually(lambda: committed() == 19)


def test_latest_is_committed_at_once_as_an_offset(
    cluster: Cluster, new_topic: NewTopicName, open_connector: OpenConnector, group: str
) -> None:
    topic = new_topic()
    fill(cluster, topic, 0, numbers(10))
    partition = TopicPartition(topic, 0)
    with open_connector(group, auto_offset_reset="latest") as connector:
        connector.create_message_streams({topic: 1})
        eventually(lambda: partition in GroupAdmin(cluster).committed(group))
    fill(cluster, topic, 0, numbers(3))
    (stream,) = open_connector(group, auto_offset_reset="latest").create_message_streams({topic: 1})[topic]
    assert [message.offset for message in take(stream, 3)] == [10, 11, 12]


def test_stream_ends_when_no_message_comes_in_time_and_can_be_iterated_again(
    cluster: Cluster, new_topic: NewTopicName, open_connector: OpenConnector, group: str
) -> None:
    topic = new_topic()
    fill(cluster, topic, 0, numbers(10))
    connector = open_connector(group, consumer_timeout_ms=3_000)
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    assert [message.offset for message in stream] == list(range(10))
    fill(cluster, topic, 0, numbers(2))
    assert [message.offset for message in stream] == [10, 11]


def test_close_in_another_thread_ends_a_stream_that_waits(
    new_topic: NewTopicName, open_connector: OpenConnector, group: str
) -> None:
    topic = new_topic()
    connector = open_connector(group)
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    seen: list[object] = []
    thread = threading.Thread(target=lambda: seen.extend([*stream, "ended"]))
    thread.start()
    eventually(lambda: stream.partitions == [TopicPartition(topic, 0)])
    connector.close()
    thread.join(IN_TIME_MS / 1000)
    assert seen == ["ended"]
    with pytest.raises(ConsumerClosed):
        connector.commit()


@pytest.mark.parametrize(
    ("place", "expected"),
    [(7, 7), ("earliest", 0), ("latest", 100), (datetime.fromtimestamp(41, UTC), 40), (datetime.now(UTC), 100)],
)
def test_seek_while_running_continues_from_the_new_offset(
    cluster: Cluster,
    new_topic: NewTopicName,
    open_connector: OpenConnector,
    group: str,
    place: Any,
    expected: int,
) -> None:
    topic = new_topic()
    fill(cluster, topic, 0, numbers(100))
    (stream,) = open_connector(group).create_message_streams({topic: 1})[topic]
    assert take(stream, 50)[-1].offset == 49
    stream.seek(0, place)
    if expected == 100:
        # The offset is fixed only when the broker has answered: records that are written earlier count as before it.
        eventually(lambda: stream.position(0) == 100)
        fill(cluster, topic, 0, numbers(1))
    assert take(stream, 1)[0].offset == expected


def test_seek_of_a_partition_that_is_not_assigned_is_refused(
    cluster: Cluster, new_topic: NewTopicName, open_connector: OpenConnector, group: str
) -> None:
    topic = new_topic()
    fill(cluster, topic, 0, numbers(1))
    (stream,) = open_connector(group).create_message_streams({topic: 1})[topic]
    take(stream, 1)
    with pytest.raises(NotAssigned, match=f"{topic}-5 is not assigned .* it has {topic}-0"):
        stream.seek(5, 0)


def test_poison_message_names_its_offset_and_is_skipped(
    cluster: Cluster, new_topic: NewTopicName, open_connector: OpenConnector, group: str
) -> None:
    topic = new_topic()
    fill(cluster, topic, 0, [b"1", b"2", b"no json", b"4", b"5"])
    connector = open_connector(group, value_deserializer=json.loads)
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    assert [message.value for message in take(stream, 2)] == [1, 2]
    for _ in range(2):
        with pytest.raises(PoisonMessage, match=f"{topic}-0, offset 2: .*JSONDecodeError") as caught:
            take(stream, 1)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 2)
    stream.skip()
    assert [(message.offset, message.value) for message in take(stream, 2)] == [(3, 4), (4, 5)]


def test_damaged_batch_with_a_length_beyond_the_log_is_neither_read_nor_skipped(tmp_path: Path, group: str) -> None:
    with RunningBroker(tmp_path) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("orders", 1)
            fill(cluster, "orders", 0, numbers(6), batch_count=2)
        with (tmp_path / "orders-0" / f"{0:020}.log").open("r+b") as log:
            *_, last = split_batches(memoryview(content := log.read()))
            header = read_header(last)._replace(last_offset_delta=100_000)
            log.seek(content.index(last))
            log.write(HEADER.pack(*header))
        with ConsumerConnector(broker.bootstrap, group=group, auto_offset_reset="earliest") as connector:
            [stream] = connector.create_message_streams({"orders": 1})["orders"]
            assert [message.offset for message in take(stream, 4)] == [0, 1, 2, 3]
            for _ in range(2):
                with pytest.raises(PoisonMessage, match="orders-0, offset 4: its batch is damaged"):
                    next(stream)
                with pytest.raises(NotAssigned, match="the end of the damaged batch is not known"):
                    stream.skip()
            stream.commit()
            assert stream.position(0) == 4
            stream.seek(0, 2)
            assert [message.offset for message in take(stream, 2)] == [2, 3]


@pytest.mark.parametrize(("at", "damage"), [(16, b"\x07"), (8, b"\xff" * 4)], ids=["format", "length"])
def test_batches_before_a_damaged_head_are_read_and_the_error_names_the_damage(
    tmp_path: Path, group: str, at: int, damage: bytes
) -> None:
    with RunningBroker(tmp_path) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("orders", 1)
            fill(cluster, "orders", 0, numbers(6), batch_count=2)
        with (tmp_path / "orders-0" / f"{0:020}.log").open("r+b") as log:
            first, second, _ = split_batches(memoryview(log.read()))
            log.seek(len(first) + at)
            log.write(damage)
        assert read_header(second).base_offset == 2
        with ConsumerConnector(broker.bootstrap, group=group, auto_offset_reset="earliest") as connector:
            [stream] = connector.create_message_streams({"orders": 1})["orders"]
            assert [message.offset for message in take(stream, 2)] == [0, 1]
            with pytest.raises(PoisonMessage, match="orders-0, offset 2: what the broker has there is damaged"):
                next(stream)
            assert stream.position(0) == 2
            stream.seek(0, 0)
            assert [message.offset for message in take(stream, 2)] == [0, 1]


def test_group_without_an_offset_raises_when_reset_is_an_error(
    cluster: Cluster, new_topic: NewTopicName, open_connector: OpenConnector, group: str
) -> None:
    topic = new_topic()
    fill(cluster, topic, 0, numbers(10))
    (stream,) = open_connector(group, auto_offset_reset="error").create_message_streams({topic: 1})[topic]
    with pytest.raises(NoPosition, match=f"no offset of {topic}-0"):
        take(stream, 1)
    stream.seek(0, 99)
    with pytest.raises(NoPosition, match="offset 99 is not in the log; the log has 0 to 10"):
        take(stream, 1)
    stream.seek(0, "earliest")
    assert take(stream, 1)[0].offset == 0


def test_streams_of_one_connector_share_a_topic_in_threads(
    cluster: Cluster, new_topic: NewTopicName, open_connector: OpenConnector, group: str
) -> None:
    topic = new_topic(4)
    for partition in range(4):
        fill(cluster, topic, partition, numbers(300))
    connector = open_connector(group)
    streams = connector.create_message_streams({topic: 2})[topic]
    seen: list[list[tuple[int, int]]] = [[], []]

    def read(number: int) -> None:
        for message in streams[number]:
            seen[number].append((message.partition, message.offset))

    threads = [threading.Thread(target=read, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    eventually(lambda: sum(map(len, seen)) >= 4 * 300)
    connector.close()
    for thread in threads:
        thread.join()
    assert sorted(seen[0] + seen[1]) == [(partition, offset) for partition in range(4) for offset in range(300)]
    assert [len({partition for partition, _ in each}) for each in seen] == [2, 2]


def test_groups_are_point_to_point_inside_and_publish_subscribe_between_each_other(
    cluster: Cluster, new_topic: NewTopicName, open_connector: OpenConnector, group: str
) -> None:
    topic = new_topic(2)
    readers = [
        (name, open_connector(f"{group}-{name}").create_message_streams({topic: 1})[topic][0])
        for name in ("a", "a", "b")
    ]
    seen: list[tuple[str, int, int]] = []

    def read(name: str, stream: MessageStream[Any, Any]) -> None:
        seen.extend((name, message.partition, message.offset) for message in stream)

    threads = [threading.Thread(target=read, args=reader, daemon=True) for reader in readers]
    for thread in threads:
        thread.start()
    eventually(lambda: [len(stream.partitions) for _, stream in readers] == [1, 1, 2])
    for partition in range(2):
        fill(cluster, topic, partition, numbers(50))
    eventually(lambda: len(seen) >= 200)
    assert sorted(seen) == [(name, p, offset) for name in ("a", "b") for p in range(2) for offset in range(50)]


def test_topic_that_is_created_later_is_read_then(
    cluster: Cluster, new_topic: NewTopicName, open_connector: OpenConnector, group: str
) -> None:
    first = new_topic()
    (stream,) = open_connector(group).create_message_streams_by_filter(1, allow=f"{first}|later-.*", deny=".*-not")
    fill(cluster, first, 0, numbers(1))
    assert take(stream, 1)[0].topic == first


def test_connector_names_a_wrong_argument(bootstrap: str, new_topic: NewTopicName) -> None:
    for settings, problem in (
        ({"auto_offset_reset": "newest"}, "auto_offset_reset is 'newest'"),
        ({"stream_buffer_bytes": 0}, "stream_buffer_bytes is 0"),
        ({"value_deserializer": "json"}, "value_deserializer is 'json'"),
    ):
        with pytest.raises(ConfigError, match=problem):
            ConsumerConnector(bootstrap, group="g", **settings)
    with pytest.raises(ConfigError, match="either brokers or a ZooKeeper"):
        ConsumerConnector(bootstrap, zookeeper="127.0.0.1:1", group="g")
    with ConsumerConnector(bootstrap, group="g") as connector:
        topic = new_topic()
        connector.create_message_streams({topic: 1})
        with pytest.raises(ConfigError, match="were created before"):
            connector.create_message_streams({topic: 1})


def test_unreachable_brokers_are_reported_by_the_stream() -> None:
    settings: dict[str, Any] = {"group": "g", "connection_timeout_ms": 300}
    with ConsumerConnector("127.0.0.1:1", **settings) as connector:
        (stream,) = connector.create_message_streams({"t": 1})["t"]
        for _ in range(2):
            with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1"):
                take(stream, 1)


def test_process_that_was_forked_is_refused(
    cluster: Cluster, new_topic: NewTopicName, open_connector: OpenConnector, group: str
) -> None:
    topic = new_topic()
    fill(cluster, topic, 0, numbers(3))
    connector = open_connector(group)
    (stream,) = connector.create_message_streams({topic: 1})[topic]
    assert take(stream, 3)[-1].offset == 2
    child = os.fork()
    if child == 0:
        try:
            take(stream, 1)
        except ConsumerClosed as error:
            connector.close()
            os._exit(0 if "forked" in str(error) else 2)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_connector_that_read_nothing_leaves_nothing_open(bootstrap: str) -> None:
    with warnings.catch_warnings():
        # A test that failed before may have left a socket in its traceback.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        ConsumerConnector(bootstrap, group="g").close()
        gc.collect()
    assert [str(each.message) for each in caught if issubclass(each.category, ResourceWarning)] == []


def test_dropped_connector_leaves_its_group_when_its_last_stream_is_dropped(
    bootstrap: str, cluster: Cluster, new_topic: NewTopicName, group: str
) -> None:
    topic = new_topic()
    fill(cluster, topic, 0, numbers(3))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        connector = ConsumerConnector(bootstrap, group=group, auto_offset_reset="earliest")
        streams = connector.create_message_streams({topic: 1})
        del connector
        gc.collect()
        assert take(streams[topic][0], 3)[-1].offset == 2, "its streams hold it"
        assert not caught
        del streams
        gc.collect()
        eventually(lambda: GroupAdmin(cluster).describe(group).members, lambda members: members == ())
    assert [str(each.message) for each in caught] == [f"ConsumerConnector of group '{group}' was not closed"]
    assert GroupAdmin(cluster).committed(group)[TopicPartition(topic, 0)].offset == 2
