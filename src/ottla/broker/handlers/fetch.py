"""Fetch (key 1), v4-v12.

Long-polls until `min_bytes` are readable below the high watermark, or `max_wait_ms` passes, or a partition has an
error.  Records go from the page cache to the socket by sendfile; a run may end inside a batch, as in Apache Kafka,
and clients drop the cut one.  Without transactions the last stable offset is the high watermark.

Sessions (KIP-227): every answer is full, with session id 0; a request that continues a session gets
FETCH_SESSION_ID_NOT_FOUND.  A request that claims to be a replica is refused (CVE-2018-1288).
Not done: topic ids (v13 and later), fetching from followers (the preferred read replica is always -1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.broker.connection import Answer, Connection
from ottla.broker.deadlines import Deadlines
from ottla.broker.fetch_read import FetchRead, PartitionRead, ends_in_older_segment, read_partitions
from ottla.broker.limits import PARKED_PARTITIONS_MAX
from ottla.broker.outbox import Piece
from ottla.broker.partition import Partition
from ottla.broker.partition_table import PartitionTable
from ottla.broker.ready_connections import ReadyConnections
from ottla.model.error_code import ErrorCode
from ottla.protocol.fetch import FetchRequest, FetchResponseWriter, read_fetch
from ottla.runtime.disk import FileRun

_CONSUMER: Final = -1
_READ_COMMITTED: Final = 1
_FULL_SESSION_EPOCHS: Final = frozenset({-1, 0})
_NOTHING_ASKED: Final = FetchRequest(_CONSUMER, 0, 0, 0, 0, 0, -1, [], [], b"")


class WaitingFetch:
    """A fetch that found too little.  It ends once: by data, by its deadline, or with its connection."""

    __slots__ = ("_answer", "_correlation_id", "_handler", "_partitions", "_request", "_version", "is_over")

    def __init__(
        self,
        handler: FetchHandler,
        request: FetchRequest,
        partitions: list[Partition],
        version: int,
        correlation_id: int,
        answer: Answer,
    ) -> None:
        self._handler = handler
        self._request = request
        self._version = version
        self._correlation_id = correlation_id
        self._answer = answer
        self.is_over = False
        self._partitions = partitions
        handler.parked_partitions_count += len(partitions)
        for partition in partitions:
            partition.park_fetch(self)
        answer.connection.on_close = self.cancel

    def on_readable(self) -> None:
        """A partition's high watermark moved, or the partition is going away."""
        read = self._handler.read(self._request)
        if self._handler.is_enough(self._request, read):
            self._finish(read)

    def on_expired(self) -> None:
        self._finish(self._handler.read(self._request))

    def cancel(self) -> None:
        self.is_over = True
        for partition in self._partitions:
            partition.forget_fetch(self)
        self._handler.parked_partitions_count -= len(self._partitions)
        # Its deadline keeps this object until its time comes; what is large goes now.
        self._partitions = []
        self._request = _NOTHING_ASKED

    def _finish(self, read: FetchRead) -> None:
        request = self._request
        self.cancel()
        connection = self._answer.connection
        connection.on_close = None
        if not connection.is_closed:
            self._answer.complete(response_pieces(request, self._version, self._correlation_id, read))
            self._handler.ready.add(connection)


class FetchHandler:
    """Reads and parks; one instance serves all connections."""

    def __init__(
        self, table: PartitionTable, ready: ReadyConnections, deadlines: Deadlines, size_bytes_max: int
    ) -> None:
        self._table = table
        self.ready = ready
        self._deadlines = deadlines
        self._size_bytes_max = size_bytes_max
        self.parked_partitions_count = 0

    def handle(
        self, connection: Connection, view: memoryview, position: int, end: int, version: int, correlation_id: int
    ) -> None:
        """Serve the request whose body is `view[position:end]`; raises `WireError` when malformed."""
        request = read_fetch(view, position, end, version)
        if request.session_epoch not in _FULL_SESSION_EPOCHS:
            unknown = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            writer: FetchResponseWriter[FileRun] = FetchResponseWriter(
                correlation_id, version, topics_count=0, error_code=unknown
            )
            connection.answer_pieces(writer.finish())
            return
        if request.replica_id > _CONSUMER:
            read = _refusal(request)
        else:
            read = self.read(request)
            if self._may_wait(request) and not self.is_enough(request, read):
                partitions = self._partitions_of(request)
                answer = connection.park(exclusive=True)
                waiting = WaitingFetch(self, request, partitions, version, correlation_id, answer)
                self._deadlines.add(waiting, request.max_wait_ms)
                return
        connection.answer_pieces(response_pieces(request, version, correlation_id, read))

    def read(self, request: FetchRequest) -> FetchRead:
        return read_partitions(self._table, request, self._size_bytes_max)

    def is_enough(self, request: FetchRequest, read: FetchRead) -> bool:
        """Whether the answer need not wait: it is large enough, or would not become larger by waiting."""
        # Nobody gets more than what may be sent at once, however much he asks to wait for.
        enough_bytes = min(request.min_bytes, request.max_bytes, self._size_bytes_max)
        return read.is_due or read.readable_bytes >= enough_bytes or ends_in_older_segment(self._table, request)

    def _partitions_of(self, request: FetchRequest) -> list[Partition]:
        found = (self._table.get(name_bytes, fetch[0]) for name_bytes, wanted in request.topics for fetch in wanted)
        return [partition for partition in found if partition is not None]

    def _may_wait(self, request: FetchRequest) -> bool:
        return (
            request.max_wait_ms > 0
            and bool(request.topics)
            and self._deadlines.has_room
            and self.parked_partitions_count < PARKED_PARTITIONS_MAX
        )


def response_pieces(request: FetchRequest, version: int, correlation_id: int, read: FetchRead) -> Sequence[Piece]:
    """The whole response frame: bytes, with the file runs in their places."""
    # Annotated, not subscripted: calling a subscripted class costs a microsecond more.
    writer: FetchResponseWriter[FileRun] = FetchResponseWriter(correlation_id, version, topics_count=len(read.topics))
    # Readers of committed data get a list of aborted transactions, empty while there are none; others get null.
    aborted = () if request.isolation_level == _READ_COMMITTED else None
    for name_bytes, reads in read.topics:
        writer.topic(name_bytes, len(reads))
        for index, error_code, high_watermark, log_start_offset, diverging, run in reads:
            writer.partition(
                index,
                error_code,
                high_watermark,
                high_watermark,
                log_start_offset,
                aborted=aborted,
                diverging=diverging,
                records=run,
                records_length=0 if run is None else run.length_bytes,
            )
    return writer.finish()


def _refusal(request: FetchRequest) -> FetchRead:
    """No other broker follows this one: whoever claims to be a replica is told so, and moves nothing."""
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    topics = [(name, [PartitionRead(fetch[0], code) for fetch in wanted]) for name, wanted in request.topics]
    return FetchRead(topics, 0, True)
