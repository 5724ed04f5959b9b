"""The homes of groups: a ZooKeeper beside three brokers, a broker without one, Apache Kafka."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar, Final

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.testing.broker import RunningBroker
from ottla.testing.cluster import RunningCluster
from tests.connectors import checks
from tests.connectors.claims import read_groups
from tests.connectors.crew import Crew, GroupPlace
from tests.connectors.offsets_log import read_commits
from tests.connectors.tree_checks import Clocks, check_group
from tests.connectors.tree_log import read_tree_log
from tests.connectors.verdict import Verdict
from tests.peers.apache_kafka import ApacheKafka

TOPIC: Final = "jobs"
BROKERS_COUNT: Final = 3
# The session time-out of a member: short, so that runs are short.
SESSION_TIMEOUT_MS: Final = 3_000
HEARTBEAT_INTERVAL_MS: Final = 500
ZOOKEEPER_PAUSED_S: Final = 2 * SESSION_TIMEOUT_MS / 1000
LINES_SHOWN: Final = 30
_GROUP_SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
    "offsets.topic.num.partitions": "4",
}


class Home(ABC):
    """Starts with `start`; `judge` requires that all members have left, and ends it."""

    name: ClassVar[str]
    replicas_count: ClassVar[int] = 1

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.running = ExitStack()

    @abstractmethod
    def start(self) -> None: ...

    @property
    @abstractmethod
    def bootstrap(self) -> str: ...

    @property
    def place(self) -> GroupPlace:
        """The arguments of a `ConsumerConnector` for its group."""
        return GroupPlace(self.bootstrap, None, SESSION_TIMEOUT_MS)

    def create_topic(self, partitions_count: int) -> None:
        with Cluster(self.bootstrap) as cluster:
            Admin(cluster).create_topic(TOPIC, partitions_count, self.replicas_count)

    def grow_topic(self, partitions_count: int) -> None:
        with Cluster(self.bootstrap) as cluster:
            Admin(cluster).create_partitions({TOPIC: partitions_count})

    def judge(self, crew: Crew, verdict: Verdict) -> None:
        """The checks of the home's own log, and then the general ones."""
        for group, commits in read_commits(self.bootstrap).items():
            if group in crew.groups:
                checks.check_offsets(group, commits, verdict)
        self.close()
        judge_journals(crew, verdict)

    def close(self) -> None:
        self.running.close()

    def last_lines(self) -> list[str]:
        return []


def judge_journals(crew: Crew, verdict: Verdict) -> None:
    for group, progress in crew.groups.items():
        checks.check_delivery(group, progress, crew.sent, verdict)
        checks.check_owners(group, progress, crew.disturbances, verdict)
        checks.check_duplicates(group, progress, crew.disturbances, verdict)


class BrokerHome(Home):
    """One Ottla broker, without ZooKeeper."""

    name = "broker"

    def start(self) -> None:
        self.broker = self.running.enter_context(RunningBroker(self.directory / "broker", settings=_GROUP_SETTINGS))

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def kill_broker(self, chance: random.Random) -> str:
        self.broker.kill()
        down_s = chance.uniform(0.1, 2.0)
        time.sleep(down_s)
        self.broker.start()
        return f"the broker was killed, and away for {down_s:.1f} s"

    def last_lines(self) -> list[str]:
        return ["--- broker", *self.broker.log_lines[-LINES_SHOWN:]]


class ApacheKafkaHome(Home):
    name = "apache-kafka"

    def start(self) -> None:
        settings = {**_GROUP_SETTINGS, "group.consumer.max.heartbeat.interval.ms": "15000"}
        self.broker = self.running.enter_context(ApacheKafka(settings, self.directory))

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap


class ZooKeeperBackend(Home):
    """Three Ottla brokers that share a ZooKeeper with the groups."""

    name = "zookeeper"
    replicas_count = BROKERS_COUNT

    def __init__(self, directory: Path, brokers_count: int = BROKERS_COUNT) -> None:
        super().__init__(directory)
        self.replicas_count = brokers_count  # type: ignore[misc]
        self._clocks = Clocks()

    def start(self) -> None:
        settings = {
            "zookeeper.session.timeout.ms": "2000",
            "zookeeper.connection.timeout.ms": "30000",
            "replica.lag.time.max.ms": "3000",
        }
        self.cluster = self.running.enter_context(
            RunningCluster(self.replicas_count, self.directory / "cluster", settings=settings, has_zookeeper=True)
        )

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def place(self) -> GroupPlace:
        return GroupPlace(None, self.cluster.zookeeper.connect, SESSION_TIMEOUT_MS)

    def create_topic(self, partitions_count: int) -> None:
        super().create_topic(partitions_count)
        self.cluster.wait_until_replicated()

    def kill_broker(self, chance: random.Random) -> str:
        node_id = self.cluster.leader_of(TOPIC, 0)
        broker = self.cluster.broker(node_id)
        broker.kill()
        if len(self.cluster.brokers) > 1:
            self.cluster.wait_for_leader(TOPIC, 0, other_than=node_id)
        time.sleep(chance.uniform(0.1, 2.0))
        broker.start()
        return f"broker {node_id} was killed, another led its partitions"

    def restart_zookeeper(self, chance: random.Random) -> str:
        zookeeper = self.cluster.zookeeper
        pid = zookeeper.pid
        zookeeper.kill()
        down_s = chance.uniform(0.1, 2 * SESSION_TIMEOUT_MS / 1000)
        time.sleep(down_s)
        zookeeper.start()
        return f"ZooKeeper was killed and away for {down_s:.1f} s: process {pid} became {zookeeper.pid}"

    def pause_zookeeper(self) -> str:
        """SIGSTOP for longer than every session: no client gets a response or the news of a lost session."""
        zookeeper = self.cluster.zookeeper
        zookeeper.pause()
        try:
            time.sleep(ZOOKEEPER_PAUSED_S)
        finally:
            zookeeper.resume()
        return f"ZooKeeper was stopped for {ZOOKEEPER_PAUSED_S:.1f} s"

    def judge(self, crew: Crew, verdict: Verdict) -> None:
        self._clocks.compare()
        self.close()
        groups = read_groups(read_tree_log(self.directory / "cluster" / "zookeeper" / "data"))
        # The tree's log has the exact owners, also when a session was lost without a fault.
        for group, progress in crew.groups.items():
            checks.check_delivery(group, progress, crew.sent, verdict)
            check_group(group, groups[group], progress, crew.joined, self._clocks, verdict)

    def last_lines(self) -> list[str]:
        return self.cluster.last_lines(LINES_SHOWN)
