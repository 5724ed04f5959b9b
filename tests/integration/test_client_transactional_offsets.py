"""Offsets committed in transactions by confluent-kafka, on both brokers: with the records, or not at all."""

from __future__ import annotations

import contextlib
import io
import json
import uuid
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from ottla.cli.program import run
from ottla.client.groups.group_types import CommittedOffset
from ottla.client.groups.groups import GroupAdmin
from ottla.client.wire.cluster import Cluster
from ottla.model.identifiers import TopicPartition
from tests.eventually import eventually
from tests.integration.conftest import NewTopicName

RECORDS = 5
WAIT_S = 60


class Copier:
    """Reads a topic as a member of a group and writes what it read to another, in transactions."""

    def __init__(self, bootstrap: str, source: str, target: str, protocol: str) -> None:
        self.group = f"copier-{uuid.uuid4().hex[:8]}"
        self.target = target
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": self.group,
                "group.protocol": protocol,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self.consumer.subscribe([source])
        self.producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{self.group}"})
        self.producer.init_transactions(WAIT_S)

    def read(self, count: int) -> list[Message]:
        found: list[Message] = []
        for _ in range(WAIT_S):
            found += self.consumer.consume(count - len(found), 1.0)
            if len(found) == count:
                return found
        raise AssertionError(f"{len(found)} of {count} records after {WAIT_S} s")

    def begin(self, messages: Sequence[Message]) -> None:
        """Everything of a transaction but its end."""
        self.producer.begin_transaction()
        for message in messages:
            self.producer.produce(self.target, message.value())
        positions = self.consumer.position(self.consumer.assignment())
        self.producer.send_offsets_to_transaction(positions, self.consumer.consumer_group_metadata(), WAIT_S)


@pytest.fixture
def copier(request: pytest.FixtureRequest, bootstrap: str, new_topic: NewTopicName) -> Iterator[Copier]:
    source, target = new_topic(), new_topic()
    feed = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        feed.produce(source, b"%d" % number)
    assert feed.flush(WAIT_S) == 0
    # A first classic generation waits for three seconds: one test has both protocols.
    copying = Copier(bootstrap, source, target, getattr(request, "param", "consumer"))
    try:
        yield copying
    finally:
        copying.consumer.close()


def committed_offsets(cluster: Cluster, group: str) -> set[int]:
    """Of the source's one partition, as read_committed clients get it: none while it may change."""
    admin = GroupAdmin(cluster)
    if admin.pending(group):
        return set()
    return {at.offset for at in admin.committed(group).values()}


def described(bootstrap: str, group: str) -> tuple[dict[str, object], str]:
    """`ottla group describe`: its object, and the notes beside the table."""
    outputs = []
    for flags in (["--json"], []):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            assert run(["group", "describe", group, *flags, "--bootstrap-server", bootstrap]) == 0, err.getvalue()
        outputs.append((out.getvalue(), err.getvalue()))
    return json.loads(outputs[0][0]), outputs[1][1]


@pytest.mark.parametrize("copier", ["classic", "consumer"], indirect=True)
def test_offsets_take_effect_with_their_transaction_or_not_at_all(
    copier: Copier, bootstrap: str, cluster: Cluster
) -> None:
    first = copier.read(2)
    copier.begin(first)
    copier.producer.commit_transaction(WAIT_S)
    eventually(lambda: committed_offsets(cluster, copier.group) == {2})

    copier.begin(copier.read(1))
    (partition,) = (TopicPartition(each.topic, each.partition) for each in copier.consumer.assignment())
    admin = GroupAdmin(cluster)
    assert admin.pending(copier.group) == {partition}
    assert admin.committed(copier.group)[partition].offset == 2
    shown, notes = described(bootstrap, copier.group)
    offsets = shown["offsets"]
    assert isinstance(offsets, list)
    assert [each["is_pending"] for each in offsets] == [True]
    assert f"open transactions may change {partition}" in notes
    copier.producer.abort_transaction(WAIT_S)
    eventually(lambda: committed_offsets(cluster, copier.group) == {2})

    # The producer continues after an abort; its consumer seeks to what is committed.
    copier.consumer.seek(ConfluentPartition(*partition, 2))
    rest = copier.read(RECORDS - 2)
    copier.begin(rest)
    copier.producer.commit_transaction(WAIT_S)
    eventually(lambda: committed_offsets(cluster, copier.group) == {RECORDS})
    assert described(bootstrap, copier.group)[1] == ""


def test_next_producer_finds_the_offsets_of_the_last_transaction(
    copier: Copier, bootstrap: str, cluster: Cluster
) -> None:
    """Its init waits for the markers, and these for the offsets."""
    copier.begin(copier.read(3))
    copier.producer.commit_transaction(WAIT_S)
    successor = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{copier.group}"})
    successor.init_transactions(WAIT_S)
    assert committed_offsets(cluster, copier.group) == {3}


def test_commit_for_a_member_that_is_gone_is_refused_and_nothing_changes(copier: Copier, cluster: Cluster) -> None:
    messages = copier.read(2)
    metadata = copier.consumer.consumer_group_metadata()
    positions = copier.consumer.position(copier.consumer.assignment())
    copier.consumer.close()
    copier.producer.begin_transaction()
    copier.producer.produce(copier.target, messages[0].value())
    with pytest.raises(KafkaException) as refused:
        copier.producer.send_offsets_to_transaction(positions, metadata, WAIT_S)
    assert refused.value.args[0].code() in {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION}
    copier.producer.abort_transaction(WAIT_S)
    assert committed_offsets(cluster, copier.group) == set()


def test_plain_commit_after_a_pending_one_stays(bootstrap: str, cluster: Cluster, new_topic: NewTopicName) -> None:
    partition = TopicPartition(new_topic(), 0)
    group = f"simple-{uuid.uuid4().hex[:8]}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{group}"})
    producer.init_transactions(WAIT_S)
    admin = GroupAdmin(cluster)
    producer.begin_transaction()
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([ConfluentPartition(*partition, 9)], metadata, WAIT_S)
    admin.commit(group, {partition: CommittedOffset(4)})
    producer.commit_transaction(WAIT_S)
    eventually(lambda: not admin.pending(group))
    assert admin.committed(group) == {partition: CommittedOffset(4)}
    consumer.close()


def test_commit_of_a_transaction_restores_nothing_in_a_deleted_group(
    bootstrap: str, cluster: Cluster, new_topic: NewTopicName
) -> None:
    partition = TopicPartition(new_topic(), 0)
    group = f"deleted-{uuid.uuid4().hex[:8]}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{group}"})
    producer.init_transactions(WAIT_S)
    admin = GroupAdmin(cluster)
    admin.commit(group, {partition: CommittedOffset(4)})
    producer.begin_transaction()
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([ConfluentPartition(*partition, 9)], metadata, WAIT_S)
    admin.delete(group)
    producer.commit_transaction(WAIT_S)
    producer.begin_transaction()
    producer.produce(partition.topic, b"the markers of the last transaction are written before this one ends")
    producer.commit_transaction(WAIT_S)
    assert admin.committed(group) == {}
    consumer.close()
