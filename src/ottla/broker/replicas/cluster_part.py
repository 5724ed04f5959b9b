"""The parts that a broker of a cluster has and a standalone broker has not.

It takes part in elections and moves, keeps the in-sync replicas of what it leads, follows the leaders of the rest, and
hands its partitions over before it stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ottla.broker.partitions.partition_table import PartitionTable
from ottla.broker.replicas.dead_brokers import GoneFollowers, RefusedLeaders
from ottla.broker.replicas.elector import Departure, Elector, LeaderBalance, RemoteLogs
from ottla.broker.replicas.in_sync_changes import InSyncChanges
from ottla.broker.replicas.peer_connection import PeerSecurity
from ottla.broker.replicas.reassigner import Reassigner
from ottla.broker.replicas.replica_fetchers import ReplicaFetchers
from ottla.broker.replicas.state_writer import StateWriter
from ottla.broker.tree.coordination import Coordination
from ottla.broker.upkeep.flusher import FlushSignal
from ottla.coordination.configs import ConfigsView
from ottla.coordination.elections import ElectionRules
from ottla.coordination.topics_view import TopicsView
from ottla.model import broker_settings as setting
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.model.settings import BrokerSettings
from ottla.observe.events import fields
from ottla.runtime.clock import Clock
from ottla.runtime.loop_offload import LoopOffload
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.log.log import Log

log = logging.getLogger(__name__)


class ClusterPart:
    """`start` before the first partition is opened, `follow_leaders` when requests are served, `stop` when none are.

    `address_of`: where a live broker listens for others, None for one that is not live.
    """

    def __init__(
        self,
        coordination: Coordination,
        directory: LogDirectory,
        partitions: PartitionTable,
        settings: BrokerSettings,
        rules: ElectionRules,
        flushes: FlushSignal,
        address_of: Callable[[NodeId], tuple[str, int] | None],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        security: PeerSecurity = PeerSecurity(),  # noqa: B008 (an immutable value)
    ) -> None:
        """`security`: of the connections to other brokers."""
        lifecycle, topics = coordination.lifecycle, coordination.topics
        self._coordination = coordination
        self._directory = directory
        self._partitions = partitions
        self._rules = rules
        self._clock = clock
        self._writer = StateWriter(topics, coordination.tree, loop, asyncio.sleep)
        propose = self._writer.propose
        self.in_sync_changes = InSyncChanges(
            partitions, propose, clock, loop, settings[setting.REPLICA_LAG_TIME_MAX_MS]
        )
        self.gone_followers = GoneFollowers(partitions, self.in_sync_changes.look_at, address_of)
        self._refused_leaders = RefusedLeaders(lifecycle, address_of, self._on_broker_gone)
        self._reads = _LedReads(partitions, clock)
        others = RemoteLogs(lifecycle.node_id, address_of, security)
        self.elector = Elector(
            lifecycle, directory, propose, rules, _balance(settings), clock, loop, others, self._reads
        )
        self._damaged_logs = DamagedLogs(lambda: topics.view, self.on_log_failed)
        self._reassigner = Reassigner(lifecycle, topics, rules.min_in_sync, loop)
        self.fetchers = ReplicaFetchers(
            lifecycle,
            address_of,
            settings,
            flushes,
            clock,
            loop,
            lambda: directory.gives_way,
            on_leader_refused=self._refused_leaders.on_refused,
            on_log_failed=self.elector.on_log_failed,
            security=security,
        )
        # The settings that the fetchers know.
        self._throttled_by: ConfigsView | None = None

    def start(self) -> None:
        """Look at in-sync replicas and preferred leaders from time to time from now on."""
        self.in_sync_changes.start()
        self.elector.start()

    async def stop(self) -> None:
        """Write nothing more; returns when nothing is under way.  `follow_leaders`' fetchers are stopped before."""
        await self._reassigner.stop()
        self.elector.stop()
        await self._refused_leaders.stop()
        await self.gone_followers.stop()
        self.in_sync_changes.stop()
        await self._writer.stop()

    def follow_leaders(self) -> None:
        """Fetch, from now on, each partition of this broker that another one leads."""
        self._throttle()
        self.fetchers.start(self._partitions)

    async def hand_over(self) -> None:
        """Let others lead what this broker leads, and be in sync nowhere: it is about to stop."""
        # A follower that continues to fetch would be in sync again at once.
        await self.fetchers.stop()
        coordination = self._coordination
        departure = Departure(
            coordination.tree, coordination.topics, coordination.lifecycle, self._rules.min_in_sync, self._reads
        )
        await departure.leave()

    def on_view(self, view: TopicsView) -> None:
        """The tree has changed, and the logs of this view are made, as far as they can be."""
        self.elector.on_view(view)
        self._reassigner.on_view(view)
        self._throttle()
        if self._directory.gives_way:
            # Those that this broker has left by now: roles are as before, and a fetch would let it join again.
            self.fetchers.follow(self._partitions)

    def on_logs_changed(self) -> None:
        """No log of this broker takes anything any more; or the disk is stuck or long full, or is so no more."""
        self.fetchers.follow(self._partitions)
        self.elector.on_logs_changed()

    def on_log_failed(self, topic_partition: TopicPartition) -> None:
        """A log takes nothing any more, or is damaged: others lead, and nothing is fetched for it."""
        partition = self._partitions.find(*topic_partition)
        if partition is not None:
            self.fetchers.follow([partition])
        self.elector.on_log_failed(topic_partition)

    def on_log_damaged(self, damaged: Log) -> None:
        """Damage was read in a log."""
        self._damaged_logs.on_damaged(damaged)

    def on_log_start_moved(self, moved: Log) -> None:
        """Records of the log were deleted here."""
        partition = self._partitions.find(*moved.topic_partition)
        if partition is not None:
            self.fetchers.on_log_start_moved(partition)

    def _on_broker_gone(self, node_id: NodeId, broker_epoch: int) -> None:
        """The process of this broker has ended, which leads partitions and may follow others."""
        self.elector.on_leader_refused(node_id)
        self.gone_followers.on_gone(node_id, broker_epoch)

    def _throttle(self) -> None:
        configs = self._coordination.configs.view
        if self._throttled_by is not configs:
            self._throttled_by = configs
            self.fetchers.throttle.configure(configs, self._clock.monotonic_ms())


class _LedReads:
    """The `LedReads` of this broker's partitions."""

    def __init__(self, partitions: PartitionTable, clock: Clock) -> None:
        self._partitions = partitions
        self._clock = clock

    def withhold(self, topic_partition: TopicPartition) -> None:
        partition = self._partitions.find(*topic_partition)
        if partition is not None:
            partition.withhold_reads(self._clock.monotonic_ms())

    def resume(self, topic_partition: TopicPartition) -> None:
        partition = self._partitions.find(*topic_partition)
        if partition is not None:
            partition.resume_reads()


def _balance(settings: BrokerSettings) -> LeaderBalance | None:
    if not settings[setting.AUTO_LEADER_REBALANCE_ENABLE]:
        return None
    return LeaderBalance(
        settings[setting.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS] * 1000,
        settings[setting.LEADER_IMBALANCE_PER_BROKER_PERCENTAGE],
    )


class DamagedLogs:
    """Logs in which damage was read: another replica leads, and answers readers, where there is one.

    `on_distrusted` is called when a log's mark is on the disk.
    """

    def __init__(self, topics: Callable[[], TopicsView], on_distrusted: Callable[[TopicPartition], None]) -> None:
        self._topics = topics
        self._on_distrusted = on_distrusted
        # Marks that are being written.
        self._marking: set[asyncio.Task[None]] = set()

    def on_damaged(self, damaged: Log) -> None:
        # Not within the read that found the damage.
        marking = asyncio.get_running_loop().create_task(self._distrust(damaged))
        self._marking.add(marking)
        marking.add_done_callback(self._marking.discard)

    async def _distrust(self, damaged: Log) -> None:
        """Let the other replicas have the partition.  One without other replicas serves what can be read."""
        node = self._topics().partition(damaged.topic_partition)
        if node is None or len(node.replicas) < 2 or damaged.is_deleted:
            return
        # At once: nothing is fetched for it, and it is elected nowhere, while the mark is written.
        damaged.distrust()
        try:
            await LoopOffload()(damaged.mark_distrusted)
        except OSError as error:
            log.error("log.not_marked", extra=fields(partition=damaged.topic_partition, error=str(error)))
        self._on_distrusted(damaged.topic_partition)
