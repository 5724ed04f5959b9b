"""Which leader each followed partition is fetched from: a fetcher for each leader, made and stopped as roles change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from ottla.broker.net.limits import MIB
from ottla.broker.partitions.partition import Partition
from ottla.broker.replicas.peer_connection import PeerAddress, PeerConnection, PeerSecurity, PeerUnreachable
from ottla.broker.replicas.replica_fetch_session import PartitionKey
from ottla.broker.replicas.replica_fetcher import (
    FetcherContext,
    FetcherLimits,
    FetcherTotals,
    FollowedPartition,
    ReplicaFetcher,
)
from ottla.broker.replicas.replication_throttle import ReplicationThrottle
from ottla.broker.tree.broker_lifecycle import BrokerLifecycle
from ottla.broker.upkeep.flusher import FlushSignal
from ottla.model import broker_settings as setting
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.model.partition_state import NO_LEADER
from ottla.model.settings import BrokerSettings
from ottla.observe.events import fields
from ottla.protocol.api import ApiKey
from ottla.protocol.replica_fetch import REPLICA_FETCH_VERSION
from ottla.replication.replica import Role
from ottla.runtime.clock import Clock

log = logging.getLogger(__name__)

# A response has the heads of its partitions besides the records.
_RESPONSE_OVERHEAD_BYTES: Final = 16 * MIB
# Logs that are cut at once.  Each takes a thread of the loop's pool for several syncs, and for a copy of committed
# records; flushes, creations and checkpoints need the same threads.
CUTS_MAX: Final = 2


class ReplicaFetchers:
    """All fetchers of this broker; none runs before `start`.

    `address_of`: where a live broker listens for others, None for one that is not live.
    `on_leader_refused` is called when a leader's address refuses connections that it accepted before: its process has
    ended, though its registration may remain until its session has timed out.
    `on_log_failed` is called when the log of a followed partition accepts no appends any more.
    `gives_way`: whether the disk is stuck or long full; call `follow` when it changes.
    """

    def __init__(
        self,
        lifecycle: BrokerLifecycle,
        address_of: Callable[[NodeId], tuple[str, int] | None],
        settings: BrokerSettings,
        flushes: FlushSignal,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        gives_way: Callable[[], bool],
        on_leader_refused: Callable[[NodeId], None],
        on_log_failed: Callable[[TopicPartition], None],
        security: PeerSecurity = PeerSecurity(),  # noqa: B008 (an immutable value)
    ) -> None:
        self._security = security
        self._node_id = lifecycle.node_id
        self._gives_way = gives_way
        self._address_of = address_of
        self._loop = loop
        self._socket_timeout_ms = settings[setting.REPLICA_SOCKET_TIMEOUT_MS]
        # The first batch is whole, however large; it came in one request.
        self._response_bytes_max = (
            settings[setting.REPLICA_FETCH_RESPONSE_MAX_BYTES]
            + settings[setting.SOCKET_REQUEST_MAX_BYTES]
            + _RESPONSE_OVERHEAD_BYTES
        )
        self._fetchers: dict[NodeId, ReplicaFetcher] = {}
        self._leader_of: dict[PartitionKey, NodeId] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self._is_running = False
        self._failed: set[PartitionKey] = set()
        self.totals = FetcherTotals()
        self.throttle = ReplicationThrottle(lifecycle.node_id)
        self._on_log_failed = on_log_failed
        self._context = FetcherContext(
            lifecycle.node_id,
            lambda: lifecycle.broker_epoch,
            self._connect,
            flushes,
            clock,
            FetcherLimits(
                settings[setting.REPLICA_FETCH_WAIT_MAX_MS],
                settings[setting.REPLICA_FETCH_MIN_BYTES],
                settings[setting.REPLICA_FETCH_MAX_BYTES],
                settings[setting.REPLICA_FETCH_RESPONSE_MAX_BYTES],
                settings[setting.REPLICA_FETCH_BACKOFF_MS],
                self._socket_timeout_ms,
            ),
            self.throttle,
            Random(lifecycle.node_id),
            self.totals,
            on_leader_refused,
            self._on_partition_failed,
            self._on_cut,
            asyncio.Semaphore(CUTS_MAX),
        )

    def start(self, partitions: Iterable[Partition]) -> None:
        """Fetch these, and from now on those that `follow` gets."""
        self._is_running = True
        self.follow(partitions)

    def follow(self, partitions: Iterable[Partition]) -> None:
        """Fetch each from its present leader; drop those that are led here, have no leader, or are not served any more.

        Nor those whose log has failed, or that left the in-sync replicas while the disk gives way: a leader that still
        got their fetches would take them for in sync.
        """
        if not self._is_running:
            return
        for partition in partitions:
            key = (partition.topic_id_bytes, partition.index)
            if partition.takes_records or not partition.is_served:
                self._failed.discard(key)
            leader_id = self._leader_to_follow(partition)
            former_id = self._leader_of.get(key)
            if former_id is not None and former_id != leader_id:
                fetcher = self._fetchers.get(former_id)
                if fetcher is None or fetcher.remove(partition):
                    del self._leader_of[key]
            if leader_id is not None:
                self._leader_of[key] = leader_id
                self._fetcher_of(leader_id).add(partition)
        for fetcher in [each for each in self._fetchers.values() if not len(each)]:
            self._stop(fetcher)

    def on_log_start_moved(self, partition: Partition) -> None:
        """Records of the partition were deleted here."""
        leader_id = self._leader_of.get((partition.topic_id_bytes, partition.index))
        fetcher = None if leader_id is None else self._fetchers.get(leader_id)
        if fetcher is not None:
            fetcher.on_log_start_moved(partition)

    @property
    def followed_count(self) -> int:
        """Partitions that are fetched, or will be when their leader can be reached."""
        return sum(len(fetcher) for fetcher in self._fetchers.values())

    @property
    def failed_count(self) -> int:
        """Partitions that would be fetched if their logs took anything."""
        return len(self._failed)

    async def stop(self) -> None:
        """Fetch nothing any more; returns when nothing is under way."""
        self._is_running = False
        for fetcher in list(self._fetchers.values()):
            self._stop(fetcher)
        if self._stopping:
            await asyncio.wait(self._stopping)

    def _leader_to_follow(self, partition: Partition) -> NodeId | None:
        leader_id = partition.leader_id
        if (
            not partition.is_served
            or not partition.takes_records
            or partition.role is not Role.FOLLOWER
            or leader_id in (NO_LEADER, self._node_id)
            or (not partition.is_in_sync and self._gives_way())
        ):
            return None
        return leader_id

    def _fetcher_of(self, leader_id: NodeId) -> ReplicaFetcher:
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            log.info("replica_fetcher.started", extra=fields(leader=leader_id))
            fetcher = self._fetchers[leader_id] = ReplicaFetcher(leader_id, self._context, self._loop)
            fetcher.start()
        return fetcher

    def _stop(self, fetcher: ReplicaFetcher) -> None:
        del self._fetchers[fetcher.leader_id]
        task = fetcher.stop()
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    def _on_partition_failed(self, partition: FollowedPartition) -> None:
        self._failed.add((partition.topic_id_bytes, partition.index))
        self._on_log_failed(partition.topic_partition)

    def _on_cut(self, partition: FollowedPartition) -> None:
        if isinstance(partition, Partition):
            self.follow([partition])

    async def _connect(self, leader_id: NodeId) -> PeerConnection:
        address = self._address_of(leader_id)
        if address is None:
            raise PeerUnreachable(f"broker {leader_id} is not registered")
        peer = await PeerConnection.open(
            PeerAddress(*address),
            f"ottla-replica-{self._node_id}",
            timeout_ms=self._socket_timeout_ms,
            response_bytes_max=self._response_bytes_max,
            security=self._security,
        )
        try:
            await peer.require(ApiKey.FETCH, REPLICA_FETCH_VERSION, self._socket_timeout_ms)
        except BaseException:
            peer.close()
            raise
        return peer
