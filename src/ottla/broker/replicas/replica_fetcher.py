"""Fetches from one leader, for all partitions of this broker that follow it: one task, one connection, one fetch at a
time.

Each round fetches from all partitions, appends what came, waits until it is stable, and fetches on from there: the
leader takes a fetch offset for what this replica will not lose.  One flush covers all that a round appended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from random import Random
from typing import Final, NamedTuple, Protocol

from ottla.broker.partitions.follower_log import AppliedFetch
from ottla.broker.replicas.log_cuts import Cut, LogCuts
from ottla.broker.replicas.peer_connection import PeerError, PeerRefused
from ottla.broker.replicas.replica_fetch_session import PartitionKey, ReplicaFetchSession
from ottla.broker.replicas.replication_throttle import ReplicationThrottle
from ottla.broker.upkeep.flusher import FlushSignal
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, WireError
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.observe.events import fields
from ottla.protocol.api import ApiKey
from ottla.protocol.fetch import NEW_SESSION_EPOCH, FetchRequest
from ottla.protocol.replica_fetch import (
    REPLICA_FETCH_VERSION,
    FetchedPartition,
    encode_replica_fetch,
    read_replica_fetch_response,
)
from ottla.replication.following import FollowerFetch, FollowerStep
from ottla.runtime.clock import Clock
from ottla.runtime.loop_offload import LoopOffload
from ottla.runtime.offload import Offload
from ottla.storage.errors import DiskFull, TooManyOpenFiles

log = logging.getLogger(__name__)

# The first delay after a failure; it doubles up to `replica.fetch.backoff.ms`.  A leader that has not yet seen its
# election, or that restarts, is ready within milliseconds.
_FIRST_DELAY_MS: Final = 20
# The share of a delay that chance decides, so that the followers of a leader do not return all at once.
_JITTER: Final = 0.2
# A poll that finds nothing may wait; one that is not answered this much later never will be.
_ANSWER_MARGIN_MS: Final = 1_000
# New partitions end a poll that waits for others, at most this often: it costs a connection and a full request.
_INTERRUPT_INTERVAL_MS: Final = 100
# Records that one turn of the loop appends.
_SLICE_BYTES: Final = 1 << 20
_SLICE_PARTITIONS: Final = 200

_READ_UNCOMMITTED: Final = 0
_SESSION_ERRORS: Final = frozenset(
    int(code)
    for code in (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    )
)


class Follower(Protocol):
    """The part of `FollowerLog` that a fetcher drives."""

    @property
    def is_being_cut(self) -> bool: ...

    def next_fetch(self) -> FollowerFetch | None: ...

    async def cut(self, step: FollowerStep, offload: Offload) -> None: ...

    def begins_below(self, request_id: int, answer: FetchedPartition) -> bool: ...

    async def begin_with(self, records: bytearray, now_ms: int, offload: Offload) -> None: ...

    def apply_fetched(self, request_id: int, answer: FetchedPartition, now_ms: int) -> AppliedFetch | FollowerStep: ...


class FollowedPartition(Protocol):
    """The part of `Partition` that a fetcher drives."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def topic_id_bytes(self) -> bytes: ...

    @property
    def index(self) -> int: ...

    @property
    def is_in_sync(self) -> bool: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def stable_end(self) -> int: ...

    @property
    def follower_log(self) -> Follower: ...


class Peer(Protocol):
    """An open connection to the leader; see `PeerConnection`."""

    async def call(self, api: ApiKey, version: int, body: bytes, timeout_ms: int) -> memoryview: ...

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


class FetcherLimits(NamedTuple):
    """Kafka's `replica.*` settings."""

    wait_max_ms: int
    min_bytes: int
    partition_max_bytes: int
    response_max_bytes: int
    backoff_ms: int
    socket_timeout_ms: int


class FetcherTotals:
    """Counts over all fetchers of a broker, also those that have ended."""

    __slots__ = ("failures_count", "requests_count")

    def __init__(self) -> None:
        self.requests_count = 0
        # Of connections: not made, lost, or closed for what came.
        self.failures_count = 0

    def count_request(self) -> None:
        self.requests_count += 1

    def count_failure(self) -> None:
        self.failures_count += 1


class FetcherContext(NamedTuple):
    """What all fetchers of a broker share."""

    node_id: NodeId
    # Of this broker's present registration.
    broker_epoch: Callable[[], int]
    # Opens a connection to a broker; raises `PeerError`, also for one that is not registered.
    connect: Callable[[NodeId], Awaitable[Peer]]
    flushes: FlushSignal
    clock: Clock
    limits: FetcherLimits
    throttle: ReplicationThrottle
    chance: Random
    totals: FetcherTotals
    # No process listens at the leader's address: its process is gone, before its registration is.
    on_leader_refused: Callable[[NodeId], None]
    # The log of a partition takes nothing any more, so it is fetched no more.
    on_partition_failed: Callable[[FollowedPartition], None]
    # The log of a partition takes records again: fetch it from its present leader.
    on_cut: Callable[[FollowedPartition], None]
    # How many logs may be cut at once: the rest wait for their turn.
    cut_turns: asyncio.Semaphore


class ReplicaFetcher:
    """Fetches from `leader_id` until it is stopped.  A partition whose own log fails is dropped, others continue."""

    def __init__(self, leader_id: NodeId, context: FetcherContext, loop: asyncio.AbstractEventLoop) -> None:
        self.leader_id: Final = leader_id
        self._context = context
        self._loop = loop
        self._partitions: dict[PartitionKey, FollowedPartition] = {}
        self._session = ReplicaFetchSession()
        self._session_broker_epoch = -1
        self._was_reached = False
        # Of the fetch that each partition in the session waits for.
        self._request_ids: dict[PartitionKey, int] = {}
        # Those whose fetch is another one than in the request that was sent last: its answer is not theirs.
        self._superseded: set[PartitionKey] = set()
        # Those whose log's end must become stable before they fetch.
        self._unstable: dict[PartitionKey, None] = {}
        # Those that fetch again later: when, by the monotonic clock; and how often in succession they had to.
        self._paused: dict[PartitionKey, int] = {}
        self._delays_count: dict[PartitionKey, int] = {}
        self._peer: Peer | None = None
        self._is_polling = False
        self._is_interrupted = False
        self._interrupted_at_ms = -_INTERRUPT_INTERVAL_MS
        self._interrupting: asyncio.TimerHandle | None = None
        self._failures_count = 0
        # Ends a wait for work, or for the next attempt.
        self._wake = asyncio.Event()
        self._flush_wait: asyncio.Future[OSError | None] | None = None
        self._cuts: LogCuts[FollowedPartition] = LogCuts(
            leader_id, loop, context.cut_turns, self._is_current, self._on_cut_failed, context.on_cut
        )
        self._is_stopped = False
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._partitions)

    def start(self) -> None:
        self._task = self._loop.create_task(self._run())

    def stop(self) -> asyncio.Task[None]:
        """Fetch no more; the task that is returned has ended when nothing is under way.

        Cuts that wait for their turn are given up: the next leader, or the next start, finds the same difference.
        """
        self._is_stopped = True
        assert self._task is not None
        self._task.cancel()
        return self._loop.create_task(self._ended(self._task)) if self._cuts.tasks else self._task

    async def _ended(self, task: asyncio.Task[None]) -> None:
        await asyncio.wait([task, *self._cuts.tasks])

    def add(self, partition: FollowedPartition) -> None:
        """Fetch this partition too, from its present position and epoch; also when either has changed."""
        key = _key(partition)
        self._partitions[key] = partition
        self._delays_count.pop(key, None)
        self._paused.pop(key, None)
        self._ask(key, partition)
        self._wake.set()
        self._interrupt()

    def remove(self, partition: FollowedPartition) -> bool:
        """It follows this leader no more; False when another replica is fetched in its place."""
        key = _key(partition)
        present = self._partitions.get(key)
        if present is partition:
            self._forget(key)
        return present is None or present is partition

    def on_log_start_moved(self, partition: FollowedPartition) -> None:
        """The leader learns it from the next request: it sends consumers here for what this replica still has."""
        key = _key(partition)
        if self._partitions.get(key) is partition:
            self._session.move_log_start(key, partition.log_start_offset)

    def _ask(self, key: PartitionKey, partition: FollowedPartition) -> None:
        """Fetch from where the partition is now, or when its log's end is stable."""
        self._unstable.pop(key, None)
        if partition.follower_log.is_being_cut or self._cuts.holds(partition):
            # It is added again when that is done.
            self._session.forget(key)
            self._request_ids.pop(key, None)
            return
        fetch = partition.follower_log.next_fetch()
        if fetch is None or fetch.leader != self.leader_id:
            self._session.forget(key)
            self._request_ids.pop(key, None)
            if partition.stable_end < partition.log_end_offset:
                self._unstable[key] = None
            # Else it follows another leader, or none: it will be removed, or added again.
            return
        size_bytes_max = self._context.limits.partition_max_bytes
        throttle = self._context.throttle
        if throttle.is_on and throttle.holds(partition.topic_partition) and not partition.is_in_sync:
            now_ms = self._context.clock.monotonic_ms()
            delay_ms = throttle.delay_ms(now_ms)
            if delay_ms:
                self._session.forget(key)
                self._request_ids.pop(key, None)
                self._paused[key] = now_ms + delay_ms
                return
            size_bytes_max = throttle.fetch_bytes_max(size_bytes_max)
        if self._request_ids.get(key) != fetch.request_id:
            self._request_ids[key] = fetch.request_id
            self._superseded.add(key)
        self._session.put(
            key,
            (
                key[1],
                fetch.leader_epoch,
                fetch.fetch_offset,
                fetch.last_fetched_epoch,
                partition.log_start_offset,
                size_bytes_max,
            ),
        )

    def _forget(self, key: PartitionKey) -> None:
        del self._partitions[key]
        self._session.forget(key)
        for state in (self._request_ids, self._unstable, self._paused, self._delays_count):
            state.pop(key, None)
        if self._flush_wait is not None and not self._flush_wait.done():
            self._flush_wait.set_result(None)

    def _pause(self, key: PartitionKey) -> None:
        """Fetch it again later; sooner the first time."""
        count = self._delays_count.get(key, 0)
        self._delays_count[key] = count + 1
        self._paused[key] = self._context.clock.monotonic_ms() + self._delay_ms(count)
        self._session.forget(key)
        self._request_ids.pop(key, None)

    def _resume_due(self) -> None:
        now_ms = self._context.clock.monotonic_ms()
        for key in [key for key, due_ms in self._paused.items() if due_ms <= now_ms]:
            del self._paused[key]
            self._ask(key, self._partitions[key])

    def _delay_ms(self, count: int) -> int:
        limit_ms = self._context.limits.backoff_ms
        delay_ms = min(_FIRST_DELAY_MS << min(count, 16), limit_ms)
        return max(1, round(delay_ms * (1 - _JITTER * self._context.chance.random())))

    def _until_resume_ms(self) -> int | None:
        """The time until a paused partition is due."""
        if not self._paused:
            return None
        return max(1, min(self._paused.values()) - self._context.clock.monotonic_ms())

    def _interrupt(self) -> None:
        """End a poll that waits for other partitions than what was just added."""
        if not self._is_polling or self._interrupting is not None:
            return
        elapsed_ms = self._context.clock.monotonic_ms() - self._interrupted_at_ms
        if elapsed_ms >= _INTERRUPT_INTERVAL_MS:
            self._interrupt_now()
        else:
            delay_ms = _INTERRUPT_INTERVAL_MS - elapsed_ms
            self._interrupting = self._loop.call_later(delay_ms / 1000, self._interrupt_now)

    def _interrupt_now(self) -> None:
        self._interrupting = None
        if self._is_polling and self._peer is not None:
            self._is_interrupted = True
            self._interrupted_at_ms = self._context.clock.monotonic_ms()
            self._peer.interrupt()

    async def _run(self) -> None:
        try:
            while True:
                try:
                    await self._round()
                except (PeerError, WireError) as error:
                    await self._on_failure(error)
                except Exception:
                    # A bug of ours must not end replication for ever.
                    log.exception("replica_fetcher.bug", extra=fields(leader=self.leader_id))
                    self._disconnect()
                    self._failures_count += 1
                    await self._wait(self._delay_ms(self._failures_count))
        finally:
            self._disconnect()
            if self._interrupting is not None:
                self._interrupting.cancel()

    async def _round(self) -> None:
        """One fetch, and all that follows from it; or a wait for something to fetch."""
        self._wake.clear()
        self._resume_due()
        await self._until_stable()
        if not len(self._session):
            await self._wait(self._until_resume_ms())
            return
        if self._peer is None:
            self._peer = await self._context.connect(self.leader_id)
            self._was_reached = True
        await self._apply(await self._fetch(self._peer))

    async def _fetch(self, peer: Peer) -> Iterable[FetchedPartition]:
        limits, session = self._context.limits, self._session
        broker_epoch = self._context.broker_epoch()
        if broker_epoch != self._session_broker_epoch:
            # In another life this broker is another replica.
            self._session_broker_epoch = broker_epoch
            session.restart()
        wait_ms = min(limits.wait_max_ms, self._until_resume_ms() or limits.wait_max_ms)
        self._is_interrupted = False
        self._superseded.clear()
        session_id, session_epoch, topics, forgotten = session.request()
        request = FetchRequest(
            replica_id=self._context.node_id,
            max_wait_ms=wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.response_max_bytes,
            isolation_level=_READ_UNCOMMITTED,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=topics,
            forgotten=forgotten,
            rack=b"",
            replica_epoch=broker_epoch,
        )
        timeout_ms = max(limits.socket_timeout_ms, wait_ms + _ANSWER_MARGIN_MS)
        self._context.totals.count_request()
        self._is_polling = True
        try:
            body = await peer.call(ApiKey.FETCH, REPLICA_FETCH_VERSION, encode_replica_fetch(request), timeout_ms)
        finally:
            self._is_polling = False
        response = read_replica_fetch_response(body)
        if response.error_code:
            session.restart()
            if response.error_code not in _SESSION_ERRORS or session_epoch == NEW_SESSION_EPOCH:
                raise PeerError(f"broker {self.leader_id} refuses the fetch: {_name(response.error_code)}")
            # The leader evicted the session: the next request names everything, and opens another.
            return ()
        session.on_response(response.session_id)
        if self._failures_count:
            self._failures_count = 0
            log.info("replica_fetcher.recovered", extra=fields(leader=self.leader_id))
        return response.partitions

    async def _apply(self, fetched: Iterable[FetchedPartition]) -> None:
        """Append, cut or pause; the records are views of the connection's buffer until the next fetch."""
        now_ms = self._context.clock.now_ms()
        slice_bytes = slice_partitions = 0
        # Those of one answer together: a leader that does not know this broker yet refuses every partition that it
        # requests.
        refused: dict[str, list[TopicPartition]] = {}
        for part in fetched:
            if slice_bytes >= _SLICE_BYTES or slice_partitions >= _SLICE_PARTITIONS:
                slice_bytes = slice_partitions = 0
                await asyncio.sleep(0)
            key = (part.topic_id, part.partition)
            # Looked up each time: it may have been removed meanwhile, or follow in another epoch.
            partition, request_id = self._partitions.get(key), self._request_ids.get(key)
            if partition is None or request_id is None or key in self._superseded:
                continue
            slice_bytes += len(part.records)
            slice_partitions += 1
            refusal = self._apply_one(key, partition, request_id, part, now_ms)
            if refusal is not None:
                refused.setdefault(refusal, []).append(partition.topic_partition)
        for reason, partitions in refused.items():
            log.warning(
                "replica_fetcher.partition_refused",
                extra=fields(
                    partition=partitions[0], partitions_count=len(partitions), leader=self.leader_id, reason=reason
                ),
            )

    def _apply_one(
        self, key: PartitionKey, partition: FollowedPartition, request_id: int, part: FetchedPartition, now_ms: int
    ) -> str | None:
        """Returns why the answer cannot be used: once for however many attempts in succession."""
        throttle = self._context.throttle
        if throttle.is_on and throttle.holds(partition.topic_partition) and not partition.is_in_sync:
            throttle.take(len(part.records))
        if (
            len(part.records)
            and partition.log_start_offset == partition.log_end_offset
            and partition.follower_log.begins_below(request_id, part)
        ):
            if not self._cuts.has_free_turn:
                # No limit bounds the memory of all that would wait here with their records.
                self._pause(key)
                return None
            # A copy: the records are views of the connection's buffer.
            records = bytearray(part.records)
            begin = partial(partition.follower_log.begin_with, records, now_ms, LoopOffload())
            self._begin_cut(key, partition, request_id, begin)
            return None
        try:
            applied = partition.follower_log.apply_fetched(request_id, part, now_ms)
        except (OttlaError, OSError) as error:
            self._on_partition_failed(key, partition, error)
            return None
        if isinstance(applied, FollowerStep):
            self._begin_cut(key, partition, request_id, partial(partition.follower_log.cut, applied, LoopOffload()))
            return None
        if applied is AppliedFetch.STALE or applied is AppliedFetch.RETRY:
            is_news = applied is AppliedFetch.RETRY and key not in self._delays_count
            self._pause(key)
            if is_news:
                return _name(part.error_code) if part.error_code else "the answer cannot be used"
            return None
        self._delays_count.pop(key, None)
        self._ask(key, partition)
        return None

    def _begin_cut(self, key: PartitionKey, partition: FollowedPartition, request_id: int, cut: Cut) -> None:
        self._session.forget(key)
        self._request_ids.pop(key, None)
        self._cuts.begin(partition, request_id, cut)

    def _is_current(self, partition: FollowedPartition, request_id: int) -> bool:
        """Whether the answer to this fetch still counts, after a wait."""
        if self._is_stopped or self._partitions.get(_key(partition)) is not partition:
            return False
        fetch = partition.follower_log.next_fetch()
        return fetch is not None and fetch.request_id == request_id

    def _on_cut_failed(self, partition: FollowedPartition, error: OttlaError | OSError) -> bool:
        """False: the partition is not fetched from this leader any more."""
        key = _key(partition)
        if self._partitions.get(key) is not partition:
            return False
        self._on_partition_failed(key, partition, error)
        self._wake.set()
        return True

    def _on_partition_failed(
        self, key: PartitionKey, partition: FollowedPartition, error: OttlaError | OSError
    ) -> None:
        """Its own log did not take what was fetched."""
        if key not in self._delays_count:
            log.error(
                "replica_fetcher.partition_failed",
                extra=fields(partition=partition.topic_partition, leader=self.leader_id, error=str(error)),
            )
        if isinstance(error, DiskFull | TooManyOpenFiles | OSError):
            # There may be room again, as for producers; a log that no longer takes anything says so by a StorageError.
            self._pause(key)
        else:
            self._forget(key)
            self._context.on_partition_failed(partition)

    async def _until_stable(self) -> None:
        """Wait until every partition can fetch from its log's end."""
        while self._unstable:
            for key in list(self._unstable):
                self._ask(key, self._partitions[key])
            if not self._unstable:
                return
            self._flush_wait = self._context.flushes.wait()
            error = await self._flush_wait
            self._flush_wait = None
            if error is not None:
                # The data directory is offline: nothing becomes stable any more, here or for other leaders.
                log.error("replica_fetcher.stopped", extra=fields(leader=self.leader_id, error=str(error)))
                for key in list(self._partitions):
                    self._forget(key)

    async def _on_failure(self, error: OttlaError) -> None:
        """The connection failed, or was ended to fetch something new as well."""
        self._disconnect()
        if self._is_interrupted:
            self._is_interrupted = False
            return
        self._context.totals.count_failure()
        if isinstance(error, PeerRefused) and self._was_reached:
            # One that was never reached may be starting: it is registered before it listens.
            self._context.on_leader_refused(self.leader_id)
        if not self._failures_count:
            log.warning("replica_fetcher.failed", extra=fields(leader=self.leader_id, error=str(error)))
        self._failures_count += 1
        await self._wait(self._delay_ms(self._failures_count - 1))

    def _disconnect(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()
        self._session.restart()

    async def _wait(self, timeout_ms: int | None) -> None:
        """Wait for new partitions, at most so long."""
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            return


def _key(partition: FollowedPartition) -> PartitionKey:
    return partition.topic_id_bytes, partition.index


def _name(error_code: int) -> str:
    try:
        return ErrorCode(error_code).name
    except ValueError:
        return str(error_code)
