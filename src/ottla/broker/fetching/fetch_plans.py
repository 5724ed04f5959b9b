"""How fetch requests are served: a full request reads all that it names, a session's request what may have changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ottla.broker.fetching.fetch_read import FetchRead, Topics, ends_in_older_segment, fetch_response, read_request
from ottla.broker.fetching.fetch_session import FetchSession, SessionRead
from ottla.broker.fetching.fetch_session_cache import FetchSessionCache
from ottla.broker.net.access import Access
from ottla.broker.net.outbox import Piece
from ottla.broker.partitions.authorized_topics import ReadableTopics
from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_read import LEADER_ONLY, ConsumerReader, ReplicaReader
from ottla.broker.partitions.partition_table import PartitionLookup, PartitionTable
from ottla.broker.partitions.waiting_requests import WaitingFetch, WakeOn
from ottla.broker.replicas.leader_hints import LeaderHints
from ottla.broker.tree.broker_lifecycle import LeaseWatch
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TOPIC_NAME_LENGTH_MAX
from ottla.protocol.current_leaders import CurrentLeaders
from ottla.protocol.fetch import (
    LEADERS_FROM_VERSION,
    NEW_SESSION_EPOCH,
    NO_SESSION,
    TOPIC_IDS_FROM_VERSION,
    FetchRequest,
    next_session_epoch,
)
from ottla.runtime.clock import Clock
from ottla.runtime.steps import Steps, run_steps
from ottla.security.acl import ANONYMOUS

_NO_ERROR: Final = int(ErrorCode.NONE)
_WRONG_EPOCH: Final = int(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
# As Apache Kafka: a reader with either error must find the leader.
_LED_ELSEWHERE: Final = frozenset({int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.FENCED_LEADER_EPOCH)})


class FetchService:
    """Shared by all fetches."""

    __slots__ = ("_leader_hints", "clock", "lease_watch", "sent_bytes", "sessions", "size_bytes_max", "table")

    def __init__(
        self,
        table: PartitionTable,
        size_bytes_max: int,
        sessions: FetchSessionCache,
        clock: Clock,
        leader_hints: LeaderHints | None,
        lease_watch: LeaseWatch | None = None,
    ) -> None:
        self.table = table
        # Compared before each read; None where no session could end.
        self.lease_watch = lease_watch
        # Of one response (fetch.max.bytes).
        self.size_bytes_max = size_bytes_max
        self.sessions = sessions
        self.clock = clock
        self._leader_hints = leader_hints
        # Records of all responses since the start, for metrics.
        self.sent_bytes = 0

    def note_sent(self, size_bytes: int) -> None:
        """A response with so many bytes of records was made."""
        self.sent_bytes += size_bytes

    def leaders(self, version: int, topics: Topics, local_address: tuple[str, int]) -> CurrentLeaders | None:
        """The leaders of those partitions that were refused since another broker leads them."""
        if version < LEADERS_FROM_VERSION or self._leader_hints is None:
            return None
        refused = ((topic, read[0]) for topic, reads in topics for read in reads if read[1] in _LED_ELSEWHERE)
        return self._leader_hints.by_id(refused, local_address)

    def readable(self, access: Access | None, client_id: str | None, *, by_id: bool) -> PartitionLookup:
        """The partitions that a request may read."""
        if access is not None:
            return ReadableTopics(self.table, access, client_id, by_id=by_id)
        return self.table.by_id if by_id else self.table.by_name

    def enough_bytes(self, request: FetchRequest) -> int:
        """The bytes that a fetch waits for: at most one response's maximum, however much its reader requests."""
        return min(request.min_bytes, request.max_bytes, self.size_bytes_max)

    def open_session(
        self,
        fetch: FullFetch,
        reads: Iterable[tuple[FetchRequest, FetchRead]],
    ) -> Steps[int]:
        """Open a session with a full response, which was read in these parts; its id, 0 when there is no room."""
        request, replica = fetch.request, fetch.replica
        if has_long_name(request):
            return NO_SESSION
        session = self.sessions.open(
            sum(len(wanted) for _, wanted in request.topics),
            self.clock.monotonic_ms(),
            is_privileged=replica is not None,
            uses_topic_ids=fetch.version >= TOPIC_IDS_FROM_VERSION,
            principal=fetch.principal,
            replica=None if replica is None else replica.incarnation,
        )
        if session is None:
            return NO_SESSION
        for part, read in reads:
            session.fill(fetch.partitions, part, read)
            yield
        # Between two steps it may have been closed to make room for another.
        is_open = not session.is_closed and self.sessions.touch(session, self.clock.monotonic_ms())
        return session.id if is_open else NO_SESSION


class FullFetch:
    """A request that names all its partitions.  While it waits, each of them holds it.

    A request of many partitions is served by `LargeFetch`, some of them at a time: a part.
    """

    __slots__ = (
        "_consumer",
        "_local_address",
        "correlation_id",
        "held_by",
        "partitions",
        "principal",
        "replica",
        "request",
        "service",
        "version",
    )

    def __init__(
        self,
        service: FetchService,
        request: FetchRequest,
        version: int,
        correlation_id: int,
        local_address: tuple[str, int],
        replica: ReplicaReader | None = None,
        consumer: ConsumerReader = LEADER_ONLY,
        access: Access | None = None,
        principal: str = ANONYMOUS,
        client_id: str | None = None,
    ) -> None:
        """`access`: what a consumer may read; None is everything."""
        self.service = service
        self.partitions = service.readable(access, client_id, by_id=version >= TOPIC_IDS_FROM_VERSION)
        self.principal = principal
        self.request = request
        self.version = version
        self.correlation_id = correlation_id
        self._local_address = local_address
        self.replica = replica
        self._consumer = consumer
        self.held_by: list[Partition] = []

    def read(self, part: FetchRequest | None = None, readable_bytes: int = 0) -> FetchRead:
        """Read what the partitions have now.

        `part`: only these; then `readable_bytes` are those of the parts before it, and the caller counts the read.
        """
        service, replica = self.service, self.replica
        if service.lease_watch is not None:
            service.lease_watch.check()
        read = read_request(
            self.partitions, part or self.request, service.size_bytes_max, replica, self._consumer, readable_bytes
        )
        if replica is not None and part is None:
            replica.count()
        return read

    def is_enough(self, read: FetchRead, part: FetchRequest | None = None) -> bool:
        """Whether the response need not wait, because of these partitions and the bytes of those before them."""
        request = part or self.request
        return (
            read.is_due
            or read.readable_bytes >= self.service.enough_bytes(request)
            or not request.topics
            or ends_in_older_segment(self.partitions, request, as_replica=self.replica is not None)
        )

    def response(self, read: FetchRead) -> Sequence[Piece]:
        request, service = self.request, self.service
        session_id = NO_SESSION
        if request.session_epoch == NEW_SESSION_EPOCH:
            session_id = run_steps(service.open_session(self, [(request, read)]))
        service.note_sent(read.readable_bytes)
        leaders = self.leaders(read.topics) if read.is_due else None
        return fetch_response(
            request, self.version, self.correlation_id, read.topics, session_id=session_id, leaders=leaders
        )

    def empty_response(self) -> Sequence[Piece]:
        """Without a session: a throttled client requests one again."""
        return fetch_response(self.request, self.version, self.correlation_id, ())

    def leaders(self, topics: Topics) -> CurrentLeaders | None:
        return self.service.leaders(self.version, topics, self._local_address)

    def park(self, fetch: WaitingFetch) -> int:
        self.drop_what_is_read()
        self.hold_part(self.request, fetch)
        return len(self.held_by)

    def hold_part(self, part: FetchRequest, fetch: WaitingFetch) -> None:
        """Let some of the partitions wake `fetch`; `unpark` is right after each part."""
        wake_on = WakeOn.HIGH_WATERMARK if self.replica is None else WakeOn.APPEND
        for topic, wanted in part.topics:
            for each in wanted:
                partition = self.partitions.get(topic, each[0])
                if partition is not None:
                    partition.waiting.park_fetch(fetch, wake_on)
                    self.held_by.append(partition)

    def drop_what_is_read(self) -> None:
        """Keep only what is read again: of one request the rest may be a hundred megabytes, also in names of topics
        without partitions, which Apache Kafka's responses leave out, too.
        """
        topics = [each for each in self.request.topics if each[1]]
        self.request = self.request._replace(topics=topics, forgotten=[], rack=b"")

    def stay_parked(self) -> None:
        """Partitions hold a fetch until `forget_fetch`."""

    def unpark(self, fetch: WaitingFetch) -> None:
        for partition in self.held_by:
            partition.waiting.forget_fetch(fetch)


class SessionFetch:
    """A request that continues a session.  While it waits, the session holds it, and is marked by its partitions."""

    __slots__ = (
        "_consumer",
        "_correlation_id",
        "_local_address",
        "_partitions",
        "_replica",
        "_service",
        "_session",
        "_version",
        "request",
    )

    def __init__(
        self,
        service: FetchService,
        session: FetchSession,
        request: FetchRequest,
        version: int,
        correlation_id: int,
        local_address: tuple[str, int],
        replica: ReplicaReader | None = None,
        consumer: ConsumerReader = LEADER_ONLY,
        access: Access | None = None,
        client_id: str | None = None,
    ) -> None:
        self._service = service
        self._partitions = service.readable(access, client_id, by_id=session.uses_topic_ids)
        self._session = session
        self.request = request
        self._version = version
        self._correlation_id = correlation_id
        self._local_address = local_address
        self._replica = replica
        self._consumer = consumer

    def read(self) -> SessionRead:
        service, request, replica = self._service, self.request, self._replica
        if service.lease_watch is not None:
            service.lease_watch.check()
        read = self._session.read(
            self._partitions, min(request.max_bytes, service.size_bytes_max), replica, self._consumer
        )
        if replica is not None:
            replica.count()
        return read

    def is_enough(self, read: SessionRead) -> bool:
        return (
            read.is_due
            or read.would_not_grow
            or read.readable_bytes >= self._service.enough_bytes(self.request)
            or self._session.is_closed
            or (read.has_news and self._session.tells_watermarks)
        )

    def response(self, read: SessionRead) -> Sequence[Piece]:
        session, request, version = self._session, self.request, self._version
        if session.epoch != next_session_epoch(request.session_epoch):
            # Another request of this session came while this one waited, and owns the session now.
            return self.empty_response()
        if not session.is_closed:
            session.note_sent(read)
        self._service.note_sent(read.readable_bytes)
        topics = read.by_topic()
        leaders = self._service.leaders(version, topics, self._local_address) if read.is_due else None
        return fetch_response(request, version, self._correlation_id, topics, session_id=session.id, leaders=leaders)

    def empty_response(self) -> Sequence[Piece]:
        session, request = self._session, self.request
        error_code = _NO_ERROR if session.epoch == next_session_epoch(request.session_epoch) else _WRONG_EPOCH
        return fetch_response(
            request, self._version, self._correlation_id, (), session_id=session.id, error_code=error_code
        )

    def park(self, fetch: WaitingFetch) -> int:
        # The session has its topics.
        self.request = self.request._replace(topics=[], forgotten=[], rack=b"")
        self._session.park(fetch)
        return 1

    def stay_parked(self) -> None:
        self._session.watch_candidates()

    def unpark(self, fetch: WaitingFetch) -> None:
        self._session.unpark(fetch)


def has_long_name(request: FetchRequest) -> bool:
    """Whether some topic's name is too long to exist; a session would keep it in memory."""
    return any(len(topic) > TOPIC_NAME_LENGTH_MAX for topic, _ in request.topics)
