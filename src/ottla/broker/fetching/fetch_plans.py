"""How fetch requests are served: a full request reads all that it names, a session's request what may have changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.broker.fetching.fetch_read import READ_COMMITTED, FetchRead, ends_in_older_segment, in_parts, read_partitions
from ottla.broker.fetching.fetch_response import NO_SESSION, Topics, fetch_response, fetch_response_steps, joined_steps
from ottla.broker.fetching.fetch_session import FetchSession, next_epoch
from ottla.broker.fetching.fetch_session_cache import FetchSessionCache
from ottla.broker.fetching.fetch_session_read import SessionRead, fill_session, note_sent, read_session
from ottla.broker.net.limits import PARTITIONS_OF_STEP
from ottla.broker.net.outbox import Piece
from ottla.broker.partitions.partition import Partition, WaitingFetch, WakeOn
from ottla.broker.partitions.partition_read import LEADER_ONLY, ConsumerReader, ReplicaReader
from ottla.broker.partitions.partition_table import PartitionIndex, PartitionTable
from ottla.broker.replicas.leader_hints import LeaderHints
from ottla.broker.tree.lease_watch import LeaseWatch
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TOPIC_NAME_LENGTH_MAX
from ottla.protocol.current_leaders import CurrentLeaders
from ottla.protocol.fetch import LEADERS_FROM_VERSION, TOPIC_IDS_FROM_VERSION, FetchRequest
from ottla.runtime.clock import Clock
from ottla.runtime.steps import Steps

NEW_SESSION_EPOCH: Final = 0
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

    def leaders(self, version: int, topics: Topics, local_address: tuple[str, int]) -> CurrentLeaders | None:
        """The leaders of those partitions that were refused since another broker leads them."""
        if version < LEADERS_FROM_VERSION or self._leader_hints is None:
            return None
        refused = ((topic, read[0]) for topic, reads in topics for read in reads if read[1] in _LED_ELSEWHERE)
        return self._leader_hints.by_id(refused, local_address)

    def enough_bytes(self, request: FetchRequest) -> int:
        """The bytes that a fetch waits for: at most one response's maximum, however much its reader asks for."""
        return min(request.min_bytes, request.max_bytes, self.size_bytes_max)

    def open_session(
        self, partitions: PartitionIndex, request: FetchRequest, read: FetchRead, replica: ReplicaReader | None
    ) -> int:
        """Begin a session with a full response; its id, 0 when there is no room for it."""
        session = self.new_session(partitions, request, replica)
        if session is None:
            return NO_SESSION
        fill_session(partitions, session, request, read)
        self.sessions.touch(session, session.created_ms)
        return session.id

    def new_session(
        self, partitions: PartitionIndex, request: FetchRequest, replica: ReplicaReader | None
    ) -> FetchSession | None:
        """One that is to be filled, and touched then; None when there is no room for it."""
        if has_long_name(request):
            return None
        return self.sessions.open(
            sum(len(wanted) for _, wanted in request.topics),
            self.clock.monotonic_ms(),
            is_privileged=replica is not None,
            uses_topic_ids=partitions is self.table.by_id,
            replica=None if replica is None else replica.incarnation,
        )


class FullFetch:
    """A request that names all its partitions.  While it waits, each of them holds it."""

    __slots__ = (
        "_consumer",
        "_correlation_id",
        "_held_by",
        "_local_address",
        "_partitions",
        "_replica",
        "_request",
        "_service",
        "_version",
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
    ) -> None:
        table = service.table
        self._service = service
        self._partitions = table.by_id if version >= TOPIC_IDS_FROM_VERSION else table.by_name
        self._request = request
        self._version = version
        self._correlation_id = correlation_id
        self._local_address = local_address
        self._replica = replica
        self._consumer = consumer
        self._held_by: list[Partition] = []

    def read(self) -> FetchRead:
        service, replica = self._service, self._replica
        if service.lease_watch is not None:
            service.lease_watch.check()
        read = read_partitions(self._partitions, self._request, service.size_bytes_max, replica, self._consumer)
        if replica is not None:
            replica.count()
        return read

    def is_enough(self, read: FetchRead) -> bool:
        request = self._request
        return (
            read.is_due
            or read.readable_bytes >= self._service.enough_bytes(request)
            or not request.topics
            or ends_in_older_segment(self._partitions, request, as_replica=self._replica is not None)
        )

    def read_steps(self) -> Steps[list[FetchRead]]:
        """`read` in steps: the parts, each with the bytes of those before it."""
        parts: list[FetchRead] = []
        readable_bytes = 0
        for part in in_parts(self._request):
            if self._service.lease_watch is not None:
                self._service.lease_watch.check()
            read = read_partitions(
                self._partitions, part, self._service.size_bytes_max, self._replica, self._consumer, readable_bytes
            )
            readable_bytes = read.readable_bytes
            parts.append(read)
            yield
        if self._replica is not None:
            self._replica.count()
        return parts

    def is_enough_steps(self, parts: Sequence[FetchRead]) -> Steps[bool]:
        """`is_enough` in steps."""
        request = self._request
        if not parts or parts[-1].readable_bytes >= self._service.enough_bytes(request):
            return True
        for part, read in zip(in_parts(request), parts, strict=True):
            yield
            if read.is_due or ends_in_older_segment(self._partitions, part, as_replica=self._replica is not None):
                return True
        return False

    def response_steps(self, parts: Sequence[FetchRead]) -> Steps[Sequence[Piece]]:
        """`response` in steps."""
        request, service = self._request, self._service
        session_id = NO_SESSION
        if request.session_epoch == NEW_SESSION_EPOCH:
            session = service.new_session(self._partitions, request, self._replica)
            if session is not None:
                for part, read in zip(in_parts(request), parts, strict=True):
                    fill_session(self._partitions, session, part, read)
                    yield
                # Between two steps it may have been closed to make room for another.
                if not session.is_closed and service.sessions.touch(session, service.clock.monotonic_ms()):
                    session_id = session.id
        if parts:
            service.sent_bytes += parts[-1].readable_bytes
        topics = yield from joined_steps(read.topics for read in parts)
        leaders = None
        if any(read.is_due for read in parts):
            leaders = service.leaders(self._version, topics, self._local_address)
            yield
        return (
            yield from fetch_response_steps(request, self._version, self._correlation_id, topics, session_id, leaders)
        )

    def response(self, read: FetchRead) -> Sequence[Piece]:
        request = self._request
        session_id = NO_SESSION
        if request.session_epoch == NEW_SESSION_EPOCH:
            session_id = self._service.open_session(self._partitions, request, read, self._replica)
        self._service.sent_bytes += read.readable_bytes
        leaders = self._service.leaders(self._version, read.topics, self._local_address) if read.is_due else None
        return fetch_response(
            request, self._version, self._correlation_id, read.topics, session_id=session_id, leaders=leaders
        )

    def park(self, fetch: WaitingFetch) -> int:
        self._keep_what_is_read()
        self._hold(self._request, fetch)
        return len(self._held_by)

    def park_steps(self, fetch: WaitingFetch) -> Steps[int]:
        """`park` in steps; `unpark` is right after each of them."""
        self._keep_what_is_read()
        for part in in_parts(self._request):
            self._hold(part, fetch)
            yield
        return len(self._held_by)

    def _hold(self, part: FetchRequest, fetch: WaitingFetch) -> None:
        wake_on = WakeOn.HIGH_WATERMARK if self._replica is None else WakeOn.APPEND
        for topic, wanted in part.topics:
            for each in wanted:
                partition = self._partitions.get(topic, each[0])
                if partition is not None:
                    partition.park_fetch(fetch, wake_on)
                    self._held_by.append(partition)

    def _keep_what_is_read(self) -> None:
        # What is not read again is not kept: of one request it may be a hundred megabytes, also in names of topics
        # without partitions, which Apache Kafka's responses leave out, too.
        topics = [each for each in self._request.topics if each[1]]
        self._request = self._request._replace(topics=topics, forgotten=[], rack=b"")

    def stay_parked(self) -> None:
        """Partitions hold a fetch until `forget_fetch`."""

    def unpark(self, fetch: WaitingFetch) -> None:
        for partition in self._held_by:
            partition.forget_fetch(fetch)

    def unpark_steps(self, fetch: WaitingFetch) -> Steps[None]:
        """`unpark` in steps."""
        for count, partition in enumerate(self._held_by):
            partition.forget_fetch(fetch)
            if count % PARTITIONS_OF_STEP == 0:
                yield


class SessionFetch:
    """A request that continues a session.  While it waits, the session holds it, and is marked by its partitions."""

    __slots__ = (
        "_consumer",
        "_correlation_id",
        "_local_address",
        "_partitions",
        "_replica",
        "_request",
        "_service",
        "_session",
        "_version",
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
    ) -> None:
        self._service = service
        self._partitions = service.table.by_id if session.uses_topic_ids else service.table.by_name
        self._session = session
        self._request = request
        self._version = version
        self._correlation_id = correlation_id
        self._local_address = local_address
        self._replica = replica
        self._consumer = consumer

    def read(self) -> SessionRead:
        service, request, replica = self._service, self._request, self._replica
        if service.lease_watch is not None:
            service.lease_watch.check()
        read = read_session(
            self._partitions,
            self._session,
            min(request.max_bytes, service.size_bytes_max),
            reads_committed=request.isolation_level == READ_COMMITTED,
            replica=replica,
            consumer=self._consumer,
        )
        if replica is not None:
            replica.count()
        return read

    def is_enough(self, read: SessionRead) -> bool:
        return (
            read.is_due
            or read.would_not_grow
            or read.readable_bytes >= self._service.enough_bytes(self._request)
            or self._session.is_closed
            or (read.has_news and self._session.tells_watermarks)
        )

    def response(self, read: SessionRead) -> Sequence[Piece]:
        session, request, version = self._session, self._request, self._version
        if session.epoch != next_epoch(request.session_epoch):
            # Another request of this session came while this one waited, and owns the session now.
            return fetch_response(
                request, version, self._correlation_id, (), session_id=session.id, error_code=_WRONG_EPOCH
            )
        if not session.is_closed:
            note_sent(session, read)
        self._service.sent_bytes += read.readable_bytes
        topics = read.by_topic()
        leaders = self._service.leaders(version, topics, self._local_address) if read.is_due else None
        return fetch_response(request, version, self._correlation_id, topics, session_id=session.id, leaders=leaders)

    def park(self, fetch: WaitingFetch) -> int:
        # The session has its topics.
        self._request = self._request._replace(topics=[], forgotten=[], rack=b"")
        self._session.park(fetch)
        return 1

    def stay_parked(self) -> None:
        self._session.watch_candidates()

    def unpark(self, fetch: WaitingFetch) -> None:
        self._session.unpark(fetch)


def has_long_name(request: FetchRequest) -> bool:
    """Whether some topic's name is too long to exist; a session would keep it in memory."""
    return any(len(topic) > TOPIC_NAME_LENGTH_MAX for topic, _ in request.topics)
