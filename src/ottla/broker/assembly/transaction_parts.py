"""Transactions: their coordinator, the senders of its markers, and verification for produce."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.assembly.broker_start import BrokerStart
from ottla.broker.assembly.listening import Listening
from ottla.broker.assembly.log_parts import OpenLogs
from ottla.broker.assembly.tree_parts import TreeParts
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.shards.shard_table import ShardSources
from ottla.broker.topics.served_topics import ServedTopics
from ottla.broker.transactions.coordinator import TransactionCoordinator, transaction_settings
from ottla.broker.transactions.marker_sender import (
    MARKER_TIMEOUT_MS,
    MARKERS_VERSION,
    MarkerRequests,
    MarkerSender,
    PeerMarkers,
)
from ottla.broker.transactions.marker_writer import MarkerWriter
from ottla.broker.transactions.verifier import (
    VERIFICATION_CONNECTIONS_MAX,
    VERIFICATION_TIMEOUT_MS,
    VERIFICATION_VERSION,
    TransactionVerifier,
    on_not_verified,
    on_verified,
    verification_request,
)
from ottla.model import broker_settings as setting
from ottla.model.group_partition import partition_of
from ottla.model.identifiers import TRANSACTIONS_TOPIC, NodeId, TopicPartition
from ottla.model.partition_state import NO_LEADER
from ottla.protocol.api import ApiKey

if TYPE_CHECKING:
    from ottla.broker.transactions.peer_calls import Peers


class TransactionParts(NamedTuple):
    coordinator: TransactionCoordinator
    writer: MarkerWriter
    verifier: TransactionVerifier


class ServedLeaders:
    """`Leaders` of the marker sender: as the topics that are served have them."""

    def __init__(self, tree: TreeParts, served: ServedTopics, *, is_sole: bool) -> None:
        self._tree = tree
        self._served = served
        self._is_sole = is_sole

    def leader_of(self, partition: TopicPartition) -> NodeId | None:
        topic = self._served.view.by_name.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        state = topic.partitions[partition.partition].state
        is_led = self._is_sole or self._tree.brokers.live.has_leader(state)
        return state.leader if is_led else NO_LEADER

    def coordinator_of(self, transactional_id: str) -> NodeId:
        topic = self._served.view.by_name.get(TRANSACTIONS_TOPIC)
        if topic is None:
            return NO_LEADER
        leader = self.leader_of(TopicPartition(topic.name, partition_of(transactional_id, len(topic.partitions))))
        return NO_LEADER if leader is None else leader

    async def refresh(self) -> None:
        if not self._is_sole:
            await self._tree.coordination.tree.sync()
        await self._served.follow()


def start_transactions(
    start: BrokerStart,
    listening: Listening,
    tree: TreeParts,
    logs: OpenLogs,
    served: ServedTopics,
    sources: ShardSources,
    groups: GroupCoordinator,
) -> TransactionParts:
    """The contents of `__transaction_state` are loaded while requests are served."""
    settings, events = start.settings, start.events
    leaders = ServedLeaders(tree, served, is_sole=start.is_sole)
    peers = None if start.is_sole else _peers(start, listening, tree)
    writer = MarkerWriter(logs.partitions, start.clock, tree.lifecycle, groups)
    sender = MarkerSender(
        start.node_id,
        leaders,
        writer,
        start.loop,
        None if peers is None else lambda requests: _peer_markers(start, peers, requests),
    )
    start.closing.push_async_callback(sender.stop)
    coordinator = TransactionCoordinator(
        transaction_settings(settings),
        settings[setting.TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE],
        sources,
        tree.coordination.producer_ids,
        sender,
    )
    start.closing.callback(coordinator.stop)
    # The broker is ready before they are; until then their clients get an error that they retry.
    start.loop.call_soon(lambda: coordinator.on_topics_changed(served.view))
    events.topics_followed.subscribe(coordinator.on_topics_changed)
    events.topic_changed.subscribe(
        lambda name, topic: coordinator.follow(topic) if name == TRANSACTIONS_TOPIC else None
    )
    events.roles_changed.subscribe(lambda _: sender.on_leaders_changed())
    events.directory_offline.subscribe(lambda _: coordinator.on_directory_offline())
    verifications = None
    if peers is not None:
        from ottla.broker.transactions.peer_calls import PeerApi, PeerCalls

        verifications = PeerCalls(
            peers,
            start.loop,
            PeerApi(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                VERIFICATION_VERSION,
                VERIFICATION_CONNECTIONS_MAX,
                VERIFICATION_TIMEOUT_MS,
                lambda item: item.wanted.transactional_id,
                verification_request,
                on_verified,
                on_not_verified,
            ),
        )
        start.closing.push_async_callback(verifications.stop)
    verifier = TransactionVerifier(start.node_id, coordinator, leaders.coordinator_of, verifications)
    return TransactionParts(coordinator, writer, verifier)


def _peers(start: BrokerStart, listening: Listening, tree: TreeParts) -> Peers:
    # They import much that a standalone broker does not need.
    from ottla.broker.assembly.peer_security import peer_security
    from ottla.broker.transactions.peer_calls import RegisteredPeers

    return RegisteredPeers(start.node_id, tree.brokers.peer_address, peer_security(start, listening))


def _peer_markers(start: BrokerStart, peers: Peers, requests: MarkerRequests) -> PeerMarkers:
    from ottla.broker.transactions.peer_calls import PeerApi, PeerCalls

    # One connection: a second marker of a transaction must not be under way beside the first.
    api = PeerApi(
        ApiKey.WRITE_TXN_MARKERS, MARKERS_VERSION, 1, MARKER_TIMEOUT_MS, lambda marker: marker.peer_key, *requests
    )
    calls = PeerCalls(peers, start.loop, api)
    start.closing.push_async_callback(calls.stop)
    return calls
