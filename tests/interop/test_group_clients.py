"""Groups by other clients and tools: kafka-python, aiokafka, kcat, confluent's admin, Apache Kafka's own log dump."""

from __future__ import annotations

import asyncio
import re
import threading
import uuid
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.model.group_partition import partition_of
from ottla.testing.broker import RunningBroker
from tests.interop.kcat_client import run_kcat
from tests.peers.java_tool import DUMP_LOG_SEGMENTS, dump_complaints, run_tool
from tests.peers.kafka_jars import KafkaUnavailable

pytestmark = pytest.mark.interop

RECORDS = 60
WITHIN_S = 120.0


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    settings = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "500"}
    with RunningBroker(settings=settings) as running:
        yield running


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    """Two partitions with 30 records each."""
    name = f"grouped-{uuid.uuid4().hex[:10]}"
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic(name, 2)
    fill(broker.bootstrap, name)
    return name


def fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=number % 2)
    assert producer.flush(20) == 0


@pytest.fixture
def admin(broker: RunningBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def use_group(bootstrap: str, topic: str, group_id: str, protocol: str = "classic") -> Consumer:
    """A live member that has read everything and committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    read = 0
    while read < RECORDS:
        read += len(consumer.consume(RECORDS - read, WITHIN_S))
    consumer.commit(asynchronous=False)
    return consumer


def test_kafka_python_members_share_a_topic_and_resume(broker: RunningBroker, topic: str) -> None:
    options = {
        "bootstrap_servers": broker.bootstrap,
        "group_id": f"kp-{topic}",
        "auto_offset_reset": "earliest",
        "session_timeout_ms": 3_000,
        "heartbeat_interval_ms": 200,
        "metadata_max_age_ms": 1_000,
    }
    read: list[tuple[int, int]] = []
    is_shared, is_over = threading.Event(), threading.Event()
    owned: dict[str, int] = {}

    def consume(name: str) -> None:
        consumer = KafkaConsumer(topic, **options)
        while not is_over.is_set():
            # A poll of kafka-python 3.0.12 that ends while the answer to its SyncGroup comes in forgets the assignment
            # for good, so it must be longer than any join.
            for records in consumer.poll(timeout_ms=2_000).values():
                if is_shared.is_set():
                    read.extend((record.partition, record.offset) for record in records)
            owned[name] = len(consumer.assignment())
            if list(owned.values()) == [1, 1]:
                is_shared.set()
        consumer.close()

    members = [threading.Thread(target=consume, args=(name,)) for name in ("first", "second")]
    for member in members:
        member.start()
    try:
        assert is_shared.wait(WITHIN_S)
        fill(broker.bootstrap, topic)
        deadline = threading.Event()
        for _ in range(300):
            if sum(1 for _, offset in read if offset >= RECORDS // 2) >= RECORDS:
                break
            deadline.wait(0.1)
    finally:
        is_over.set()
        for member in members:
            member.join()
    fresh = [place for place in read if place[1] >= RECORDS // 2]
    assert sorted(fresh) == [(index, RECORDS // 2 + at) for index in range(2) for at in range(RECORDS // 2)]
    # They committed when they closed: no record is left for the next member.
    after = KafkaConsumer(topic, **options, consumer_timeout_ms=1_500)
    assert list(after) == []
    after.close()


def test_aiokafka_members_share_a_topic_and_resume(broker: RunningBroker, topic: str) -> None:
    asyncio.run(_share_by_aiokafka(broker.bootstrap, topic))


async def _share_by_aiokafka(bootstrap: str, topic: str) -> None:
    def member() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=f"aio-{topic}",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=200,
            session_timeout_ms=3_000,
        )

    members = [member(), member()]
    async with asyncio.timeout(WITHIN_S):
        for each in members:
            await each.start()
        read: list[tuple[int, int]] = []
        while len(set(read)) < RECORDS or [len(each.assignment()) for each in members] != [1, 1]:
            for each in members:
                for records in (await each.getmany(timeout_ms=100)).values():
                    read += [(record.partition, record.offset) for record in records]
        for each in members:
            await each.commit()
            await each.stop()
        after = member()
        await after.start()
        assert await after.getmany(timeout_ms=1_000) == {}
        await after.stop()


def test_kcat_reads_as_a_member_of_a_group(broker: RunningBroker, topic: str) -> None:
    options = ("-G", f"kcat-{topic}", "-q", "-e", "-X", "auto.offset.reset=earliest", topic)
    assert len(run_kcat(broker.bootstrap, *options).splitlines()) == RECORDS
    fill(broker.bootstrap, topic)
    # Earlier records are committed: only the new ones are read.
    assert len(run_kcat(broker.bootstrap, *options).splitlines()) == RECORDS


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_admin_lists_describes_and_deletes_groups(
    broker: RunningBroker, topic: str, admin: AdminClient, protocol: str
) -> None:
    group_id = f"{protocol}-{topic}"
    kind = ConsumerGroupType.CLASSIC if protocol == "classic" else ConsumerGroupType.CONSUMER
    member = use_group(broker.bootstrap, topic, group_id, protocol)
    listed = {each.group_id: each for each in admin.list_consumer_groups(types={kind}).result(10).valid}
    assert listed[group_id].state is ConsumerGroupState.STABLE
    (described,) = admin.describe_consumer_groups([group_id]).values()
    found = described.result(10)
    assert found.state is ConsumerGroupState.STABLE
    (only,) = found.members
    assert {(each.topic, each.partition) for each in only.assignment.topic_partitions} == {(topic, 0), (topic, 1)}
    (refused,) = admin.delete_consumer_groups([group_id]).values()
    with pytest.raises(KafkaException) as refusal:
        refused.result(10)
    assert refusal.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    member.close()
    (deleted,) = admin.delete_consumer_groups([group_id]).values()
    deleted.result(10)
    assert group_id not in {each.group_id for each in admin.list_consumer_groups().result(10).valid}


def test_admin_alters_offsets_of_a_group_without_members(broker: RunningBroker, topic: str, admin: AdminClient) -> None:
    group_id = f"altered-{topic}"
    member = use_group(broker.bootstrap, topic, group_id)
    wanted = ConsumerGroupTopicPartitions(group_id, [TopicPartition(topic, 0, 7), TopicPartition(topic, 1, 9)])
    (refused,) = admin.alter_consumer_group_offsets([wanted]).values()
    errors = [each.error for each in refused.result(10).topic_partitions]
    assert [error.code() for error in errors] == [KafkaError.UNKNOWN_MEMBER_ID] * 2
    member.close()
    (altered,) = admin.alter_consumer_group_offsets([wanted]).values()
    altered.result(10)
    (told,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)]).values()
    assert {each.partition: each.offset for each in told.result(10).topic_partitions} == {0: 7, 1: 9}


def test_apache_kafka_decodes_the_offsets_topic(broker: RunningBroker, topic: str) -> None:
    classic, consumer = f"dump-classic-{topic}", f"dump-consumer-{topic}"
    for group_id, protocol in ((classic, "classic"), (consumer, "consumer")):
        use_group(broker.bootstrap, topic, group_id, protocol).close()
        directory = broker.data_dir / f"__consumer_offsets-{partition_of(group_id, 50)}"
        segment = directory / f"{0:020}.log"
        try:
            dump = run_tool(DUMP_LOG_SEGMENTS, "--offsets-decoder", "--files", str(segment))
        except KafkaUnavailable as reason:
            pytest.skip(f"Apache Kafka is not available: {reason}")
        assert dump.returncode == 0
        assert dump_complaints(dump.stderr) == ""
        assert "isvalid: false" not in dump.stdout
        lines = [line for line in dump.stdout.splitlines() if group_id in line]
        committed = [line for line in lines if "offset_commit" in line.lower() or '"partition"' in line]
        assert any(re.search(r'"offset":\s?30\b', line) for line in committed), dump.stdout[-3_000:]
        # Besides offsets there are the group's own records, which it decodes, too.
        assert len(lines) > len(committed)
