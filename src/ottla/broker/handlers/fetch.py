"""Fetch (key 1), v4-v12.

Long-polls until `min_bytes` are readable below the high watermark, or `max_wait_ms` passes, or a partition has an
error.  Records go from the page cache to the socket by sendfile; a run may end inside a batch, as in Apache Kafka,
and clients drop the cut one.  Without transactions the last stable offset is the high watermark.

Sessions (v7+, KIP-227): epoch 0 asks for one, -1 for none; both close the session that they name.  A request that
continues a session names what it asks anew and what it forgets; the answer has only partitions with records, with an
error, or with another high watermark or log start than was told.  FETCH_SESSION_ID_NOT_FOUND for a session that is not
there (any more), INVALID_FETCH_SESSION_EPOCH for any epoch but the next.  A full answer without a session id means that
the cache had no room (max.incremental.fetch.session.cache.slots), or that a topic's name is longer than names are.

A request that claims to be a replica is refused (CVE-2018-1288).
Not done: topic ids (v13 and later), fetching from followers (the preferred read replica is always -1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.broker.connection import Answer, Connection
from ottla.broker.deadlines import Deadlines
from ottla.broker.fetch_read import FetchRead, ends_in_older_segment, read_partitions
from ottla.broker.fetch_session import FetchSession, next_epoch
from ottla.broker.fetch_session_cache import FetchSessionCache
from ottla.broker.fetch_session_read import SessionRead, fill_session, note_sent, read_session
from ottla.broker.fetch_waiting import FetchCall, WaitingFetch, WaitingSessionFetch
from ottla.broker.limits import PARKED_PARTITIONS_MAX
from ottla.broker.outbox import Piece
from ottla.broker.partition import Partition
from ottla.broker.partition_read import PartitionRead
from ottla.broker.partition_table import PartitionTable
from ottla.broker.ready_connections import ReadyConnections
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TOPIC_NAME_LENGTH_MAX
from ottla.protocol.fetch import FetchRequest, FetchResponseWriter, read_fetch
from ottla.runtime.clock import Clock
from ottla.runtime.disk import FileRun

_CONSUMER: Final = -1
_READ_COMMITTED: Final = 1
_NO_SESSION: Final = 0
_NEW_SESSION_EPOCH: Final = 0
_FULL_EPOCHS: Final = frozenset({-1, _NEW_SESSION_EPOCH})
_NO_ERROR: Final = int(ErrorCode.NONE)
_NOT_FOUND: Final = int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
_WRONG_EPOCH: Final = int(ErrorCode.INVALID_FETCH_SESSION_EPOCH)

Topics = Sequence[tuple[bytes, Sequence[PartitionRead]]]


class FetchHandler:
    """Reads and parks; one instance serves all connections."""

    def __init__(
        self,
        table: PartitionTable,
        ready: ReadyConnections,
        deadlines: Deadlines,
        size_bytes_max: int,
        sessions: FetchSessionCache,
        clock: Clock,
    ) -> None:
        self._table = table
        self.ready = ready
        self._deadlines = deadlines
        self._size_bytes_max = size_bytes_max
        self._sessions = sessions
        self._clock = clock
        self.parked_partitions_count = 0

    def handle(
        self, connection: Connection, view: memoryview, position: int, end: int, version: int, correlation_id: int
    ) -> None:
        """Serve the request whose body is `view[position:end]`; raises `WireError` when malformed."""
        request = read_fetch(view, position, end, version)
        if request.session_epoch not in _FULL_EPOCHS:
            self._continue_session(connection, request, version, correlation_id)
            return
        if request.session_id != _NO_SESSION:
            self._sessions.remove(request.session_id)
        self._serve_full(connection, request, version, correlation_id)

    # --- requests that name all their partitions --------------------------------------------------------------

    def read(self, request: FetchRequest) -> FetchRead:
        return read_partitions(self._table, request, self._size_bytes_max)

    def is_enough(self, request: FetchRequest, read: FetchRead) -> bool:
        """Whether the answer need not wait: it is large enough, or would not become larger by waiting."""
        return (
            read.is_due
            or read.readable_bytes >= self._enough_bytes(request)
            or ends_in_older_segment(self._table, request)
        )

    def complete(self, call: FetchCall, read: FetchRead, answer: Answer) -> None:
        answer.complete(self._full_pieces(*call, read))

    def _serve_full(self, connection: Connection, request: FetchRequest, version: int, correlation_id: int) -> None:
        if request.replica_id > _CONSUMER:
            connection.answer_pieces(response_pieces(request, version, correlation_id, _refusal(request)))
            return
        read = self.read(request)
        if self._may_wait(request) and request.topics and not self.is_enough(request, read):
            partitions = self._partitions_of(request)
            # What is not looked at again is not kept: of one request it may be a hundred megabytes.
            call = FetchCall(request._replace(forgotten=[], rack=b""), version, correlation_id)
            waiting = WaitingFetch(self, call, partitions, connection.park(exclusive=True))
            self._deadlines.add(waiting, request.max_wait_ms)
            return
        connection.answer_pieces(self._full_pieces(request, version, correlation_id, read))

    def _full_pieces(
        self, request: FetchRequest, version: int, correlation_id: int, read: FetchRead
    ) -> Sequence[Piece]:  # fmt: skip
        session_id = _NO_SESSION
        if request.session_epoch == _NEW_SESSION_EPOCH:
            session_id = self._open_session(request, read)
        return response_pieces(request, version, correlation_id, read.topics, session_id)

    def _partitions_of(self, request: FetchRequest) -> list[Partition]:
        found = (
            self._table.by_name.get(name_bytes, fetch[0]) for name_bytes, wanted in request.topics for fetch in wanted
        )
        return [partition for partition in found if partition is not None]

    # --- sessions ---------------------------------------------------------------------------------------------

    def read_session(self, request: FetchRequest, session: FetchSession) -> SessionRead:
        return read_session(self._table, session, min(request.max_bytes, self._size_bytes_max))

    def is_session_enough(self, request: FetchRequest, session: FetchSession, read: SessionRead) -> bool:
        return (
            read.is_due
            or read.would_not_grow
            or read.readable_bytes >= self._enough_bytes(request)
            or session.is_closed
        )

    def complete_session(self, call: FetchCall, session: FetchSession, read: SessionRead, answer: Answer) -> None:
        answer.complete(self._session_pieces(*call, session, read))

    def _open_session(self, request: FetchRequest, read: FetchRead) -> int:
        """Make what a full answer says the beginning of a session; its id, 0 when there is no room for it."""
        if _has_long_name(request):
            return _NO_SESSION
        now_ms = self._clock.monotonic_ms()
        session = self._sessions.open(sum(len(wanted) for _, wanted in request.topics), now_ms)
        if session is None:
            return _NO_SESSION
        fill_session(self._table, session, request, read)
        self._sessions.touch(session, now_ms)
        return session.id

    def _continue_session(
        self, connection: Connection, request: FetchRequest, version: int, correlation_id: int
    ) -> None:  # fmt: skip
        session = self._sessions.get(request.session_id)
        error = self._take_turn(session, request)
        if session is None or error:
            connection.answer_pieces(response_pieces(request, version, correlation_id, (), error_code=error))
            return
        if session.partitions_count == 0:
            # As in Apache Kafka: who forgot everything has no session any more.
            self._sessions.remove(session.id)
            self._serve_full(connection, request, version, correlation_id)
            return
        read = self.read_session(request, session)
        if self._may_wait(request) and not self.is_session_enough(request, session, read):
            # Its topics are in the session now.
            call = FetchCall(request._replace(topics=[], forgotten=[], rack=b""), version, correlation_id)
            waiting = WaitingSessionFetch(self, call, session, connection.park(exclusive=True))
            self._deadlines.add(waiting, request.max_wait_ms)
            return
        connection.answer_pieces(self._session_pieces(request, version, correlation_id, session, read))

    def _take_turn(self, session: FetchSession | None, request: FetchRequest) -> int:
        """Let a request change its session; an error code, and nothing changed, when it is not the next one."""
        if session is None or request.replica_id > _CONSUMER:
            return _NOT_FOUND
        if session.epoch != request.session_epoch:
            return _WRONG_EPOCH
        if _has_long_name(request):
            self._sessions.remove(session.id)
            return _NOT_FOUND
        session.update(request.topics, request.forgotten)
        if not self._sessions.touch(session, self._clock.monotonic_ms()):
            return _NOT_FOUND
        session.epoch = next_epoch(session.epoch)
        return _NO_ERROR

    def _session_pieces(
        self, request: FetchRequest, version: int, correlation_id: int, session: FetchSession, read: SessionRead
    ) -> Sequence[Piece]:
        if session.epoch != next_epoch(request.session_epoch):
            # Another request of this session came while this one waited: the session is that one's now.
            return response_pieces(request, version, correlation_id, (), session.id, error_code=_WRONG_EPOCH)
        if not session.is_closed:
            note_sent(session, read)
        return response_pieces(request, version, correlation_id, read.by_topic(), session.id)

    # --- both -------------------------------------------------------------------------------------------------

    def _enough_bytes(self, request: FetchRequest) -> int:
        """Nobody gets more than what may be sent at once, however much he asks to wait for."""
        return min(request.min_bytes, request.max_bytes, self._size_bytes_max)

    def _may_wait(self, request: FetchRequest) -> bool:
        return (
            request.max_wait_ms > 0
            and self._deadlines.has_room
            and self.parked_partitions_count < PARKED_PARTITIONS_MAX
        )


def _has_long_name(request: FetchRequest) -> bool:
    """Whether some topic cannot exist for the length of its name, which a session would keep for long."""
    return any(len(name_bytes) > TOPIC_NAME_LENGTH_MAX for name_bytes, _ in request.topics)


def response_pieces(
    request: FetchRequest,
    version: int,
    correlation_id: int,
    topics: Topics,
    session_id: int = _NO_SESSION,
    *,
    error_code: int = _NO_ERROR,
) -> Sequence[Piece]:
    """The whole response frame: bytes, with the file runs in their places."""
    # Annotated, not subscripted: calling a subscripted class costs a microsecond more.
    writer: FetchResponseWriter[FileRun] = FetchResponseWriter(
        correlation_id, version, topics_count=len(topics), error_code=error_code, session_id=session_id
    )
    # Readers of committed data get a list of aborted transactions, empty while there are none; others get null.
    reads_committed = request.isolation_level == _READ_COMMITTED
    for name_bytes, reads in topics:
        writer.topic(name_bytes, len(reads))
        for index, code, high_watermark, last_stable_offset, log_start_offset, diverging, aborted, run in reads:
            writer.partition(
                index,
                code,
                high_watermark,
                last_stable_offset,
                log_start_offset,
                aborted=aborted if reads_committed else None,
                diverging=diverging,
                records=run,
                records_length=0 if run is None else run.length_bytes,
            )
    return writer.finish()


def _refusal(request: FetchRequest) -> Topics:
    """No other broker follows this one: whoever claims to be a replica is told so, and moves nothing."""
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return [(name, [PartitionRead(fetch[0], code) for fetch in wanted]) for name, wanted in request.topics]
