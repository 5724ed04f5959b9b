"""Who leads the partitions that this broker refuses, for clients that can take it from the answer (KIP-951)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final
from uuid import UUID

from ottla.broker.net.advertising import BrokerAddress
from ottla.broker.tree.broker_lifecycle import BrokerLifecycle
from ottla.coordination.broker_registry import BrokersView
from ottla.coordination.topics_view import Topic, TopicsView
from ottla.model.identifiers import NodeId
from ottla.protocol.current_leaders import CurrentLeaders

# Of one answer: for the partitions beyond, a client requests metadata, which it does in any case.
HINTS_MAX: Final = 1_000

BrokersFor = Callable[[tuple[str, int]], Sequence[BrokerAddress]]


class LeaderHints:
    """Reads the newest view of the tree; a partition that no other broker leads, in its present life, has no hint.

    None has one while this broker, in `lifecycle`, is suspended: its view is older than its lease.
    `brokers_for`: the live brokers, by the addresses for clients that connected to this local address.
    """

    __slots__ = ("_brokers_for", "_lifecycle", "_live", "_node_id", "_topics")

    def __init__(
        self,
        node_id: NodeId,
        topics: Callable[[], TopicsView],
        live: Callable[[], BrokersView],
        brokers_for: BrokersFor,
        lifecycle: BrokerLifecycle | None = None,
    ) -> None:
        self._node_id = node_id
        self._topics = topics
        self._live = live
        self._brokers_for = brokers_for
        self._lifecycle = lifecycle

    def by_name(self, refused: Iterable[tuple[bytes, int]], local_address: tuple[str, int]) -> CurrentLeaders | None:
        """For partitions by the UTF-8 bytes of their topic's name."""
        by_name = self._topics().by_name
        return self._find(((key, by_name.get(key[0].decode(errors="replace"))) for key in refused), local_address)

    def by_id(self, refused: Iterable[tuple[bytes, int]], local_address: tuple[str, int]) -> CurrentLeaders | None:
        """For partitions by the bytes of their topic's id."""
        by_id = self._topics().by_id
        return self._find(((key, by_id.get(UUID(bytes=key[0]))) for key in refused), local_address)

    def _find(
        self, refused: Iterable[tuple[tuple[bytes, int], Topic | None]], local_address: tuple[str, int]
    ) -> CurrentLeaders | None:
        addresses: dict[int, BrokerAddress] | None = None
        leaders: dict[tuple[bytes, int], tuple[int, int]] = {}
        if self._lifecycle is not None and self._lifecycle.is_suspended:
            return None
        for key, topic in islice(refused, HINTS_MAX):
            if topic is None or not 0 <= key[1] < len(topic.partitions):
                continue
            if addresses is None:
                addresses = {
                    each.node_id: each for each in self._brokers_for(local_address) if each.node_id != self._node_id
                }
            state = topic.partitions[key[1]].state
            if state.leader in addresses and self._live().has_leader(state):
                leaders[key] = (state.leader, state.leader_epoch)
        if not leaders or addresses is None:
            return None
        return CurrentLeaders(leaders, [addresses[each] for each in sorted({leader for leader, _ in leaders.values()})])
