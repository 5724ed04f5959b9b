"""The topics that this broker serves: they follow the tree.

After each change of the tree, and at start, `follow` reads it and makes the changes that `reconciliation` finds: logs
are created, opened, dropped, and partitions begin or cease to be served.  Partitions whose change fails (no room, no
descriptor) are refused with an error that clients retry, and the change is retried until it succeeds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from types import MappingProxyType
from typing import Final, Protocol
from uuid import UUID

from ottla.broker.partition import Partition
from ottla.broker.partition_table import PartitionTable, Refusal
from ottla.broker.reconciliation import (
    HeldPartition,
    TopicChanges,
    TreeViews,
    changed_topics,
    reconcile,
    vanished_topics,
)
from ottla.coordination.configs import ConfigRegistry, ConfigsView
from ottla.coordination.topic_nodes import TopicDeletion
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.topics_view import NO_TOPICS, Topic, TopicsView
from ottla.coordination.topics_view import Partition as PartitionNode
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.observe.events import fields
from ottla.runtime.loop_offload import LoopOffload
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


class Timers(Protocol):
    """The part of an event loop that this module needs."""

    def call_later(self, delay: float, callback: Callable[[], object]) -> asyncio.TimerHandle: ...


class NotServed(StorageError):
    """A topic is in the tree, and a part of it is not served yet."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR
    hint = "it will be served without a restart as soon as its logs can be made; until then it can be deleted"


class ServedTopics:
    """Brings `partitions` and `directory` in line with the tree.

    `view` is replaced when the partitions of a view are served, or refused: so clients learn of a partition when it can
    be used.  `on_changed` is called for each topic of which partitions begin or cease to be served, with None when the
    tree no longer has it; `on_followed` when all changes of a view are made.
    """

    def __init__(
        self,
        node_id: NodeId,
        registry: TopicRegistry,
        configs: ConfigRegistry,
        directory: LogDirectory,
        config_of: Callable[[TopicPartition], LogConfig],
        partitions: PartitionTable,
        timers: Timers,
    ) -> None:
        self._node_id = node_id
        self._registry = registry
        self._configs = configs
        self._directory = directory
        self._config_of = config_of
        self._partitions = partitions
        self._timers = timers
        self._followed = TreeViews(NO_TOPICS, _NO_CONFIGS)
        self._following = Mutex()
        # Names whose changes could not all be made, and why.
        self._failures: dict[str, OttlaError] = {}
        self._has_deletions = False
        self._kept: set[TopicPartition] = set()
        self._retries_count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._retrying: asyncio.Task[None] | None = None
        self._is_stopped = False
        self.on_changed: Callable[[str, Topic | None], None] = lambda _name, _topic: None
        self.on_followed: Callable[[TopicsView], None] = lambda _view: None

    @property
    def view(self) -> TopicsView:
        """The topics of the last view that was followed."""
        return self._followed.topics

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

    async def follow(self) -> None:
        """Read what changed in the tree, and make the changes.  Failures are reported, and retried later."""
        async with self._following:
            self._retries_count = 0
            await self._follow(())

    async def retry(self) -> None:
        """Retry the changes that failed."""
        async with self._following:
            self._retries_count += 1
            await self._follow(self._failures)

    async def stop(self) -> None:
        """No retries from now on; returns when no change is in progress."""
        self._is_stopped = True
        self._arm()
        async with self._following:
            pass
        if self._retrying is not None:
            await self._retrying

    async def _follow(self, unsettled: Iterable[str], *, is_start: bool = False) -> None:
        old, new = self._followed, TreeViews(await self._registry.refresh(), await self._configs.refresh())
        unsettled = set(unsettled)
        names = dict.fromkeys([*changed_topics(old, new), *unsettled])
        deletions: list[TopicDeletion] = []
        if is_start or self._has_deletions or vanished_topics(old.topics, new.topics, names):
            deletions = await self._registry.pending_deletions()
            names.update((deletion.name, None) for deletion in deletions)
        offload = LoopOffload()
        on_disk = self._indexes_on_disk() if is_start else {}
        for name in names:
            counts = [
                *(len(view.topics.by_name[name].partitions) for view in (old, new) if name in view.topics.by_name),
                *(deletion.partitions_count for deletion in deletions if deletion.name == name),
            ]
            indexes = {*range(max(counts, default=0)), *on_disk.get(name, ())}
            held = await self._held(name, new.topics.by_name.get(name), indexes, offload)
            is_settled = name not in unsettled
            changes = reconcile(name, old, new, self._node_id, held, deletions, is_settled=is_settled)
            await self._make_changes(changes, offload, is_late=is_start or not is_settled)
        self._followed = new
        await self._finish(deletions)
        self.on_followed(new.topics)
        self._arm()

    # --- what is held ---------------------------------------------------------------------------------------------

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
            topic_partition in directory.logs,
            topic_id,
            None if failure is None else failure.error_code,
            None if partition is None else partition.leader_epoch,
            refusal,
        )

    # --- changes --------------------------------------------------------------------------------------------------

    async def _make_changes(self, changes: TopicChanges, offload: Offload, *, is_late: bool) -> None:
        """Make the changes of one topic.  A failure is kept in `_failures`."""
        name, topic = changes.name, changes.topic
        try:
            self._stop(changes)
            if changes.drop:
                self._directory.delete(*changes.drop)
            self._report_kept(changes.keep)
            for topic_partition, refusal in changes.refuse:
                self._refuse(topic_partition, refusal)
            if topic is not None:
                await self._serve(topic, changes, offload)
                # Before logs are created, which may lack room: a changed setting of other logs may free some.  A new
                # log is created with it.
                await self._apply_config(changes, offload)
                await self._make_logs(topic, changes.make, offload)
        except (OSError, OttlaError) as error:
            self._fail(changes, error)
            return
        finally:
            if changes.serve or changes.make or changes.lead_anew:
                self.on_changed(name, topic)
        has_failed = self._failures.pop(name, None) is not None
        if changes.make and (is_late or has_failed):
            log.warning("log.created_late", extra=fields(topic=name, partitions_count=len(changes.make)))

    def _stop(self, changes: TopicChanges) -> None:
        for topic_partition in changes.stop:
            self._partitions.remove(topic_partition)
        if changes.stop:
            self.on_changed(changes.name, changes.topic)

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

    async def _serve(self, topic: Topic, changes: TopicChanges, offload: Offload) -> None:
        for node in changes.serve:
            found = self._directory.logs[TopicPartition(topic.name, node.partition_index)]
            self._partitions.add(_led(found, node))
            await offload.pause()
        for node in changes.lead_anew:
            partition = self._partitions.find(topic.name, node.partition_index)
            assert partition is not None
            partition.become_leader(node.state.leader_epoch)

    async def _make_logs(self, topic: Topic, nodes: Collection[PartitionNode], offload: Offload) -> None:
        if not nodes:
            return
        wanted = [(TopicPartition(topic.name, node.partition_index), topic.topic_id) for node in nodes]
        for made, node in zip(await self._directory.create(wanted, offload), nodes, strict=True):
            self._partitions.add(_led(made, node))
            await offload.pause()

    async def _apply_config(self, changes: TopicChanges, offload: Offload) -> None:
        if not changes.applies_config or changes.topic is None:
            return
        config = self._config_of(TopicPartition(changes.name, 0))
        for node in changes.topic.partitions:
            partition = self._partitions.find(changes.name, node.partition_index)
            if partition is not None:
                partition.update_config(config)
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
        for node in changes.make:
            topic_partition = TopicPartition(name, node.partition_index)
            if self._partitions.find(*topic_partition) is None:
                self._partitions.refuse(topic_partition, Refusal(topic.topic_id, ErrorCode.KAFKA_STORAGE_ERROR))

    async def _finish(self, deletions: Collection[TopicDeletion]) -> None:
        """Remove the tree's deletion notes of topics of which nothing remains."""
        done: list[UUID] = [deletion.topic_id for deletion in deletions if deletion.name not in self._failures]
        self._has_deletions = len(done) < len(deletions)
        if not done:
            return
        try:
            await self._registry.finish_deletions(done)
        except OttlaError as error:
            # Only the note remains: a later change, or the next start, finds that there is nothing to drop.
            log.warning("topic.note_left", extra=fields(topics_count=len(done), error=str(error)))
            self._has_deletions = True

    # --- retries --------------------------------------------------------------------------------------------------

    @property
    def _is_offline(self) -> bool:
        return self._directory.offline is not None

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # A directory that is offline stays so in this process.
        if self._failures and not self._is_stopped and not self._is_offline:
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
            self._arm()
        except Exception:
            log.exception("topics.bug")
            self._arm()


def _led(found: Log, node: PartitionNode) -> Partition:
    partition = Partition(found)
    partition.become_leader(node.state.leader_epoch)
    return partition
