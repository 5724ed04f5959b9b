"""Mirrors from and to Apache Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partial
from operator import eq, lt

import pytest
from confluent_kafka import Producer

from ottla.client.admin.admin import Admin
from ottla.client.groups.group_types import CommittedOffset
from ottla.client.groups.groups import GroupAdmin
from ottla.client.wire.cluster import Cluster
from ottla.mirror import Mirror, MirrorOptions, Names, TopicAction
from ottla.model.identifiers import TopicPartition
from ottla.testing import ControlledBroker
from tests.eventually import WITHIN_S, eventually
from tests.mirror.conftest import SETTINGS
from tests.mirror.mirrored import Content, MirrorProcess, Writer, content_of, copied_count, offsets_of, write
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.kafka_jars import KafkaUnavailable

pytestmark = pytest.mark.interop

PARTITIONS = 3


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    try:
        with ApacheKafka({"group.min.session.timeout.ms": "100", "group.initial.rebalance.delay.ms": "0"}) as broker:
            yield broker
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")


@pytest.fixture(scope="module")
def ottla() -> Iterator[ControlledBroker]:
    with ControlledBroker(SETTINGS) as broker:
        yield broker


def new_topic(bootstrap: str, partitions: int = 1, **configs: str) -> str:
    name = f"mirrored-{uuid.uuid4().hex[:8]}"
    with Cluster(bootstrap) as cluster:
        admin = Admin(cluster)
        admin.create_topic(name, partitions, 1, {key.replace("_", "."): value for key, value in configs.items()})
        eventually(lambda: [len(each.partitions) for each in admin.describe_topics([name])] == [partitions])
    return name


def mirror_of(source: str, target: str, topic: str) -> Mirror:
    options = MirrorOptions(topics=Names((topic,)), groups=Names((f"{topic}-.*",)), session_timeout_ms=1000)
    return Mirror(source, target, options)


@pytest.mark.parametrize("direction", ["from", "to"])
def test_mirror_that_is_killed_copies_each_record_once(
    direction: str, kafka: ApacheKafka, ottla: ControlledBroker
) -> None:
    source, target = (kafka.bootstrap, ottla.bootstrap) if direction == "from" else (ottla.bootstrap, kafka.bootstrap)
    topic = new_topic(source, PARTITIONS, retention_ms="7200000")
    flags = ("--topics", topic, "--session-timeout-ms", "1000", "--progress-interval-ms", "300")
    with Writer(source, topic, PARTITIONS) as writer:
        for _ in range(2):
            before = writer.records_count
            process = MirrorProcess(source, target, *flags)
            try:
                eventually(partial(copied_count, target, topic, PARTITIONS), partial(lt, before))
            finally:
                process.kill()
    report = mirror_of(source, target, topic).run(once=True)
    assert not report.stuck
    assert content_of(target, topic) == content_of(source, topic)
    assert sum(each.counts.duplicate_records + each.counts.foreign_records for each in report.partitions) == 0


def test_committed_records_are_copied_aborted_ones_are_not_and_groups_stay_exact(
    kafka: ApacheKafka, ottla: ControlledBroker
) -> None:
    topic = new_topic(kafka.bootstrap)
    partition = TopicPartition(topic, 0)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(WITHIN_S)
    for number in range(6):
        producer.begin_transaction()
        for at in range(3):
            producer.produce(topic, f"{number}-{at}")
        producer.flush()
        if number % 2:
            producer.abort_transaction(WITHIN_S)
        else:
            producer.commit_transaction(WITHIN_S)
    committed_values = [b"%d-%d" % (number, at) for number in (0, 2, 4) for at in range(3)]
    with Cluster(kafka.bootstrap) as cluster:
        # Each transaction takes four offsets: the second record of the third one.
        GroupAdmin(cluster).commit(f"{topic}-group", {partition: CommittedOffset(9)})
    report = mirror_of(kafka.bootstrap, ottla.bootstrap, topic).run(once=True)
    assert list(offsets_of(ottla.bootstrap, topic)) == committed_values
    assert report.counts.records == 9
    with Cluster(ottla.bootstrap) as cluster:
        found = GroupAdmin(cluster).committed(f"{topic}-group")
    assert found[partition].offset == offsets_of(ottla.bootstrap, topic)[b"2-1"]


def test_append_times_of_apache_kafka_are_kept(kafka: ApacheKafka, ottla: ControlledBroker) -> None:
    topic = new_topic(kafka.bootstrap, message_timestamp_type="LogAppendTime")
    write(kafka.bootstrap, topic, [b"1", b"2"])
    report = mirror_of(kafka.bootstrap, ottla.bootstrap, topic).run(once=True)
    assert report.counts.rebuilt_batches == 1
    assert content_of(ottla.bootstrap, topic) == content_of(kafka.bootstrap, topic)


def test_target_that_stamps_records_itself_is_compared_without_their_times(
    kafka: ApacheKafka, ottla: ControlledBroker
) -> None:
    topic = new_topic(ottla.bootstrap)
    write(ottla.bootstrap, topic, [b"1", b"2"])
    with Cluster(kafka.bootstrap) as cluster:
        Admin(cluster).create_topic(topic, 1, 1, {"message.timestamp.type": "LogAppendTime"})
    flags = ("--topics", topic, "--session-timeout-ms", "1000", "--progress-interval-ms", "600000")
    process = MirrorProcess(ottla.bootstrap, kafka.bootstrap, *flags)
    try:
        eventually(partial(copied_count, kafka.bootstrap, topic, 1), partial(eq, 2))
    finally:
        process.kill()
    write(ottla.bootstrap, topic, [b"3"])
    report = mirror_of(ottla.bootstrap, kafka.bootstrap, topic).run(once=True)
    assert [values(each) for each in content_of(kafka.bootstrap, topic).values()] == [[b"1", b"2", b"3"]]
    assert sum(each.counts.foreign_records for each in report.partitions) == 0


def values(records: list[Content]) -> list[bytes | None]:
    return [value for _, _, value, _ in records]


def test_plan_validates_the_topic_at_apache_kafka(kafka: ApacheKafka, ottla: ControlledBroker) -> None:
    topic = new_topic(ottla.bootstrap)
    options = MirrorOptions(topics=Names((topic,)), replication_factor=3)
    plan = Mirror(ottla.bootstrap, kafka.bootstrap, options).plan()
    (found,) = plan.topics
    assert found.decision is TopicAction.CREATE
    assert topic in plan.problems
