"""Produce (key 0), v3-v12.

Each partition's batch is checked by its head, its CRC (broker/producing/batch_appender.py) and the bounds of its
records (records/record_bounds.py; `record.validation`), stamped and appended as it came, unless the topic's settings
force the broker to open it (broker/producing/batch_opening.py): then single records may be refused, and are named from
v8 on (KIP-467).  Large batches are opened in a thread (broker/producing/opening_threads.py): the connection starts no
other request until they are appended.  Those for which the thread has no time are refused with NOT_ENOUGH_REPLICAS,
which clients retry.
acks=0 answers nothing, and an error closes the connection; acks=1 answers when the batch is below the leader's stable
end, acks=all when it is below the high watermark, which on one replica is the same.  Errors are per partition:
NOT_LEADER_OR_FOLLOWER where another broker leads or may lead, with that one and its address from v10 on (KIP-951),
NOT_ENOUGH_REPLICAS for acks=all below min.insync.replicas, INVALID_TOPIC_EXCEPTION for internal topics.
With an authorizer each topic needs WRITE: else TOPIC_AUTHORIZATION_FAILED, whether it exists or not.
A request that waits past its time-out answers REQUEST_TIMED_OUT: the outcome of its batches is then unknown.

Versions 0-2 (message formats before v2) are advertised, because old librdkafka turns compression off without
them, and answered by closing the connection (docs/compatibility.md).

Transactional batches need a transactional id that the client may write (TRANSACTIONAL_ID_AUTHORIZATION_FAILED).  Before
the first one of a transaction in a partition is appended its coordinator confirms that the partition is in the
transaction, or from v12 on adds it (KIP-890); the connection starts no other request meanwhile.  Otherwise it is
INVALID_TXN_STATE, from v11 on TRANSACTION_ABORTABLE.  While the coordinator does not answer NOT_ENOUGH_REPLICAS, which
clients retry.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from ottla.broker.context import Verifier
from ottla.broker.net.client_quotas import ClientQuotas
from ottla.broker.net.connection import Answer, Connection
from ottla.broker.net.large_requests import LargeRequests
from ottla.broker.net.limits import (
    APPENDED_IN_TURN_BYTES,
    PARTITIONS_IN_STEPS_BYTES,
    PARTITIONS_OF_STEP,
    PIPELINED_PARTITIONS_MAX,
)
from ottla.broker.net.outbox import Piece
from ottla.broker.net.ready_connections import ReadyConnections
from ottla.broker.net.request_meter import SlowRequests
from ottla.broker.net.request_tasks import RequestTasks
from ottla.broker.partitions.authorized_topics import WritableTopics
from ottla.broker.partitions.partition import NO_WAIT
from ottla.broker.partitions.partition_table import PartitionIndex, PartitionLookup, PartitionTable
from ottla.broker.producing.batch_appender import BatchAppender
from ottla.broker.producing.opening_threads import BatchOpener, Opened, OpensOffLoop
from ottla.broker.producing.transactional_produce import TransactionalProduce, header_of
from ottla.broker.producing.waiting_produce import ProduceShared, TopicResult, WaitingProduce
from ottla.broker.replicas.leader_hints import LeaderHints
from ottla.coordination.tree import Lease
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import INTERNAL_TOPICS
from ottla.observe.events import fields
from ottla.protocol.api import ApiKey
from ottla.protocol.produce import (
    ManyPartitions,
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    RecordErrors,
    read_produce,
    read_produce_steps,
    refusal_of,
    write_produce_response,
    write_produce_response_steps,
)
from ottla.runtime.clock import Clock
from ottla.runtime.loop_offload import LoopOffload, first_turn, paced
from ottla.runtime.steps import Steps, parts_of
from ottla.security.acl import Operation, ResourceType
from ottla.transactions.commands import AddPartitions, VerifyPartitions

log = logging.getLogger(__name__)

# Written by the broker alone.
_INTERNAL_TOPICS: Final = frozenset(name.encode() for name in INTERNAL_TOPICS)
_INTERNAL: Final = RecordErrors("clients do not produce to the broker's own topics")

# What a broker serves that may not be the leader any more.
_NOTHING_LED: Final = PartitionIndex(ErrorCode.NOT_LEADER_OR_FOLLOWER)

# One step appends so many bytes, or one batch.
_STEP_BYTES: Final = APPENDED_IN_TURN_BYTES // 8

_NONE: Final = int(ErrorCode.NONE)
_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)
_INVALID_TOPIC: Final = int(ErrorCode.INVALID_TOPIC_EXCEPTION)


class _Produce:
    """A request that is being appended, and the results so far."""

    __slots__ = (
        "access",
        "client_id",
        "correlation_id",
        "error_code",
        "request",
        "throttle_ms",
        "topics",
        "transaction",
        "version",
        "view",
        "waiting",
    )

    def __init__(
        self,
        connection: Connection,
        request: ProduceRequest,
        view: memoryview,
        version: int,
        correlation_id: int,
        throttle_ms: int,
    ) -> None:
        self.throttle_ms = throttle_ms
        self.access = connection.access
        self.client_id = connection.client_id
        self.request = request
        self.view = view
        self.version = version
        self.correlation_id = correlation_id
        self.topics: list[TopicResult] = []
        self.waiting: WaitingProduce | None = None
        self.transaction: TransactionalProduce | None = None
        # Of the last partition that failed.
        self.error_code = _NONE


# Yields a batch that must be opened in a thread, and receives the opened one; None: others may run.
_AppendSteps = Generator[OpensOffLoop | None, Opened | None, None]


class ProduceHandler:
    """Appends batches; one instance serves all connections.

    A request goes through these stages: `handle` reads it and chooses its path, `_serve_one` (one partition, which most
    producers send under load), `_append_at_once` (a few) or `_append_steps` (many, in slices); `BatchAppender` checks,
    opens, stamps and appends each batch; the request is answered, or waits (`WaitingProduce`) until its batches are
    stable.
    """

    __slots__ = (
        "_append",
        "_clock",
        "_lease",
        "_now_ms",
        "_opener",
        "_partitions",
        "_shared",
        "_turns",
        "_verifier",
    )

    def __init__(
        self,
        partitions: PartitionTable,
        ready: ReadyConnections,
        clock: Clock,
        leader_hints: LeaderHints | None = None,
        lease: Lease | None = None,
        slow: SlowRequests | None = None,
        opener: BatchOpener | None = None,
        verifier: Verifier | None = None,
    ) -> None:
        """`lease`: until when this broker may lead; None is forever.

        `verifier` queries the coordinators of transactional ids; None: transactional batches are refused.

        `opener` has the threads that open batches; the caller closes it.
        `slow` reports the requests that wait long for their acknowledgement.
        """
        self._partitions = partitions
        self._lease = lease
        self._shared = ProduceShared(ready, leader_hints, slow, RequestTasks())
        self._clock = clock
        self._now_ms = clock.now_ms
        self._opener = opener or BatchOpener(clock)
        self._append = BatchAppender(self._opener).append
        self._turns = LargeRequests()
        self._verifier = verifier

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

        `quotas`: counts its bytes, and throttles the connection.
        """
        throttle_ms = 0 if quotas is None else quotas.produced()
        try:
            request = read_produce(view, position, end, version)
        except ManyPartitions:
            serving = self._serve_many(
                connection, connection.hold(), view, position, end, version, correlation_id, throttle_ms
            )
            self._shared.tasks.start(connection, serving)
            return
        if request.transactional_id is not None:
            produce = _Produce(connection, request, view, version, correlation_id, throttle_ms)
            self._serve_transactional(connection, produce, end - position)
            return
        topics = request.topics
        if len(topics) == 1 and len(topics[0][1]) == 1:
            self._serve_one(connection, view, request, version, correlation_id, throttle_ms)
            return
        produce = _Produce(connection, request, view, version, correlation_id, throttle_ms)
        self._serve_some(connection, produce, end - position)

    def _serve_some(self, connection: Connection, produce: _Produce, size_bytes: int) -> None:
        """Append at once, or in steps where that takes long."""
        if size_bytes > PARTITIONS_IN_STEPS_BYTES and _takes_long(produce.request, size_bytes):
            serving = self._serve_paced(connection, connection.hold(), produce, self._append_steps(produce))
            self._shared.tasks.start(connection, serving)
            return
        job = self._append_at_once(produce)
        if job is None:
            self._answer_now(connection, produce)
        else:
            self._serve_opening(connection, produce, job)

    def _serve_one(
        self,
        connection: Connection,
        view: memoryview,
        request: ProduceRequest,
        version: int,
        correlation_id: int,
        throttle_ms: int,
    ) -> None:
        """The short path of a request for one partition: the same as the general one, without its steps."""
        _, acks, timeout_ms, ((name_bytes, wanted),) = request
        ((index, start, stop),) = wanted
        now_ms = self._now_ms()
        lease = self._lease
        partitions: PartitionLookup = self._partitions.by_name
        if lease is not None and self._clock.boottime_ms() >= lease.until_ms:
            self._refuse_all(name_bytes, wanted, now_ms)
            partitions = _NOTHING_LED
        access = connection.access
        if access is not None and not access.rights.may_write(name_bytes):
            # Constructed for a refusal only: for each batch it would take six times as long as the look-up.
            partitions = WritableTopics(partitions, access, connection.client_id)
        partition = None if name_bytes in _INTERNAL_TOPICS else partitions.get(name_bytes, index)
        if partition is None:
            result, required_end = _absent(partitions, name_bytes, index), NO_WAIT
        else:
            try:
                result, required_end = self._append(partition, view, start, stop, version, acks, now_ms, None)
            except OpensOffLoop as job:
                produce = _Produce(connection, request, view, version, correlation_id, throttle_ms)
                self._serve_opening(connection, produce, job.with_traceback(None))  # it would keep the buffer
                return
        failure = result[1]
        topics: list[TopicResult] = [(name_bytes, [result])]
        leaders = None
        if failure:
            if not acks:
                self._close_failed(connection, failure)
                return
            leaders = self._shared.leaders(version, topics, connection)
        elif required_end:
            assert partition is not None
            deadline_ms = self._clock.monotonic_ms() + (timeout_ms if timeout_ms > 0 else 0)
            waiting = WaitingProduce(self._shared, correlation_id, version, deadline_ms, topics, throttle_ms)
            partition.waiting.park_produce(required_end, acks, waiting, waiting.add_slot(0, 0))
            if waiting.waits:
                waiting.park(connection.park(exclusive=False), _NONE)
                return
            leaders = self._shared.leaders(version, topics, connection)
        if acks:
            connection.answer_now(write_produce_response(correlation_id, version, topics, leaders, throttle_ms))

    def _serve_transactional(self, connection: Connection, produce: _Produce, size_bytes: int) -> None:
        """Append once the coordinator has confirmed the partitions, which it often does during the call."""
        transaction = produce.transaction = self._transaction(connection, produce)
        for _ in self._guard_steps(produce, transaction):
            pass
        answers = self._query(transaction)
        if answers is None:
            self._serve_some(connection, produce, size_bytes)
        else:
            serving = self._serve_verified(connection, connection.hold(), produce, answers)
            self._shared.tasks.start(connection, serving)

    def _transaction(self, connection: Connection, produce: _Produce) -> TransactionalProduce:
        assert produce.request.transactional_id is not None
        transactional_id = produce.request.transactional_id.decode(errors="replace")
        refusal, access = ErrorCode.NONE, connection.access
        operation, kind = Operation.WRITE, ResourceType.TRANSACTIONAL_ID
        if self._verifier is None or (
            access is not None
            and not access.allows(operation, kind, transactional_id, ApiKey.PRODUCE, connection.client_id)
        ):
            refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return TransactionalProduce(transactional_id, produce.version, refusal)

    def _guard_steps(self, produce: _Produce, transaction: TransactionalProduce) -> Steps[None]:
        """Make the guards of the batches that start a transaction in their partitions."""
        for name_bytes, wanted in produce.request.topics:
            if name_bytes in _INTERNAL_TOPICS:
                continue
            _, partitions = self._moment(produce)
            for index, start, stop in wanted:
                partition, header = partitions.get(name_bytes, index), header_of(produce.view, start, stop)
                if partition is not None and header is not None:
                    transaction.guard(partition, header)
                yield

    def _query(self, transaction: TransactionalProduce) -> asyncio.Future[None] | None:
        """Query the coordinator about the guarded batches; None when it has answered during the call."""
        waiting: asyncio.Future[None] | None = None
        missing = 0

        def take(query: AddPartitions | VerifyPartitions, error: ErrorCode) -> None:
            nonlocal missing
            transaction.on_verified(query, error, self._now_ms())
            again = transaction.renew(query) if error is ErrorCode.NONE else None
            if again is not None:
                self._verify(again, partial(take, again))
                return
            missing -= 1
            if waiting is not None and not missing and not waiting.done():
                waiting.set_result(None)

        queries = list(transaction.queries())
        missing = len(queries)
        for query in queries:
            self._verify(query, partial(take, query))
        if missing:
            waiting = asyncio.get_running_loop().create_future()
        return waiting

    def _verify(self, query: AddPartitions | VerifyPartitions, reply: Callable[[ErrorCode], None]) -> None:
        assert self._verifier is not None, "batches are not guarded without a verifier"
        self._verifier.verify(query, reply)

    async def _serve_verified(
        self, connection: Connection, answer: Answer, produce: _Produce, answers: asyncio.Future[None]
    ) -> None:
        await answers
        await self._serve_paced(connection, answer, produce, self._append_steps(produce))

    async def _verify_many(self, connection: Connection, produce: _Produce) -> None:
        transaction = produce.transaction = self._transaction(connection, produce)
        await paced(self._guard_steps(produce, transaction))
        answers = self._query(transaction)
        if answers is not None:
            await answers

    def _serve_opening(self, connection: Connection, produce: _Produce, job: OpensOffLoop) -> None:
        """A thread opens the next batch; the rest of the request waits for it."""
        steps = self._append_steps(produce, is_opened=True)
        next(steps)
        serving = self._serve_paced(connection, connection.hold(), produce, steps, job)
        self._shared.tasks.start(connection, serving)

    def _append_at_once(self, produce: _Produce) -> OpensOffLoop | None:
        """Append the batches of a small request up to one that a thread must open; returns that one, or None."""
        moment = self._moment(produce)
        for name_bytes, wanted in produce.request.topics:
            results: list[ProducePartitionResult] = []
            produce.topics.append((name_bytes, results))
            job = self._append_some(produce, name_bytes, wanted, results, moment)
            if job is not None:
                return job
        return None

    def _append_steps(self, produce: _Produce, *, is_opened: bool = False) -> _AppendSteps:
        """Append the batches that have no result yet, as many in a step as take a few milliseconds.

        `is_opened`: the first of them was sent to a thread already; yields once and receives what became of it.
        """
        topics = produce.topics
        opened = (yield None) if is_opened else None
        for topic_place in range(max(len(topics) - 1, 0), len(produce.request.topics)):
            name_bytes, wanted = produce.request.topics[topic_place]
            if topic_place == len(topics):
                topics.append((name_bytes, []))
            results = topics[topic_place][1]
            for some in _parts(wanted[len(results) :]):
                end_place = len(results) + len(some)
                while len(results) < end_place:
                    # Others have run meanwhile: everything is looked up again.
                    left = wanted[len(results) : end_place]
                    job = self._append_some(produce, name_bytes, left, results, self._moment(produce), opened)
                    opened = None
                    if job is not None:
                        opened = yield job
                        del job
                yield None
            if not wanted:
                yield None

    def _append_some(
        self,
        produce: _Produce,
        name_bytes: bytes,
        some: Sequence[ProducePartition],
        results: list[ProducePartitionResult],
        moment: tuple[int, PartitionLookup],
        opened: Opened | None = None,
    ) -> OpensOffLoop | None:
        """Append some of the last topic's batches, up to one that a thread must open; returns that one, or None.

        `opened`: what became of the first one in a thread.
        """
        now_ms, partitions = moment
        if partitions.unknown_topic is _NOTHING_LED.unknown_topic:
            self._refuse_all(name_bytes, some, now_ms)
        view, version, acks, waiting = produce.view, produce.version, produce.request.acks, produce.waiting
        topic_place, is_internal = len(produce.topics) - 1, name_bytes in _INTERNAL_TOPICS
        transaction = produce.transaction
        for index, start, stop in some:
            partition = None if is_internal else partitions.get(name_bytes, index)
            if partition is None:
                result, required_end = _absent(partitions, name_bytes, index), NO_WAIT
            else:
                try:
                    result, required_end = self._append(
                        partition, view, start, stop, version, acks, now_ms, opened, transaction
                    )
                except OpensOffLoop as job:
                    return job.with_traceback(None)  # it would keep the buffer
            opened = None
            results.append(result)
            if result[1]:
                produce.error_code = result[1]
            elif required_end:
                assert partition is not None
                if waiting is None:
                    waiting = produce.waiting = self._waiting(produce)
                partition.waiting.park_produce(
                    required_end, acks, waiting, waiting.add_slot(topic_place, len(results) - 1)
                )
        return None

    def _moment(self, produce: _Produce) -> tuple[int, PartitionLookup]:
        """The time, and where to look up partitions that are appended to before others run."""
        lease = self._lease
        # The session may have ended, and others may lead: every partition is refused.
        is_over = lease is not None and self._clock.boottime_ms() >= lease.until_ms
        partitions = _NOTHING_LED if is_over else self._partitions.by_name
        if produce.access is None:
            return self._now_ms(), partitions
        return self._now_ms(), WritableTopics(partitions, produce.access, produce.client_id)

    def _refuse_all(self, name_bytes: bytes, wanted: Sequence[ProducePartition], now_ms: int) -> None:
        for index, _, _ in wanted:
            partition = self._partitions.by_name.get(name_bytes, index)
            if partition is not None:
                partition.on_refused(now_ms)

    def _waiting(self, produce: _Produce) -> WaitingProduce:
        deadline_ms = self._clock.monotonic_ms() + max(produce.request.timeout_ms, 0)
        return WaitingProduce(
            self._shared, produce.correlation_id, produce.version, deadline_ms, produce.topics, produce.throttle_ms
        )

    def _answer_now(self, connection: Connection, produce: _Produce) -> None:
        """All batches are appended: answer, or park the request."""
        if produce.transaction is not None:
            produce.transaction.close()
        topics, waiting, failure, version = produce.topics, produce.waiting, produce.error_code, produce.version
        if not produce.request.acks:
            if failure:
                self._close_failed(connection, failure)
        elif waiting is None or not waiting.waits:
            leaders = None
            if failure or waiting is not None:
                leaders = self._shared.leaders(version, topics, connection)
            connection.answer_now(
                write_produce_response(produce.correlation_id, version, topics, leaders, produce.throttle_ms)
            )
        else:
            waiting.park(connection.park(exclusive=_is_large(topics)), failure)

    async def _serve_many(
        self,
        connection: Connection,
        answer: Answer,
        view: memoryview,
        position: int,
        end: int,
        version: int,
        correlation_id: int,
        throttle_ms: int,
    ) -> None:
        """A request of so many partitions that reading it takes long: a few of them are served at a time."""
        async with self._turns.turn(ApiKey.PRODUCE, end - position):
            if not connection.is_closed:
                request = await paced(read_produce_steps(view, position, end, version))
                produce = _Produce(connection, request, view, version, correlation_id, throttle_ms)
                if request.transactional_id is not None:
                    await self._verify_many(connection, produce)
                await self._serve_paced(connection, answer, produce, self._append_steps(produce))

    async def _serve_paced(
        self,
        connection: Connection,
        answer: Answer,
        produce: _Produce,
        steps: _AppendSteps,
        job: OpensOffLoop | None = None,
    ) -> None:
        """Take the steps of a held request, others are served between some of them; then answer, or park it.

        `job`: the batch that the steps have yielded already.
        """
        request, version, topics = produce.request, produce.version, produce.topics
        try:
            if not await self._append_paced(connection, request.timeout_ms, steps, job):
                return
        finally:
            if produce.transaction is not None:
                produce.transaction.close()
        waiting, failure = produce.waiting, produce.error_code
        if not request.acks and failure:
            self._close_failed(connection, failure)
            return
        if waiting is not None and waiting.waits:
            waiting.park(answer, failure)
        else:
            pieces: Sequence[Piece] = ()
            if request.acks:
                leaders = self._shared.leaders(version, topics, connection)
                steps_of_response = write_produce_response_steps(
                    produce.correlation_id, version, topics, leaders, produce.throttle_ms
                )
                pieces = (await paced(steps_of_response),)
            if connection.is_closed:
                return
            answer.complete(pieces)
            self._shared.ready.add(connection)
        connection.let_go(exclusive=_is_large(topics))

    async def _append_paced(
        self, connection: Connection, timeout_ms: int, steps: _AppendSteps, job: OpensOffLoop | None
    ) -> bool:
        """Take all steps; False when the connection closed before the last."""
        opened: Opened | None = None
        try:
            if job is None:
                await first_turn()
            pace = LoopOffload()
            while True:
                if job is None:
                    await pace.pause()
                else:
                    opened = await self._opener.open(job, connection, timeout_ms)
                if connection.is_closed:
                    return False
                job = steps.send(opened)
                opened = None
        except StopIteration:
            return True
        finally:
            steps.close()

    def _close_failed(self, connection: Connection, failure: int) -> None:
        """A client that requests no answers notices only a closed connection."""
        reason = f"a produce with acks=0 failed: {ErrorCode(failure).name}"
        # A full or failed disk was logged once; its clients come again and again.
        level = logging.DEBUG if failure == _STORAGE_ERROR else logging.WARNING
        log.log(level, "produce.failed", extra=fields(peer=connection.peer_name, reason=reason))
        connection.close(reason)


def _parts(wanted: Sequence[ProducePartition]) -> Iterable[Sequence[ProducePartition]]:
    """As many partitions at a time as are appended in a few milliseconds."""
    if 0 < len(wanted) <= PARTITIONS_OF_STEP and _records_bytes(wanted) <= _STEP_BYTES:
        return (wanted,)
    return _split(wanted)


def _split(wanted: Sequence[ProducePartition]) -> Iterator[Sequence[ProducePartition]]:
    for some in parts_of(wanted, PARTITIONS_OF_STEP):
        if _records_bytes(some) > _STEP_BYTES:
            for each in some:
                yield (each,)
        else:
            yield some


def _records_bytes(some: Sequence[ProducePartition]) -> int:
    return sum(stop - start for _, start, stop in some)


def _absent(partitions: PartitionLookup, name_bytes: bytes, index: int) -> ProducePartitionResult:
    if name_bytes in _INTERNAL_TOPICS and partitions.allows(name_bytes):
        return refusal_of(index, _INVALID_TOPIC, _INTERNAL)
    return refusal_of(index, partitions.absence_error(name_bytes, index))


def _takes_long(request: ProduceRequest, size_bytes: int) -> bool:
    """Whether it would keep the loop for more than some milliseconds."""
    topics = request.topics
    partitions_count = len(topics[0][1]) if len(topics) == 1 else sum(1 + len(wanted) for _, wanted in topics)
    return partitions_count > PARTITIONS_OF_STEP or (partitions_count > 1 and size_bytes > APPENDED_IN_TURN_BYTES)


def _is_large(topics: list[TopicResult]) -> bool:
    """Whether the answer is too large for thousands of such requests to wait at once."""
    if len(topics) == 1:
        return len(topics[0][1]) > PIPELINED_PARTITIONS_MAX
    return sum(len(results) for _, results in topics) > PIPELINED_PARTITIONS_MAX
