"""A transaction whose coordinator is killed after it has decided, and before any partition has the marker."""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from ottla.client.admin.admin import Admin
from ottla.client.admin.transactions import TransactionAdmin
from ottla.client.wire.cluster import Cluster
from ottla.model.group_partition import partition_of
from ottla.model.identifiers import TRANSACTIONS_TOPIC
from ottla.testing.cluster import RunningCluster
from tests.zookeeper_or_skip import skips_without_zookeeper

WITHIN_S = 60.0
TOPIC = "records"
# The partition's own broker has no replica of the coordinator's partition: that continues while it is paused.
SETTINGS = {"transaction.state.log.replication.factor": "2", "transaction.state.log.min.isr": "1"}


def test_decision_of_a_killed_coordinator_is_completed_by_the_next_one(has_zookeeper: bool) -> None:
    with (
        skips_without_zookeeper(),
        RunningCluster(3, settings=SETTINGS, has_zookeeper=has_zookeeper) as brokers,
        Cluster(brokers.bootstrap) as cluster,
    ):
        admin = Admin(cluster)
        admin.create_topic(TOPIC, 1, 1)
        paused_id = brokers.wait_for_leader(TOPIC, 0)
        name, coordinator_id = _coordinated_elsewhere(cluster, paused_id)
        producer = Producer({"bootstrap.servers": brokers.bootstrap, "transactional.id": name})
        producer.init_transactions(WITHIN_S)
        producer.begin_transaction()
        producer.produce(TOPIC, value=b"decided", partition=0)
        assert producer.flush(WITHIN_S) == 0
        brokers.brokers[paused_id].pause()
        # The answer means that the decision is replicated; no marker is written.
        producer.commit_transaction(WITHIN_S)
        brokers.brokers[coordinator_id].kill()
        brokers.brokers[paused_id].resume()
        assert _read_committed(brokers.bootstrap, 1) == [b"decided"]
        # The next coordinator serves the same producer.
        producer.begin_transaction()
        producer.produce(TOPIC, value=b"next", partition=0)
        producer.commit_transaction(WITHIN_S)
        assert _read_committed(brokers.bootstrap, 2) == [b"decided", b"next"]
        with Cluster(brokers.bootstrap) as others:
            described = TransactionAdmin(others).describe(name)
        assert described.coordinator not in (coordinator_id, paused_id)


def _coordinated_elsewhere(cluster: Cluster, node_id: int) -> tuple[str, int]:
    """A transactional id, and its coordinator: both replicas of its partition are on other brokers."""
    transactions = TransactionAdmin(cluster)
    # The topic is created with the first request for a coordinator.
    transactions.coordinator_of("any")
    partitions = Admin(cluster).describe_topics([TRANSACTIONS_TOPIC])[0].partitions
    number = 0
    while True:
        name = f"moved-{number}"
        partition = partitions[partition_of(name, len(partitions))]
        if node_id not in partition.replicas:
            return name, transactions.coordinator_of(name)
        number += 1


def _read_committed(bootstrap: str, count: int) -> list[bytes | None]:
    # A commit at its close would wait for the topic of offsets, which needs three live brokers to be created.
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        read: list[bytes | None] = []
        while len(read) < count:
            message = consumer.poll(WITHIN_S)
            assert message is not None, read
            if message.error() is None:
                read.append(message.value())
        return read
    finally:
        consumer.close()
