"""All groups of this broker: a shard for each partition of `__consumer_offsets` that it leads (broker/shards).

Commands go to the shard of their group; a shard that is not loaded, not here or has failed answers with an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from ottla.broker.context import Call
from ottla.broker.net.limits import GROUP_CLIENT_ID_LENGTH_MAX, GROUP_ID_LENGTH_MAX
from ottla.broker.partitions.coordinator_log import CoordinatorLog
from ottla.broker.partitions.partition import Partition
from ottla.broker.shards.served_shard import ServedShard, ShardEvents
from ottla.broker.shards.shard_table import Gathering, ShardSources, ShardTable
from ottla.coordination.configs import ConfigEntity, ConfigsView
from ottla.coordination.topics_view import Topic, TopicsView
from ottla.groups.commands import Command, ListGroups, TransactionalProducer, WriteMarker
from ottla.groups.refusals import code_for_committer, refusal
from ottla.groups.replies import ListReply
from ottla.groups.settings import ConsumerTimes, GroupSettings
from ottla.groups.shared_bytes import MEMBER_BYTES_MAX, OFFSET_BYTES_MAX, SharedBytes, network_of
from ottla.groups.topics_image import TopicImage, TopicsImage
from ottla.model import broker_settings as setting
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.group_settings import CONSUMER_HEARTBEAT_INTERVAL_MS, CONSUMER_SESSION_TIMEOUT_MS, in_force
from ottla.model.identifiers import OFFSETS_TOPIC, TopicPartition
from ottla.model.limits import MINUTE_MS
from ottla.model.settings import BrokerSettings
from ottla.observe.events import frequent
from ottla.records.end_marker import EndMarker
from ottla.runtime.clock import Moment
from ottla.runtime.steps import Steps
from ottla.storage.producers.log_transactions import VerificationGuard
from ottla.transactions.end_markers import EndMarkers

if TYPE_CHECKING:
    from ottla.groups.group_table import GroupMetrics
    from ottla.groups.shard import GroupShard

log = logging.getLogger(__name__)

_EVENTS: Final = ShardEvents("groups.loaded", "groups.unloaded", "groups.not_loaded", "groups.failed")
_OTHER_MEMBERS: Final = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the members use group.protocol=consumer, or no assignor of this client",
    ErrorCode.GROUP_ID_NOT_FOUND: "the members use group.protocol=classic",
}
# What a shard answers that is not served here now.
_NOT_SERVED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def note_refused_join(group_id: str, call: Call, error: ErrorCode) -> None:
    """At most one line for each refused join; clients do not repeat such a join automatically."""
    reason = _OTHER_MEMBERS.get(error)
    if reason is not None:
        facts = {"group": group_id, "client_id": call.client_id, "host": call.client_host}
        log.info("group.join_refused", extra=frequent(**facts, error=error.name, reason=reason))


class GroupCoordinator:
    """Every method runs on the event loop's thread and none waits.

    `times_of`: the settings in force for a consumer group, by the group's id.
    """

    def __init__(
        self,
        settings: GroupSettings,
        times_of: Callable[[str], ConsumerTimes],
        load_bytes_max: int,
        sources: ShardSources,
    ) -> None:
        self._settings = settings
        self._times_of = times_of
        self.member_bytes: Final = SharedBytes(MEMBER_BYTES_MAX)
        self.offset_bytes: Final = SharedBytes(OFFSET_BYTES_MAX)
        # Refusals that were logged.
        self._logged_joins_count = self._logged_commits_count = 0
        self._view: TopicsView | None = None
        self._image = TopicsImage.of()
        self._shards: Final = ShardTable(
            _EVENTS, OFFSETS_TOPIC, self._new_shard, load_bytes_max, sources, self._on_serving
        )

    @property
    def exists(self) -> bool:
        """Whether the tree has `__consumer_offsets`."""
        return self._shards.topic_exists

    def state_of(self, group_id: str) -> ErrorCode:
        """NONE when this broker decides commands of this group now, else the error that its clients get."""
        return self._shards.state_of(group_id)

    def submit(self, group_id: str, command: Command, reply: Callable[[Any], None]) -> None:
        """Decide `command`; `reply` is called exactly once, now or later, with the reply that the command names."""
        if len(group_id) > GROUP_ID_LENGTH_MAX:
            reply(refusal(command, ErrorCode.INVALID_GROUP_ID))
            return
        served = self._shards.find(group_id)
        if isinstance(served, ErrorCode):
            reply(refusal(command, served))
            return
        served.shard.submit(command, reply, self._shards.moment())
        if self.member_bytes.refused_count != self._logged_joins_count:
            self._logged_joins_count = self.member_bytes.refused_count
            self._log_full("groups.members_full", self.member_bytes)
        if self.offset_bytes.refused_count != self._logged_commits_count:
            self._logged_commits_count = self.offset_bytes.refused_count
            self._log_full("groups.offsets_full", self.offset_bytes)
        self._shards.arm_for(served)

    def open_transaction(
        self,
        group_id: str,
        producer: tuple[int, int],
        verify: Callable[[TopicPartition, Callable[[ErrorCode], None]], None],
        on_open: Callable[[TransactionalProducer | ErrorCode], None],
        *,
        adds_partition: bool = False,
    ) -> None:
        """Call `on_open` once, now or later, with what commits of this producer (id and epoch) need, or an error.

        `verify` queries the coordinator of the transaction about the group's partition; it is not called where the
        transaction is open there already.  `adds_partition`: the coordinator adds it, so each transaction has an epoch
        of its producer alone.
        """
        if not group_id or len(group_id) > GROUP_ID_LENGTH_MAX:
            on_open(ErrorCode.INVALID_GROUP_ID)
            return
        served = self._shards.find(group_id)
        if isinstance(served, ErrorCode):
            on_open(served)
            return
        partition = served.partition
        try:
            guard = partition.guard(*producer, 0)
        except OttlaError as error:
            on_open(code_for_committer(error.error_code))
            return
        if guard is None:
            on_open(TransactionalProducer(*producer))
            return

        def on_verified(error: ErrorCode) -> None:
            if error is ErrorCode.NONE and adds_partition and not partition.has_guard(guard):
                # The marker of the last transaction came meanwhile, which the coordinator has waited for.
                self.open_transaction(group_id, producer, verify, on_open, adds_partition=True)
            else:
                on_open(self._verified(served, TransactionalProducer(*producer, guard), error))

        verify(partition.topic_partition, on_verified)

    def _verified(
        self, served: ServedShard[GroupShard], producer: TransactionalProducer, error: ErrorCode
    ) -> TransactionalProducer | ErrorCode:
        if error is not ErrorCode.NONE:
            assert isinstance(producer.guard, VerificationGuard)
            served.partition.verification_refused(producer.guard)
            return error
        # Another leadership forgets its guards.
        return producer if self._shards.at(served.partition.index) is served else ErrorCode.NOT_COORDINATOR

    def write_marker(self, index: int, markers: EndMarkers, on_done: Callable[[ErrorCode], None]) -> None:
        """Write the marker that ends a transaction in a partition of `__consumer_offsets`.

        `on_done` is called once: when its offsets have taken effect and it is on all in-sync replicas, or with an
        error.  While the shard is not served here the sender tries again (KAFKA-17507).
        """

        def on_reply(error: ErrorCode) -> None:
            on_done(ErrorCode.NOT_LEADER_OR_FOLLOWER if error in _NOT_SERVED else error)

        served = self._shards.at(index)
        if served is None or served.error:
            on_done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        marker = EndMarker(markers.commits, markers.coordinator_epoch)
        command = WriteMarker(markers.producer_id, markers.producer_epoch, marker, markers.advances_epoch)
        served.shard.submit(command, on_reply, self._shards.moment())
        self._shards.arm_for(served)

    def abandon_join(self, group_id: str, connection: object) -> None:
        """The connection closed while its JoinGroup for this group was parked."""
        served = self._shards.find(group_id)
        if not isinstance(served, ErrorCode):
            served.shard.abandon_join(group_id, connection, self._shards.moment())
            self._shards.arm_for(served)

    def submit_to_all(self, command: ListGroups, on_all: Callable[[list[ListReply]], None]) -> Steps[None]:
        """Submit the command to every shard, one in each step; `on_all` is called once, with all their answers."""
        asked = self._shards.led()
        moment = self._shards.moment()
        gathering = Gathering(len(asked), on_all)
        for index, shard in enumerate(asked):
            if shard.error:
                gathering.place(index)(ListReply(shard.error))
            else:
                shard.shard.submit(command, gathering.place(index), moment)
            yield

    def metrics(self) -> Iterator[GroupMetrics]:
        """The groups that this broker decides now."""
        for shard in self._shards.deciding():
            yield from shard.metrics()

    def on_topics_changed(self, view: TopicsView) -> None:
        """Topics were created, grown or deleted: update groups, and the shards if the topic is `__consumer_offsets`."""
        if self._shards.is_stopped:
            return
        offsets_topic = view.by_name.get(OFFSETS_TOPIC)
        if view is not self._view and offsets_topic is not None:
            self._view = view
            self._image = TopicsImage.of(
                TopicImage(topic.name, topic.topic_id, len(topic.partitions)) for topic in view.by_name.values()
            )
            moment = self._shards.moment()
            for shard in self._shards.deciding():
                shard.on_topics_changed(self._image, moment)
        self.follow(offsets_topic)
        self._shards.arm()

    def follow(self, offsets_topic: Topic | None) -> None:
        """See `ShardTable.follow`."""
        self._shards.follow(offsets_topic)

    def on_directory_offline(self) -> None:
        """The disk failed: no command can be decided any more, since none can be logged."""
        self._shards.on_directory_offline()

    def on_clock_moved(self) -> None:
        """Deadlines may have come that the timer waits for."""
        self._shards.on_clock_moved()

    def stop(self) -> None:
        """Answer everything that is parked: its clients find another coordinator, or this broker after its restart."""
        moment = self._shards.moment()
        for shard in self._shards.deciding():
            shard.finish_tombstones(moment)
        self._shards.stop()

    def _new_shard(self, partition: Partition, coordinator_log: CoordinatorLog) -> GroupShard:
        # See `late_imports`.
        from ottla.groups.shard import GroupShard

        return GroupShard(
            coordinator_log,
            self._settings,
            _new_member_id,
            self._image,
            self._times_of,
            self.member_bytes,
            self.offset_bytes,
        )

    def _on_serving(self, shard: GroupShard, moment: Moment) -> None:
        shard.on_topics_changed(self._image, moment)

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
