"""Produce (key 0), v3-v10.

Each partition's batch is checked by its head, its CRC (broker/partitions/batch_rules.py) and the bounds of its records
(records/record_bounds.py; `record.validation`), stamped and appended as it came, unless the topic's settings force the
broker to open it (broker/partitions/batch_opening.py): then single records may be refused, and are named from v8 on
(KIP-467).  Large batches are opened in a thread (broker/partitions/batch_opener.py): the connection starts no other
request until they are appended.  Those for which the thread has no time are refused with NOT_ENOUGH_REPLICAS, which
clients retry.
acks=0 answers nothing, and an error closes the connection; acks=1 answers when the batch is below the leader's stable
end, acks=all when it is below the high watermark, which on one replica is the same.  Errors are per partition:
NOT_LEADER_OR_FOLLOWER where another broker leads or may lead, with that one and its address from v10 on (KIP-951),
NOT_ENOUGH_REPLICAS for acks=all below min.insync.replicas, INVALID_TOPIC_EXCEPTION for internal topics.
A request that waits past its time-out answers REQUEST_TIMED_OUT: the outcome of its batches is then unknown.

Versions 0-2 (message formats before v2) are advertised, because old librdkafka turns compression off without
them, and answered by closing the connection (docs/compatibility.md).
Not done: transactional batches (INVALID_TXN_STATE).
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Iterator, Sequence
from time import perf_counter
from typing import Final

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
from ottla.broker.net.slow_requests import SlowRequests
from ottla.broker.net.started_tasks import StartedTasks
from ottla.broker.partitions.batch_opener import BatchOpener, Opened, OpensOffLoop
from ottla.broker.partitions.batch_opening import BatchOpening, BatchRefused, OpeningTerms, malformed
from ottla.broker.partitions.batch_rules import batch_error
from ottla.broker.partitions.partition import ACKS_ALL, ACKS_LEADER, NO_WAIT, Partition
from ottla.broker.partitions.partition_errors import RestOfPipeline
from ottla.broker.partitions.partition_table import PartitionIndex, PartitionTable
from ottla.broker.partitions.sequence_gaps import GapReports
from ottla.broker.replicas.leader_hints import LeaderHints
from ottla.broker.tree.membership import Lease
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import INTERNAL_TOPICS
from ottla.observe.events import fields
from ottla.protocol.api import ApiKey
from ottla.protocol.current_leaders import CurrentLeaders
from ottla.protocol.produce import (
    LEADERS_FROM_VERSION,
    ManyPartitions,
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    RecordErrors,
    read_produce,
    read_produce_steps,
    write_produce_response,
    write_produce_response_steps,
)
from ottla.records.checksum import crc32c
from ottla.records.header import (
    ATTRIBUTES,
    ATTRIBUTES_AT,
    BATCH_OVERHEAD_BYTES,
    CODEC_MASK,
    CRC,
    CRC_AT,
    HEADER,
    MAX_TIMESTAMP,
    MAX_TIMESTAMP_AT,
    TIMESTAMP_TYPE_BIT,
)
from ottla.records.record_bounds import SOUND
from ottla.replication.replica import Role
from ottla.runtime.clock import Clock
from ottla.runtime.loop_offload import LoopOffload, paced
from ottla.runtime.steps import parts_of
from ottla.storage.errors import OutOfOrderSequence

log = logging.getLogger(__name__)

TopicResult = tuple[bytes, list[ProducePartitionResult]]

_NO_OFFSET: Final = -1
_NO_TIME: Final = -1
_LEADER: Final = Role.LEADER
_ACKS_LEGAL: Final = frozenset({ACKS_ALL, 0, ACKS_LEADER})
# Written by the broker alone.
_INTERNAL_TOPICS: Final = frozenset(name.encode() for name in INTERNAL_TOPICS)
_ONE_BATCH: Final = RecordErrors(
    "exactly one record batch of format v2, with a consistent head, is taken for each partition"
)
_FUTURE: Final = RecordErrors("a record's time is further ahead than message.timestamp.after.max.ms allows")
_INTERNAL: Final = RecordErrors("clients do not produce to the broker's own topics")

# What a broker serves that may not be the leader any more.
_NOTHING_LED: Final = PartitionIndex(ErrorCode.NOT_LEADER_OR_FOLLOWER)

# Plain ints: they are compared and packed for every batch.
_NONE: Final = int(ErrorCode.NONE)
_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)
_TIMED_OUT: Final = int(ErrorCode.REQUEST_TIMED_OUT)
_NOT_ENOUGH_REPLICAS: Final = int(ErrorCode.NOT_ENOUGH_REPLICAS)
_TOO_LARGE: Final = int(ErrorCode.MESSAGE_TOO_LARGE)
_INVALID_ACKS: Final = int(ErrorCode.INVALID_REQUIRED_ACKS)
_INVALID_TIMESTAMP: Final = int(ErrorCode.INVALID_TIMESTAMP)
_INVALID_TOPIC: Final = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
_INVALID_RECORD: Final = int(ErrorCode.INVALID_RECORD)


def _leaders(
    hints: LeaderHints | None, version: int, topics: list[TopicResult], connection: Connection
) -> CurrentLeaders | None:
    """The leaders of those partitions that were refused since another broker leads them."""
    if hints is None or version < LEADERS_FROM_VERSION:
        return None
    refused = ((name, result[0]) for name, results in topics for result in results if result[1] == _NOT_LEADER)
    return hints.by_name(refused, connection.local_address)


class WaitingProduce:
    """A produce request of which some batches cannot be acknowledged yet."""

    __slots__ = (
        "_answer",
        "_began_s",
        "_correlation_id",
        "_deadline_ms",
        "_has_failed",
        "_leader_hints",
        "_ready",
        "_slots",
        "_slow",
        "_tasks",
        "_topics",
        "_version",
        "_waits_for",
    )

    def __init__(
        self,
        ready: ReadyConnections,
        leader_hints: LeaderHints | None,
        correlation_id: int,
        version: int,
        deadline_ms: int,
        topics: list[TopicResult],
        slow: SlowRequests | None,
        tasks: StartedTasks,
    ) -> None:
        self._slow = slow
        self._tasks = tasks
        self._began_s = perf_counter()
        self._ready = ready
        self._leader_hints = leader_hints
        self._correlation_id = correlation_id
        self._version = version
        self._deadline_ms = deadline_ms
        self._answer: Answer | None = None
        # The results of all partitions, which the handler still fills.
        self._topics = topics
        # (topic, partition) places in `_topics`, by slot; None where the outcome is known.
        self._slots: list[tuple[int, int] | None] = []
        self._waits_for = 0
        self._has_failed = False

    def add_slot(self, topic_place: int, partition_place: int) -> int:
        """Wait for one more batch; returns its slot."""
        self._slots.append((topic_place, partition_place))
        self._waits_for += 1
        return len(self._slots) - 1

    @property
    def waits(self) -> bool:
        """False when all its batches were released or failed before it was parked: the disk failed at the last."""
        return self._waits_for > 0

    def park(self, answer: Answer, failure: int) -> None:
        """Wait with the request's answer; `failure`: the error that some partition has already, if any."""
        self._answer = answer
        if failure:
            self._has_failed = True

    def is_expired(self, now_ms: int) -> bool:
        # Not before it was parked: its handler may still add batches.
        return self._waits_for > 0 and now_ms >= self._deadline_ms and self._answer is not None

    def release(self, slot: int) -> None:
        if self._waits_for == 0:
            return  # it expired and has been answered
        self._waits_for -= 1
        self._slots[slot] = None
        if self._waits_for == 0:
            self._complete()

    def fail(self, slot: int, error_code: int) -> None:
        if self._waits_for == 0:
            return
        self._has_failed = True
        self._set_error(slot, error_code)
        self.release(slot)

    def expire(self) -> None:
        """Answer now, with an error for the batches that still wait; their release does nothing later."""
        self._waits_for = 0
        self._has_failed = True
        self._complete()

    def _set_error(self, slot: int, error_code: int) -> None:
        place = self._slots[slot]
        if place is not None:
            results = self._topics[place[0]][1]
            results[place[1]] = (results[place[1]][0], error_code, _NO_OFFSET, _NO_TIME, _NO_OFFSET, None)

    def _complete(self) -> None:
        answer, self._answer = self._answer, None
        if answer is None or answer.connection.is_closed:
            return
        connection = answer.connection
        slow = self._slow
        if slow is not None and (took_s := perf_counter() - self._began_s) > slow.limit_s:
            slow.note(connection, ApiKey.PRODUCE, self._version, flush=took_s)
        if len(self._slots) > PIPELINED_PARTITIONS_MAX:
            self._tasks.start(connection, self._answer_in_steps(answer))
            return
        leaders = None
        if self._has_failed:
            for slot in range(len(self._slots)):
                self._set_error(slot, _TIMED_OUT)
            leaders = _leaders(self._leader_hints, self._version, self._topics, connection)
        answer.complete((write_produce_response(self._correlation_id, self._version, self._topics, leaders),))
        self._ready.add(connection)

    async def _answer_in_steps(self, answer: Answer) -> None:
        connection, topics = answer.connection, self._topics
        turn = LoopOffload()
        leaders = None
        if self._has_failed:
            for slots in parts_of(range(len(self._slots)), PARTITIONS_OF_STEP):
                for slot in slots:
                    self._set_error(slot, _TIMED_OUT)
                await turn.pause()
            leaders = _leaders(self._leader_hints, self._version, topics, connection)
        frame = await paced(write_produce_response_steps(self._correlation_id, self._version, topics, leaders))
        if not connection.is_closed:
            answer.complete((frame,))
            self._ready.add(connection)


class ProduceHandler:
    """Appends batches; one instance serves all connections."""

    __slots__ = (
        "_clock",
        "_gap_reports",
        "_leader_hints",
        "_lease",
        "_now_ms",
        "_opener",
        "_partitions",
        "_ready",
        "_slow",
        "_tasks",
        "_turns",
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
    ) -> None:
        """`lease`: until when this broker may lead; None is forever.

        `opener` has the threads that open batches; the caller closes it.
        `slow` reports the requests that wait long for their acknowledgement.
        """
        self._partitions = partitions
        self._lease = lease
        self._slow = slow
        self._ready = ready
        self._leader_hints = leader_hints
        self._clock = clock
        self._now_ms = clock.now_ms
        self._opener = opener or BatchOpener(clock)
        self._gap_reports = GapReports()
        self._tasks = StartedTasks()
        self._turns = LargeRequests()

    def handle(
        self,
        connection: Connection,
        view: memoryview,
        position: int,
        end: int,
        version: int,
        correlation_id: int,
        part: _Part | None = None,
    ) -> None:
        """Serve the request whose body is `view[position:end]`; raises `WireError` when malformed.

        `part`: some of the partitions of a request that is served in steps, which takes what became of them.
        """
        if part is None:
            try:
                request = read_produce(view, position, end, version)
            except ManyPartitions:
                self._begin_steps(connection, view, position, end, version, correlation_id, is_of_many=True)
                return
            if end - position > PARTITIONS_IN_STEPS_BYTES and _takes_long(request, end - position):
                self._begin_steps(connection, view, position, end, version, correlation_id, is_of_many=False)
                return
        else:
            request = part.request
        acks = request.acks
        now_ms = self._now_ms()
        topics: list[TopicResult] = []
        waiting: WaitingProduce | None = None
        failure = _NONE
        opened: Opened | None = None
        if part is not None:
            topics, waiting, failure, opened = part.topics, part.waiting, part.error_code, part.opened
        partitions, lease = self._partitions.by_name, self._lease
        if lease is not None and self._clock.boottime_ms() >= lease.until_ms:
            # The session may have ended, and others may lead.
            for name_bytes, wanted in request.topics:
                for index, _, _ in wanted:
                    partition = partitions.get(name_bytes, index)
                    if partition is not None:
                        partition.on_refused(now_ms)
            partitions = _NOTHING_LED
        for name_bytes, wanted in request.topics:
            if part is None or part.begins_topic:
                results: list[ProducePartitionResult] = []
                topics.append((name_bytes, results))
            else:
                results = topics[-1][1]
            is_internal = name_bytes in _INTERNAL_TOPICS
            for index, start, stop in wanted:
                partition = None if is_internal else partitions.get(name_bytes, index)
                if partition is None:
                    absence = partitions.absence_error(name_bytes, index)
                    failure = _INVALID_TOPIC if is_internal else absence
                    errors = _INTERNAL if is_internal else None
                    results.append((index, failure, _NO_OFFSET, _NO_TIME, _NO_OFFSET, errors))
                    opened = None  # it was this partition's
                    continue
                try:
                    result, required_end = _append(
                        partition, view, start, stop, version, acks, now_ms, self._opener, opened, self._gap_reports
                    )
                except OpensOffLoop as job:
                    # The rest of the request waits for it.
                    if part is None:
                        part = _Part(request)
                        part.topics, part.waiting, part.error_code = topics, waiting, failure
                        rest = _rest(request, len(topics) - 1, len(results))
                        part.job = job.with_traceback(None)  # it would keep the buffer
                        serving = self._append_parts(
                            connection, connection.hold(), view, version, correlation_id, part, rest
                        )
                        self._tasks.start(connection, serving)
                    else:
                        part.waiting, part.error_code = waiting, failure
                        part.job = job.with_traceback(None)  # it would keep the buffer
                    return
                opened = None
                results.append(result)
                if result[1]:
                    failure = result[1]
                elif required_end:
                    if waiting is None:
                        timeout_ms = request.timeout_ms
                        deadline_ms = self._clock.monotonic_ms() + (timeout_ms if timeout_ms > 0 else 0)
                        waiting = WaitingProduce(
                            self._ready,
                            self._leader_hints,
                            correlation_id,
                            version,
                            deadline_ms,
                            topics,
                            self._slow,
                            self._tasks,
                        )
                    slot = waiting.add_slot(len(topics) - 1, len(results) - 1)
                    partition.park_produce(required_end, acks, waiting, slot)
        if part is not None:
            part.waiting, part.error_code = waiting, failure
            return
        if not acks:
            if failure:
                self._close_failed(connection, failure)
        elif waiting is None or not waiting.waits:
            leaders = None
            if failure or waiting is not None:
                leaders = _leaders(self._leader_hints, version, topics, connection)
            connection.answer_now(write_produce_response(correlation_id, version, topics, leaders))
        else:
            is_large = len(results) > PIPELINED_PARTITIONS_MAX if len(topics) == 1 else _is_large(topics)
            waiting.park(connection.park(exclusive=is_large), failure)

    def _close_failed(self, connection: Connection, failure: int) -> None:
        """A client that requests no answers notices only a closed connection."""
        reason = f"a produce with acks=0 failed: {ErrorCode(failure).name}"
        # A full or failed disk has said so once; its clients come again and again.
        level = logging.DEBUG if failure == _STORAGE_ERROR else logging.WARNING
        log.log(level, "produce.failed", extra=fields(peer=connection.peer_name, reason=reason))
        connection.close(reason)

    def _begin_steps(
        self,
        connection: Connection,
        view: memoryview,
        position: int,
        end: int,
        version: int,
        correlation_id: int,
        *,
        is_of_many: bool,
    ) -> None:
        """Serve a request of many partitions, or of many bytes, in steps: others are served between some of them."""
        serving = self._append_in_steps(connection, connection.hold(), view, position, end, version, correlation_id)
        if is_of_many:
            serving = self._in_turn(connection, end - position, serving)
        self._tasks.start(connection, serving)

    async def _in_turn(
        self, connection: Connection, size_bytes: int, serving: Coroutine[object, object, None]
    ) -> None:  # fmt: skip
        try:
            async with self._turns.turn(ApiKey.PRODUCE, size_bytes):
                if not connection.is_closed:
                    await serving
        finally:
            serving.close()  # where it has not begun

    async def _append_in_steps(
        self,
        connection: Connection,
        answer: Answer,
        view: memoryview,
        position: int,
        end: int,
        version: int,
        correlation_id: int,
    ) -> None:
        request = await paced(read_produce_steps(view, position, end, version))
        parts = _parts(request)
        await self._append_parts(connection, answer, view, version, correlation_id, _Part(request), parts)

    async def _append_parts(
        self,
        connection: Connection,
        answer: Answer,
        view: memoryview,
        version: int,
        correlation_id: int,
        part: _Part,
        parts: Iterator[tuple[bool, bytes, Sequence[ProducePartition]]],
    ) -> None:
        """Append the rest of a request, and answer it.  It begins with `part.job`, if there is one."""
        turn = LoopOffload()
        request = part.request
        acks, timeout_ms = request.acks, request.timeout_ms
        for part.begins_topic, name_bytes, some in parts:
            rest = some
            job = part.take_job()
            while True:
                if job is not None:
                    part.opened = await self._opener.open(job, connection, timeout_ms)
                    if connection.is_closed:
                        return
                    part.begins_topic = False
                part.request = request._replace(topics=[(name_bytes, rest)])  # type: ignore[list-item]
                before_count = 0 if part.begins_topic else len(part.topics[-1][1])
                self.handle(connection, view, 0, 0, version, correlation_id, part)
                part.opened = None
                job = part.take_job()
                if job is None:
                    break
                rest = rest[len(part.topics[-1][1]) - before_count :]
            await turn.pause()
            if connection.is_closed:
                return
        waiting, topics = part.waiting, part.topics
        if not acks and part.error_code:
            self._close_failed(connection, part.error_code)
            return
        if waiting is not None and waiting.waits:
            waiting.park(answer, part.error_code)
        else:
            pieces: Sequence[Piece] = ()
            if acks:
                leaders = _leaders(self._leader_hints, version, topics, connection)
                pieces = (await paced(write_produce_response_steps(correlation_id, version, topics, leaders)),)
            if connection.is_closed:
                return
            answer.complete(pieces)
            self._ready.add(connection)
        connection.let_go(exclusive=_is_large(topics))


class _Part:
    """Some partitions of one topic of a long request, and what became of those before them."""

    __slots__ = ("begins_topic", "error_code", "job", "opened", "request", "topics", "waiting")

    def __init__(self, request: ProduceRequest) -> None:
        self.request = request
        self.begins_topic = True
        self.topics: list[TopicResult] = []
        self.waiting: WaitingProduce | None = None
        self.error_code = _NONE
        # The next batch, which is to be opened in a thread; afterwards, what became of it.
        self.job: OpensOffLoop | None = None
        self.opened: Opened | None = None

    def take_job(self) -> OpensOffLoop | None:
        job, self.job = self.job, None
        return job


def _parts(request: ProduceRequest) -> Iterator[tuple[bool, bytes, Sequence[ProducePartition]]]:
    """Whether it begins a topic, the topic, some partitions: so many as are appended in a few milliseconds."""
    for name_bytes, wanted in request.topics:
        yield True, name_bytes, ()
        for some in parts_of(wanted, PARTITIONS_OF_STEP):
            if some[-1][2] - some[0][1] > APPENDED_IN_TURN_BYTES // 8:
                for each in some:
                    yield False, name_bytes, (each,)
            else:
                yield False, name_bytes, some


def _rest(
    request: ProduceRequest, topic_place: int, partition_place: int
) -> Iterator[tuple[bool, bytes, Sequence[ProducePartition]]]:
    """The same of a request of which a part is appended: what follows it, from these places on."""
    name_bytes, wanted = request.topics[topic_place]
    yield False, name_bytes, wanted[partition_place:]
    yield from _parts(request._replace(topics=request.topics[topic_place + 1 :]))


def _takes_long(request: ProduceRequest, size_bytes: int) -> bool:
    """Whether it would keep the loop for more than some milliseconds."""
    topics = request.topics
    partitions_count = len(topics[0][1]) if len(topics) == 1 else sum(1 + len(wanted) for _, wanted in topics)
    return partitions_count > PARTITIONS_OF_STEP or (partitions_count > 1 and size_bytes > APPENDED_IN_TURN_BYTES)


def _is_large(topics: list[TopicResult]) -> bool:
    """Whether the answer is too large for thousands of such requests to wait at once."""
    count = sum(len(results) for _, results in topics)
    return count > PIPELINED_PARTITIONS_MAX


def _append(
    partition: Partition,
    view: memoryview,
    start: int,
    stop: int,
    version: int,
    acks: int,
    now_ms: int,
    opener: BatchOpener,
    opened: Opened | None,
    gap_reports: GapReports,
) -> tuple[ProducePartitionResult, int]:
    """Check and append one partition's records: (the result, the end to wait for or `NO_WAIT`).

    `opened`: what became of the batch in a thread, if it was there.  Raises `OpensOffLoop` where it should go there.
    """
    if acks not in _ACKS_LEGAL:
        return _refused(partition, _INVALID_ACKS)
    if stop - start < BATCH_OVERHEAD_BYTES:
        return _refused(partition, _INVALID_RECORD, _ONE_BATCH)
    if stop - start > partition.max_message_bytes:
        return _refused(partition, _TOO_LARGE)
    batch = view[start:stop]
    header = HEADER.unpack_from(batch)
    error = batch_error(batch, header, version)
    if error:
        return _refused(partition, error, _ONE_BATCH if error == _INVALID_RECORD else None)
    batch_fault = partition.batch_fault
    if batch_fault is not None and (faulty := batch_fault(batch)) != SOUND:
        return _refused(partition, _INVALID_RECORD, malformed(faulty, header[12]))
    try:
        opening = partition.opening
        # Another broker's partition takes nothing.
        if opening is not None and partition.role is _LEADER and (header[5] & CODEC_MASK or opening.opens_uncompressed):
            batch, header = _opened(partition, opening, batch, header, now_ms, opener, opened)
        append_time_ms = _NO_TIME
        if partition.stamps_append_time:
            append_time_ms = now_ms
            header = _stamp_time(batch, now_ms)
        elif header[8] > now_ms + partition.timestamp_after_max_ms:
            return _refused(partition, _INVALID_TIMESTAMP, _FUTURE)
        base_offset, required_end, log_start_offset = partition.append(batch, header, acks, now_ms)
    except BatchRefused as refusal:
        if refusal.error_code == _NOT_ENOUGH_REPLICAS:
            # No want of replicas: there was no time to open it, and it is sent again.
            partition.on_refused(now_ms)
        return _refused(partition, refusal.error_code, refusal.errors)
    except (OutOfOrderSequence, RestOfPipeline) as gap:
        answer = gap.error_code
        gap_reports.add(partition.topic_partition, partition.leader_epoch, str(gap), answer.name, now_ms)
        return _refused(partition, answer)
    except OttlaError as refusal:
        return _refused(partition, refusal.error_code)
    return (partition.index, _NONE, base_offset, append_time_ms, log_start_offset, None), required_end


def _refused(
    partition: Partition, error_code: int, errors: RecordErrors | None = None
) -> tuple[ProducePartitionResult, int]:  # fmt: skip
    return (partition.index, error_code, _NO_OFFSET, _NO_TIME, _NO_OFFSET, errors), NO_WAIT


def _opened(
    partition: Partition,
    opening: BatchOpening,
    batch: memoryview,
    header: tuple[int, ...],
    now_ms: int,
    opener: BatchOpener,
    opened: Opened | None,
) -> tuple[memoryview, tuple[int, ...]]:
    """The batch that the topic's settings make of this one, and its head.  Raises `BatchRefused`, `OpensOffLoop`."""
    if opened is None or opened.terms.opening != opening or opened.terms.size_bytes_max != partition.max_message_bytes:
        # The settings may have changed meanwhile.
        terms = OpeningTerms(opening, partition.max_message_bytes, now_ms, partition.topic_partition)
        made = opener.open_now(batch, header, terms)
    elif opened.refusal is not None:
        raise BatchRefused(*opened.refusal)
    else:
        made = opened.batch
    return (batch, header) if made is None else (made, HEADER.unpack_from(made))


def _stamp_time(batch: memoryview, now_ms: int) -> tuple[int, ...]:
    """Stamp a batch with the broker's time, as LogAppendTime requires; returns the new head.

    The attribute and the greatest timestamp change, the base timestamp stays; the CRC covers both.
    """
    ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, ATTRIBUTES.unpack_from(batch, ATTRIBUTES_AT)[0] | TIMESTAMP_TYPE_BIT)
    MAX_TIMESTAMP.pack_into(batch, MAX_TIMESTAMP_AT, now_ms)
    CRC.pack_into(batch, CRC_AT, crc32c(batch[ATTRIBUTES_AT:]))
    return HEADER.unpack_from(batch)
