"""The target that faults act on, and the type of a fault."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla.model.group_partition import partition_of
from ottla.model.identifiers import OFFSETS_TOPIC
from ottla.testing.broker import RunningBroker
from ottla.testing.cluster import RunningCluster
from tests.cluster.broker_clocks import BrokerClocks
from tests.cluster.servability import Servability
from tests.cluster.site import Site
from tests.history.clients import GROUP, PARTITIONS_COUNT, TOPIC, HistoryClients

# Of the topic: as many replicas must have a record before it is acknowledged.
MIN_IN_SYNC: Final = 2
# Shorter than a session, and long enough for others to lead its partitions.
DOWN_S: Final = (0.1, 6.0)


@dataclass(frozen=True)
class Target:
    """`private`: the disks and the network of a run that has separate namespaces.

    `shiftable`: the clocks of a run whose brokers have shiftable clocks.
    """

    cluster: RunningCluster
    clients: HistoryClients
    random: random.Random
    servability: Servability
    private: Site | None = None
    shiftable: BrokerClocks | None = None

    @property
    def site(self) -> Site:
        assert self.private is not None, "this fault needs namespaces"
        return self.private

    @property
    def clocks(self) -> BrokerClocks:
        assert self.shiftable is not None, "this fault needs brokers with clocks of their own"
        return self.shiftable

    def leader(self) -> RunningBroker:
        """The leader of a random partition of the topic."""
        return self.cluster.broker(self.cluster.leader_of(TOPIC, self.random.randrange(PARTITIONS_COUNT)))

    def follower(self) -> RunningBroker:
        """The follower of a random partition of the topic; it may lead others."""
        leader_id = self.cluster.leader_of(TOPIC, self.random.randrange(PARTITIONS_COUNT))
        return self.cluster.broker(self.random.choice([each for each in self.cluster.brokers if each != leader_id]))

    def coordinator(self) -> RunningBroker:
        """Of the group."""
        count = next(len(topic.partitions) for topic in self.cluster.topics() if topic.name == OFFSETS_TOPIC)
        return self.cluster.broker(self.cluster.leader_of(OFFSETS_TOPIC, partition_of(GROUP, count)))

    def any_broker(self) -> RunningBroker:
        return self.random.choice(list(self.cluster.brokers.values()))

    def acknowledged_count(self) -> int:
        """Records of all producers so far."""
        return self.clients.acknowledged_count()

    def wait_a_while(self) -> None:
        time.sleep(self.random.uniform(*DOWN_S))


def group_coordinated_by(cluster: RunningCluster, node_id: int, prefix: str) -> str:
    """A name for a group that this broker coordinates; any name where it coordinates none, as one that is just back."""
    leaders = {
        index: partition.leader_id
        for topic in cluster.topics()
        if topic.name == OFFSETS_TOPIC
        for index, partition in topic.partitions.items()
    }
    names = (f"{prefix}-{number}" for number in range(1_000))
    return next((each for each in names if leaders[partition_of(each, len(leaders))] == node_id), prefix)


# Returns a text that proves its effect.  Raises `FaultWithoutEffect`.
Fault = Callable[[Target], str]
