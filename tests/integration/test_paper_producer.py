"""`ottla.Producer` against real brokers."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Literal

import pytest

import ottla
from ottla.client.admin.admin import Admin
from ottla.client.fetching.fetch_requests import fetch_raw
from ottla.client.fetching.offsets import LATEST, list_offsets
from ottla.client.producing.delivery import Delivery, Receipt
from ottla.client.producing.errors import BufferFull, MessageNotDelivered, MessagesNotDelivered, ProducerClosed
from ottla.client.producing.partitioner import partition_of_key
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused, CallTimedOut, UnknownTopic
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.records.record import Record, decode_batch
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually
from tests.integration.conftest import NewTopicName
from tests.peers.free_ports import find_free_ports

# Far beyond what a busy machine needs.
WAIT_MS: Final = 120_000


def records_of(cluster: Cluster, topic: str, partition: int = 0) -> list[Record]:
    """Everything in a partition, with its checksums verified."""
    key = TopicPartition(topic, partition)
    end = list_offsets(cluster, {key: LATEST})[key].offset
    found: list[Record] = []
    while len(found) < end:
        fetched = fetch_raw(cluster, topic, partition, len(found), check_crc=True)
        found += [record for batch in fetched.batches() for record in decode_batch(batch)]
    return found


def values_of(cluster: Cluster, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in records_of(cluster, topic, partition)]


@pytest.fixture
def fragile() -> Iterator[RunningBroker]:
    """A broker that a test may stop."""
    with RunningBroker(settings={"num.partitions": "1"}) as broker:
        yield broker


def test_receipt_has_the_offset_of_the_message(bootstrap: str, cluster: Cluster, new_topic: NewTopicName) -> None:
    topic = new_topic(3)
    with ottla.Producer(bootstrap) as producer:
        receipts = [
            producer.send(topic, b"v%d" % number, key=b"k", headers=[("h", b"1"), ("h", None)], timestamp_ms=1000)
            for number in range(3)
        ]
        places = [receipt.wait(WAIT_MS) for receipt in receipts]
    number = partition_of_key(b"k", 3)
    assert places == [Receipt(topic, number, offset, 1000) for offset in range(3)]
    assert records_of(cluster, topic, number) == [
        Record(offset, 1000, b"k", b"v%d" % offset, (("h", b"1"), ("h", None))) for offset in range(3)
    ]


def test_set_of_messages_with_keys_is_spread_as_java_does_and_keeps_its_order(
    bootstrap: str, cluster: Cluster, new_topic: NewTopicName
) -> None:
    topic = new_topic(4)
    keys = [None if number % 50 == 7 else b"key-%d" % (number % 23) for number in range(500)]
    values = [b"%d" % number for number in range(500)]
    with ottla.Producer(bootstrap, compression="lz4", batch_bytes=4096) as producer:
        receipts = producer.send(topic, values, keys=keys).wait(WAIT_MS)
    assert [each.partition for each, key in zip(receipts, keys, strict=True) if key is not None] == [
        partition_of_key(key, 4) for key in keys if key is not None
    ]
    stored = {(number, each.offset): each for number in range(4) for each in records_of(cluster, topic, number)}
    assert [(stored[each[1:3]].key, stored[each[1:3]].value) for each in receipts] == list(
        zip(keys, values, strict=True)
    )
    by_partition = defaultdict(list)
    for each in receipts:
        by_partition[each.partition].append(each.offset)
    assert all(offsets == sorted(offsets) for offsets in by_partition.values())


@pytest.mark.parametrize("acks", ["all", 1, 0])
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_closing_loses_nothing_with_any_acks_and_codec(
    bootstrap: str, cluster: Cluster, new_topic: NewTopicName, acks: str, compression: str
) -> None:
    topic = new_topic()
    values = [b"%d %s" % (number, b"x" * (number % 200)) for number in range(5000)]
    with ottla.Producer(bootstrap, acks=acks, compression=compression, linger_ms=1000) as producer:  # type: ignore[arg-type]
        for value in values[:2500]:
            producer.send(topic, value)
        producer.send(topic, iter(values[2500:]))
    # With acks 0 no response shows when it is stored.
    assert eventually(lambda: values_of(cluster, topic), lambda found: len(found) == 5000) == values


def test_every_message_has_one_place_when_threads_send_and_flush(
    bootstrap: str, cluster: Cluster, new_topic: NewTopicName
) -> None:
    topic = new_topic(3)

    def send_some(sender: int) -> list[tuple[bytes, Receipt]]:
        sent = []
        for number in range(400):
            value = b"%d-%d" % (sender, number)
            sent.append((value, producer.send(topic, value, key=b"%d" % sender if sender % 2 else None)))
            if number % 97 == 0:
                producer.flush(WAIT_MS)
        return [(value, delivery.wait(WAIT_MS)) for value, delivery in sent]

    with (
        ottla.Producer(bootstrap, batch_count_max=17) as producer,
        ThreadPoolExecutor(6) as threads,
    ):
        sent = list(threads.map(send_some, range(6)))
    stored = {
        (number, record.offset): record.value for number in range(3) for record in records_of(cluster, topic, number)
    }
    assert len(stored) == 6 * 400
    for mine in sent:
        assert all(stored[receipt[1:3]] == value for value, receipt in mine)
        for number in range(3):
            offsets = [receipt.offset for _, receipt in mine if receipt.partition == number]
            assert offsets == sorted(offsets), "one sender's messages keep their order in a partition"


def test_messages_without_a_key_reach_every_partition(
    bootstrap: str, cluster: Cluster, new_topic: NewTopicName
) -> None:
    topic = new_topic(4)
    with ottla.Producer(bootstrap, batch_count_max=5) as producer:
        # Random: the probability that one of 4 is missing after 200 batches is 4 * 0.75^200.
        receipts = [producer.send(topic, b"v") for _ in range(1000)]
        found = {receipt.wait(WAIT_MS).partition for receipt in receipts}
    assert found == {0, 1, 2, 3}


def test_added_partitions_are_used(bootstrap: str, cluster: Cluster, new_topic: NewTopicName) -> None:
    topic = new_topic(1)
    with ottla.Producer(bootstrap, metadata_max_age_ms=10) as producer:
        assert producer.send(topic, b"v").wait(WAIT_MS).partition == 0
        Admin(cluster).create_partitions({topic: 3})
        # Apache Kafka's controller answers before its broker knows.
        eventually(lambda: len(cluster.refresh([topic])[0].partitions), lambda found: found == 3)
        assert producer.send(topic, b"v", partition=2).wait(WAIT_MS).partition == 2
        eventually(lambda: producer.send(topic, b"v").wait(WAIT_MS).partition, lambda found: found > 0)


def test_refused_message_raises_and_the_others_are_stored(
    bootstrap: str, cluster: Cluster, new_topic: NewTopicName
) -> None:
    topic = new_topic(max_message_bytes="5000")
    with ottla.Producer(bootstrap, linger_ms=0) as producer:
        producer.send(topic, b"a").wait(WAIT_MS)
        refused = producer.send(topic, bytes(6000))
        with pytest.raises(MessageNotDelivered, match="MESSAGE_TOO_LARGE") as told:
            refused.wait(WAIT_MS)
        assert not told.value.may_be_stored
        producer.send(topic, b"b").wait(WAIT_MS)
    assert values_of(cluster, topic) == [b"a", b"b"]


def test_flush_raises_unreported_failures_and_only_once(bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic(max_message_bytes="5000")
    with ottla.Producer(bootstrap, batch_count_max=1) as producer:
        told = producer.send(topic, bytes(6000))
        assert isinstance(eventually(told.error), MessageNotDelivered)
        producer.send(topic, bytes(7000))
        producer.send(topic, b"v")
        with pytest.raises(MessagesNotDelivered) as raised:
            producer.flush(WAIT_MS)
        assert raised.value.messages_count == 1
        assert isinstance(raised.value.failures[0].error.reason, BrokerRefused)
        producer.flush(WAIT_MS)


def test_close_raises_unreported_failures(bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic(max_message_bytes="5000")
    producer = ottla.Producer(bootstrap)
    producer.send(topic, bytes(6000))
    with pytest.raises(MessagesNotDelivered):
        producer.close(WAIT_MS)
    producer.close(WAIT_MS)
    with pytest.raises(ProducerClosed):
        producer.send(topic, b"v")


def test_unknown_topic_is_refused_at_send(ottla_broker: RunningBroker) -> None:
    with ottla.Producer(ottla_broker.bootstrap, allow_auto_create_topics=False) as producer:
        with pytest.raises(UnknownTopic, match="does not exist"):
            producer.send("nobody-made-this", b"v")
        with pytest.raises(UnknownTopic):
            producer.send("not a name", b"v")


def test_partition_that_does_not_exist_is_refused_at_send(bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic(2)
    with (
        ottla.Producer(bootstrap) as producer,
        pytest.raises(UnknownTopic, match="no partition 2") as refused,
    ):
        producer.send(topic, b"v", partition=2)
    assert refused.value.hint == "its partitions are 0 to 1"


def test_producer_continues_when_the_broker_was_killed_and_restarted(fragile: RunningBroker) -> None:
    with ottla.Producer(fragile.bootstrap, linger_ms=1) as producer:
        deliveries = [producer.send("t", b"%d" % number) for number in range(100)]
        deliveries[-1].wait(WAIT_MS)
        fragile.kill()
        deliveries += [producer.send("t", b"%d" % number) for number in range(100, 200)]
        assert not deliveries[-1].is_done
        fragile.start()
        deliveries += [producer.send("t", b"%d" % number) for number in range(200, 300)]
        offsets = [delivery.wait(WAIT_MS).offset for delivery in deliveries]
    assert offsets == list(range(300)), "each once, in the order of sending"
    with Cluster(fragile.bootstrap) as cluster:
        assert values_of(cluster, "t") == [b"%d" % number for number in range(300)]


def test_send_waits_for_room_and_gives_up_in_time(fragile: RunningBroker) -> None:
    with ottla.Producer(fragile.bootstrap, buffer_bytes=20_000, max_block_ms=300, linger_ms=0) as producer:
        producer.send("t", b"v").wait(WAIT_MS)
        fragile.pause()
        deliveries: list[Delivery[Receipt]] = []
        with pytest.raises(BufferFull, match="no room"):
            deliveries.extend(iter(lambda: producer.send("t", bytes(1000)), None))
        assert 10 <= len(deliveries) <= 20
        with pytest.raises(BufferFull):
            producer.send("t", [bytes(1000)] * 3)
        fragile.resume()
        offsets = [delivery.wait(WAIT_MS).offset for delivery in deliveries]
        assert offsets == list(range(1, len(deliveries) + 1))


def test_send_that_waits_for_room_continues_when_there_is_room(fragile: RunningBroker) -> None:
    with ottla.Producer(fragile.bootstrap, buffer_bytes=20_000, linger_ms=0, max_block_ms=WAIT_MS) as producer:
        producer.send("t", b"v").wait(WAIT_MS)
        fragile.pause()
        sent: list[int] = []

        def send_all() -> None:
            for number in range(100):
                producer.send("t", bytes(1000))
                sent.append(number)

        thread = threading.Thread(target=send_all)
        thread.start()
        # A test cannot see whether a thread waits; it can check that the buffer's size is never exceeded.
        eventually(lambda: len(sent), lambda found: found >= 10)
        assert len(sent) <= 20
        fragile.resume()
        thread.join(WAIT_MS / 1000)
        assert len(sent) == 100


def test_wait_and_flush_give_up_in_time_and_cancel_nothing(fragile: RunningBroker) -> None:
    with ottla.Producer(fragile.bootstrap) as producer:
        producer.send("t", b"a").wait(WAIT_MS)
        fragile.pause()
        delivery = producer.send("t", b"b")
        with pytest.raises(CallTimedOut):
            delivery.wait(50)
        with pytest.raises(CallTimedOut):
            producer.flush(50)
        fragile.resume()
        assert delivery.wait(WAIT_MS).offset == 1


def test_close_in_a_bounded_time_reports_messages_that_may_be_stored(fragile: RunningBroker) -> None:
    producer = ottla.Producer(fragile.bootstrap)
    producer.send("t", b"a").wait(WAIT_MS)
    fragile.pause()
    delivery = producer.send("t", b"b")
    with pytest.raises(MessagesNotDelivered, match="1 message was not delivered"):
        producer.close(500)
    with pytest.raises(MessageNotDelivered) as told:
        delivery.wait(0)
    assert told.value.may_be_stored
    fragile.resume()


def test_producer_without_a_broker_names_the_problem() -> None:
    with (
        ottla.Producer("127.0.0.1:1", max_block_ms=300) as producer,
        pytest.raises(CallTimedOut, match="cannot connect") as late,
    ):
        producer.send("t", b"v")
    assert late.value.hint is not None


def test_messages_of_a_dead_broker_fail_after_their_time(fragile: RunningBroker) -> None:
    with ottla.Producer(fragile.bootstrap, delivery_timeout_ms=500, request_timeout_ms=300) as producer:
        # A loaded machine may not answer within that.
        eventually(lambda: _try(producer), lambda receipt: receipt is not None)
        fragile.kill()
        delivery = producer.send("t", b"b")
        with pytest.raises(MessageNotDelivered):
            delivery.wait(WAIT_MS)
        fragile.start()
        eventually(lambda: _try(producer), lambda receipt: receipt is not None and receipt.topic == "t")


def _try(producer: ottla.Producer) -> Receipt | None:
    try:
        return producer.send("t", b"c").wait(WAIT_MS)
    except (MessageNotDelivered, CallTimedOut):
        return None


def test_callback_runs_once_for_each_message(bootstrap: str, new_topic: NewTopicName) -> None:
    topic = new_topic()
    found: list[int] = []
    with ottla.Producer(bootstrap) as producer:
        for _ in range(100):
            producer.send(topic, b"v").add_done_callback(lambda delivery: found.append(delivery.wait(0).offset))
        done = producer.send(topic, b"v")
        producer.flush(WAIT_MS)
        done.add_done_callback(lambda delivery: found.append(delivery.wait(0).offset))
    assert found == list(range(101))


@pytest.mark.interop
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_confluent_kafka_reads_sent_messages(
    bootstrap: str, new_topic: NewTopicName, compression: Literal["none", "gzip", "snappy", "lz4", "zstd"]
) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    topic = new_topic()
    values = [b"%d %s" % (number, b"y" * (number % 100)) for number in range(1000)]
    with ottla.Producer(bootstrap, compression=compression) as producer:
        producer.send(topic, values, key=b"k", headers={"h": None}, timestamp_ms=5000)
        producer.send(topic, None, key=b"k")
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "check.crcs": True})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found: list[Any] = []

        def read() -> int:
            found.extend(consumer.consume(2000, 0.5))
            return len(found)

        eventually(read, lambda count: count == 1001)
    finally:
        consumer.close()
    assert [message.value() for message in found] == [*values, None]
    assert {message.key() for message in found} == {b"k"}
    assert found[7].headers() == [("h", None)]
    assert found[7].timestamp()[1] == 5000


def test_producer_with_a_wrong_address_warns_within_seconds(caplog: pytest.LogCaptureFixture) -> None:
    (port,) = find_free_ports(1)
    with ottla.Producer(f"127.0.0.1:{port}", max_block_ms=WAIT_MS) as producer:
        sending = ThreadPoolExecutor(1).submit(producer.send, "t", b"x")
        eventually(lambda: caplog.messages)
        assert not sending.done(), "it waits on"
        producer.close(timeout_ms=0)
        with pytest.raises(OttlaError):
            sending.result()
    (warning,) = caplog.messages
    assert warning.startswith(f"producer of 127.0.0.1:{port}: waiting: ")
    assert "Connection refused" in warning
