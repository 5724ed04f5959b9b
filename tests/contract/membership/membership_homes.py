"""The homes where consumers share partitions, each with its `Membership`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from ottla.client.admin.admin import Admin
from ottla.client.consumer_registry.group_admin import TreeGroupAdmin
from ottla.client.groups.groups import GroupAdmin
from ottla.client.membership.kafka_group.membership import kafka_group_membership
from ottla.client.membership.kafka_group.options import CLASSIC, CONSUMER, KafkaGroupOptions
from ottla.client.membership.membership import ChangingMembership, Membership
from ottla.client.membership.tree.membership import TreeMembership, TreeOptions
from ottla.client.wire.cluster import Cluster
from ottla.coordination.zookeeper.security import UNSECURED
from ottla.model.identifiers import TopicPartition
from ottla.testing.broker import RunningBroker
from ottla.testing.zookeeper import RunningZooKeeper
from tests.eventually import eventually

# The time until a dead member is noticed; long enough for a busy machine to keep one alive.
SESSION_MS: Final = 10_000
HEARTBEAT_MS: Final = 250
# The pace of both brokers, in Kafka's names.
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "offsets.topic.num.partitions": "2",
}


class MembershipHome(Protocol):
    """Topics and groups of one home, with unique names."""

    def membership(self, group: str) -> Membership: ...

    def make_topic(self, partitions_count: int, name: str | None = None) -> str: ...

    def add_partitions(self, topic: str, partitions_count: int) -> None: ...

    def committed(self, group: str) -> dict[TopicPartition, int]: ...


def new_name(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:10]}"


class _Topics:
    """Of a broker."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def make_topic(self, partitions_count: int, name: str | None = None) -> str:
        topic = name or new_name("topic")
        Admin(self._cluster).create_topic(topic, partitions_count)
        self._wait_for(topic, partitions_count)
        return topic

    def add_partitions(self, topic: str, partitions_count: int) -> None:
        Admin(self._cluster).create_partitions({topic: partitions_count})
        self._wait_for(topic, partitions_count)

    def _wait_for(self, topic: str, partitions_count: int) -> None:
        """Apache Kafka's controller answers before its broker knows."""

        def count() -> int:
            [found] = Admin(self._cluster).describe_topics([topic])
            return 0 if found.error_code else len(found.partitions)

        eventually(count, lambda seen: seen == partitions_count)


class KafkaGroupHome(_Topics):
    """Groups of a broker, by one of Kafka's protocols."""

    def __init__(self, cluster: Cluster, bootstrap: str, protocol: str) -> None:
        super().__init__(cluster)
        self.bootstrap = bootstrap
        self.protocol = protocol
        self._options = KafkaGroupOptions(
            protocol=protocol,
            # For a KIP-848 group the broker decides, and is queried.
            session_timeout_ms=SESSION_MS if protocol == CLASSIC else 6 * SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            topics_refresh_ms=500,
        )

    def membership(self, group: str) -> ChangingMembership:
        return kafka_group_membership(self.bootstrap, group, self._options)

    def committed(self, group: str) -> dict[TopicPartition, int]:
        return {partition: at.offset for partition, at in GroupAdmin(self._cluster).committed(group).items()}


class TreeBackend(_Topics):
    """Groups without a master, on the tree of a broker's topics."""

    def __init__(self, cluster: Cluster, connect: str) -> None:
        super().__init__(cluster)
        self._connect = connect

    def membership(self, group: str) -> Membership:
        return TreeMembership(self._connect, group, TreeOptions(session_timeout_ms=SESSION_MS))

    def committed(self, group: str) -> dict[TopicPartition, int]:
        with TreeGroupAdmin(self._connect, UNSECURED, connection_timeout_ms=SESSION_MS) as admin:
            if not admin.has(group):
                return {}
            return {partition: at.offset for partition, at in admin.committed(group).items()}


@contextmanager
def kafka_home(bootstrap: str, protocol: str) -> Iterator[MembershipHome]:
    assert protocol in (CLASSIC, CONSUMER)
    with Cluster(bootstrap) as cluster:
        yield KafkaGroupHome(cluster, bootstrap, protocol)


@contextmanager
def tree_backend(zookeeper: RunningZooKeeper) -> Iterator[MembershipHome]:
    connect = f"{zookeeper.connect}/{new_name('memberships')}"
    with RunningBroker(zookeeper=connect, node_id=1) as broker, Cluster(broker.bootstrap) as cluster:
        yield TreeBackend(cluster, connect)
