from __future__ import annotations

from uuid import UUID

import pytest

from ottla.client.wire.errors import BrokerRefused, BrokerUnreachable, CallTimedOut, UnknownTopic
from ottla.client.wire.metadata import MetadataCache
from ottla.client.wire.options import ClientOptions
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from tests.unit.client.fake_cluster import FakeCluster, Fault


def test_cluster_dials_nothing_before_it_is_asked() -> None:
    fake = FakeCluster()
    fake.client()
    assert fake.dialled == []


def test_cluster_begins_with_the_bootstrap_address_that_answers() -> None:
    fake = FakeCluster(3)
    fake.add_topic("t", 2)
    fake.brokers[1].stop()
    with fake.client() as cluster:
        assert cluster.partitions("t") == [0]
        assert set(cluster.info.brokers) == {2, 3}


def test_cluster_names_every_address_and_reason_when_nobody_answers() -> None:
    fake = FakeCluster()
    with fake.client(bootstrap="gone-a:1,gone-b:2") as cluster, pytest.raises(CallTimedOut) as caught:
        cluster.refresh(None)
    assert "gone-a:1" in str(caught.value)
    assert "gone-b:2" in str(caught.value)
    assert isinstance(caught.value.__cause__, BrokerUnreachable)
    assert caught.value.hint


def test_cluster_asks_again_when_the_connection_is_lost() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    faults = [Fault.CUT_AFTER, Fault.CUT_BEFORE]
    fake.brokers[1].fault_of = lambda api: faults.pop() if api is ApiKey.METADATA and faults else None
    with fake.client() as cluster:
        assert cluster.partitions("t") == [0]
    assert len(fake.brokers[1].connections) == 3


def test_cluster_asks_another_broker_when_one_closes_its_connections() -> None:
    fake = FakeCluster(2)
    fake.add_topic("t", 1)
    with fake.client() as cluster:
        assert cluster.partitions("t") == [0]
        fake.brokers[1].fault_of = lambda api: Fault.CUT_AFTER if api is ApiKey.METADATA else None
        assert [each.name for each in cluster.refresh(["t"])] == ["t"]
    assert [api for api, _ in fake.brokers[1].seen].count(ApiKey.METADATA) == 2, "it was not asked again and again"


def test_cluster_remembers_a_topic_until_it_is_old_or_wrong() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    options = ClientOptions(metadata_max_age_ms=1000)

    def asked_count() -> int:
        return [api for api, _ in fake.brokers[1].seen].count(ApiKey.METADATA)

    with fake.client(options) as cluster:
        cluster.leader(partition)
        cluster.leader(partition)
        assert asked_count() == 1
        fake.clock.advance(1000)
        cluster.leader(partition)
        assert asked_count() == 2
        cluster.forget(["t"])
        cluster.leader(partition)
        assert asked_count() == 3


def test_cluster_looks_for_an_unknown_topic_for_a_while_only() -> None:
    fake = FakeCluster()
    with fake.client(ClientOptions(unknown_topic_wait_ms=500)) as cluster:
        started_ms = fake.clock.monotonic_ms()
        with pytest.raises(UnknownTopic, match="nowhere"):
            cluster.topic("nowhere")
        assert fake.clock.monotonic_ms() - started_ms < 1000


def test_cluster_does_not_ask_for_names_that_no_topic_has() -> None:
    fake = FakeCluster()
    with fake.client() as cluster, pytest.raises(UnknownTopic, match="characters other than"):
        cluster.topic("not a topic")
    assert fake.dialled == []


def test_cluster_sees_partitions_that_were_added() -> None:
    fake = FakeCluster()
    fake.add_topic("t", 1)
    with fake.client() as cluster:
        assert cluster.partitions("t") == [0]
        fake.add_topic("t", 1, 1)
        assert cluster.leader(TopicPartition("t", 1)).leader_id == 1
        with pytest.raises(UnknownTopic, match="no partition 7"):
            cluster.leader(TopicPartition("t", 7))


def test_cluster_tells_that_nobody_leads_as_something_that_may_change() -> None:
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 99)
    with fake.client() as cluster, pytest.raises(BrokerRefused) as caught:
        cluster.leader(partition)
    assert caught.value.is_retriable


def test_cluster_closes_all_its_connections() -> None:
    fake = FakeCluster(2)
    fake.add_topic("t", 2)
    with fake.client() as cluster:
        assert cluster.partitions("t") == [0]
        cluster.connect_broker(2, cluster.retrying.deadline())
    assert all(connection.is_closed for broker in fake.brokers.values() for connection in broker.connections)


def answer(topic_id: int, leader_id: int, leader_epoch: int) -> MetadataResponse:
    partition = MetadataResponsePartition(0, 0, leader_id, leader_epoch)
    return MetadataResponse(topics=[MetadataResponseTopic(0, "t", UUID(int=topic_id), partitions=[partition])])


def leader_of(cache: MetadataCache) -> int:
    topic = cache.topic("t", 0)
    assert topic is not None
    return topic.partitions[0].leader_id


def test_metadata_cache_keeps_the_newer_leader_when_a_broker_lags_behind() -> None:
    cache = MetadataCache(1000)
    cache.apply(answer(1, leader_id=2, leader_epoch=5), 0)
    cache.apply(answer(1, leader_id=1, leader_epoch=4), 0)
    assert leader_of(cache) == 2
    cache.apply(answer(1, leader_id=3, leader_epoch=6), 0)
    assert leader_of(cache) == 3


def test_metadata_cache_takes_a_topic_that_was_made_anew() -> None:
    cache = MetadataCache(1000)
    cache.apply(answer(1, leader_id=2, leader_epoch=5), 0)
    cache.apply(answer(9, leader_id=1, leader_epoch=0), 0)
    assert leader_of(cache) == 1


def test_metadata_cache_does_not_give_a_topic_with_an_error() -> None:
    cache = MetadataCache(1000)
    cache.apply(MetadataResponse(topics=[MetadataResponseTopic(ErrorCode.LEADER_NOT_AVAILABLE, "t")]), 0)
    assert cache.topic("t", 0) is None


def test_metadata_cache_takes_a_topic_that_a_full_listing_lacks_for_stale() -> None:
    cache = MetadataCache(60_000)
    cache.apply(answer(1, leader_id=1, leader_epoch=3), 0)
    cache.apply(MetadataResponse(topics=[]), 1)
    assert cache.topic("t", 2) is not None, "a response about other topics says nothing about it"
    cache.apply(MetadataResponse(topics=[]), 3, names_every_topic=True)
    assert cache.topic("t", 4) is None
