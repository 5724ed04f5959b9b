"""Reads what a consumer's share follows from, and watches it.

All members must compute with the same list, so all of them leave out what cannot be read: it is logged, and stops
no member.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.client.consumer_registry.group_nodes import GroupPaths, decode_consumer
from ottla.client.groups.subscription import Subscription
from ottla.client.wire.client_log import GROUP
from ottla.consumers.share import GroupView
from ottla.coordination import layout, topic_nodes
from ottla.coordination.node_json import NodeDamaged
from ottla.coordination.topic_nodes import TopicPointer
from ottla.coordination.tree import NoNode, StandingWatch, Tree
from ottla.observe.events import fields


class GroupReading(NamedTuple):
    """A view, and whether it `is_passing`: to be read again as soon as it has been acted on.

    `offsets_were_set`: by an operator, since the last read.
    """

    view: GroupView
    is_passing: bool
    offsets_were_set: bool


class GroupReader:
    """One consumer's eyes in one session; one read at a time.

    It watches the group's consumers, of each topic that its consumer reads the node with the partitions, with a filter
    the names of all topics, and the node above the offsets, which changes when an admin sets offsets.  Brokers are not
    watched: which of them leads a partition changes no share.
    """

    def __init__(
        self, tree: Tree, paths: GroupPaths, subscription: Subscription, on_change: Callable[[], None]
    ) -> None:
        self._tree: Final = tree
        self._paths: Final = paths
        self._subscription: Final = subscription
        self._on_change: Final = on_change
        self._consumers_watch: Final = StandingWatch(on_change)
        self._names_watch: Final = StandingWatch(on_change)
        self._offsets_watch: Final = StandingWatch(on_change)
        # The change that the node above the offsets had last; None before the first read.
        self._offsets_change: int | None = None
        self._topic_watches: dict[str, StandingWatch] = {}
        # Of the topics in the last view.
        self._topic_ids: dict[str, UUID] = {}
        self._reported: set[str] = set()

    def topic_id(self, topic: str) -> UUID | None:
        """That of a topic in the last view."""
        return self._topic_ids.get(topic)

    async def read(self) -> GroupReading:
        """Raises `ConnectionLoss`, `SessionLost`, `AccessDenied`."""
        offsets = await self._offsets_watch.read(lambda watch: self._tree.exists(self._paths.offsets, watch=watch))
        change = 0 if offsets is None else offsets.mzxid
        subscriptions = await self._read_consumers()
        pointers = await self._read_topics()
        # Recreated under its name: what was of the former topic is released first, in a view without it.
        renewed = {name for name, pointer in pointers.items() if self._is_another(name, pointer)}
        shown = {name: pointer for name, pointer in pointers.items() if name not in renewed}
        self._topic_ids = {name: pointer.topic_id for name, pointer in shown.items()}
        were_set = self._offsets_change not in (None, change)
        self._offsets_change = change
        consumers = {
            consumer_id: {
                topic: count for topic, count in subscription.streams_counts(pointers).items() if topic in pointers
            }
            for consumer_id, subscription in subscriptions.items()
        }
        counts = {name: len(pointer.assignment) for name, pointer in shown.items()}
        return GroupReading(GroupView(consumers, counts), is_passing=bool(renewed), offsets_were_set=were_set)

    def _is_another(self, name: str, pointer: TopicPointer) -> bool:
        return self._topic_ids.get(name, pointer.topic_id) != pointer.topic_id

    async def _read_consumers(self) -> dict[str, Subscription]:
        try:
            names = await self._consumers_watch.read(lambda watch: self._tree.children(self._paths.ids, watch=watch))
        except NoNode:
            return {}
        paths = [self._paths.consumer(name) for name in names]
        found: dict[str, Subscription] = {}
        for name, path, node in zip(names, paths, await self._tree.get_many(paths), strict=True):
            if node is not None:
                try:
                    found[name] = decode_consumer(path, node.data).subscription
                except NodeDamaged as error:
                    self._report(error)
        return found

    async def _read_topics(self) -> dict[str, TopicPointer]:
        """The topics that this consumer reads, as far as they exist."""
        names = await self._names()
        await self._watch_topics(names)
        paths = [layout.topic_path(name) for name in names]
        found: dict[str, TopicPointer] = {}
        for name, path, node in zip(names, paths, await self._tree.get_many(paths), strict=True):
            # Without data it is no topic: one that is being made, or was deleted.
            if node is not None and node.data:
                try:
                    found[name] = topic_nodes.decode_pointer(path, node.data)
                except NodeDamaged as error:
                    self._report(error)
        return found

    async def _names(self) -> Sequence[str]:
        if self._subscription.filter is None:
            return sorted(self._subscription.topics)
        try:
            names = await self._names_watch.read(lambda watch: self._tree.children(layout.TOPICS, watch=watch))
        except NoNode:
            return []
        return sorted(self._subscription.streams_counts(names))

    async def _watch_topics(self, names: Collection[str]) -> None:
        """Also those that do not exist yet.  The watches are set before the topics are read."""
        watches = {name: self._topic_watches.get(name) or StandingWatch(self._on_change) for name in names}
        self._topic_watches = watches
        await asyncio.gather(*(self._watch_topic(name, watch) for name, watch in watches.items() if not watch.is_set))

    async def _watch_topic(self, name: str, standing: StandingWatch) -> None:
        await standing.read(lambda watch: self._tree.exists(layout.topic_path(name), watch=watch))

    def _report(self, error: NodeDamaged) -> None:
        if error.path not in self._reported:
            self._reported.add(error.path)
            GROUP.warning("consumer.node_ignored", extra=fields(path=error.path, problem=error, hint=error.hint))
