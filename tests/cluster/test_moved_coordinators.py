"""Members of Ottla's client in Kafka groups of a cluster, when their coordinator is killed."""

from __future__ import annotations

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.groups.group_types import CLASSIC, CONSUMER
from ottla.client.groups.groups import GroupAdmin
from ottla.client.groups.subscription import Subscription
from ottla.client.membership.kafka_group.membership import kafka_group_membership
from ottla.client.membership.kafka_group.options import KafkaGroupOptions
from ottla.client.wire.cluster import Cluster
from ottla.consumers.effects import Lost, Revoke
from ottla.testing.cluster import RunningCluster
from tests.contract.membership.reader import Ledger, Reader
from tests.eventually import eventually
from tests.zookeeper_or_skip import skips_without_zookeeper


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER])
def test_members_keep_their_partitions_at_the_next_coordinator(protocol: str, has_zookeeper: bool) -> None:
    ledger, options = Ledger(), KafkaGroupOptions(protocol=protocol)
    with (
        skips_without_zookeeper(),
        RunningCluster(3, has_zookeeper=has_zookeeper) as brokers,
        Cluster(brokers.bootstrap) as cluster,
    ):
        Admin(cluster).create_topic("t", 4, 3)

        def reader(name: str) -> Reader:
            membership = kafka_group_membership(brokers.bootstrap, "g", options)
            return Reader(membership, Subscription({"t": 1}), ledger, name)

        with reader("a") as a, reader("b") as b:
            eventually(lambda: (len(a.partitions), len(b.partitions)), lambda seen: seen == (2, 2))
            told_before = len(a.of(Revoke)) + len(b.of(Revoke))
            coordinator = GroupAdmin(cluster).describe("g").coordinator
            assert coordinator is not None
            brokers.brokers[coordinator.node_id].kill()
            partition = sorted(a.held)[0]
            a.commit(partition, 9)
            until_ms = [each.membership.hand_out_until_ms for each in (a, b)]
            eventually(
                lambda: [each.membership.hand_out_until_ms for each in (a, b)],
                lambda seen: seen[0] > until_ms[0] and seen[1] > until_ms[1],
            )
            assert not a.of(Lost) + b.of(Lost)
            assert len(a.of(Revoke)) + len(b.of(Revoke)) == told_before
            a.leave()
            b.leave()
            assert GroupAdmin(cluster).committed("g")[partition].offset == 9
    assert not ledger.faults, "\n".join(ledger.faults)
