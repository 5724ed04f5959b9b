"""The markers of decided transactions, each written until its partition has it or is deleted.

A marker has one request in flight, however often its shard requests it: where the end keeps the epoch, a second one
that arrives late would end the next transaction.  A marker for a partition that this broker leads is a plain call.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NodeId, TopicPartition, indexes_by_topic
from ottla.observe.events import frequent
from ottla.transactions.end_markers import EndMarkers
from ottla.transactions.transaction import NEXT_EPOCH, SAME_EPOCH

if TYPE_CHECKING:
    from ottla.protocol.schemas.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
    from ottla.transactions.decisions import Identity

log = logging.getLogger(__name__)

# The first version that names the rules of the epoch (KIP-1228).
MARKERS_VERSION: Final = 2
RETRY_MS: Final = 50
MARKER_TIMEOUT_MS: Final = 30_000
# This coordinator was replaced: another one has written the marker, or will.
_FINAL: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})

_Key = tuple[str, int, int, TopicPartition]


class MarkerOwner(Protocol):
    """The shard that has decided."""

    @property
    def is_over(self) -> bool:
        """Whether another coordinator writes its markers."""
        ...

    def marker_written(self, transactional_id: str, producer: Identity, partition: TopicPartition) -> None: ...


class LocalMarkers(Protocol):
    """Writes markers to the partitions that this broker leads (marker_writer.py)."""

    def write(self, partition: TopicPartition, markers: EndMarkers, on_done: Callable[[ErrorCode], None]) -> None:
        """`on_done` is called once, now or later: when the marker is on all in-sync replicas, or with an error."""
        ...


class Leaders(Protocol):
    """Which broker leads a partition, as this broker's view of the tree has it."""

    def leader_of(self, partition: TopicPartition) -> NodeId | None:
        """-1: none does now.  None: there is no such partition in the view."""
        ...

    async def refresh(self) -> None:
        """Bring the view up to date with the tree.  Raises `OttlaError`."""
        ...


class PeerMarkers(Protocol):
    """Sends to other brokers; see `PeerCalls`."""

    def send(self, node_id: NodeId, item: Marker) -> None: ...


class Marker:
    """One marker that a partition does not have yet."""

    __slots__ = ("attempted_epoch", "markers", "owners", "partition")

    def __init__(self, partition: TopicPartition, markers: EndMarkers) -> None:
        self.partition: Final = partition
        # Of the newest coordinator that requested it.
        self.markers = markers
        self.attempted_epoch = markers.coordinator_epoch
        self.owners: Final[dict[MarkerOwner, None]] = {}

    @property
    def key(self) -> _Key:
        return (*self.markers[:3], self.partition)

    @property
    def peer_key(self) -> Hashable:
        """By which a response names the marker."""
        return self.markers.producer_id, self.partition


class MarkerRequests(NamedTuple):
    """What `PeerCalls` needs of the sender."""

    request_of: Callable[[Sequence[Marker]], object]
    on_answer: Callable[[Sequence[Marker], Any], None]
    on_failed: Callable[[Sequence[Marker], OttlaError], None]


class MarkerSender:
    """Every method runs on the event loop's thread, and none waits."""

    def __init__(
        self,
        node_id: NodeId,
        leaders: Leaders,
        local: LocalMarkers,
        loop: asyncio.AbstractEventLoop,
        peer_markers: Callable[[MarkerRequests], PeerMarkers] | None = None,
    ) -> None:
        """`peer_markers` connects to other brokers; None: there are none."""
        self._node_id = node_id
        self._leaders = leaders
        self._local = local
        self._loop = loop
        requests = MarkerRequests(_request_of, self._on_answer, self._on_failed)
        self._peers = None if peer_markers is None else peer_markers(requests)
        self._unwritten: dict[_Key, Marker] = {}
        # To be sent in the next turn of the loop, or after a pause.
        self._due: list[Marker] = []
        self._failed: list[Marker] = []
        self._absent: list[Marker] = []
        self._sending: asyncio.Handle | None = None
        self._retrying: asyncio.TimerHandle | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._is_stopped = False

    def __len__(self) -> int:
        """The count of markers that are not written."""
        return len(self._unwritten)

    def write(self, markers: EndMarkers, owner: MarkerOwner) -> None:
        """Report each to `owner` once its partition has it.  The same markers may be requested again."""
        for partition in sorted(markers.partitions):
            marker = Marker(partition, markers)
            found = self._unwritten.setdefault(marker.key, marker)
            found.owners[owner] = None
            if found is marker:
                self._due.append(marker)
            elif markers.coordinator_epoch > found.markers.coordinator_epoch:
                found.markers = markers
        if self._due and self._sending is None and not self._is_stopped:
            # Not at once: a shard is not called while it decides, and what several shards decide leaves together.
            self._sending = self._loop.call_soon(self._send_due)

    def on_leaders_changed(self) -> None:
        """Partitions may have another leader: try again now."""
        if self._retrying is not None:
            self._retrying.cancel()
            self._retry()

    async def stop(self) -> None:
        """The markers that are not written are requested again by the next coordinator."""
        self._is_stopped = True
        for handle in (self._sending, self._retrying):
            if handle is not None:
                handle.cancel()
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait([self._refreshing])

    def _send_due(self) -> None:
        self._sending = None
        due, self._due = self._due, []
        for marker in due:
            self._send(marker)

    def _send(self, marker: Marker) -> None:
        if all(owner.is_over for owner in marker.owners):
            del self._unwritten[marker.key]
            return
        leader = self._leaders.leader_of(marker.partition)
        marker.attempted_epoch = marker.markers.coordinator_epoch
        if leader is None:
            self._absent.append(marker)
            if self._refreshing is None and not self._is_stopped:
                self._refreshing = self._loop.create_task(self._refresh())
        elif leader == self._node_id:
            self._local.write(marker.partition, marker.markers, partial(self._on_outcome, marker))
        elif leader < 0 or self._peers is None:
            self._retry_later(marker)
        else:
            self._peers.send(leader, marker)

    async def _refresh(self) -> None:
        """A partition that is still absent after the view was brought up to date is deleted."""
        absent, self._absent = self._absent, []
        is_fresh = False
        try:
            await self._leaders.refresh()
            is_fresh = True
        except OttlaError as error:
            log.warning("transaction.topics_unread", extra=frequent(error=str(error)))
        finally:
            self._refreshing = None
        for marker in absent:
            if is_fresh and self._leaders.leader_of(marker.partition) is None:
                self._on_outcome(marker, ErrorCode.NONE)
            else:
                self._retry_later(marker)
        for marker in self._absent:
            self._retry_later(marker)
        self._absent = []

    def _on_outcome(self, marker: Marker, error: ErrorCode) -> None:
        if self._is_stopped:
            return
        if error is ErrorCode.NONE:
            del self._unwritten[marker.key]
            markers = marker.markers
            for owner in marker.owners:
                owner.marker_written(
                    markers.transactional_id, (markers.producer_id, markers.producer_epoch), marker.partition
                )
        elif error not in _FINAL or marker.markers.coordinator_epoch > marker.attempted_epoch:
            self._retry_later(marker)
        else:
            del self._unwritten[marker.key]
            facts = {"transactional_id": marker.markers.transactional_id, "partition": marker.partition}
            log.warning("transaction.marker_refused", extra=frequent(**facts, error=error.name))

    def _retry_later(self, marker: Marker) -> None:
        self._failed.append(marker)
        if self._retrying is None and not self._is_stopped:
            self._retrying = self._loop.call_later(RETRY_MS / 1000, self._retry)

    def _retry(self) -> None:
        self._retrying = None
        failed, self._failed = self._failed, []
        for marker in failed:
            self._send(marker)

    def _on_answer(self, sent: Sequence[Marker], response: WriteTxnMarkersResponse) -> None:
        errors = {
            (result.producer_id, TopicPartition(topic.name, each.partition_index)): each.error_code
            for result in response.markers
            for topic in result.topics
            for each in topic.partitions
        }
        for marker in sent:
            code = errors.get((marker.markers.producer_id, marker.partition), int(ErrorCode.UNKNOWN_SERVER_ERROR))
            self._on_outcome(marker, ErrorCode.of(code))

    def _on_failed(self, sent: Sequence[Marker], error: OttlaError) -> None:
        log.warning("transaction.markers_not_sent", extra=frequent(markers_count=len(sent), error=str(error)))
        for marker in sent:
            self._retry_later(marker)


def _request_of(markers: Sequence[Marker]) -> WriteTxnMarkersRequest:
    # Of a cluster with transactions alone.
    from ottla.protocol.schemas.write_txn_markers import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )

    by_transaction: defaultdict[tuple[int, int, bool, int, bool], list[TopicPartition]] = defaultdict(list)
    for marker in markers:
        end = marker.markers
        transaction = (end.producer_id, end.producer_epoch, end.commits, end.coordinator_epoch, end.advances_epoch)
        by_transaction[transaction].append(marker.partition)
    return WriteTxnMarkersRequest(
        [
            WritableTxnMarker(
                producer_id,
                producer_epoch,
                commits,
                [WritableTxnMarkerTopic(name, indexes) for name, indexes in indexes_by_topic(partitions)],
                coordinator_epoch,
                NEXT_EPOCH if advances_epoch else SAME_EPOCH,
            )
            for (producer_id, producer_epoch, commits, coordinator_epoch, advances_epoch), partitions in (
                by_transaction.items()
            )
        ]
    )
