"""Requests that change topics: each writes to the tree, then this broker follows it (`served_topics`).

A crash between the two leaves a topic without directories, which the next start creates, or directories without a
topic, which are removed only if the tree has a note of the deletion (`TopicRegistry.pending_deletions`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

from ottla.broker.context import NewTopic
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.broker.topics.served_topics import ServedTopics
from ottla.broker.topics.topic_rules import DEFAULT_COUNT, added_assignment, checked_config, new_assignment
from ottla.coordination.broker_registry import BrokersView
from ottla.coordination.configs import ConfigEntity, ConfigRegistry
from ottla.coordination.reassignment import Reassigned, requested
from ottla.coordination.topic_nodes import first_state
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.topics_view import PartitionNode, Topic
from ottla.model.broker_settings import DELETE_TOPIC_ENABLE, MAX_BROKER_PARTITIONS
from ottla.model.counted import counted
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.identifiers import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, NodeId
from ottla.model.settings import BrokerSettings
from ottla.observe.events import fields, frequent
from ottla.runtime.mutex import Mutex
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.directory.open_files import LogsRoom

log = logging.getLogger(__name__)

# Automatic creations leave one of so many logs: `__consumer_offsets` and what operators create must fit when clients
# have filled the rest.
_AUTOMATIC_LEAVES: Final = 4
_KEPT_FOR: Final = {
    OFFSETS_TOPIC: f"{OFFSETS_TOPIC} holds the committed offsets of all groups; delete groups instead",
    TRANSACTIONS_TOPIC: f"{TRANSACTIONS_TOPIC} holds the outcomes of transactions, without which they stay open",
}


class TopicRequests:
    """`TopicAdmin` of the context; one request at a time."""

    def __init__(
        self,
        node_id: NodeId,
        live: Callable[[], BrokersView],
        settings: BrokerSettings,
        registry: TopicRegistry,
        configs: ConfigRegistry,
        directory: LogDirectory,
        partitions: PartitionTable,
        served: ServedTopics,
        min_in_sync: Callable[[Topic, PartitionNode], int],
        room: LogsRoom | None = None,
    ) -> None:
        """`room`: how many logs the limit of open files allows; None: any number."""
        self._node_id = node_id
        self._live = live
        self._settings = settings
        self._registry = registry
        self._configs = configs
        self._directory = directory
        self._partitions = partitions
        self._served = served
        self._min_in_sync = min_in_sync
        self._creation_room = CreationRoom(
            node_id, settings[MAX_BROKER_PARTITIONS], None if room is None else room.logs_max
        )
        # The ids of topics whose creation was answered with a failure, although it continues: a repeated request for
        # such a topic completes it.
        self._unfinished: dict[str, UUID] = {}
        self._changing = Mutex()
        self._is_full = False

    async def create(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        """See `TopicAdmin.create`."""
        async with self._changing:
            started = None if validate_only else self._started(new)
            if started is not None:
                await self._served.retry()
                self._complete(started)
                return started
            await self._registry.check_name(new.name)
            assignment = new_assignment(new, self._live(), self._settings)
            config = checked_config(new.config, self._settings)
            self._require_room(new.name, assignment, is_automatic=new.is_automatic)
            if validate_only:
                return self._imagined(new.name, assignment)
            self._require_online()
            topic = await self._registry.create(new.name, assignment, self._live().epochs(), config)
            await self._served.follow()
        log.info("topic.created", extra=fields(topic=topic.name, partitions_count=len(topic.partitions)))
        self._complete(topic)
        return topic

    def _started(self, new: NewTopic) -> Topic | None:
        """The topic that an earlier request for the same one left unfinished."""
        topic_id = self._unfinished.get(new.name)
        topic = self._registry.view.by_name.get(new.name)
        if topic_id is None or topic is None or topic.topic_id != topic_id:
            self._unfinished.pop(new.name, None)
            return None
        count = new.partitions_count if new.assignment is None else len(new.assignment)
        is_same = count in (DEFAULT_COUNT, len(topic.partitions))
        return topic if is_same and dict(self._configs.view.topic(new.name)) == new.config else None

    def _complete(self, topic: Topic) -> None:
        """Raises `NotServed` while logs of a created topic are missing; the next request for it completes it."""
        self._unfinished[topic.name] = topic.topic_id
        self._served.require_served(topic.name)
        del self._unfinished[topic.name]

    def _require_room(self, name: str, added: Sequence[Sequence[NodeId]], *, is_automatic: bool = False) -> None:
        """Raises `RequestError` when so many logs would be too many."""
        present_count = len(self._directory.logs) + len(self._directory.failed)
        try:
            self._creation_room.require(name, added, present_count, is_automatic=is_automatic)
        except RequestError as error:
            if not self._is_full:
                # Once, and not for each of many requested topics.
                self._is_full = True
                log.warning("topic.refused", extra=frequent(topic=name, reason=str(error), hint=error.hint))
            raise
        self._is_full = False

    async def add_partitions(
        self, name: str, count: int, assignment: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> None:
        """See `TopicAdmin.add_partitions`."""
        async with self._changing:
            topic = self._registry.view.by_name.get(name)
            if topic is None:
                raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
            added_replicas = added_assignment(topic, count, assignment, self._live())
            self._require_room(name, added_replicas)
            if validate_only:
                return
            self._require_online()
            added = await self._registry.add_partitions(topic, added_replicas, self._live().epochs())
            await self._served.follow()
        log.info("topic.grown", extra=fields(topic=name, partitions_count=count, added_count=len(added)))
        self._served.require_served(name)

    async def reassign(
        self, name: str, targets: Mapping[int, Sequence[int] | None], *, may_change_count: bool
    ) -> Mapping[int, RequestError | None]:
        """See `TopicAdmin.reassign`."""
        topic = self._registry.view.by_name.get(name)
        if topic is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")

        def decide(partition: PartitionNode) -> Reassigned | None:
            target = targets[partition.partition_index]
            return requested(
                partition,
                None if target is None else [NodeId(node_id) for node_id in target],
                self._live().epochs(),
                lambda moved: self._min_in_sync(topic, moved),
                may_change_count=may_change_count,
            )

        async with self._changing:
            results = await self._registry.change_assignments(name, topic.topic_id, list(targets), decide)
            await self._served.follow()
        begun_count = sum(refusal is None for refusal in results.values())
        log.info("topic.reassigned", extra=fields(topic=name, partitions_count=begun_count))
        return results

    async def delete(self, name: str, topic_id: UUID | None = None) -> None:
        """See `TopicAdmin.delete`."""
        if not self._settings[DELETE_TOPIC_ENABLE]:
            raise RequestError(ErrorCode.TOPIC_DELETION_DISABLED, "topics may not be deleted (delete.topic.enable)")
        async with self._changing:
            topic = self._registry.view.by_name.get(name)
            if name in INTERNAL_TOPICS and topic is not None and self._may_have_records(topic):
                raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, _KEPT_FOR[name])
            await self._registry.delete(name, topic_id)
            self._unfinished.pop(name, None)
            await self._served.follow()
        log.info("topic.deleted", extra=fields(topic=name))

    async def alter_config(
        self, entity: ConfigEntity, changed: Mapping[str, str | None], *, replaces_all: bool = False
    ) -> None:
        """See `TopicAdmin.alter_config`."""

        def change(before: Mapping[str, str]) -> Mapping[str, str]:
            merged = changed if replaces_all else {**before, **changed}
            return {name: value for name, value in merged.items() if value is not None}

        async with self._changing:
            await self._configs.update(entity, change)
            await self._served.follow()
        log.info("config.altered", extra=fields(owner=entity.subject, settings=",".join(sorted(changed))))

    def _may_have_records(self, topic: Topic) -> bool:
        """Whether it has a log here, or replicas of which only another broker knows."""
        is_elsewhere = any(each.replicas != (self._node_id,) for each in topic.partitions)
        return is_elsewhere or self._served.has_logs(topic)

    def _require_online(self) -> None:
        """An offline directory creates no logs before a restart: then the tree is not changed."""
        if self._directory.offline is not None:
            raise self._directory.offline

    def _imagined(self, name: str, assignment: Sequence[Sequence[NodeId]]) -> Topic:
        """The topic that `validate_only` would create: its id is all zero."""
        epochs = self._live().epochs()
        nodes = []
        for index, replicas in enumerate(assignment):
            state = first_state(replicas, epochs)
            assert state is not None, "replicas were chosen among the live brokers"
            nodes.append(PartitionNode(index, tuple(replicas), state, 0))
        return Topic(name, UUID(int=0), tuple(nodes))


class CreationRoom:
    """Whether a broker may take the logs that a creation would give it.  Pure.

    What it takes must also fit at its next start, beside the connections of its clients (`LogsRoom.logs_max`).
    """

    def __init__(self, node_id: NodeId, partitions_max: int, files_logs_max: int | None) -> None:
        """`files_logs_max`: how many logs the limit of open files allows; None: any number."""
        self._node_id = node_id
        self._is_by_files = files_logs_max is not None and files_logs_max < partitions_max
        self._partitions_max = partitions_max if files_logs_max is None else min(partitions_max, files_logs_max)

    def require(self, name: str, added: Sequence[Sequence[NodeId]], present_count: int, *, is_automatic: bool) -> None:
        """Raises `RequestError` (POLICY_VIOLATION) unless the partitions with these replicas have room here.

        `present_count`: the partitions that the broker has.  Other brokers' limits are not known here.
        """
        here_count = sum(self._node_id in replicas for replicas in added)
        allowed = self._partitions_max
        if is_automatic:
            allowed -= allowed // _AUTOMATIC_LEAVES
        if not here_count or present_count + here_count <= allowed:
            return
        how = "automatically " if is_automatic else ""
        problem = (
            f"topic {name!r} would give broker {self._node_id} {counted(here_count, 'partition')} more: "
            f"it has {present_count}, and {max(allowed, 0)} may be made {how}({self._bound})"
        )
        raise RequestError(ErrorCode.POLICY_VIOLATION, problem, hint=self._hint)

    @property
    def _bound(self) -> str:
        return "the limit of open files" if self._is_by_files else MAX_BROKER_PARTITIONS.name

    @property
    def _hint(self) -> str:
        if self._is_by_files:
            return "raise the broker's limit of open files (ulimit -Hn, LimitNOFILE=) and restart it, or delete topics"
        return f"raise {MAX_BROKER_PARTITIONS.name}, or delete topics"
