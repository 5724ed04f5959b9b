"""A topic is gone when every broker says so."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.client.wire.errors import CallTimedOut
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.spark.source.gone_topics import is_gone
from tests.unit.client.fake_cluster import FakeCluster, Fault

OLD, NEW = UUID(int=1000), UUID(int=2000)


@pytest.fixture
def fake() -> FakeCluster:
    fake = FakeCluster(3)
    fake.add_topic("t", 1)
    fake.topic_ids["t"] = OLD
    return fake


def gone(fake: FakeCluster, place: TopicPartition, topic_id: UUID = OLD) -> bool:
    with fake.client() as cluster:
        return is_gone(cluster, [place], topic_id, cluster.retrying.deadline(5_000))


def test_a_topic_that_is_there_is_not_gone_but_one_of_another_id_or_partition_is(fake: FakeCluster) -> None:
    place = TopicPartition("t", 0)
    assert not gone(fake, place)
    assert not gone(fake, place, UUID(int=0))
    assert gone(fake, place, NEW)
    assert gone(fake, TopicPartition("t", 1))
    assert gone(fake, TopicPartition("u", 0))


def test_one_broker_that_knows_the_topic_is_believed(fake: FakeCluster) -> None:
    fake.brokers[1].is_behind = fake.brokers[2].is_behind = True
    assert not gone(fake, TopicPartition("t", 0))
    fake.brokers[3].is_behind = True
    assert gone(fake, TopicPartition("t", 0))


def test_a_broker_that_does_not_answer_could_know_better(fake: FakeCluster) -> None:
    fake.brokers[3].fault_of = lambda api: Fault.CUT_BEFORE if api is ApiKey.METADATA else None
    with pytest.raises(CallTimedOut, match="asking every broker for u-0"):
        gone(fake, TopicPartition("u", 0))
