"""The topic with a query's deliveries, without a query."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.client.producing.batch_transactions import BatchTransactions
from ottla.client.wire.cluster import Cluster
from ottla.spark.sink.deliveries import Delivery
from ottla.spark.sink.delivery_topic import DeliveryTopic
from tests.integration.spark.peer import Peer

pytestmark = [pytest.mark.spark, pytest.mark.interop]


class Driver:
    """Of a query, with its transactional id."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.topic = DeliveryTopic(cluster, f"{name}.deliveries")
        self.topic.ensure()
        self._transactions = BatchTransactions(cluster, name, 60_000)
        self._transactions.take_over()

    def deliver(self, delivery: Delivery, *, is_committed: bool = True) -> None:
        self._transactions.begin()
        self._transactions.send(self.topic.partition, self.topic.batch(delivery))
        if is_committed:
            self._transactions.commit()
        else:
            self._transactions.abort()

    def close(self) -> None:
        self._transactions.close()


@pytest.fixture
def driver(peer: Peer, topic: str) -> Iterator[Driver]:
    with Cluster(peer.bootstrap) as cluster:
        driver = Driver(cluster, topic)
        yield driver
        driver.close()


def test_a_new_topic_has_no_delivery(driver: Driver) -> None:
    assert driver.topic.last() is None


def test_the_last_committed_delivery_counts(driver: Driver) -> None:
    for batch_id in range(3):
        driver.deliver(Delivery(batch_id, 10 + batch_id))
        assert driver.topic.last() == Delivery(batch_id, 10 + batch_id)


def test_the_last_delivery_is_found_before_many_that_were_aborted(driver: Driver) -> None:
    driver.deliver(Delivery(0, 1))
    # More than one step of the search has.
    for _ in range(20):
        driver.deliver(Delivery(1, 1), is_committed=False)
    assert driver.topic.last() == Delivery(0, 1)


def test_a_topic_of_aborted_deliveries_alone_has_none(driver: Driver) -> None:
    driver.deliver(Delivery(0, 1), is_committed=False)
    assert driver.topic.last() is None
