"""Controlled shutdown: before a broker stops, the others lead its partitions and count on it no more.

So clients of these partitions find their new leader at once, instead of after the end of this broker's session.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ottla.broker.tree.broker_lifecycle import BrokerLifecycle
from ottla.coordination.elections import departed
from ottla.coordination.state_changes import StateChange
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.topics_view import Partition, Topic
from ottla.coordination.tree import Tree
from ottla.model.errors import OttlaError
from ottla.model.partition_state import ChangeResult
from ottla.observe.events import fields

log = logging.getLogger(__name__)

# Each attempt but the first follows a change by another broker, or an unknown outcome.
ATTEMPTS_MAX: Final = 5


class Departure:
    """`min_in_sync`: the effective `min.insync.replicas` of a partition."""

    def __init__(
        self,
        tree: Tree,
        topics: TopicRegistry,
        lifecycle: BrokerLifecycle,
        min_in_sync: Callable[[Topic, Partition], int],
    ) -> None:
        self._tree = tree
        self._topics = topics
        self._lifecycle = lifecycle
        self._min_in_sync = min_in_sync

    async def leave(self) -> None:
        """Hand over what others can take.  A failure is reported only: they take it when the session has ended."""
        handed_over = 0
        try:
            for _ in range(ATTEMPTS_MAX):
                # A view may be late, and another broker may have changed a state meanwhile.
                await self._tree.sync()
                await self._topics.refresh()
                changes = self._due()
                if not changes:
                    break
                outcomes = await self._topics.change_states(changes)
                handed_over += sum(outcome.result is ChangeResult.APPLIED for outcome in outcomes)
        except OttlaError as error:
            log.warning("partitions.not_handed_over", extra=fields(error=str(error)))
        log.info("partitions.handed_over", extra=fields(partitions_count=handed_over))

    def _due(self) -> list[StateChange]:
        own, live = self._lifecycle.node_id, self._lifecycle.live
        found: list[StateChange] = []
        for topic, partition in self._topics.view.partitions():
            if own not in partition.replicas:
                continue
            minimum = self._min_in_sync(topic, partition)
            after = departed(partition.replicas, partition.state, own, live, minimum)
            if after is not None:
                found.append(StateChange.of(topic, partition, after))
        return found
