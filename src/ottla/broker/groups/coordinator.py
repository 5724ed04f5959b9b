"""All groups of this broker: a shard for each partition of `__consumer_offsets` that it leads.

A shard is loaded when this broker starts to lead its partition in a leader epoch, and unloaded when that ends.  While
only the lease is over it stays loaded and refuses everything.
Commands go to the shard of their group; a shard that is not loaded, not here or has failed answers with an error.
One timer serves the deadlines of all shards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any, Final, Generic, TypeVar, cast
from uuid import uuid4

from ottla.broker.context import Call
from ottla.broker.groups.loading import Loader, ShardLoading
from ottla.broker.groups.served_shard import ServedShard
from ottla.broker.net.limits import GROUP_CLIENT_ID_LENGTH_MAX, GROUP_ID_LENGTH_MAX
from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.broker.tree.broker_lifecycle import BrokerLifecycle, LeaseWatch
from ottla.coordination.configs import ConfigEntity, ConfigsView
from ottla.coordination.topics_view import Topic, TopicsView
from ottla.groups.commands import Command, ListGroups
from ottla.groups.group_table import GroupMetrics
from ottla.groups.refusals import refusal
from ottla.groups.replies import ListReply
from ottla.groups.settings import ConsumerTimes, GroupSettings
from ottla.groups.shared_bytes import MEMBER_BYTES_MAX, OFFSET_BYTES_MAX, SharedBytes, network_of
from ottla.groups.topics_image import TopicImage, TopicsImage
from ottla.model import broker_settings as setting
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.group_partition import partition_of
from ottla.model.group_settings import CONSUMER_HEARTBEAT_INTERVAL_MS, CONSUMER_SESSION_TIMEOUT_MS, in_force
from ottla.model.identifiers import OFFSETS_TOPIC
from ottla.model.limits import MINUTE_MS
from ottla.model.settings import BrokerSettings
from ottla.observe.events import fields, frequent
from ottla.replication.replica import Role
from ottla.runtime.clock import Clock, Moment
from ottla.runtime.steps import Steps

log = logging.getLogger(__name__)

# Deadlines of shards are served for at most this long, then other callbacks of the loop run.
TIMER_TURN_S: Final = 0.002
# When the lease is found to be over, deadlines are compared again after this time.
UNCERTAIN_RETRY_MS: Final = 50
_OTHER_MEMBERS: Final = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the members use group.protocol=consumer, or no assignor of this client",
    ErrorCode.GROUP_ID_NOT_FOUND: "the members use group.protocol=classic",
}
T = TypeVar("T")


class Gathering(Generic[T]):
    """One answer assembled from several replies, which arrive in any order, at once or later.

    Calls `on_all` with `count` replies in the order of their places, once the last of them has arrived.
    """

    __slots__ = ("_missing", "_on_all", "_replies")

    def __init__(self, count: int, on_all: Callable[[list[T]], None]) -> None:
        self._replies: list[T | None] = [None] * count
        self._missing = count
        self._on_all = on_all
        if not count:
            on_all([])

    def place(self, index: int) -> Callable[[T], None]:
        """Takes the reply of this place."""

        def take(reply: T) -> None:
            self._replies[index] = reply
            self._missing -= 1
            if not self._missing:
                self._on_all(cast("list[T]", self._replies))

        return take


def note_refused_join(group_id: str, call: Call, error: ErrorCode) -> None:
    """At most one line for each refused join; clients do not repeat such a join automatically."""
    reason = _OTHER_MEMBERS.get(error)
    if reason is not None:
        facts = {"group": group_id, "client_id": call.client_id, "host": call.client_host}
        log.info("group.join_refused", extra=frequent(**facts, error=error.name, reason=reason))


class GroupCoordinator:
    """Every method runs on the event loop's thread and none waits.

    `times_of`: the settings in force for a consumer group, by the group's id.  `lifecycle`: this broker among others;
    None when it is the only one.  `lease_watch`: compared once the lease is over; None where no session could end.
    """

    def __init__(
        self,
        settings: GroupSettings,
        times_of: Callable[[str], ConsumerTimes],
        load_bytes_max: int,
        partitions: PartitionTable,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        is_flushing: Callable[[], bool],
        now_s: Callable[[], float] = perf_counter,
        lifecycle: BrokerLifecycle | None = None,
        lease_watch: LeaseWatch | None = None,
    ) -> None:
        self._settings = settings
        self._times_of = times_of
        self.member_bytes: Final = SharedBytes(MEMBER_BYTES_MAX)
        self.offset_bytes: Final = SharedBytes(OFFSET_BYTES_MAX)
        # Refusals that were logged.
        self._logged_joins_count = self._logged_commits_count = 0
        self._load_bytes_max = load_bytes_max
        self._partitions = partitions
        self._clock = clock
        self._loop = loop
        self._lifecycle = lifecycle
        self._lease_watch = lease_watch
        self._loader = Loader(loop, is_flushing, now_s)
        self._view: TopicsView | None = None
        self._image = TopicsImage.of()
        # By partition; None where this broker does not lead it.
        self._shards: list[ServedShard | None] = []
        self._reload: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = 0
        # The shard whose deadlines were served last.
        self._turn_of = 0
        self._is_stopped = False
        self._is_offline = False

    @property
    def exists(self) -> bool:
        """Whether the tree has `__consumer_offsets`."""
        return bool(self._shards)

    def state_of(self, group_id: str) -> ErrorCode:
        """NONE when this broker decides commands of this group now, else the error that its clients get."""
        shard = self._shard_of(group_id)
        return ErrorCode.NOT_COORDINATOR if shard is None or self._is_uncertain() else shard.error

    def submit(self, group_id: str, command: Command, reply: Callable[[Any], None]) -> None:
        """Decide `command`; `reply` is called exactly once, now or later, with the reply that the command names."""
        if len(group_id) > GROUP_ID_LENGTH_MAX:
            reply(refusal(command, ErrorCode.INVALID_GROUP_ID))
            return
        is_uncertain = self._is_uncertain()
        if is_uncertain:
            self._notice_uncertain()
        shard = self._shard_of(group_id)
        error = ErrorCode.NOT_COORDINATOR if shard is None or is_uncertain else shard.error
        if shard is None or error:
            reply(refusal(command, error))
            return
        shard.shard.submit(command, reply, self._moment())
        if self.member_bytes.refused_count != self._logged_joins_count:
            self._logged_joins_count = self.member_bytes.refused_count
            self._log_full("groups.members_full", self.member_bytes)
        if self.offset_bytes.refused_count != self._logged_commits_count:
            self._logged_commits_count = self.offset_bytes.refused_count
            self._log_full("groups.offsets_full", self.offset_bytes)
        self._arm_for(shard)

    def abandon_join(self, group_id: str, connection: object) -> None:
        """The connection closed while its JoinGroup for this group was parked."""
        shard = self._shard_of(group_id)
        if shard is not None and not shard.error:
            shard.shard.abandon_join(group_id, connection, self._moment())
            self._arm_for(shard)

    def submit_to_all(self, command: ListGroups, on_all: Callable[[list[ListReply]], None]) -> Steps[None]:
        """Submit the command to every shard, one in each step; `on_all` is called once, with all their answers."""
        asked = [shard for shard in self._shards if shard is not None]
        moment = self._moment()
        gathering = Gathering(len(asked), on_all)
        for index, shard in enumerate(asked):
            if shard.error:
                gathering.place(index)(ListReply(shard.error))
            else:
                shard.shard.submit(command, gathering.place(index), moment)
            yield

    def metrics(self) -> Iterator[GroupMetrics]:
        """The groups that this broker decides now."""
        for served in list(self._shards):
            if served is not None and not served.error:
                yield from served.shard.metrics()

    def on_topics_changed(self, view: TopicsView) -> None:
        """Topics were created, grown or deleted: update groups, and the shards if the topic is `__consumer_offsets`."""
        if self._is_stopped:
            return
        offsets_topic = view.by_name.get(OFFSETS_TOPIC)
        if view is not self._view and offsets_topic is not None:
            self._view = view
            self._image = TopicsImage.of(
                TopicImage(topic.name, topic.topic_id, len(topic.partitions)) for topic in view.by_name.values()
            )
            moment = self._moment()
            for shard in self._shards:
                if shard is not None and not shard.error:
                    shard.shard.on_topics_changed(self._image, moment)
        self.follow(offsets_topic)
        self._arm()

    def follow(self, offsets_topic: Topic | None) -> None:
        """Load the shards whose partitions this broker started to lead, unload those that it no longer leads, or leads
        in a new epoch.  A shard whose partition is only suspended stays loaded, and continues when that ends.

        None: the tree does not have `__consumer_offsets`.
        """
        if self._is_stopped:
            return
        count = 0 if offsets_topic is None else len(offsets_topic.partitions)
        led = [self._led_partition(index) for index in range(count)]
        # The same, without those that are suspended.
        serving = [None if each is None or each.is_suspended_leader else each for each in led]
        for index, shard in enumerate(self._shards):
            if shard is not None and not shard.serves(led[index] if index < count else None):
                # First: its answers may lead to calls of this shard.
                self._shards[index] = None
                self._unload(shard)
        self._shards = [*self._shards[:count], *[None] * (count - len(self._shards))]
        for index, partition in enumerate(serving):
            shard = self._shards[index]
            if partition is None:
                if shard is not None:
                    shard.suspend()
            elif shard is None:
                shard = self._shards[index] = self._new_shard(partition)
                self._load(shard)
            elif shard.is_suspended:
                self._resume(shard)

    def on_directory_offline(self) -> None:
        """The disk failed: no command can be decided any more, since none can be logged."""
        self._is_offline = True
        self._loader.stop()
        for shard in self._shards:
            if shard is not None:
                shard.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def stop(self) -> None:
        """Answer everything that is parked: its clients find another coordinator, or this broker after its restart."""
        self._is_stopped = True
        self._loader.stop()
        if self._timer is not None:
            self._timer.cancel()
        moment = self._moment()
        for shard in self._shards:
            if shard is not None:
                if not shard.error:
                    shard.shard.finish_tombstones(moment)
                shard.fail(ErrorCode.NOT_COORDINATOR)

    def _is_uncertain(self) -> bool:
        """Whether another broker may coordinate the groups already."""
        return self._lifecycle is not None and self._lifecycle.is_uncertain(self._clock.boottime_ms())

    def _notice_uncertain(self) -> None:
        """Suspend the shards now, before a command is refused or a deadline passes.  The lease may be extended before
        the timer of `LeaseWatch` comes, and only a suspended shard restarts the sessions of its members.
        """
        if self._lease_watch is not None:
            self._lease_watch.check()

    def _led_partition(self, index: int) -> Partition | None:
        """The partition, if the tree has this broker as its leader; also while the lease is over."""
        partition = self._partitions.find(OFFSETS_TOPIC, index)
        if partition is None or not (partition.role is Role.LEADER or partition.is_suspended_leader):
            return None
        return partition

    def _new_shard(self, partition: Partition) -> ServedShard:
        return ServedShard(
            partition,
            self._settings,
            _new_member_id,
            self._image,
            self._times_of,
            self.member_bytes,
            self.offset_bytes,
            on_moved=self._on_moved,
            on_lost=self._on_lost,
        )

    def _load(self, served: ServedShard) -> None:
        partition = served.partition
        if self._is_offline:
            served.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        if partition.log_end_offset == partition.log_start_offset:
            self._on_loaded(served, None)
            return
        served.loading = ShardLoading(partition, served.shard, self._load_bytes_max)
        self._loader.add(served.loading, lambda error: self._on_loaded(served, error))

    def _unload(self, served: ServedShard) -> None:
        """Answer its parked requests, and drop its groups: another broker, or a later load, reads them from the log."""
        if served.loading is not None:
            self._loader.discard(served.loading)
        served.fail(ErrorCode.NOT_COORDINATOR)
        log.info("groups.unloaded", extra=fields(partition=served.name, leader_epoch=served.leader_epoch))

    def _on_loaded(self, served: ServedShard, error: OttlaError | OSError | None) -> None:
        if error is not None:
            served.loading = None
            log.error("groups.not_loaded", extra=fields(partition=served.name, error=str(error)))
            served.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        moment = self._moment()
        served.loaded(moment)
        self._serve(served, moment)

    def _resume(self, served: ServedShard) -> None:
        moment = self._moment()
        served.resume(moment)
        self._serve(served, moment)

    def _serve(self, served: ServedShard, moment: Moment) -> None:
        """Its groups decide from now on, unless it still has an error."""
        if not served.error:
            served.shard.on_topics_changed(self._image, moment)
            self._arm_for(served)

    def _on_moved(self, served: ServedShard) -> None:
        """Its stable end moved: replies were sent, and deadlines may have started."""
        if not served.error:
            self._arm_for(served)

    def _on_lost(self) -> None:
        """Appends of a shard were given up.

        Another broker leads its partition; or this one still does, and what it appended is in the log: then the shard
        is loaded again.
        """
        if self._reload is None and not self._is_stopped:
            self._reload = self._loop.call_soon(self._reload_lost)

    def _reload_lost(self) -> None:
        self._reload = None
        self.follow(None if self._view is None else self._view.by_name.get(OFFSETS_TOPIC))

    def _log_full(self, event: str, shared: SharedBytes) -> None:
        """A client found no room; the line names it, and the client that holds most."""
        refused = shared.last_refused
        assert refused is not None
        largest_client, largest_client_bytes = shared.largest_network
        facts = {
            "group": refused.group_id,
            "client_host": refused.client_host,
            "client_bytes": shared.held_by(network_of(refused.client_host)),
            "held_bytes": shared.held_bytes,
            "limit_bytes": shared.limit_bytes,
            "largest_client": largest_client,
            "largest_client_bytes": largest_client_bytes,
        }
        log.warning(event, extra=frequent(**facts))

    def _shard_of(self, group_id: str) -> ServedShard | None:
        shards = self._shards
        return shards[partition_of(group_id, len(shards))] if shards else None

    def _moment(self) -> Moment:
        return Moment(self._clock.now_ms(), self._clock.monotonic_ms())

    # The timer.

    def _arm_for(self, served: ServedShard) -> None:
        due_ms = served.shard.next_due_ms()
        if due_ms is not None and (self._timer is None or due_ms < self._timer_due_ms):
            self._arm_at(due_ms)

    def _arm(self) -> None:
        due: Sequence[int] = [
            due_ms
            for shard in self._shards
            if shard is not None and not shard.error and (due_ms := shard.shard.next_due_ms()) is not None
        ]
        if due:
            self._arm_at(min(due))

    def _arm_at(self, due_ms: int) -> None:
        if self._is_stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = due_ms
        delay_ms = max(due_ms - self._clock.monotonic_ms(), 1)
        self._timer = self._loop.call_later(delay_ms / 1000, self._on_timer)

    def on_clock_moved(self) -> None:
        """Deadlines may have come that the timer waits for."""
        if self._timer is not None:
            self._timer.cancel()
            self._on_timer()

    def _on_timer(self) -> None:
        self._timer = None
        if self._is_uncertain():
            # Heartbeats are refused, so no session may end meanwhile.
            try:
                self._notice_uncertain()
            finally:
                self._arm_at(self._clock.monotonic_ms() + UNCERTAIN_RETRY_MS)
            return
        moment = self._moment()
        pause_at_s = self._loop.time() + TIMER_TURN_S
        try:
            for _ in self._shards:
                # Before it is called: if one shard fails, the others' deadlines continue.
                self._turn_of = (self._turn_of + 1) % len(self._shards)
                shard = self._shards[self._turn_of]
                if shard is not None and not shard.error:
                    shard.shard.on_time(moment)
                if self._loop.time() >= pause_at_s:
                    # Offset expiry, for example, is due in all shards at the same time.
                    break
        finally:
            self._arm()


def _new_member_id(client_id: str) -> str:
    return f"{client_id[:GROUP_CLIENT_ID_LENGTH_MAX]}-{uuid4()}"


def group_settings(broker: BrokerSettings) -> GroupSettings:
    """The limits and times of all groups of this broker."""
    return GroupSettings(
        min_session_timeout_ms=broker[setting.GROUP_MIN_SESSION_TIMEOUT_MS],
        max_session_timeout_ms=broker[setting.GROUP_MAX_SESSION_TIMEOUT_MS],
        initial_rebalance_delay_ms=broker[setting.GROUP_INITIAL_REBALANCE_DELAY_MS],
        max_size=broker[setting.GROUP_MAX_SIZE],
        offset_metadata_max_bytes=broker[setting.OFFSET_METADATA_MAX_BYTES],
        offsets_retention_ms=broker[setting.OFFSETS_RETENTION_MINUTES] * MINUTE_MS,
        offsets_retention_check_interval_ms=broker[setting.OFFSETS_RETENTION_CHECK_INTERVAL_MS],
        consumer_session_timeout_ms=broker[setting.GROUP_CONSUMER_SESSION_TIMEOUT_MS],
        consumer_heartbeat_interval_ms=broker[setting.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS],
        consumer_max_size=broker[setting.GROUP_CONSUMER_MAX_SIZE],
        consumer_assignors=broker[setting.GROUP_CONSUMER_ASSIGNORS],
    )


def consumer_times(configs: ConfigsView, group_id: str, broker: BrokerSettings) -> ConsumerTimes:
    """The settings of one consumer group: its own over the broker's."""
    own = configs.of(ConfigEntity.group(group_id))
    return ConsumerTimes(
        in_force(CONSUMER_SESSION_TIMEOUT_MS, own, broker), in_force(CONSUMER_HEARTBEAT_INTERVAL_MS, own, broker)
    )
