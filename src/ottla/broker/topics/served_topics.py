"""The topics that this broker serves: they follow the tree.

After each change of the tree, and at start, `follow` reads it and makes the changes that `reconciliation` finds: logs
are created, opened, dropped, and partitions begin or cease to be served.  Partitions whose change fails (no room, no
descriptor) are refused with an error that clients retry, and the change is retried until it succeeds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_table import PartitionTable, Refusal
from ottla.broker.topics.reconciliation import (
    HeldPartition,
    TopicChanges,
    TreeViews,
    changed_partitions,
    changed_topics,
    other_extents,
    reconcile,
)
from ottla.broker.tree.broker_lifecycle import NOT_REGISTERED, BrokerLifecycle
from ottla.coordination.configs import ConfigRegistry, ConfigsView
from ottla.coordination.topic_nodes import TopicDeletion
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.topics_view import NO_TOPICS, PartitionNode, Topic, TopicsView
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NO_LEADER_EPOCH, TopicPartition
from ottla.observe.events import fields
from ottla.replication.replica import EpochBehindLog, Role
from ottla.runtime.clock import Clock
from ottla.runtime.loop_offload import LoopOffload, Timers
from ottla.runtime.mutex import Mutex
from ottla.runtime.offload import Offload
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.errors import StorageError
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig

log = logging.getLogger(__name__)

# After the first failure; doubled after each further one.
RETRY_AFTER_S_MIN: Final = 1.0
RETRY_AFTER_S_MAX: Final = 10.0

_NO_CONFIGS: Final = ConfigsView(0, MappingProxyType({}))


class NotServed(StorageError):
    """A topic is in the tree, and a part of it is not served yet."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR
    hint = "it will be served without a restart as soon as its logs can be made; until then it can be deleted"


def _ignore(*_event: object) -> None:
    return None


class TopicsObserver(NamedTuple):
    """What `ServedTopics` calls after changes."""

    # For each topic of which partitions begin or cease to be served, or change their roles; None when the tree no
    # longer has the topic.
    on_changed: Callable[[str, Topic | None], None] = _ignore
    # With the partitions of this broker that are served from now on, that are no longer, or that changed their role,
    # leader or epoch.
    on_roles_changed: Callable[[Sequence[Partition]], None] = _ignore
    # When all changes of a view in which topics were created, grown or deleted are applied.
    on_followed: Callable[[TopicsView], None] = _ignore
    # When settings have changed, before the topics follow them.
    on_configs: Callable[[ConfigsView], None] = _ignore


class ServedTopics:
    """Brings `partitions` and `directory` in line with the tree.

    `view` is replaced when the partitions of a view are served, or refused: so clients learn of a partition when it can
    be used.  Topics that are deleted leave it before their logs are deleted.
    """

    def __init__(
        self,
        lifecycle: BrokerLifecycle,
        registry: TopicRegistry,
        configs: ConfigRegistry,
        directory: LogDirectory,
        config_of: Callable[[TopicPartition], LogConfig],
        partitions: PartitionTable,
        timers: Timers,
        clock: Clock,
        new_partition: Callable[[Log], Partition],
        observer: TopicsObserver,
    ) -> None:
        self._lifecycle = lifecycle
        self._registry = registry
        self._configs = configs
        self._directory = directory
        self._config_of = config_of
        self._partitions = partitions
        self._timers = timers
        self._clock = clock
        self._new_partition = new_partition
        self._followed = TreeViews(NO_TOPICS, _NO_CONFIGS)
        # Those of the view that was followed, without those that are being deleted.
        self._shown = NO_TOPICS
        self._following = Mutex()
        # Names whose changes could not all be made, and why.
        self._failures: dict[str, OttlaError] = {}
        # The tree could not be read, or a change has a bug: the next pass is due without a change of the tree.
        self._is_unread = False
        self._has_deletions = False
        # The registry's, as of the notes of deletions that were read last.
        self._deletions_version = 0
        # The broker's life by which the partitions have their roles.
        self._broker_epoch = lifecycle.broker_epoch
        # The live brokers of which the partitions know.
        self._live = lifecycle.live
        # Whether the partitions know that the lease is over.
        self._is_suspended = lifecycle.is_suspended
        self._kept: set[TopicPartition] = set()
        self._retries_count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._retrying: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._observer = observer

    @property
    def view(self) -> TopicsView:
        """The topics of the last view that was followed, without those that are being deleted."""
        return self._shown

    def require_served(self, name: str) -> None:
        """Raises `NotServed` if changes of this topic could not be made, or another topic's log is in its place."""
        failure = self._failures.get(name)
        if failure is not None:
            raise NotServed(f"topic {name!r} is in the tree, but not all of it is served: {failure}") from failure
        for topic_partition, refusal in self._partitions.refusals():
            if topic_partition.topic == name and refusal.error_code is ErrorCode.INCONSISTENT_TOPIC_ID:
                problem = f"topic {name!r} is in the tree, but {topic_partition} holds the records of another topic"
                raise NotServed(problem, hint="stop the broker and move that directory away, or delete the topic")

    def has_logs(self, topic: Topic) -> bool:
        """Whether there is a log of this topic, also one that could not be opened."""
        names = (TopicPartition(topic.name, node.partition_index) for node in topic.partitions)
        return any(self._directory.holds(topic_partition) for topic_partition in names)

    async def start(self) -> None:
        """Serve the topics of the tree, and reconcile every log of the data directory."""
        async with self._following:
            held = dict.fromkeys(name.topic for name in (*self._directory.logs, *self._directory.failed))
            await self._follow(held, is_start=True)
            self._arm()

    async def follow(self) -> None:
        """Read what changed in the tree, and make the changes.  Failures are reported, and retried later.

        Raises `OttlaError` when the tree cannot be read; that is retried, too.
        """
        async with self._following:
            self._retries_count = 0
            await self._follow_armed(())

    async def retry(self) -> None:
        """Retry the changes that failed."""
        async with self._following:
            self._retries_count += 1
            await self._follow_armed(self._failures)

    def follow_registrations(self) -> None:
        """This broker's registration or lease, or the registrations of the others, changed: the partitions follow now.

        `follow` does the same; but a broker that lost its session must cease to lead before it can read the tree.
        """
        epoch, live, is_suspended = self._lifecycle.broker_epoch, self._lifecycle.live, self._lifecycle.is_suspended
        if epoch == self._broker_epoch and live == self._live and is_suspended is self._is_suspended:
            return
        self._broker_epoch, self._live, self._is_suspended = epoch, live, is_suspended
        changed = [
            partition
            for partition in self._partitions
            if partition.node is not None and self._take_role(partition, partition.node)
        ]
        if changed:
            for name in dict.fromkeys(partition.topic_partition.topic for partition in changed):
                self._observer.on_changed(name, self._followed.topics.by_name.get(name))
            self._observer.on_roles_changed(changed)

    async def stop(self) -> None:
        """No retries from now on; returns when no change is in progress."""
        self._is_stopped = True
        self._arm()
        async with self._following:
            pass
        if self._retrying is not None:
            await self._retrying

    async def _follow_armed(self, unsettled: Iterable[str]) -> None:
        self._is_unread = True
        try:
            await self._follow(unsettled)
            self._is_unread = False
        finally:
            self._arm()

    async def _follow(self, unsettled: Iterable[str], *, is_start: bool = False) -> None:
        self.follow_registrations()
        old, new = self._followed, TreeViews(await self._registry.refresh(), await self._configs.refresh())
        if new.configs is not old.configs:
            self._observer.on_configs(new.configs)
        unsettled = set(unsettled)
        names = dict.fromkeys([*changed_topics(old, new), *unsettled])
        deletions: list[TopicDeletion] = []
        deletions_version = self._registry.deletions_version
        if is_start or self._has_deletions or deletions_version != self._deletions_version:
            deletions = await self._registry.pending_deletions()
            names.update((deletion.name, None) for deletion in deletions)
        offload = LoopOffload()
        on_disk = self._indexes_on_disk() if is_start else {}
        # A standalone broker may have another tree than the one that belongs to its logs: no other broker can know.
        is_registered = self._lifecycle.broker_epoch != NOT_REGISTERED
        is_complete = is_start and is_registered and not self._lifecycle.is_sole
        self._hide_deleted(names, old.topics, new.topics)
        for name in names:
            is_settled = name not in unsettled and name not in self._failures
            only: Collection[int] | None = None
            if is_settled and not deletions and old.configs.topic(name) is new.configs.topic(name):
                # Most changes are those of a few partitions' states.
                only = changed_partitions(old.topics.by_name.get(name), new.topics.by_name.get(name))
            indexes = only
            if indexes is None:
                counts = [
                    *(len(view.topics.by_name[name].partitions) for view in (old, new) if name in view.topics.by_name),
                    *(deletion.partitions_count for deletion in deletions if deletion.name == name),
                ]
                indexes = {*range(max(counts, default=0)), *on_disk.get(name, ())}
            held = await self._held(name, new.topics.by_name.get(name), indexes, offload)
            changes = reconcile(
                name,
                old,
                new,
                self._lifecycle.node_id,
                held,
                deletions,
                only=only,
                is_settled=is_settled,
                is_complete=is_complete,
            )
            await self._make_changes(changes, offload, is_late=is_start or not is_settled)
            self._show_extent(name, new.topics)
        self._followed = new
        self._shown = new.topics
        await self._finish(deletions)
        self._deletions_version = deletions_version
        if is_start or other_extents(old.topics, new.topics, names):
            self._observer.on_followed(new.topics)

    def _hide_deleted(self, names: Iterable[str], old: TopicsView, new: TopicsView) -> None:
        """Topics that are deleted, or recreated under their names, are unknown from now on.

        Their logs are deleted later, with syncs in other threads: an answer meanwhile must neither say that
        another broker has them, nor have the leader epochs of a topic that a new one may follow at once.  librdkafka,
        which would keep them, takes the new topic's for outdated and does not write to it.
        """
        deleted = {}
        for name in names:
            before, after = old.by_name.get(name), new.by_name.get(name)
            if before is not None and (after is None or after.topic_id != before.topic_id):
                deleted[name] = before.topic_id
        for name, topic_id in deleted.items():
            self._partitions.forget_topic(name, topic_id)
        if deleted:
            rest = {name: topic for name, topic in self._shown.by_name.items() if name not in deleted}
            self._shown = TopicsView.of(old.version, rest)

    def _show_extent(self, name: str, new: TopicsView) -> None:
        """How many partitions the topic has: those of other brokers have another error than those that do not exist."""
        after = new.by_name.get(name)
        if after is not None:
            self._partitions.set_topic(name, after.topic_id, len(after.partitions))

    def _indexes_on_disk(self) -> dict[str, list[int]]:
        indexes: dict[str, list[int]] = {}
        for name, index in (*self._directory.logs, *self._directory.failed):
            indexes.setdefault(name, []).append(index)
        return indexes

    async def _held(
        self, name: str, topic: Topic | None, indexes: Iterable[int], offload: Offload
    ) -> dict[int, HeldPartition]:
        held: dict[int, HeldPartition] = {}
        for index in indexes:
            here = self._held_partition(TopicPartition(name, index), topic)
            if here is not None:
                held[index] = here
            await offload.pause()
        return held

    def _held_partition(self, topic_partition: TopicPartition, topic: Topic | None) -> HeldPartition | None:
        directory = self._directory
        is_on_disk = directory.holds(topic_partition)
        found = directory.logs.get(topic_partition)
        failure = directory.failed.get(topic_partition)
        if topic is not None and not is_on_disk:
            failure = directory.refuse_lost(topic_partition, topic.topic_id)
            is_on_disk = failure is not None
        partition = self._partitions.find(*topic_partition)
        refusal = self._partitions.refusal_of(topic_partition)
        topic_id = directory.topic_id_of(topic_partition)
        if not is_on_disk and topic_id is None and partition is None and refusal is None:
            return None
        return HeldPartition(
            is_on_disk,
            found is not None,
            topic_id,
            None if failure is None else failure.error_code,
            None if partition is None else partition.node,
            refusal,
            NO_LEADER_EPOCH if found is None else found.leader_epoch,
        )

    async def _make_changes(self, changes: TopicChanges, offload: Offload, *, is_late: bool) -> None:
        """Make the changes of one topic.  A failure is kept in `_failures`."""
        name, topic = changes.name, changes.topic
        changed: list[Partition] = []
        try:
            self._stop(changes)
            if changes.drop:
                await self._directory.delete_in_steps(changes.drop, offload)
            for topic_partition in changes.set_aside:
                assert topic is not None
                epoch = self._lifecycle.broker_epoch
                registered = None if epoch == NOT_REGISTERED else epoch
                await self._directory.set_aside_in_steps(topic_partition, topic.topic_id, registered, offload)
            for topic_partition in changes.stray:
                await self._directory.set_stray_in_steps(topic_partition, self._lifecycle.broker_epoch, offload)
            self._report_kept(changes.keep)
            for topic_partition, refusal in changes.refuse:
                self._refuse(topic_partition, refusal)
            if topic is not None:
                await self._serve(topic, changes, changed, offload)
                # Before logs are created, which may lack room: a changed setting of other logs may free some.  A new
                # log is created with it.
                await self._apply_config(changes, offload)
                await self._make_logs(topic, changes.make, changed, offload)
        except (OSError, OttlaError) as error:
            self._fail(changes, error)
            return
        except Exception as bug:
            # Of this topic: the others are followed all the same.
            log.exception("topic.bug", extra=fields(topic=name))
            self._fail(changes, StorageError(f"a bug: {bug!r}"))
            return
        finally:
            if changed:
                self._observer.on_changed(name, topic)
                self._observer.on_roles_changed(changed)
        has_failed = self._failures.pop(name, None) is not None
        if changes.make and (is_late or has_failed):
            log.warning("log.created_late", extra=fields(topic=name, partitions_count=len(changes.make)))

    def _stop(self, changes: TopicChanges) -> None:
        topic = changes.topic
        stopped: list[Partition] = []
        for topic_partition in changes.stop:
            is_elsewhere = topic is not None and topic_partition.partition < len(topic.partitions)
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            partition = self._partitions.remove(topic_partition, code)
            if partition is not None:
                stopped.append(partition)
        if changes.stop:
            self._observer.on_changed(changes.name, topic)
        if stopped:
            self._observer.on_roles_changed(stopped)

    def _report_kept(self, kept: Collection[TopicPartition]) -> None:
        for topic_partition in kept:
            if topic_partition not in self._kept:
                self._kept.add(topic_partition)
                log.warning("log.without_topic", extra=fields(partition=topic_partition, kept=True))

    def _refuse(self, topic_partition: TopicPartition, refusal: Refusal) -> None:
        if refusal.error_code is ErrorCode.INCONSISTENT_TOPIC_ID:
            found = self._directory.topic_id_of(topic_partition)
            log.error("log.foreign", extra=fields(partition=topic_partition, topic_id=found))
        self._partitions.refuse(topic_partition, refusal)

    async def _serve(self, topic: Topic, changes: TopicChanges, changed: list[Partition], offload: Offload) -> None:
        for node in changes.serve:
            found = self._directory.logs[TopicPartition(topic.name, node.partition_index)]
            self._begin(found, node, changed)
            await offload.pause()
        for node in changes.update:
            partition = self._partitions.find(topic.name, node.partition_index)
            assert partition is not None
            if self._take_role(partition, node):
                changed.append(partition)
            await offload.pause()

    async def _make_logs(
        self, topic: Topic, nodes: Collection[PartitionNode], changed: list[Partition], offload: Offload
    ) -> None:
        if not nodes:
            return
        wanted = [(TopicPartition(topic.name, node.partition_index), topic.topic_id) for node in nodes]
        for made, node in zip(await self._directory.create(wanted, offload), nodes, strict=True):
            self._begin(made, node, changed)
            await offload.pause()

    def _begin(self, found: Log, node: PartitionNode, changed: list[Partition]) -> None:
        partition = self._new_partition(found)
        self._partitions.add(partition)
        self._take_role(partition, node)
        if partition.is_served:
            changed.append(partition)

    def _take_role(self, partition: Partition, node: PartitionNode) -> bool:
        """Whether the partition's role, leader or leader epoch changed."""
        has_led = partition.role is Role.LEADER
        try:
            return partition.on_state(node, self._lifecycle, self._clock.monotonic_ms())
        except EpochBehindLog as error:
            log.error("partition.refused", extra=fields(reason=str(error), hint=error.hint))
            refusal = Refusal(partition.topic_id, ErrorCode.KAFKA_STORAGE_ERROR)
            self._partitions.refuse(partition.topic_partition, refusal)
            return True
        finally:
            if has_led and partition.role is not Role.LEADER:
                self._partitions.note_resignation()

    async def _apply_config(self, changes: TopicChanges, offload: Offload) -> None:
        if not changes.applies_config or changes.topic is None:
            return
        config = self._config_of(TopicPartition(changes.name, 0))
        for node in changes.topic.partitions:
            partition = self._partitions.find(changes.name, node.partition_index)
            if partition is not None:
                await partition.update_config_in_steps(config, self._clock.monotonic_ms(), offload)
            await offload.pause()

    def _fail(self, changes: TopicChanges, error: OSError | OttlaError) -> None:
        """Refuse partitions whose changes failed, so that their clients retry."""
        name, topic = changes.name, changes.topic
        failure = error if isinstance(error, OttlaError) else StorageError(str(error))
        before = self._failures.get(name)
        self._failures[name] = failure
        if str(before) != str(failure):
            facts = fields(topic=name, in_tree=topic is not None, error=str(failure), retried=not self._is_offline)
            log.error("topic.not_reconciled", extra=facts)
        if topic is None:
            return
        for node in (*changes.serve, *changes.make):
            topic_partition = TopicPartition(name, node.partition_index)
            if self._partitions.find(*topic_partition) is None:
                self._partitions.refuse(topic_partition, Refusal(topic.topic_id, ErrorCode.KAFKA_STORAGE_ERROR))

    async def _finish(self, deletions: Collection[TopicDeletion]) -> None:
        """Remove the tree's deletion notes of topics of which nothing remains."""
        node_id = self._lifecycle.node_id
        own = [deletion for deletion in deletions if node_id in deletion.brokers or not deletion.brokers]
        done: list[UUID] = [deletion.topic_id for deletion in own if deletion.name not in self._failures]
        self._has_deletions = len(done) < len(own)
        if not done:
            return
        try:
            await self._registry.finish_deletions(done, self._lifecycle.node_id)
        except OttlaError as error:
            # Only the note remains: a later change, or the next start, finds that there is nothing to drop.
            log.warning("topic.note_left", extra=fields(topics_count=len(done), error=str(error)))
            self._has_deletions = True

    @property
    def _is_offline(self) -> bool:
        return self._directory.offline is not None

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # A directory that is offline stays so in this process.
        if (self._failures or self._is_unread) and not self._is_stopped and not self._is_offline:
            # A disk that stays full for hours must not let the power overflow a float.
            delay_s = min(RETRY_AFTER_S_MIN * 2 ** min(self._retries_count, 10), RETRY_AFTER_S_MAX)
            self._timer = self._timers.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._retrying = asyncio.get_running_loop().create_task(self._retry_on_time(), name="reconciliation")

    async def _retry_on_time(self) -> None:
        try:
            await self.retry()
        except OttlaError as error:
            log.warning("topics.not_followed", extra=fields(error=str(error)))
        except Exception:
            log.exception("topics.bug")
