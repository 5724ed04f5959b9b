"""A membership in a Kafka group beside other clients, and through the end of its broker, against both brokers."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from ottla.client.admin.admin import Admin
from ottla.client.groups.group_types import CLASSIC, CONSUMER
from ottla.client.groups.groups import GroupAdmin
from ottla.client.groups.subscription import Subscription
from ottla.client.membership.kafka_group.membership import kafka_group_membership
from ottla.client.membership.kafka_group.options import AUTO, KafkaGroupOptions
from ottla.client.membership.membership import Failed
from ottla.client.wire.cluster import Cluster
from ottla.consumers.effects import Blocked, Lost
from ottla.model.identifiers import TopicPartition
from ottla.testing.broker import RunningBroker
from tests.contract.membership.reader import Ledger, Reader
from tests.eventually import eventually
from tests.integration.conftest import NewTopicName


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    book = Ledger()
    yield book
    assert not book.faults, "\n".join(book.faults)


def reader(bootstrap: str, group: str, topic: str, ledger: Ledger, protocol: str = AUTO, name: str = "ours") -> Reader:
    options = KafkaGroupOptions(protocol=protocol, heartbeat_interval_ms=500)
    return Reader(kafka_group_membership(bootstrap, group, options), Subscription({topic: 1}), ledger, name)


@contextlib.contextmanager
def confluent(bootstrap: str, group: str, topic: str, protocol: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            **({"heartbeat.interval.ms": 500} if protocol == CLASSIC else {}),
        }
    )
    try:
        consumer.subscribe([topic])
        yield consumer
    finally:
        consumer.close()


def assigned(consumer: Consumer) -> set[int]:
    """confluent-kafka makes progress only while it is polled."""
    consumer.poll(0.05)
    return {each.partition for each in consumer.assignment()}


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER])
def test_members_of_both_libraries_share_a_group(
    bootstrap: str, group: str, new_topic: NewTopicName, ledger: Ledger, protocol: str
) -> None:
    topic = new_topic(4)
    with confluent(bootstrap, group, topic, protocol) as theirs:
        # The first member determines the group's type.
        eventually(lambda: assigned(theirs), lambda seen: len(seen) == 4)
        with reader(bootstrap, group, topic, ledger) as ours:
            eventually(
                lambda: (assigned(theirs), ours.partitions),
                lambda seen: len(seen[0]) == len(seen[1]) == 2 and seen[0] | seen[1] == {0, 1, 2, 3},
            )
            with Cluster(bootstrap) as cluster:
                # Apache Kafka converts a group for the first member of KIP-848; Ottla does not.
                assert GroupAdmin(cluster).describe(group).kind in {protocol, CONSUMER}
            ours.leave()
        eventually(lambda: assigned(theirs), lambda seen: seen == {0, 1, 2, 3})


def test_ottla_leader_assigns_to_members_of_another_library(
    bootstrap: str, group: str, new_topic: NewTopicName, ledger: Ledger
) -> None:
    topic = new_topic(4)
    with reader(bootstrap, group, topic, ledger, CLASSIC) as ours:
        eventually(lambda: ours.partitions, lambda seen: len(seen) == 4)
        with confluent(bootstrap, group, topic, CLASSIC) as theirs:
            eventually(
                lambda: (assigned(theirs), ours.partitions),
                lambda seen: len(seen[0]) == len(seen[1]) == 2 and seen[0] | seen[1] == {0, 1, 2, 3},
            )
        eventually(lambda: ours.partitions, lambda seen: len(seen) == 4)
        ours.leave()


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER])
def test_group_is_described_as_its_members_see_it(
    cluster: Cluster, bootstrap: str, group: str, new_topic: NewTopicName, ledger: Ledger, protocol: str
) -> None:
    topic = new_topic(3)
    with reader(bootstrap, group, topic, ledger, protocol) as ours:
        eventually(lambda: ours.partitions, lambda seen: len(seen) == 3)
        found = eventually(
            lambda: GroupAdmin(cluster).describe(group),
            lambda seen: [len(member.assignment) for member in seen.members] == [3],
        )
        assert (found.kind, found.state) == (protocol, "Stable")
        [member] = found.members
        assert set(member.assignment) == {TopicPartition(topic, number) for number in range(3)}
        assert member.client_id == "ottla"
        ours.commit(TopicPartition(topic, 1), 5)
        ours.leave()
    assert GroupAdmin(cluster).describe(group).members == ()
    assert {partition: at.offset for partition, at in GroupAdmin(cluster).committed(group).items()} == {
        TopicPartition(topic, 1): 5
    }


def test_group_of_another_protocol_is_refused_with_a_hint(
    bootstrap: str, group: str, new_topic: NewTopicName, ledger: Ledger
) -> None:
    """A group with the other protocol than the user requires: the error names a group that brokers do not convert."""
    topic = new_topic(1)
    with reader(bootstrap, group, topic, ledger, CONSUMER) as ours:
        eventually(lambda: ours.partitions)
        with reader(bootstrap, group, topic, ledger, CLASSIC, "theirs") as theirs:
            # Apache Kafka converts the group, Ottla does not.
            eventually(lambda: theirs.of(Failed) or theirs.partitions or theirs.membership.hand_out_until_ms)
            for failed in theirs.of(Failed):
                assert isinstance(failed, Failed)
                assert "INCONSISTENT_GROUP_PROTOCOL" in str(failed.error)
                assert "stop them" in (failed.error.hint or "")


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER])
def test_member_keeps_its_partitions_when_its_broker_was_killed(group: str, ledger: Ledger, protocol: str) -> None:
    with RunningBroker(settings={"group.initial.rebalance.delay.ms": "0"}) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("t", 2)
        with reader(broker.bootstrap, group, "t", ledger, protocol) as ours:
            eventually(lambda: ours.partitions, lambda seen: seen == {0, 1})
            ours.commit(TopicPartition("t", 0), 5)
            claims = {partition: started.claim for partition, started in ours.held.items()}
            broker.kill()
            ours.asked[TopicPartition("t", 0)] = 8
            ours.membership.commit([(TopicPartition("t", 0), claims[TopicPartition("t", 0)], 8)])
            [blocked] = eventually(lambda: ours.of(Blocked))
            assert "cannot connect" in str(blocked)
            broker.start()
            until_ms = ours.membership.hand_out_until_ms
            eventually(lambda: ours.membership.hand_out_until_ms, lambda seen: seen > until_ms)
            with Cluster(broker.bootstrap) as cluster:
                eventually(
                    lambda: GroupAdmin(cluster).committed(group),
                    lambda seen: seen[TopicPartition("t", 0)].offset == 8,
                )
            assert not ours.of(Lost)
            assert {partition: started.claim for partition, started in ours.held.items()} == claims
            ours.leave()
