"""Topics made, changed and taken away: the tree first, directories after.

A crash between the two leaves a topic without directories, which the next start makes, or directories without a
topic, which are removed only if the tree has a note of the deletion (`TopicRegistry.pending_deletions`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from uuid import UUID

from ottla.broker.context import NewTopic
from ottla.broker.log_configs import log_config
from ottla.broker.partition import Partition
from ottla.broker.partition_table import PartitionTable
from ottla.broker.topic_rules import added_assignment, checked_config, new_assignment, require_free_name
from ottla.coordination.configs import ConfigEntity, ConfigRegistry
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.topics_view import Partition as PartitionNode
from ottla.coordination.topics_view import Topic
from ottla.model.broker_settings import DELETE_TOPIC_ENABLE
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.identifiers import NO_OFFSET, LeaderEpoch, NodeId, TopicPartition
from ottla.model.partition_state import PartitionState, ReplicaIncarnation
from ottla.model.settings import BrokerSettings
from ottla.observe.events import fields
from ottla.runtime.loop_offload import LoopOffload
from ottla.runtime.mutex import Mutex
from ottla.runtime.offload import run_inline
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.errors import StorageError
from ottla.storage.log.log import Log

log = logging.getLogger(__name__)


class Topics:
    """The topics of this broker: registry and directories kept together.  One change at a time."""

    def __init__(
        self,
        node_id: NodeId,
        broker_epoch: int,
        settings: BrokerSettings,
        registry: TopicRegistry,
        configs: ConfigRegistry,
        directory: LogDirectory,
        partitions: PartitionTable,
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._settings = settings
        self._registry = registry
        self._configs = configs
        self._directory = directory
        self._partitions = partitions
        self._changing = Mutex()

    async def create(self, new: NewTopic, *, validate_only: bool) -> Topic:
        """See `BrokerContext.create_topic`."""
        assignment = new_assignment(new, self._node_id, self._settings)
        config = checked_config(new.config, self._settings)
        async with self._changing:
            if validate_only:
                require_free_name(new.name, self._registry.view.by_name)
                return self._imagined(new.name, assignment)
            topic = await self._registry.create(new.name, assignment, {self._node_id: self._broker_epoch}, config)
            await self._configs.refresh()
            await self._make_logs([(topic, partition) for partition in topic.partitions])
        log.info("topic.created", extra=fields(topic=topic.name, partitions_count=len(topic.partitions)))
        return topic

    async def add_partitions(
        self, name: str, count: int, given: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> None:
        """See `BrokerContext.add_partitions`."""
        async with self._changing:
            topic = self._registry.view.by_name.get(name)
            if topic is None:
                raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
            assignment = added_assignment(topic, count, given, self._node_id)
            if validate_only:
                return
            added = await self._registry.add_partitions(topic, assignment, {self._node_id: self._broker_epoch})
            await self._make_logs([(topic, partition) for partition in added])
        log.info("topic.grown", extra=fields(topic=name, partitions_count=count, added_count=len(added)))

    async def delete(self, name: str, topic_id: UUID | None) -> None:
        """See `BrokerContext.delete_topic`."""
        if not self._settings[DELETE_TOPIC_ENABLE]:
            raise RequestError(ErrorCode.TOPIC_DELETION_DISABLED, "topics may not be deleted (delete.topic.enable)")
        async with self._changing:
            deletion = await self._registry.delete(name, topic_id)
            await self._registry.refresh()
            await self._configs.refresh()
            self._drop_logs([TopicPartition(name, index) for index in range(deletion.partitions_count)])
            await self._registry.finish_deletions([deletion.topic_id])
        log.info("topic.deleted", extra=fields(topic=name))

    async def alter_config(
        self, entity: ConfigEntity, changed: Mapping[str, str | None], *, replaces_all: bool
    ) -> None:  # fmt: skip
        """See `BrokerContext.alter_config`."""

        def change(before: Mapping[str, str]) -> Mapping[str, str]:
            merged = changed if replaces_all else {**before, **changed}
            return {name: value for name, value in merged.items() if value is not None}

        async with self._changing:
            after = await self._configs.update(entity, change)
            await self._configs.refresh()
            if entity.kind == "topics":
                self._apply_config(entity.name, after)
        log.info("config.altered", extra=fields(kind=entity.kind, name=entity.name, settings=",".join(sorted(changed))))

    async def delete_records(self, topic: str, index: int, before_offset: int) -> int:
        """See `BrokerContext.delete_records`."""
        partition = self._partitions.find(topic, index)
        if partition is None:
            code = self._partitions.absence_error(topic, index)
            raise RequestError(code, f"{topic}-{index} is not served here")
        if before_offset == NO_OFFSET:
            before_offset = partition.high_watermark
        if not 0 <= before_offset <= partition.high_watermark:
            problem = f"offset {before_offset} is not in [0, {partition.high_watermark}]"
            raise RequestError(ErrorCode.OFFSET_OUT_OF_RANGE, problem)
        try:
            partition.delete_records_before(before_offset)
            # What was acknowledged as deleted must not come back after a crash.
            self._directory.checkpoint()
        except OSError as error:
            raise StorageError(f"{topic}-{index}: the new log start could not be written: {error}") from error
        return partition.log_start_offset

    def serve_known(self) -> None:
        """At start: serve every partition of the tree that is ours, making logs that a crash left out."""
        missing: list[tuple[Topic, PartitionNode]] = []
        for topic, node in self._registry.view.partitions():
            if self._node_id not in node.replicas:
                continue
            topic_partition = TopicPartition(topic.name, node.partition_index)
            failure = self._directory.failed.get(topic_partition)
            found = self._directory.logs.get(topic_partition)
            if failure is None and found is None:
                failure = self._directory.refuse_lost(topic_partition, topic.topic_id)
            if failure is not None:
                self._partitions.add_failed(topic_partition, topic.topic_id, failure.error_code)
            elif found is None:
                missing.append((topic, node))
            elif found.topic_id != topic.topic_id:
                # Another topic's records under this name: neither serve nor touch them.
                log.error("log.foreign", extra=fields(partition=topic_partition, topic_id=found.topic_id))
                self._partitions.add_failed(topic_partition, topic.topic_id, ErrorCode.INCONSISTENT_TOPIC_ID)
            else:
                self._partitions.add(self._led(found, node.state.leader_epoch))
        if missing:
            log.warning("log.created_late", extra=fields(partitions_count=len(missing)))
            ids = [(TopicPartition(topic.name, node.partition_index), topic.topic_id) for topic, node in missing]
            for made, (_, node) in zip(run_inline(self._directory.create(ids)), missing, strict=True):
                self._partitions.add(self._led(made, node.state.leader_epoch))

    async def finish_pending_deletions(self) -> None:
        """At start: remove directories of topics whose deletion a crash cut short; report those without a topic."""
        pending = await self._registry.pending_deletions()
        by_id = {deletion.topic_id for deletion in pending}
        doomed = [tp for tp, found in self._directory.logs.items() if found.topic_id in by_id]
        if doomed:
            self._drop_logs(doomed)
        await self._registry.finish_deletions([deletion.topic_id for deletion in pending])
        for topic_partition in self._directory.logs:
            if self._registry.view.partition(topic_partition) is None:
                log.warning("log.without_topic", extra=fields(partition=topic_partition, kept=True))

    def _led(self, found: Log, leader_epoch: int) -> Partition:
        partition = Partition(found)
        partition.become_leader(leader_epoch)
        return partition

    async def _make_logs(self, wanted: Sequence[tuple[Topic, PartitionNode]]) -> None:
        """Make and serve the logs of what the tree has got; clients hear of the partitions when they are served."""
        ids = [(TopicPartition(topic.name, node.partition_index), topic.topic_id) for topic, node in wanted]
        offload = LoopOffload()
        try:
            for found, (_, node) in zip(await self._directory.create(ids, offload), wanted, strict=True):
                self._partitions.add(self._led(found, node.state.leader_epoch))
                await offload.pause()
        finally:
            await self._registry.refresh()

    def _drop_logs(self, doomed: Sequence[TopicPartition]) -> None:
        for topic_partition in doomed:
            self._partitions.remove(topic_partition)
        present = [tp for tp in doomed if tp in self._directory.logs or tp in self._directory.failed]
        self._directory.delete(*present)

    def _apply_config(self, name: str, overrides: Mapping[str, str]) -> None:
        topic = self._registry.view.by_name.get(name)
        if topic is None:
            return
        config = log_config(overrides, self._settings)
        for node in topic.partitions:
            partition = self._partitions.find(name, node.partition_index)
            if partition is not None:
                partition.update_config(config)

    def _imagined(self, name: str, assignment: Sequence[Sequence[NodeId]]) -> Topic:
        """A topic as it would be, for `validate_only`: its id is all zero."""
        state = PartitionState(self._node_id, LeaderEpoch(0), (ReplicaIncarnation(self._node_id, self._broker_epoch),))
        nodes = (PartitionNode(index, tuple(replicas), state, 0) for index, replicas in enumerate(assignment))
        return Topic(name, UUID(int=0), tuple(nodes))
