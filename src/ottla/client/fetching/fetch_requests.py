"""Fetch (API key 1): one request to one leader, and the whole batches of its response.

`AbortedBatches` are those that a read_committed reader skips (KIP-98).  A response lists the aborted transactions in
its range, each by producer and first offset; one ends at its producer's abort marker, a control batch.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple
from uuid import UUID

from ottla.client.fetching.offsets import IsolationLevel
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.client.wire.errors import BrokerRefused, ClientError, FetchTooLarge, OffsetOutOfRange, error_code_of
from ottla.client.wire.retrying import Deadline
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, WireError
from ottla.model.identifiers import TopicPartition
from ottla.model.limits import MIB
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import encode_request
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.records.batch_run import survey
from ottla.records.checksum import has_valid_crc
from ottla.records.header import BatchHeader, read_header
from ottla.records.record import decode_batch, split_batches

# From this version on requests name topics by their ids only (KIP-516).
FETCH_BY_ID_FROM: Final = 13
# A response has partition headers besides the records.
_ANSWER_OVERHEAD_BYTES: Final = 1 * MIB


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The limits of one fetch, and how long the broker may wait for `min_bytes` (Kafka's fetch.* settings).

    `batch_bytes_max`: a first batch larger than `partition_max_bytes` is fetched whole, up to this.
    """

    max_bytes: int = 50 * MIB
    partition_max_bytes: int = 4 * MIB
    batch_bytes_max: int = 128 * MIB
    min_bytes: int = 1
    max_wait_ms: int = 500
    check_crc: bool = False


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """`records`: consecutive whole batches, as stored in the log; `batches` returns them one by one.

    The first may begin below `fetch_offset`: the reader skips records below it.  `next_offset` is where to continue.
    The view keeps the whole response in memory.
    """

    partition: TopicPartition
    fetch_offset: int
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: memoryview
    aborted_transactions: Sequence[AbortedTransaction] = ()

    def batches(self) -> Iterator[memoryview]:
        return split_batches(self.records)

    @property
    def is_end_known(self) -> bool:
        """Whether `next_offset` can be believed; False where damage in the last batch's head points out of the log."""
        last = deque(self.batches(), maxlen=1) if self.next_offset > self.high_watermark else ()
        return all(is_end_known(batch, self.next_offset, self.high_watermark) for batch in last)


def is_end_known(batch: memoryview, next_offset: int, high_watermark: int) -> bool:
    """Whether a batch ends before `next_offset`, as its head says; it came with this high watermark.

    Brokers may read after they took the watermark: above it a batch is believed if its checksum is right.
    """
    return next_offset <= high_watermark or has_valid_crc(batch)


class FetchPosition(NamedTuple):
    """`max_bytes` for this partition; `leader_epoch` -1 skips the epoch check (KIP-320).

    With a `topic_id` the broker refuses to read another topic of the same name; all zeros: any topic of the name.
    """

    offset: int
    max_bytes: int
    leader_epoch: int = -1
    topic_id: UUID = ZERO_UUID


class BatchTooLarge(ClientError):
    """The next batch needs more than the position's `max_bytes`: internal, handled by a larger fetch."""

    def __init__(self, partition: TopicPartition, size_bytes: int) -> None:
        super().__init__(f"{partition}: the next batch has {size_bytes} bytes")
        self.size_bytes = size_bytes


FetchOutcome = FetchedPartition | OttlaError


def send_fetch(
    connection: Connection,
    positions: Mapping[TopicPartition, FetchPosition],
    limits: FetchLimits,
    isolation: IsolationLevel,
    deadline: Deadline,
) -> bool:
    """Send one fetch for partitions that the connection's broker leads, in the mapping's order.

    Returns whether it names topics by id: where all ids are known, and the broker is Ottla or Apache Kafka from 3.1 on.
    """
    is_by_id = all(position.topic_id != ZERO_UUID for position in positions.values()) and connection.supports(
        ApiKey.FETCH, at_least=FETCH_BY_ID_FROM
    )
    request = FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=isolation,
        topics=_topics(positions),
    )
    if is_by_id:
        version = connection.version_of(ApiKey.FETCH)
    else:
        version = connection.version_of(ApiKey.FETCH, at_most=FETCH_BY_ID_FROM - 1)
    connection.send(ApiKey.FETCH, version, [encode_request(ApiKey.FETCH, version, request)], deadline)
    return is_by_id


def receive_fetch(
    connection: Connection,
    positions: Mapping[TopicPartition, FetchPosition],
    limits: FetchLimits,
    deadline: Deadline | None = None,
) -> dict[TopicPartition, FetchOutcome] | None:
    """The response to the oldest fetch in flight, by partition.  Without a deadline it does not wait: None while the
    response is not whole."""
    received = connection.try_receive() if deadline is None else connection.receive(deadline)
    if received is None:
        return None
    sent, body = received
    response = connection.decode(sent.api, sent.version, body, FetchResponse)
    if response.error_code:
        return dict.fromkeys(positions, BrokerRefused(error_code_of(response.error_code), "fetch"))
    outcomes: dict[TopicPartition, FetchOutcome] = {}
    names = {position.topic_id: partition.topic for partition, position in positions.items()}
    for topic in response.responses:
        name = topic.topic if sent.version < FETCH_BY_ID_FROM else names.get(topic.topic_id, "")
        for data in topic.partitions:
            partition = TopicPartition(name, data.partition_index)
            if partition in positions:
                outcomes[partition] = _outcome(partition, positions[partition], data, limits)
    return outcomes


def fetch_raw(
    cluster: Cluster,
    topic: str,
    partition: int,
    offset: int,
    *,
    max_bytes: int = 4 * MIB,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    check_crc: bool = False,
    timeout_ms: float | None = None,
) -> FetchedPartition:
    """Whole batches from `offset` on, about `max_bytes` of them; the first batch of any size.

    Waits up to `max_wait_ms` for `min_bytes`; then the result may be empty.  Raises OffsetOutOfRange, UnknownTopic.
    """
    key = TopicPartition(topic, partition)
    limits = FetchLimits(
        max_bytes=max_bytes,
        partition_max_bytes=max_bytes,
        min_bytes=min_bytes,
        max_wait_ms=max_wait_ms,
        check_crc=check_crc,
        batch_bytes_max=cluster.options.response_bytes_max - _ANSWER_OVERHEAD_BYTES,
    )
    room = max_bytes

    def attempt(deadline: Deadline) -> FetchedPartition:
        nonlocal room
        leader = cluster.leader(key, deadline=deadline)
        connection = cluster.connect_broker(leader.leader_id, deadline)
        positions = {key: FetchPosition(offset, room, leader.leader_epoch)}
        within = deadline.at_most(cluster.options.request_timeout_ms + max_wait_ms)
        try:
            send_fetch(connection, positions, limits, isolation, within)
            outcomes = receive_fetch(connection, positions, limits, within)
            assert outcomes is not None, "it has waited"
            outcome = outcomes.get(key)
        except ClientError:
            cluster.forget([topic])
            raise
        if isinstance(outcome, FetchedPartition):
            return outcome
        cluster.forget([topic])
        raise outcome or BrokerRefused(ErrorCode.UNKNOWN_SERVER_ERROR, str(key), "the response leaves it out")

    deadline = cluster.retrying.deadline(timeout_ms)
    while True:
        try:
            return cluster.retrying.run(f"fetching {key}", attempt, deadline)
        except BatchTooLarge as error:
            room = checked_room(error, limits)


def checked_room(error: BatchTooLarge, limits: FetchLimits) -> int:
    """The `max_bytes` that fetches a batch of this size whole; FetchTooLarge above the caller's limit."""
    if error.size_bytes > limits.batch_bytes_max:
        raise FetchTooLarge(f"{error}, at most {limits.batch_bytes_max} are accepted") from None
    return error.size_bytes


def _outcome(
    partition: TopicPartition, position: FetchPosition, data: PartitionData, limits: FetchLimits
) -> FetchOutcome:
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return OffsetOutOfRange(partition, position.offset)
    if data.error_code:
        return BrokerRefused(error_code_of(data.error_code), str(partition))
    try:
        return _fetched(partition, position, data, limits)
    except WireError as error:
        return error


def _fetched(
    partition: TopicPartition, position: FetchPosition, data: PartitionData, limits: FetchLimits
) -> FetchOutcome:
    records = memoryview(data.records if data.records is not None else b"")
    run = survey(records, check_crc=limits.check_crc)
    if run.cut_batch_bytes and not run.batches_count:
        return BatchTooLarge(partition, run.cut_batch_bytes)
    if run.batches_count and run.next_offset <= position.offset:
        return WireError(
            f"{partition}: records below offset {run.next_offset} returned for a fetch at {position.offset}"
        )
    return FetchedPartition(
        partition,
        position.offset,
        run.next_offset if run.batches_count else position.offset,
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        records[: run.end],
        [AbortedTransaction(row.producer_id, row.first_offset) for row in data.aborted_transactions or ()],
    )


def _topics(positions: Mapping[TopicPartition, FetchPosition]) -> list[FetchTopic]:
    """Consecutive partitions of one topic are grouped; the order, which decides which is served first, is kept."""
    return [
        FetchTopic(
            topic=topic,
            topic_id=topic_id,
            partitions=[_row(partition, positions[partition]) for partition in partitions],
        )
        for (topic, topic_id), partitions in _neighbours(positions)
    ]


def _neighbours(
    positions: Mapping[TopicPartition, FetchPosition],
) -> Iterable[tuple[tuple[str, UUID], Iterable[TopicPartition]]]:
    return groupby(positions, key=lambda partition: (partition.topic, positions[partition].topic_id))


def _row(partition: TopicPartition, position: FetchPosition) -> FetchPartition:
    return FetchPartition(
        partition=partition.partition,
        current_leader_epoch=position.leader_epoch,
        fetch_offset=position.offset,
        partition_max_bytes=position.max_bytes,
    )


# The key of a control record: version, type.
_MARKER_KEY: Final = struct.Struct(">hh")
_ABORT: Final = 0


class AbortedBatches:
    """Checks every batch of one fetch, in offset order."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        # The next one to begin is last in the list.
        self._coming = sorted(transactions, key=lambda transaction: -transaction.first_offset)
        self._producers: set[int] = set()

    def is_aborted(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether its records must not be read.  Raises `CorruptBatch` for an invalid control batch."""
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._producers.add(self._coming.pop().producer_id)
        if header.is_control:
            if header.producer_id in self._producers and _is_abort_marker(batch):
                self._producers.remove(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._producers


def committed_batches(fetched: FetchedPartition) -> Iterator[memoryview]:
    """Its batches without those of aborted transactions, where the reader was one of committed records.

    Raises `CorruptBatch` for an invalid control batch.
    """
    if not fetched.aborted_transactions:
        return fetched.batches()
    aborted = AbortedBatches(fetched.aborted_transactions)
    return (batch for batch in fetched.batches() if not aborted.is_aborted(read_header(batch), batch))


def _is_abort_marker(batch: memoryview) -> bool:
    records = decode_batch(batch)
    if not records or records[0].key is None or len(records[0].key) < _MARKER_KEY.size:
        return False
    return bool(_MARKER_KEY.unpack_from(records[0].key)[1] == _ABORT)
