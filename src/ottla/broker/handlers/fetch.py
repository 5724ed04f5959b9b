"""Fetch (key 1), v4-v17.

Long-polls until `min_bytes` are readable below the high watermark (below the last stable offset for readers of
committed records), or `max_wait_ms` passes, or a partition has an error.  Records go from the page cache to the socket
by sendfile; a run may end inside a batch, as in Apache Kafka, and clients drop the cut one.

A reader above the high watermark waits, too: a new leader learns it from its followers, a follower (KIP-392) from its
leader.  Where it is not reached in time the answer is OFFSET_NOT_AVAILABLE, since no reader is sent a high watermark
below its position.  At a new leader every reader waits in the same way until the high watermark has reached the
start of the leader epoch: its predecessor may have sent a higher one (`Partition.withholds_reads`).  A follower serves
what it knows.  Apache Kafka answers with the lower high watermark.

Readers of committed records read below the last stable offset, and get the aborted transactions of what they read;
after a restart only when the high watermark has passed the recovered log, whose markers may be above it.

Up to v12 topics have names, from v13 on ids (KIP-516).  UNKNOWN_TOPIC_ID for an id that is not served, so a topic
recreated under its old name is not read in place of the one that the client knows: the client requests metadata first.

Sessions (v7+, KIP-227): epoch 0 requests one, -1 for none; both close the session that they name.  A request that
continues a session names the partitions that it adds or changes and those that it removes; the response has only
partitions with records, with an error, or with another high watermark or log start than the reader has been sent.
FETCH_SESSION_ID_NOT_FOUND for a session that does not exist (any more), INVALID_FETCH_SESSION_EPOCH for any epoch but
the next, FETCH_SESSION_TOPIC_ID_ERROR for a request with ids in a session of names, or the other way round.  A full
response without a session id means that the cache had no room (max.incremental.fetch.session.cache.slots), or that a
topic's name is longer than a name may be.

From v16 on a partition that is led elsewhere (NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH) is answered with its leader
and that broker's address (KIP-951).

A request that claims to be a replica is served as one, up to the log's end and woken by appends, when its replica state
(v15+, KIP-903) names a live broker in its present life; the offsets that it requests show how far that replica has
come.  Any other is refused: CLUSTER_AUTHORIZATION_FAILED where no such broker is registered, or none is named with its
epoch (CVE-2018-1288), STALE_BROKER_EPOCH in another life.  A replica that is OFFSET_OUT_OF_RANGE gets the log start.

With an authorizer a consumer needs READ on each topic; one that it may not read is TOPIC_AUTHORIZATION_FAILED, whether
it exists or not, also after its right was revoked while a session was open or the request waited.  A replica needs
CLUSTER_ACTION on the cluster, else every partition has the same error.  A session may only be continued by the
principal that opened it.

From v11 on consumers are also served by followers in sync, below the high watermark that these know (KIP-392).  With a
selector (replica.selector.class) the leader sends a consumer that names its rack to the follower in it that has come
furthest: the answer has the preferred read replica and no records.
Not done: tiered storage (OFFSET_MOVED_TO_TIERED_STORAGE from v14 on).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from ottla.broker.fetching.fetch_plans import FetchService, FullFetch, SessionFetch, has_long_name
from ottla.broker.fetching.fetch_read import Topics, fetch_response, fetch_response_steps, in_parts, joined_steps
from ottla.broker.fetching.fetch_session import FetchSession
from ottla.broker.fetching.fetch_session_cache import FetchSessionCache
from ottla.broker.fetching.large_fetches import LargeFetch, LargeFetches
from ottla.broker.fetching.limited_fetch import LimitedFetch
from ottla.broker.fetching.parked_fetches import FetchDeadlines, FetchPlan, ParkedFetches
from ottla.broker.fetching.rack_aware_selector import RackAwareSelector
from ottla.broker.net.client_quotas import ClientQuotas
from ottla.broker.net.connection import Answer, Connection
from ottla.broker.net.large_requests import LargeRequests, Turn
from ottla.broker.net.limits import PARTITIONS_IN_STEPS_BYTES
from ottla.broker.net.outbox import Piece
from ottla.broker.net.ready_connections import ReadyConnections
from ottla.broker.net.request_tasks import RequestTasks
from ottla.broker.partitions.partition_read import (
    ANY_REPLICA,
    LEADER_ONLY,
    ConsumerReader,
    PartitionRead,
    ReplicaReader,
)
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.broker.replicas.leader_hints import LeaderHints
from ottla.broker.tree.broker_lifecycle import BrokerLifecycle, LeaseWatch
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NodeId
from ottla.protocol.api import ApiKey
from ottla.protocol.fetch import (
    NEW_SESSION_EPOCH,
    NO_SESSION,
    NO_SESSION_EPOCH,
    PREFERRED_REPLICA_FROM_VERSION,
    READ_COMMITTED,
    TOPIC_IDS_FROM_VERSION,
    FetchRequest,
    read_fetch,
    read_fetch_steps,
)
from ottla.runtime.clock import Clock
from ottla.runtime.loop_offload import paced
from ottla.runtime.steps import Steps
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType

_CONSUMER: Final = -1
_FULL_EPOCHS: Final = frozenset({NO_SESSION_EPOCH, NEW_SESSION_EPOCH})
_NO_ERROR: Final = int(ErrorCode.NONE)
_NOT_AUTHORIZED: Final = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_NO_BROKER: Final = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
_STALE_BROKER: Final = int(ErrorCode.STALE_BROKER_EPOCH)
_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_NOT_FOUND: Final = int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
_WRONG_EPOCH: Final = int(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
_WRONG_KEYS: Final = int(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)

Read = TypeVar("Read")


class FetchHandler:
    """Reads and parks; one instance serves all connections."""

    def __init__(
        self,
        table: PartitionTable,
        ready: ReadyConnections,
        deadlines: FetchDeadlines,
        size_bytes_max: int,
        sessions: FetchSessionCache,
        clock: Clock,
        leader_hints: LeaderHints | None = None,
        lifecycle: BrokerLifecycle | None = None,
        on_replica_closed: Callable[[NodeId, int], None] | None = None,
        selector: RackAwareSelector | None = None,
        lease_watch: LeaseWatch | None = None,
        replica_listeners: frozenset[str] = frozenset(),
    ) -> None:
        """`lifecycle`: the brokers that may fetch as replicas; none may without it.

        `on_replica_closed` is called with node id and broker epoch when a replica's connection has closed.
        `selector` knows the followers near a consumer; without one the leader serves every consumer.
        `lease_watch`: compared before each read; None where no session could end.
        `replica_listeners`: the names of the only listeners on which replicas fetch; empty: on any.
        """
        self._replica_listeners = replica_listeners
        self._service = FetchService(table, size_bytes_max, sessions, clock, leader_hints, lease_watch)
        self._sessions = sessions
        self._clock = clock
        self._lifecycle = lifecycle
        self._on_replica_closed = on_replica_closed
        self._selector = selector
        self.parked = ParkedFetches(ready, deadlines)
        self._large = LargeFetches(self.parked)
        self._turns = LargeRequests()
        self._tasks = RequestTasks()

    @property
    def sent_bytes(self) -> int:
        """Records of all responses since the start."""
        return self._service.sent_bytes

    def handle(
        self,
        connection: Connection,
        view: memoryview,
        position: int,
        end: int,
        version: int,
        correlation_id: int,
        quotas: ClientQuotas | None = None,
    ) -> None:
        """Serve the request whose body is `view[position:end]`; raises `WireError` when malformed.

        `quotas`: counts the records that are sent to a consumer, and throttles the connection.
        """
        if end - position > PARTITIONS_IN_STEPS_BYTES:
            serving = self._serve_large(
                connection, connection.hold(), view, position, end, version, correlation_id, quotas
            )
            self._tasks.start(connection, serving)
            return
        request = read_fetch(view, position, end, version)
        if quotas is not None:
            request, quotas = _limited(request, quotas)
        if request.session_epoch not in _FULL_EPOCHS:
            self._continue_session(connection, request, version, correlation_id, quotas)
            return
        self._close_named(connection, request)
        self._serve_full(connection, request, version, correlation_id, quotas)

    def _serve_full(
        self,
        connection: Connection,
        request: FetchRequest,
        version: int,
        correlation_id: int,
        quotas: ClientQuotas | None,
    ) -> None:
        error = self._full_error(connection, request)
        if error:
            connection.answer_pieces(fetch_response(request, version, correlation_id, _refusal(request, error)))
            return
        plan = self._full_plan(connection, request, version, correlation_id)
        self._serve(connection, plan if quotas is None else LimitedFetch(plan, quotas, version), request.max_wait_ms)

    async def _serve_large(
        self,
        connection: Connection,
        answer: Answer,
        view: memoryview,
        position: int,
        end: int,
        version: int,
        correlation_id: int,
        quotas: ClientQuotas | None,
    ) -> None:
        """A request that may name many partitions: others are served between some of them."""
        async with self._turns.turn(ApiKey.FETCH, end - position) as turn:
            if connection.is_closed:
                return
            request = await paced(read_fetch_steps(view, position, end, version))
            del view
            connection.let_go()
            if quotas is not None:
                request, quotas = _limited(request, quotas)
            await self._serve_read(connection, answer, request, version, correlation_id, turn, quotas)

    async def _serve_read(
        self,
        connection: Connection,
        answer: Answer,
        request: FetchRequest,
        version: int,
        correlation_id: int,
        turn: Turn,
        quotas: ClientQuotas | None,
    ) -> None:
        continues_session = request.session_epoch not in _FULL_EPOCHS
        session = self._sessions.get(request.session_id) if continues_session else None
        error = (
            await self._update_session_in_steps(connection, session, request, version)
            if continues_session
            else _NO_ERROR
        )
        if connection.is_closed:
            return
        if error:
            answer.complete(fetch_response(request, version, correlation_id, (), error_code=error))
            self.parked.send(connection)
            return
        if session is not None and session.partitions_count:
            plan = self._session_plan(connection, session, request, version, correlation_id)
            # A broker that stops has expired those that wait already.
            max_wait_ms = 0 if connection.is_draining else request.max_wait_ms
            limited = plan if quotas is None else LimitedFetch(plan, quotas, version)
            self._serve(connection, limited, max_wait_ms, answer)
            return
        self._close_named(connection, request)
        error = self._full_error(connection, request)
        if error:
            answer.complete(await paced(_refusal_steps(request, version, correlation_id, error)))
            self.parked.send(connection)
            return
        # A reader that wants a session is answered at once: from then on the session waits.
        max_wait_ms = 0 if request.session_epoch == NEW_SESSION_EPOCH else request.max_wait_ms
        full = self._full_plan(connection, request, version, correlation_id)
        await self._large.serve(answer, LargeFetch(full, quotas), max_wait_ms, turn)

    def _close_named(self, connection: Connection, request: FetchRequest) -> None:
        """A full request closes the session that it names, if that is its principal's."""
        if request.session_id != NO_SESSION:
            session = self._sessions.get(request.session_id)
            if session is not None and _may_use(connection, session):
                self._sessions.remove(session.id)

    def _full_error(self, connection: Connection, request: FetchRequest) -> int:
        """Why a full request may not be served, 0 when it may."""
        return self._replica_error(connection, request) if request.replica_id > _CONSUMER else _NO_ERROR

    def _full_plan(self, connection: Connection, request: FetchRequest, version: int, correlation_id: int) -> FullFetch:
        replica = None
        if request.replica_id > _CONSUMER:
            replica = self._replica_reader(request)
            if not connection.is_peer_watched and self._on_replica_closed is not None:
                connection.watch_peer(
                    partial(self._on_replica_closed, NodeId(request.replica_id), request.replica_epoch)
                )
        return FullFetch(
            self._service,
            request,
            version,
            correlation_id,
            connection.local_address,
            replica,
            self._consumer_reader(request, version, connection.local_address),
            None if replica is not None else connection.access,
            connection.principal,
            connection.client_id,
        )

    def _continue_session(
        self,
        connection: Connection,
        request: FetchRequest,
        version: int,
        correlation_id: int,
        quotas: ClientQuotas | None,
    ) -> None:
        session = self._sessions.get(request.session_id)
        error = self._update_session(connection, session, request, version)
        if session is None or error:
            connection.answer_pieces(fetch_response(request, version, correlation_id, (), error_code=error))
            return
        if session.partitions_count == 0:
            # As in Apache Kafka: a reader that forgot everything has no session any more.
            self._sessions.remove(session.id)
            self._serve_full(connection, request, version, correlation_id, quotas)
            return
        plan = self._session_plan(connection, session, request, version, correlation_id)
        self._serve(connection, plan if quotas is None else LimitedFetch(plan, quotas, version), request.max_wait_ms)

    def _session_plan(
        self, connection: Connection, session: FetchSession, request: FetchRequest, version: int, correlation_id: int
    ) -> SessionFetch:
        replica = self._replica_reader(request) if request.replica_id > _CONSUMER else None
        return SessionFetch(
            self._service,
            session,
            request,
            version,
            correlation_id,
            connection.local_address,
            replica,
            self._consumer_reader(request, version, connection.local_address),
            None if replica is not None else connection.access,
            connection.client_id,
        )

    def _serve(
        self, connection: Connection, plan: FetchPlan[Read], max_wait_ms: int, answer: Answer | None = None
    ) -> None:
        """Answer at once, or when there is enough to read; `answer`: the request's position, when it has one."""
        read = plan.read()
        if max_wait_ms > 0 and self.parked.has_room and not plan.is_enough(read):
            self.parked.park(plan, answer or connection.park(exclusive=True), max_wait_ms)
        elif answer is None:
            connection.answer_pieces(plan.response(read))
        else:
            answer.complete(plan.response(read))
            self.parked.send(connection)

    def _update_session(
        self, connection: Connection, session: FetchSession | None, request: FetchRequest, version: int
    ) -> int:
        """Let a request change its session; an error code, without a change, when it may not."""
        error = self._session_error(connection, session, request, version)
        if session is None or error:
            return error
        session.update(request.topics, request.forgotten)
        if not self._sessions.touch(session, self._clock.monotonic_ms()):
            return _NOT_FOUND
        session.advance()
        return _NO_ERROR

    async def _update_session_in_steps(
        self, connection: Connection, session: FetchSession | None, request: FetchRequest, version: int
    ) -> int:
        """`_update_session` in steps."""
        error = self._session_error(connection, session, request, version)
        if session is None or error:
            return error
        # From here on requests on other connections have the wrong epoch.
        session.advance()
        await paced(session.update_steps(request.topics, request.forgotten))
        return _NO_ERROR if self._sessions.touch(session, self._clock.monotonic_ms()) else _NOT_FOUND

    def _session_error(
        self, connection: Connection, session: FetchSession | None, request: FetchRequest, version: int
    ) -> int:
        """Why a request may not change its session, 0 when it may."""
        if session is None or not _may_use(connection, session):
            return _NOT_FOUND
        if request.replica_id > _CONSUMER:
            # A full request then gets the error of each partition.
            if session.replica != (request.replica_id, request.replica_epoch) or self._replica_error(
                connection, request
            ):
                return _NOT_FOUND
        elif session.replica is not None:
            return _NOT_FOUND
        if session.epoch != request.session_epoch:
            return _WRONG_EPOCH
        if session.uses_topic_ids != (version >= TOPIC_IDS_FROM_VERSION):
            return _WRONG_KEYS
        if has_long_name(request):
            self._sessions.remove(session.id)
            return _NOT_FOUND
        return _NO_ERROR

    def _replica_error(self, connection: Connection, request: FetchRequest) -> int:
        """Why this request may not fetch as a replica, 0 when it may: only a live broker may, in its present life, and
        on the listener for brokers where there is one.

        With an authorizer its principal needs the right to act for the cluster: the broker id is only a claim.

        A broker whose own session may have ended must acknowledge nothing, so it takes no progress either.
        """
        access = connection.access
        if access is not None and not access.allows(
            Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME, ApiKey.FETCH, connection.client_id
        ):
            return _NOT_AUTHORIZED
        lifecycle = self._lifecycle
        if lifecycle is None or lifecycle.is_sole or request.replica_epoch < 0:
            return _NO_BROKER
        if self._replica_listeners and connection.listener_name not in self._replica_listeners:
            return _NO_BROKER
        broker_epoch = lifecycle.live.get(NodeId(request.replica_id))
        if broker_epoch != request.replica_epoch:
            return _NO_BROKER if broker_epoch is None else _STALE_BROKER
        return _NOT_LEADER if lifecycle.is_uncertain(self._clock.boottime_ms()) else _NO_ERROR

    def _consumer_reader(self, request: FetchRequest, version: int, local_address: tuple[str, int]) -> ConsumerReader:
        if version < PREFERRED_REPLICA_FROM_VERSION:
            reader = LEADER_ONLY
        elif not request.rack or self._selector is None:
            reader = ANY_REPLICA
        else:
            reader = self._selector.reader(request.rack, local_address)
        return reader._replace(reads_committed=True) if request.isolation_level == READ_COMMITTED else reader

    def _replica_reader(self, request: FetchRequest) -> ReplicaReader:
        return ReplicaReader(NodeId(request.replica_id), request.replica_epoch, self._clock.monotonic_ms())


def _limited(request: FetchRequest, quotas: ClientQuotas) -> tuple[FetchRequest, ClientQuotas | None]:
    """The request with what its client's quota allows in one answer; None: replicas have no quotas."""
    if request.replica_id > _CONSUMER:
        quotas.exempt()
        return request, None
    return request._replace(max_bytes=min(request.max_bytes, quotas.fetch_bytes_max)), quotas


def _may_use(connection: Connection, session: FetchSession) -> bool:
    """A session is its principal's: another one could read by it what it may not."""
    return connection.access is None or connection.principal == session.principal


def _refusal(request: FetchRequest, error_code: int) -> Topics:
    """Every partition is refused, and nothing is changed."""
    return [(topic, [PartitionRead(fetch[0], error_code) for fetch in wanted]) for topic, wanted in request.topics]


def _refusal_steps(request: FetchRequest, version: int, correlation_id: int, error_code: int) -> Steps[Sequence[Piece]]:
    """The response of a refused request, in steps."""
    parts = []
    for part in in_parts(request):
        parts.append(_refusal(part, error_code))
        yield
    topics = yield from joined_steps(parts)
    return (yield from fetch_response_steps(request, version, correlation_id, topics, NO_SESSION, None))
