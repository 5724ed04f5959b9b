"""The features of a cluster: the level of each that all of its brokers support, finalized in one node of the tree.

A level is raised when every broker supports it, and never lowered: clients that have read it rely on it.  The brokers
are those that are live, and those that have replicas: while one of these is not live no level is raised, since the
program that it will run is not known.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.coordination.broker_registry import BrokersView
from ottla.coordination.layout import FEATURES
from ottla.coordination.node_json import Fields, encode
from ottla.coordination.topics_view import TopicsView
from ottla.coordination.tree import BadVersion, NodeExists, NoNode, StandingWatch, Tree
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NodeId
from ottla.protocol.api import API_VERSIONS, ApiKey
from ottla.runtime.mutex import Mutex

# With level 2 an end advances the producer's epoch, and a produce adds its partition (KIP-890, part 2).
TRANSACTION_VERSION: Final = "transaction.version"
_NEEDED_BY_LEVEL_2: Final = {ApiKey.PRODUCE: 12, ApiKey.END_TXN: 5, ApiKey.TXN_OFFSET_COMMIT: 5}
_HAS_LEVEL_2: Final = all(
    api in API_VERSIONS and version in API_VERSIONS[api] for api, version in _NEEDED_BY_LEVEL_2.items()
)
# The highest level of each that this program supports.
SUPPORTED_FEATURES: Final[Mapping[str, int]] = MappingProxyType({TRANSACTION_VERSION: 2} if _HAS_LEVEL_2 else {})


class FeatureNotSupported(OttlaError):
    """The cluster has finalized a level of a feature that this program does not have: its clients rely on it."""

    hint = "start the version of Ottla that the other brokers run, or a later one"


class FeaturesView(NamedTuple):
    """Finalized levels by name; `epoch` counts their changes, -1 when there were none."""

    epoch: int = -1
    finalized: Mapping[str, int] = MappingProxyType({})


class FeatureRegistry:
    """`view` is the state as of the last `refresh`; `on_stale` reports newer changes."""

    def __init__(self, tree: Tree, *, on_stale: Callable[[], None] | None = None) -> None:
        self.view = FeaturesView()
        self._tree = tree
        self._watch = StandingWatch(on_stale)
        # Whether the view is what the last read began to find.
        self._is_read = False
        self._changing = Mutex()

    async def refresh(self) -> FeaturesView:
        """The same view, without a call of the tree, while nothing has changed."""
        async with self._changing:
            return await self._look()

    async def finalize(self, levels: Mapping[str, int]) -> FeaturesView:
        """Raise the finalized levels to these; lower ones are ignored.  Another broker may be first with the same."""
        async with self._changing:
            view = await self._look()
            raised = {name: level for name, level in levels.items() if level > view.finalized.get(name, 0)}
            if not raised:
                return view
            data = encode({"version": 1, "features": {**view.finalized, **raised}})
            with contextlib.suppress(BadVersion, NodeExists, NoNode):
                if view.epoch < 0:
                    await self._tree.create(FEATURES, data)
                else:
                    await self._tree.set(FEATURES, data, view.epoch)
            # Of this change the watch may not have been called yet.
            return await self._read()

    async def _look(self) -> FeaturesView:
        return self.view if self._watch.is_set and self._is_read else await self._read()

    async def _read(self) -> FeaturesView:
        self._is_read = False
        stat = await self._watch.read(lambda watch: self._tree.exists(FEATURES, watch=watch))
        if stat is None:
            self.view = FeaturesView()
        elif stat.version != self.view.epoch:
            with contextlib.suppress(NoNode):  # deleted meanwhile: the watch has been called
                node = await self._tree.get(FEATURES)
                self.view = FeaturesView(node.stat.version, Fields.parse(FEATURES, node.data).levels("features"))
        self._is_read = True
        return self.view


def require_supported(finalized: Mapping[str, int], supported: Mapping[str, int] = SUPPORTED_FEATURES) -> None:
    """Raises `FeatureNotSupported`."""
    for name, level in sorted(finalized.items()):
        known_level = supported.get(name, 0)
        if level > known_level:
            raise FeatureNotSupported(
                f"the cluster has finalized {name} at level {level}, this program supports level {known_level}"
            )


def levels_to_raise(
    finalized: Mapping[str, int],
    live: BrokersView,
    topics: TopicsView,
    supported: Mapping[str, int] = SUPPORTED_FEATURES,
) -> Mapping[str, int]:
    """The features that may be finalized now at a higher level, with that level."""
    common = supported_by_all(live, supported)
    raised = {name: level for name, level in common.items() if level > finalized.get(name, 0)}
    # The topics are read last: as a rule there is nothing to raise.
    return raised if raised and _replica_brokers(topics) <= live.by_id.keys() else {}


def _replica_brokers(topics: TopicsView) -> set[NodeId]:
    return {
        node_id for topic in topics.by_name.values() for partition in topic.partitions for node_id in partition.replicas
    }


def supported_by_all(live: BrokersView, supported: Mapping[str, int] = SUPPORTED_FEATURES) -> Mapping[str, int]:
    """The highest level of each feature that every live broker supports; those that one lacks are left out."""
    of_each = [broker.registration.features for broker in live.by_id.values()]
    return {name: level for name in supported if (level := min((each.get(name, 0) for each in of_each), default=0))}
