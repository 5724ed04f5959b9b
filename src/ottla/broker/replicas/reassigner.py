"""This broker's part in moves of replicas: it completes those of the partitions that it leads.

A move is in the tree (coordination/reassignment.py).  Added replicas fetch and come in sync as others do; each change
of the in-sync replicas gives a view, and when all that are to stay are in it, the leader lets the others leave.  A
leader that dies in between leaves the move to the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final, Protocol
from uuid import UUID

from ottla.broker.tree.broker_lifecycle import NOT_REGISTERED, BrokerLifecycle
from ottla.coordination.assignment_changes import Decide, Results
from ottla.coordination.reassignment import Reassigned, completed
from ottla.coordination.topics_view import NO_TOPICS, PartitionNode, Topic, TopicsView
from ottla.model.errors import OttlaError
from ottla.model.partition_state import ReplicaIncarnation
from ottla.observe.events import fields

log = logging.getLogger(__name__)

RETRY_AFTER_S: Final = 1.0


class Assignments(Protocol):
    """The part of the topic registry that this module uses."""

    async def change_assignments(
        self, name: str, topic_id: UUID | None, indexes: Collection[int], decide: Decide
    ) -> Results: ...


class Reassigner:
    """`min_in_sync`: the effective `min.insync.replicas` of a partition."""

    def __init__(
        self,
        lifecycle: BrokerLifecycle,
        assignments: Assignments,
        min_in_sync: Callable[[Topic, PartitionNode], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._lifecycle = lifecycle
        self._assignments = assignments
        self._min_in_sync = min_in_sync
        self._loop = loop
        self._view: TopicsView = NO_TOPICS
        # Topics with partitions that are being moved.
        self._moving: set[str] = set()
        # Those of which a move can be completed, as far as the view shows.
        self._due: dict[str, None] = {}
        self._writing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False

    def on_view(self, view: TopicsView) -> None:
        """The topics or the live brokers may have changed."""
        before, self._view = self._view, view
        for name, topic in view.by_name.items():
            if before.by_name.get(name) is not topic:
                is_moving = any(partition.is_moving for partition in topic.partitions)
                (self._moving.add if is_moving else self._moving.discard)(name)
        self._look()

    async def stop(self) -> None:
        """Complete no further move; returns when no write is under way."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            await self._writing

    def _look(self) -> None:
        self._moving.intersection_update(self._view.by_name)
        for name in self._moving:
            if self._completable(self._view.by_name[name]):
                self._due[name] = None
        if self._due and self._writing is None and not self._is_stopped:
            self._writing = self._loop.create_task(self._complete_due(), name="reassigner")

    def _completable(self, topic: Topic) -> list[int]:
        return [each.partition_index for each in topic.partitions if self._completed(topic, each) is not None]

    def _completed(self, topic: Topic, partition: PartitionNode) -> Reassigned | None:
        """The end of a move that is this broker's to write."""
        lifecycle = self._lifecycle
        own = ReplicaIncarnation(lifecycle.node_id, lifecycle.broker_epoch)
        if not partition.is_moving or own.broker_epoch == NOT_REGISTERED or not partition.state.is_led_by(own):
            return None
        return completed(partition, lifecycle.live, lambda moved: self._min_in_sync(topic, moved))

    async def _complete_due(self) -> None:
        try:
            while self._due and not self._is_stopped:
                name = next(iter(self._due))
                del self._due[name]
                topic = self._view.by_name.get(name)
                if topic is not None:
                    await self._complete(topic)
        except Exception:
            log.exception("reassigner.bug")
        finally:
            self._writing = None

    async def _complete(self, topic: Topic) -> None:
        indexes = self._completable(topic)
        if not indexes:
            return

        def decide(partition: PartitionNode) -> Reassigned | None:
            return self._completed(topic, partition)

        try:
            await self._assignments.change_assignments(topic.name, topic.topic_id, indexes, decide)
        except OttlaError as error:
            log.warning("reassigner.failed", extra=fields(topic=topic.name, error=str(error)))
            if self._timer is None and not self._is_stopped:
                self._timer = self._loop.call_later(RETRY_AFTER_S, self._on_timer)
        else:
            log.info("topic.moved", extra=fields(topic=topic.name, partitions_count=len(indexes)))

    def _on_timer(self) -> None:
        self._timer = None
        self._look()
