"""Assembles one broker: its parts, and the order in which they start and stop.  No request passes here."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.broker.async_requests import ColdCalls
from ottla.broker.context import Call, LogDirectoryState, NewTopic
from ottla.broker.events import BrokerEvents
from ottla.broker.fetching.deadlines import Deadlines
from ottla.broker.fetching.fetch_session_cache import FetchSessionCache
from ottla.broker.fetching.rack_aware_selector import RackAwareSelector
from ottla.broker.group_requests import GroupCalls
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.groups.settings import consumer_times, group_settings
from ottla.broker.handlers import GROUP_HANDLERS
from ottla.broker.handlers.fetch import FetchHandler
from ottla.broker.handlers.produce import ProduceHandler
from ottla.broker.net.advertising import Advertising, BrokerAddress, registered_listeners
from ottla.broker.net.limits import DRAIN_MS
from ottla.broker.net.listener import ConnectionLimits, Listener, bind, listen
from ottla.broker.net.ready_connections import ReadyConnections
from ottla.broker.net.request_meter import RequestMeter
from ottla.broker.net.response_budget import AnswerRoom
from ottla.broker.net.slow_requests import SlowRequests
from ottla.broker.net.socket_loop import SocketLoop
from ottla.broker.net.started_tasks import StartedTasks
from ottla.broker.partitions.batch_opener import BatchOpener
from ottla.broker.partitions.damaged_logs import DamagedLogs
from ottla.broker.partitions.log_configs import LogConfigs
from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.broker.partitions.record_deletions import RecordDeletions
from ottla.broker.replicas.leader_hints import LeaderHints
from ottla.broker.router import Router
from ottla.broker.topics.served_topics import ServedTopics, TopicsObserver
from ottla.broker.topics.topics import Topics
from ottla.broker.tree.coordination import Coordination
from ottla.broker.tree.lease_watch import LeaseWatch
from ottla.broker.tree.membership import NOT_REGISTERED
from ottla.broker.tree.tree_follower import TreeFollower
from ottla.broker.tree.tree_home import TreeHome, open_embedded, with_node_id
from ottla.broker.upkeep.compaction import Compaction
from ottla.broker.upkeep.flush_signal import FlushSignal
from ottla.broker.upkeep.flusher import Flusher
from ottla.broker.upkeep.housekeeping import Housekeeping
from ottla.broker.upkeep.space_watch import SpaceWatch
from ottla.coordination import elections
from ottla.coordination.configs import ConfigEntity, ConfigsView
from ottla.coordination.elections import ElectionRules
from ottla.coordination.patience import Patience
from ottla.coordination.registries import BrokerRegistration, BrokersView
from ottla.coordination.topics_view import Partition as PartitionNode
from ottla.coordination.topics_view import Topic, TopicsView
from ottla.model import broker_settings as setting
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, RequestError
from ottla.model.identifiers import OFFSETS_TOPIC, NodeId, ProducerId, TopicPartition
from ottla.model.limits import INT32_MAX
from ottla.model.listener import Listener as Address
from ottla.model.serve_options import ServeOptions
from ottla.model.settings import BrokerSettings
from ottla.observe.events import fields
from ottla.runtime.clock import Clock
from ottla.runtime.loop_offload import LoopOffload
from ottla.runtime.posix_disk import PosixDisk
from ottla.runtime.process import open_files_about
from ottla.runtime.volume import volume_size
from ottla.storage.directory import directory_identity, directory_tree
from ottla.storage.directory.directory_lock import FileLock, NoLock
from ottla.storage.directory.directory_space import DirectorySpace
from ottla.storage.directory.disk_space import SpaceRules
from ottla.storage.directory.log_directory import LogDirectory, LogDirectoryObserver
from ottla.storage.directory.open_files import LogsRoom, too_many_open_files
from ottla.storage.errors import DirectoryOffline, StorageError, lacks_descriptors
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig

if TYPE_CHECKING:
    from ottla.broker.admin.server import AdminServer
    from ottla.broker.replicas.cluster_part import ClusterPart
    from ottla.broker.replicas.elector import Elector
    from ottla.broker.replicas.replica_fetchers import ReplicaFetchers
    from ottla.broker.tree.directory_generation import DirectoryGeneration

log = logging.getLogger(__name__)

# Clients write any id that they like.  What is left above this is never used up.
PRODUCER_ID_BELIEVED_BELOW: Final = 2**62
# Without ZooKeeper a broker stops all the same.
LEAVE_WITHIN_S: Final = 5.0
# ZooKeeper ends sessions in steps of its tick.
ID_MARGIN_MS: Final = 2_000


class Broker:
    """A running broker.  `BrokerContext` is the part that handlers use."""

    def __init__(
        self,
        options: ServeOptions,
        clock: Clock,
        open_files_max: int | None,
        home: TreeHome | None,
        disk: PosixDisk,
        sockets: SocketLoop | None,
    ) -> None:
        self._options = options
        self._disk = disk
        self._sockets = sockets
        self._home = home
        # Several brokers share any other tree.
        self.is_sole = home is None and options.settings[setting.ZOOKEEPER_CONNECT] is None
        self._open_files_max = open_files_max
        self._closing = AsyncExitStack()
        self.settings: BrokerSettings = (
            options.settings if self.is_sole else with_node_id(options.settings, disk, options.data_dir)
        )
        self._log_configs = LogConfigs(options.settings)
        self.clock = clock
        self._patience = Patience(clock, self.settings[setting.ZOOKEEPER_CONNECTION_TIMEOUT_MS], asyncio.sleep)
        self.node_id = NodeId(self.settings[setting.NODE_ID])
        self.partitions = PartitionTable()
        self.cluster_id = ""
        self.addresses: list[tuple[str, int]] = []
        self._bound: list[socket.socket] = []
        self._listeners: list[Listener] = []
        # Both None for a broker by itself.
        self._cluster: ClusterPart | None = None
        self._generation: DirectoryGeneration | None = None
        self._events = BrokerEvents()
        self._lease_watch: LeaseWatch | None = None

    @classmethod
    async def start(
        cls,
        options: ServeOptions,
        *,
        clock: Clock,
        open_files_max: int | None,
        home: TreeHome | None = None,
        disk: PosixDisk | None = None,
        sockets: SocketLoop | None = None,
    ) -> Broker:
        """Open the data directory, recover, and listen.  Raises `OttlaError`; then nothing is left open.

        `home`: of a tree that other brokers share; the caller closes it.  Without one it follows from the options.
        `disk` and `sockets` have something between the broker and the machine, for tests; None: nothing.
        """
        broker = cls(options, clock, open_files_max, home, disk or PosixDisk(), sockets)
        try:
            await broker._start()
        except BaseException:
            await broker._closing.aclose()
            raise
        return broker

    async def on_clock_moved(self) -> None:
        """Do at once what is due by now: a test has moved the clock.  Retention is due whatever its interval."""
        await self._housekeeping.run_all()
        self.groups.on_clock_moved()
        if self._lease_watch is not None:
            self._lease_watch.check()

    def on_room_changed(self) -> None:
        """Look at the disk's room at once: a test has filled it, or made room."""
        self._directory.look_at_space()

    async def stop(self) -> None:
        """Stop accepting, answer requests in progress, flush, and write the clean shutdown mark."""
        await self._closing.aclose()

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        disk = self._disk
        # Addresses first: a port that is taken is reported before a long recovery, and the disk is left as it was.
        # A member of a cluster may wait for ZooKeeper: its port refuses clients until then, so they try other brokers.
        self._bound = [bind(each.host, each.port, listens=self.is_sole) for each in self._options.listeners]
        for listening in self._bound:
            self._closing.callback(listening.close)
        self.addresses = [listening.getsockname()[:2] for listening in self._bound]
        self._advertising = Advertising(self._options, self.addresses, own_id=self.node_id if self.is_sole else None)
        self._follower = TreeFollower(self._follow_tree, loop)
        self._flushes = FlushSignal(loop)
        admin = await self._start_admin(self._options.admin_listener)
        await self._open_tree(disk)
        await self._open_logs(disk)

        ready = ReadyConnections(loop)

        def on_flushed(error: OSError | None) -> None:
            ready.send_all()
            self._flushes.on_flushed(error)

        lease, lease_watch = self._membership.lease, None
        if lease is not None:
            # Of a cluster only: nobody else leads what a broker by itself has.
            lease_watch = LeaseWatch(self._membership, lease, self.clock, loop, self._served_topics.follow_membership)
        flusher = Flusher(
            self._directory.scheduler,
            disk,
            self.clock,
            loop,
            on_flushed,
            # What waits for a flush that ended after the lease must not be acknowledged.
            before_announced=None if lease_watch is None else lease_watch.check,
            on_stuck_changed=self._events.disk_changed,
        )
        flusher.start()
        self._closing.push_async_callback(flusher.stop)
        deadlines = Deadlines(loop)
        self._closing.callback(deadlines.cancel)
        leader_hints = LeaderHints(
            self.node_id, lambda: self.topics, lambda: self.live, self._brokers_at, self._membership
        )
        slow = SlowRequests(self.settings[setting.REQUEST_SLOW_MS])
        opener = BatchOpener(self.clock)
        self._closing.callback(opener.close)
        produce = ProduceHandler(self.partitions, ready, self.clock, leader_hints, lease, slow, opener)
        selector = None
        if self.settings[setting.REPLICA_SELECTOR_CLASS] == setting.RACK_AWARE_SELECTOR:
            selector = RackAwareSelector(self.node_id, lambda: self.live, self._brokers_at)
        sessions = FetchSessionCache(
            self.settings[setting.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS],
            lambda: secrets.randbelow(INT32_MAX),
            tells_watermarks=selector is not None,
            release=StartedTasks().run,
        )
        size_bytes_max = self.settings[setting.FETCH_MAX_BYTES]
        cluster = self._cluster
        fetch = FetchHandler(
            self.partitions,
            ready,
            deadlines,
            size_bytes_max,
            sessions,
            self.clock,
            leader_hints,
            self._membership,
            None if cluster is None else cluster.gone_followers.on_connection_closed,
            selector,
            lease_watch,
        )
        self.groups = self._open_groups(loop, flusher)
        room = AnswerRoom()
        groups = GroupCalls(self, ready, slow, room)
        meter = None if admin is None else RequestMeter()
        router = Router(produce, fetch, groups, GROUP_HANDLERS, ColdCalls(self, slow, room).answer, ready, meter)
        if admin is not None and meter is not None:
            self._add_figures(admin, router, meter, fetch, flusher)
        self._closing.push_async_callback(router.stop)

        watermarks_interval_ms = self.settings[setting.REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS]
        self._housekeeping = housekeeping = Housekeeping(
            self._directory, self.partitions, self.clock, loop, watermarks_interval_ms
        )
        self._closing.push_async_callback(housekeeping.stop)
        housekeeping.start()
        self._start_compaction()
        for listening in self._bound:
            limits = self._connection_limits()
            listener = Listener(
                listening, loop, router, limits, housekeeping.expire_produces, self._sockets, slow, room
            )
            self._listeners.append(listener)
            listener.start()
        self._closing.push_async_callback(self._drain, deadlines)
        if cluster is not None:
            cluster.follow_leaders()
            self._closing.push_async_callback(cluster.fetchers.stop)
            if lease_watch is not None:
                self._lease_watch = lease_watch
                self._closing.callback(lease_watch.stop)
                lease_watch.start()
            if admin is not None:
                self._add_replica_figures(admin, cluster.fetchers)
        self._closing.push_async_callback(self._follower.stop)
        self._follower.start()
        if cluster is not None and self.settings[setting.CONTROLLED_SHUTDOWN_ENABLE]:
            self._closing.push_async_callback(self._leave, cluster)
        if self.settings[setting.AUDIT_ENABLE]:
            self._start_audit()
        if admin is not None:
            admin.health.serving()
            self._closing.callback(admin.health.stopping)

    def _peer_address(self, node_id: NodeId) -> tuple[str, int] | None:
        """Where a live broker listens for others: at its listener of the name of our first one, else at its first."""
        live = self.live.by_id.get(node_id)
        if live is None:
            return None
        name = self._options.listeners[0].name
        listeners = sorted(live.registration.listeners, key=lambda each: each.name != name)
        return (listeners[0].host, listeners[0].port) if listeners else None

    async def _start_admin(self, address: Address | None) -> AdminServer | None:
        """Before everything else, so that supervisors see a start that takes long."""
        if address is None:
            return None
        # Few brokers serve it, and all would pay for its import.
        from ottla.broker.admin.server import AdminServer

        admin = AdminServer(bind(address.host, address.port))
        self._closing.push_async_callback(admin.stop)
        await admin.start()
        return admin

    def _add_figures(
        self, admin: AdminServer, router: Router, meter: RequestMeter, fetch: FetchHandler, flusher: Flusher
    ) -> None:
        from ottla.broker.admin.figures.groups import group_figures
        from ottla.broker.admin.figures.membership import membership_figures
        from ottla.broker.admin.figures.partitions import partition_figures
        from ottla.broker.admin.figures.process import process_families
        from ottla.broker.admin.figures.requests import request_figures

        started_ms = self.clock.now_ms()
        registry = admin.registry
        registry.add(lambda: process_families(started_ms, self.node_id, self.cluster_id))
        registry.add(lambda: request_figures(router, meter, fetch, self.partitions, self._listeners, flusher))
        registry.add(lambda: partition_figures(self.partitions, self._directory, self.clock.monotonic_ms()))
        registry.add(lambda: group_figures(self.groups, self.partitions))
        registry.add(lambda: membership_figures(self._membership, self._cluster, self.clock.boottime_ms()))
        offline = "the log directory takes no more writes: look at the disk, then start again"
        admin.health.add_life_check(lambda: offline if self._directory.offline is not None else None)
        admin.health.add_service_check(self._session_problem)

    def _add_replica_figures(self, admin: AdminServer, fetchers: ReplicaFetchers) -> None:
        from ottla.broker.admin.figures.replica_fetchers import replica_fetcher_figures

        admin.registry.add(lambda: replica_fetcher_figures(fetchers))

    def _session_problem(self) -> str | None:
        """Why this broker can lead nothing now."""
        if self._membership.is_uncertain(self.clock.boottime_ms()):
            return "ZooKeeper has not answered for so long that nothing is acknowledged"
        if self._membership.broker_epoch == NOT_REGISTERED:
            return "not registered yet in a new session with ZooKeeper"
        return None

    async def _open_tree(self, disk: PosixDisk) -> None:
        """The lock first: two brokers in one directory would each follow their own tree."""
        path = self._options.data_dir
        lock = FileLock()
        directory_identity.claim(disk, path, self.node_id, lock)
        self._closing.callback(lock.release)
        self._space = self._space_in(path)
        # Before anything that needs room: on a full disk the reserve is given back to the start.
        self._space.look(makes=False)
        if self.is_sole:
            directory_tree.require_own_tree(disk, path)
        home = self._home or await self._open_home(path)
        self._coordination = await Coordination.open(
            home,
            self._registration(),
            self.clock,
            None if self.is_sole else self._follower.on_stale,
            on_session_lost=self._events.session_lost,
            patience=self._patience,
            data_dir=path,
            found_cluster_id=directory_tree.cluster_id_of(disk, path),
        )
        self._closing.push_async_callback(self._coordination.close)
        self._membership = self._coordination.membership
        self.cluster_id = self._coordination.cluster_id
        if not self.is_sole:
            self._generation = self._open_generation(disk, path)
            self._closing.push_async_callback(self._generation.stop)
            # Before anything is written there: a copy that is refused stays as it is.
            await self._patience.until_done(self._generation.check)
            directory_tree.mark_shared(disk, path)

    def _open_generation(self, disk: PosixDisk, path: str) -> DirectoryGeneration:
        # A broker by itself has the only copy of its tree in the directory.
        from ottla.broker.tree.directory_generation import DirectoryGeneration

        loop = asyncio.get_running_loop()
        tree, membership = self._coordination.tree, self._membership
        return DirectoryGeneration(tree, membership, disk, path, self._space.relieve, loop, LoopOffload)

    def _space_in(self, path: str) -> DirectorySpace:
        total_bytes = volume_size(path).total_bytes
        reserve_bytes = self.settings[setting.LOG_DIR_RESERVE_BYTES]
        rules = SpaceRules.of_volume(total_bytes, reserve_bytes, self.settings[setting.LOG_DIR_LOW_BYTES])
        return DirectorySpace(self._disk, path, rules)

    async def _open_home(self, path: str) -> TreeHome:
        home: TreeHome
        if self.is_sole:
            home = await open_embedded(self._disk, path, self.clock, self._space.relieve)
        else:
            # With it comes the client of ZooKeeper, which a broker by itself does not need.
            from ottla.broker.tree.zookeeper_home import SharedHome, zookeeper_home

            waits = self.settings[setting.ZOOKEEPER_CONNECTION_TIMEOUT_MS] is None
            home = SharedHome(zookeeper_home(self.settings, self.clock), self._disk, path, self.clock, waits=waits)
        self._closing.push_async_callback(home.close)
        return home

    async def _open_logs(self, disk: PosixDisk) -> None:
        self._directory = LogDirectory.open(
            disk,
            self._options.data_dir,
            clock=self.clock,
            config_of=self._log_config,
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            lock=NoLock(),
            retention_check_interval_ms=self.settings[setting.LOG_RETENTION_CHECK_INTERVAL_MS],
            is_only_replica=self._is_only_replica,
            space=self._space,
            observer=LogDirectoryObserver(
                self._events.directory_offline, self._events.log_damaged, self._events.log_start_moved
            ),
        )
        self._events.directory_offline.subscribe(self._on_directory_offline)
        self._events.log_start_moved.subscribe(self._on_log_start_moved)
        self._closing.callback(self._directory.close)
        watch = SpaceWatch(self._directory, asyncio.get_running_loop(), self._events.disk_changed)
        self._closing.callback(watch.stop)
        watch.start()
        self._coordination.producer_ids.begin_at(_greatest_producer_id(self._directory.logs.values()) + 1)
        # A broker that was killed may be live to the others until its session ends; another broker of this id stays.
        patience_ms = 0 if self.is_sole else self.settings[setting.ZOOKEEPER_SESSION_TIMEOUT_MS] + ID_MARGIN_MS
        was_clean = self.is_sole and self._directory.was_clean
        if not self.is_sole:
            # Before the registration: connections to a live broker that are refused would mean that its process ended.
            for listening in self._bound:
                listen(listening)
        await self._patience.until_done(lambda: self._join(patience_ms, was_clean=was_clean))
        if self._generation is not None:
            self._generation.start(self._directory.stored)
            self._cluster = self._join_cluster()
        self._served_topics = ServedTopics(
            self._membership,
            self._coordination.topics,
            self._coordination.configs,
            self._directory,
            self._log_config,
            self.partitions,
            asyncio.get_running_loop(),
            self.clock,
            self._new_partition,
            TopicsObserver(self._events.topic_changed, self._events.roles_changed, self._events.topics_followed),
        )
        self._events.session_lost.subscribe(self._served_topics.follow_membership)
        damaged_logs = DamagedLogs(lambda: self._served_topics.view, self._on_log_distrusted)
        self._events.log_damaged.subscribe(damaged_logs.on_damaged)
        self._closing.push_async_callback(self._served_topics.stop)
        await self._patience.until_done(self._served_topics.start)
        self._elect()
        await self._patience.until_done(self._sweep_topics)
        room = self._logs_room()
        if room is not None and not room.allows_start(len(self._directory.logs)):
            # Clients could not connect, nor modules be imported.
            raise too_many_open_files(self._disk, self._options.data_dir)
        self._topics = Topics(
            self.node_id,
            lambda: self._coordination.registrar.view,
            self.settings,
            self._coordination.topics,
            self._coordination.configs,
            self._directory,
            self.partitions,
            self._served_topics,
            room,
        )
        self._deletions = RecordDeletions(self.partitions, self._directory)

    def _logs_room(self) -> LogsRoom | None:
        """None where the number of open files is not limited."""
        if self._open_files_max is None:
            return None
        try:
            open_count = open_files_about()
        except OSError as error:
            if not lacks_descriptors(error):
                raise
            open_count = self._open_files_max
        return LogsRoom(self._open_files_max, open_count - len(self._directory.logs))

    def _is_only_replica(self, topic_partition: TopicPartition) -> bool:
        """As of the view that the broker started with.  While it is down nobody else can come to be in sync."""
        node = self._coordination.topics.view.partition(topic_partition)
        return node is not None and node.replicas == (self.node_id,)

    def _min_in_sync(self, topic: Topic, partition: PartitionNode) -> int:
        """The least number of in-sync replicas with which records of the partition are acknowledged."""
        return partition.min_in_sync(self._log_configs.of(self.configs.topic(topic.name)).min_insync_replicas)

    def _new_partition(self, opened: Log) -> Partition:
        return Partition(
            opened,
            self.node_id,
            high_watermark=self._directory.high_watermarks().get(opened.topic_partition, 0),
            lag_time_max_ms=self.settings[setting.REPLICA_LAG_TIME_MAX_MS],
            in_sync_observer=None if self._cluster is None else self._cluster.in_sync_changes,
            on_log_failed=None if self._cluster is None else self._cluster.on_log_failed,
        )

    def _join_cluster(self) -> ClusterPart:
        # With it comes much that a broker by itself does not need.
        from ottla.broker.replicas.cluster_part import ClusterPart

        cluster = ClusterPart(
            self._coordination,
            self._directory,
            self.partitions,
            self.settings,
            ElectionRules(self._min_in_sync, self._allows_unclean_election),
            self._flushes,
            self._peer_address,
            self.clock,
            asyncio.get_running_loop(),
        )
        events = self._events
        events.roles_changed.subscribe(cluster.fetchers.follow)
        events.log_start_moved.subscribe(cluster.on_log_start_moved)
        events.disk_changed.subscribe(cluster.on_logs_changed)
        events.directory_offline.subscribe(lambda _: cluster.on_logs_changed())
        self._closing.push_async_callback(cluster.stop)
        cluster.start()
        return cluster

    def _allows_unclean_election(self, topic: Topic) -> bool:
        return self._log_configs.allows_unclean_election(self.configs.topic(topic.name))

    async def _sweep_topics(self) -> None:
        """Ages are by the tree's clock: by this broker's, which may be off, a topic that is being made may look old."""
        registered_ms = await self._coordination.registrar.registered_ms()
        swept_count = 0 if registered_ms is None else await self._coordination.topics.sweep(registered_ms)
        if swept_count:
            log.info("topics.swept", extra=fields(topics_count=swept_count))

    def _registration(self) -> BrokerRegistration:
        listeners = registered_listeners(self._options, self.addresses, socket.gethostname())
        return BrokerRegistration(self.node_id, listeners, self.settings[setting.BROKER_RACK])

    async def _join(self, patience_ms: int, *, was_clean: bool) -> None:
        """Register.  A sole broker leads its partitions in this new life; in a cluster, elections decide."""
        coordination = self._coordination
        broker_epoch = await coordination.registrar.register(patience_ms, self._set_complete_from, self._generation)
        if self.is_sole:
            log_epochs = {partition: log.leader_epoch for partition, log in self._directory.logs.items()}
            changes = elections.after_start(
                coordination.topics.view, self.node_id, broker_epoch, log_epochs, was_clean=was_clean
            )
            await coordination.topics.change_states(changes)
        await coordination.topics.refresh()

    async def _set_complete_from(self, broker_epoch: int) -> None:
        """What is reported of the logs from now on is under this epoch, and kept."""
        if self.is_sole:
            return
        try:
            await self._directory.set_complete_from_in_steps(broker_epoch, LoopOffload())
        except OSError as error:
            raise StorageError(f"the registration cannot be recorded in {self._directory.path}: {error}") from error

    async def _follow_tree(self) -> None:
        """Read what changed in the tree, and act on it."""
        if self._membership.broker_epoch == NOT_REGISTERED:
            await self._coordination.check_cluster()
            await self._coordination.topics.refresh()
            await self._join(0, was_clean=False)
        await self._coordination.registrar.refresh()
        await self._served_topics.follow()
        self._elect()

    def _elect(self) -> None:
        """The logs of the view are made, as far as they can be."""
        if self._cluster is not None and self._generation is not None:
            self._cluster.on_view(self._served_topics.view)
            self._generation.on_view(self._served_topics.view)

    def _open_groups(self, loop: asyncio.AbstractEventLoop, flusher: Flusher) -> GroupCoordinator:
        """The contents of `__consumer_offsets` are loaded while requests are served."""
        groups = GroupCoordinator(
            group_settings(self.settings),
            lambda group_id: consumer_times(self._coordination.configs.view, group_id, self.settings),
            self.settings[setting.OFFSETS_LOAD_BUFFER_SIZE],
            self.partitions,
            self.clock,
            loop,
            lambda: flusher.is_busy,
            membership=self._membership,
        )
        self._closing.callback(groups.stop)
        # The broker is ready before they are; until then their clients get an error that they retry.
        loop.call_soon(lambda: groups.on_topics_changed(self._served_topics.view))
        self._events.topics_followed.subscribe(groups.on_topics_changed)
        self._events.topic_changed.subscribe(
            lambda name, topic: groups.follow(topic) if name == OFFSETS_TOPIC else None
        )
        self._events.directory_offline.subscribe(lambda _: groups.on_directory_offline())
        return groups

    def _start_compaction(self) -> None:
        if not self.settings[setting.LOG_CLEANER_ENABLE]:
            return
        compaction = Compaction(
            self._directory,
            self.clock,
            self.settings[setting.LOG_CLEANER_BACKOFF_MS],
            self.settings[setting.LOG_CLEANER_DEDUPE_BUFFER_SIZE],
            self.settings[setting.LOG_CLEANER_IO_MAX_BYTES_PER_SECOND],
        )
        self._closing.push_async_callback(compaction.stop)
        compaction.start()

    def _start_audit(self) -> None:
        # Most brokers run without it.
        from ottla.broker.processes.audit_process import audit_process

        counting = audit_process(
            self.addresses[0],
            self.node_id,
            self.settings[setting.AUDIT_WINDOW_MS],
            self.settings[setting.AUDIT_INTERVAL_MS],
            self.clock,
        )
        self._closing.push_async_callback(counting.stop)
        counting.start()

    async def _leave(self, cluster: ClusterPart) -> None:
        """Hand over, as the first step of a stop, while requests are still answered."""
        try:
            async with asyncio.timeout(LEAVE_WITHIN_S):
                await cluster.hand_over()
                # From here on clients of what was handed over are told so.
                await self._served_topics.follow()
        except (TimeoutError, OttlaError) as error:
            log.warning("broker.left_late", extra=fields(error=str(error) or "time-out"))

    async def _drain(self, deadlines: Deadlines) -> None:
        """Accept no further request; answer those in progress without waiting for more records or a due flush."""
        for listener in self._listeners:
            listener.stop_accepting()
            listener.begin_drain()
        deadlines.expire_all()
        # Before the last flush: parked members are answered, and commits that were logged are answered after it.
        self.groups.stop()
        for partition in self.partitions:
            if partition.has_waiting_produces:
                self._directory.scheduler.mark_due(self._directory.logs[partition.topic_partition])
        await asyncio.gather(*(listener.drain(DRAIN_MS) for listener in self._listeners))

    def _log_config(self, topic_partition: TopicPartition) -> LogConfig:
        return self._log_configs.of(self._coordination.configs.view.topic(topic_partition.topic))

    def _connection_limits(self) -> ConnectionLimits:
        # Half of the descriptors are for segments: a flood of connections must not keep a log from rolling.
        connections_max = self.settings[setting.MAX_CONNECTIONS]
        if self._open_files_max is not None:
            connections_max = min(connections_max, max(self._open_files_max // 2, 16))
        return ConnectionLimits(
            connections_max,
            self.settings[setting.SOCKET_REQUEST_MAX_BYTES],
            self.settings[setting.CONNECTIONS_MAX_IDLE_MS],
            self.settings[setting.SOCKET_SEND_BUFFER_BYTES],
            self.settings[setting.SOCKET_RECEIVE_BUFFER_BYTES],
            self.settings[setting.QUEUED_MAX_REQUEST_BYTES],
            self.settings[setting.SOCKET_RECEIVE_MIN_BYTES_PER_SECOND],
        )

    def _on_directory_offline(self, failure: DirectoryOffline) -> None:
        log.critical("broker.log_directory_offline", extra=fields(error=str(failure)))
        for partition in self.partitions:
            partition.fail_waiting(ErrorCode.KAFKA_STORAGE_ERROR)

    def _on_log_distrusted(self, topic_partition: TopicPartition) -> None:
        if self._cluster is not None:
            self._cluster.on_log_failed(topic_partition)

    def _on_log_start_moved(self, moved: Log) -> None:
        partition = self.partitions.find(*moved.topic_partition)
        if partition is not None:
            partition.wake_fetches()

    # What handlers use (BrokerContext).

    @property
    def controller_id(self) -> NodeId:
        return min(self.live.by_id, default=self.node_id)

    @property
    def live(self) -> BrokersView:
        return self._coordination.registrar.view

    @property
    def may_lead(self) -> bool:
        membership = self._membership
        return membership.broker_epoch != NOT_REGISTERED and not membership.is_uncertain(self.clock.boottime_ms())

    @property
    def topics(self) -> TopicsView:
        return self._served_topics.view

    @property
    def configs(self) -> ConfigsView:
        return self._coordination.configs.view

    def log_directory(self) -> LogDirectoryState:
        path = os.path.abspath(self._directory.path)
        size = volume_size(path)
        return LogDirectoryState(path, self._directory.offline is None, *size)

    def brokers(self, call: Call) -> list[BrokerAddress]:
        return self._brokers_at(call.local_address)

    def _brokers_at(self, local_address: tuple[str, int]) -> list[BrokerAddress]:
        """The live brokers, by the addresses for clients that connected to this one of ours."""
        return self._advertising.brokers_for(local_address, self.live)

    async def create_topic(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        return await self._topics.create(new, validate_only=validate_only)

    async def add_partitions(
        self, name: str, count: int, assignment: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> None:
        await self._topics.add_partitions(name, count, assignment, validate_only=validate_only)

    async def reassign(
        self, name: str, targets: Mapping[int, Sequence[int] | None], *, may_change_count: bool
    ) -> Mapping[int, RequestError | None]:
        return await self._topics.reassign(name, targets, self._min_in_sync, may_change_count=may_change_count)

    async def delete_topic(self, name: str, topic_id: UUID | None = None) -> None:
        await self._topics.delete(name, topic_id)

    async def alter_config(
        self, entity: ConfigEntity, changed: Mapping[str, str | None], *, replaces_all: bool = False
    ) -> None:
        await self._topics.alter_config(entity, changed, replaces_all=replaces_all)

    async def delete_records(
        self, before: Mapping[TopicPartition, int], timeout_ms: int
    ) -> Mapping[TopicPartition, int | OttlaError]:
        return await self._deletions.delete(before, timeout_ms)

    @property
    def elections(self) -> Elector | None:
        return None if self._cluster is None else self._cluster.elector

    async def next_producer_id(self) -> ProducerId:
        return await self._coordination.producer_ids.next()


def _greatest_producer_id(logs: Iterable[Log]) -> int:
    """Of those in the logs: a tree restored from a copy may not know that it gave them.  -1: there are none."""
    found = (producer_id for log in logs for producer_id, _ in log.producers.entries())
    return max((producer_id for producer_id in found if producer_id < PRODUCER_ID_BELIEVED_BELOW), default=-1)
