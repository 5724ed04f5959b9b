"""A coordinator over real logs on a disk in memory; the test flushes, turns the loop and the clock, and restarts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.broker.shards.shard_table import ShardSources
from ottla.broker.tree.broker_lifecycle import BrokerLifecycle, LeaseWatch
from ottla.coordination import topics_view
from ottla.coordination.topics_view import NO_TOPICS, Topic, TopicsView
from ottla.coordination.tree import LEASE_FOREVER, Lease
from ottla.groups.commands import (
    Command,
    CommitOffsets,
    FetchOffsets,
    JoinGroup,
    JoinProtocol,
    ListGroups,
    OffsetToCommit,
    WriteMarker,
)
from ottla.groups.settings import GroupSettings
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import OFFSETS_TOPIC, LeaderEpoch, NodeId, TopicPartition
from ottla.model.partition_state import PartitionState, ReplicaIncarnation
from ottla.runtime.offload import run_inline
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from ottla.testing.fake_clock import FakeClock
from ottla.testing.memory_disk import MemoryDisk
from tests.unit.broker.roles import HERE, lead
from tests.unit.broker.turned_loop import TurnedLoop

PARTITIONS = 3
SMALL_SEGMENTS = LogConfig(flush_policy="ack", segment_bytes=4_000)
NODE_ID = NodeId(1)


class SmallCoordinator:
    """`settings` are of groups.  Nothing is stable before `flush`.

    `watches_lease`: the coordinator can compare the lease by `lease_watch`, whose timer the test does not start.
    """

    def __init__(self, *, watches_lease: bool = False, log_config: LogConfig = SMALL_SEGMENTS, **settings: int) -> None:
        self.disk = MemoryDisk()
        self.clock = FakeClock()
        self.loop = TurnedLoop()
        self.is_flushing = False
        self.lease = Lease(LEASE_FOREVER)
        self.lifecycle = BrokerLifecycle(HERE, self.lease)
        self.lease_watch = LeaseWatch(
            self.lifecycle,
            self.lease,
            self.clock,
            self.loop,  # type: ignore[arg-type]  # the part of a loop that it uses
            self.take_lease,
        )
        self._watches_lease = watches_lease
        self._log_config = log_config
        self.view = NO_TOPICS
        self.topics: dict[str, int] = {OFFSETS_TOPIC: PARTITIONS, "t": 2}
        self._settings = GroupSettings(**{"initial_rebalance_delay_ms": 0, **settings})  # type: ignore[arg-type]
        self.start()

    def start(self) -> None:
        """Open the logs, again after `crash`; groups load when the loop turns."""
        self.directory = LogDirectory.open(self.disk, "/data", clock=self.clock, config_of=lambda _: self._log_config)
        self.partitions = PartitionTable()
        self.make_logs(topic_number=9)
        self.coordinator = GroupCoordinator(
            self._settings,
            lambda _: self._settings.consumer_times,
            1 << 20,
            ShardSources(
                self.partitions,
                self.clock,
                self.loop,  # type: ignore[arg-type]  # the part of a loop that it uses
                is_flushing=lambda: self.is_flushing,
                now_s=lambda: self.loop.time(),
                lifecycle=self.lifecycle,
                lease_watch=self.lease_watch if self._watches_lease else None,
            ),
        )

    def take_lease(self) -> None:
        """The partitions take over whether the lease is over, as `lifecycle` has it."""
        lifecycle = BrokerLifecycle.sole(HERE)
        lifecycle.registered(1)
        lifecycle.is_suspended = self.lifecycle.is_suspended
        for partition in self.partitions:
            assert partition.node is not None
            partition.on_state(partition.node, lifecycle, 0)
        self.show_topics()

    def make_logs(self, topic_number: int) -> None:
        """Make the logs of the groups' topic that are missing, and lead all of its partitions."""
        names = [TopicPartition(OFFSETS_TOPIC, index) for index in range(PARTITIONS)]
        missing = [(name, UUID(int=topic_number)) for name in names if name not in self.directory.logs]
        run_inline(self.directory.create(missing))
        for log in self.directory.logs.values():
            self.serve(log)

    def serve(self, log: Log) -> None:
        partition = Partition(log, HERE)
        lead(partition, 0)
        self.partitions.add(partition)

    def retire(self, index: int) -> Log:
        """This broker leads the partition no more; its log stays."""
        name = TopicPartition(OFFSETS_TOPIC, index)
        self.partitions.remove(name, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.directory.logs[name]

    def delete(self, index: int) -> None:
        """The partition is deleted, with its log."""
        self.retire(index)
        self.directory.delete(TopicPartition(OFFSETS_TOPIC, index))

    def crash(self) -> None:
        self.directory.abandon()

    def show_topics(self, topics: Mapping[str, int] | None = None) -> None:
        """Show the coordinator which topics there are: names with counts of partitions; None: the same view again."""
        if topics is not None or self.view is NO_TOPICS:
            self.topics = dict(self.topics if topics is None else topics)
            self.view = TopicsView.of(1, {name: _topic(name, count) for name, count in self.topics.items()})
        self.coordinator.on_topics_changed(self.view)

    def flush(self) -> None:
        scheduler = self.directory.scheduler
        plan = scheduler.plan(self.clock.monotonic_ms())
        if plan is not None:
            plan.execute(self.disk)
            scheduler.complete(plan, None, self.clock.monotonic_ms())

    def ask(self, command: Command) -> list[Any]:
        """The list into which the reply comes."""
        replies: list[Any] = []
        assert not isinstance(command, ListGroups | WriteMarker), "these are not of one group"
        self.coordinator.submit(command.group_id, command, replies.append)
        return replies

    def advance(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        self.loop.advance(duration_ms / 1000)


def _topic(name: str, partitions_count: int) -> Topic:
    state = PartitionState(NODE_ID, LeaderEpoch(0), (ReplicaIncarnation(NODE_ID, 1),))
    nodes = (topics_view.PartitionNode(index, (NODE_ID,), state, 0) for index in range(partitions_count))
    return Topic(name, UUID(bytes=name.encode().ljust(16, b"\0")[:16]), tuple(nodes))


def commit(group_id: str, offset: int, *, topic: str = "t", partition: int = 0) -> CommitOffsets:
    return CommitOffsets(group_id, "", None, -1, [OffsetToCommit(topic, partition, offset, -1, "")])


def fetch(group_id: str) -> FetchOffsets:
    return FetchOffsets(group_id, None)


def join(group_id: str, member_id: str = "") -> JoinGroup:
    return JoinGroup(
        group_id,
        member_id,
        None,
        "client",
        "/h",
        "consumer",
        [JoinProtocol("range", b"")],
        10_000,
        10_000,
        requires_known_member_id=False,
    )
