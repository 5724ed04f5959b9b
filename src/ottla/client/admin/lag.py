"""The lag of a reader, in records and in time.

In time it is the age of the next record to read.  That needs one batch's header for each partition that lags, so all of
a broker's partitions are read in one Fetch with room for little more than headers, from all brokers at once.  Ottla
cuts the first batch there; Apache Kafka returns nothing where a whole batch does not fit (except for the first
partition of a response), so the remaining ones are fetched again with more room.  The header has the timestamp of its
batch's first record: for a reader in the middle of a batch the age is that of the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, groupby, repeat
from typing import Final, NamedTuple

from ottla.client.fetching.fetch_requests import FETCH_BY_ID_FROM
from ottla.client.fetching.offsets import EARLIEST, LATEST, OffsetAnswer, try_list_offsets
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.client.wire.connection_pool import ConnectionPool
from ottla.client.wire.errors import ClientError, UnknownTopic
from ottla.client.wire.leader_calls import leaders_now
from ottla.client.wire.retrying import Deadline
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.limits import KIB, MIB
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import encode_request
from ottla.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.records.header import BATCH_OVERHEAD_BYTES, read_header

# Bytes for a partition, round by round: a header; the batch size of most producers; the largest batch by default.  The
# last is repeated: each response has at least its first partition's batch, of any size.
_ROOMS_BYTES: Final = (256, 20 * KIB, 2 * MIB)
_ANSWER_BYTES_MAX: Final = 16 * MIB
# With the largest batches everywhere that is about 16 * 8 partitions of one broker, and 256 MiB read.
_ROUNDS_MAX: Final = 16


class Lag(NamedTuple):
    """`end_offset` None: there is no such partition (any more), or `problem` says why it is unknown.
    `lag_records` None: that, or the reader has no position.
    `lag_seconds` None: the next record has no timestamp, or it is unknown; 0 when nothing is left to read.
    """

    end_offset: int | None
    lag_records: int | None
    lag_seconds: float | None
    problem: str | None = None


NO_PARTITION: Final = Lag(None, None, None)


def lags(cluster: Cluster, positions: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, Lag]:
    """The lag of a reader whose next offset in each partition is the given one; None: it has none yet.

    A partition whose leader is missing or refuses has its `problem`, at once, and does not hide the others.
    """
    answers = try_list_offsets(cluster, dict.fromkeys(positions, LATEST))
    ends = {partition: end.offset for partition, end in answers.items() if isinstance(end, OffsetAnswer)}
    behind = {
        partition: offset
        for partition, offset in positions.items()
        if offset is not None and partition in ends and offset < ends[partition]
    }
    times_ms = next_record_times(cluster, behind)
    now_ms = cluster.clock.now_ms()
    found: dict[TopicPartition, Lag] = {}
    for partition, offset in positions.items():
        answer = answers[partition]
        if isinstance(answer, UnknownTopic):
            found[partition] = NO_PARTITION
        elif isinstance(answer, ClientError):
            found[partition] = NO_PARTITION._replace(problem=str(answer))
        elif offset is None:
            found[partition] = NO_PARTITION._replace(end_offset=answer.offset)
        else:
            time_ms = times_ms.get(partition)
            age_s = None if time_ms is None else max(0.0, (now_ms - time_ms) / 1000)
            age_s = age_s if partition in behind else 0.0
            found[partition] = Lag(answer.offset, max(0, answer.offset - offset), age_s)
    return found


def next_record_times(cluster: Cluster, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The time in ms of the first record at or after each offset, where available.  Brokers that do not answer and
    partitions with errors are left out: a lag in time is not worth an error.
    """
    heads = _Heads()
    _ask_leaders(cluster, positions, heads)
    if heads.overtaken:
        # Retention has overtaken these readers: their next record is the log's first.
        starts = try_list_offsets(cluster, dict.fromkeys(heads.overtaken, EARLIEST))
        begins = {partition: at.offset for partition, at in starts.items() if isinstance(at, OffsetAnswer)}
        _ask_leaders(cluster, begins, heads)
    return {partition: time_ms for partition, time_ms in heads.times_ms.items() if time_ms >= 0}


class _Heads:
    """The results so far: the next batch's timestamp (-1: none), or that the offset is no longer in the log."""

    def __init__(self) -> None:
        self.times_ms: dict[TopicPartition, int] = {}
        self.overtaken: set[TopicPartition] = set()

    def take(self, response: FetchResponse) -> set[TopicPartition]:
        """Returns the partitions without a whole header in the response: it did not fit, or there was no record."""
        empty: set[TopicPartition] = set()
        for topic in response.responses:
            for data in topic.partitions:
                partition = TopicPartition(topic.topic, data.partition_index)
                records = memoryview(data.records or b"")
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self.overtaken.add(partition)
                elif not data.error_code and len(records) < BATCH_OVERHEAD_BYTES:
                    empty.add(partition)
                elif not data.error_code:
                    header = read_header(records)
                    is_append_time = header.is_log_append_time
                    self.times_ms[partition] = header.max_timestamp_ms if is_append_time else header.base_timestamp_ms
        return empty


def _ask_leaders(cluster: Cluster, positions: Mapping[TopicPartition, int], heads: _Heads) -> None:
    deadline = cluster.retrying.deadline()
    groups, _ = leaders_now(cluster, positions, deadline)
    pool = cluster.new_pool()
    try:
        rooms = chain(_ROOMS_BYTES, repeat(_ROOMS_BYTES[-1]))
        for _, room_bytes in zip(range(_ROUNDS_MAX), rooms, strict=False):
            if not groups or deadline.has_passed:
                break
            asked_count = sum(map(len, groups.values()))
            groups = _ask_round(cluster, pool, groups, positions, room_bytes, heads, deadline)
            if room_bytes == _ROOMS_BYTES[-1] and sum(map(len, groups.values())) == asked_count:
                break
    finally:
        pool.close()


def _ask_round(
    cluster: Cluster,
    pool: ConnectionPool,
    groups: Mapping[int, list[TopicPartition]],
    positions: Mapping[TopicPartition, int],
    room_bytes: int,
    heads: _Heads,
    deadline: Deadline,
) -> dict[int, list[TopicPartition]]:
    """One Fetch to each leader; returns the partitions to fetch again."""
    asked: dict[int, Connection] = {}
    left: dict[int, list[TopicPartition]] = {}
    for node_id, partitions in groups.items():
        try:
            connection = cluster.connect_broker(node_id, deadline, pool)
            _send(connection, {each: positions[each] for each in partitions}, room_bytes, deadline)
        except ClientError:
            continue
        asked[node_id] = connection
    for node_id, connection in asked.items():
        try:
            sent, body = connection.receive(deadline)
            empty = heads.take(connection.decode(sent.api, sent.version, body, FetchResponse))
        except ClientError:
            continue
        if empty:
            left[node_id] = [each for each in groups[node_id] if each in empty]
    return left


def _send(connection: Connection, positions: Mapping[TopicPartition, int], room_bytes: int, deadline: Deadline) -> None:
    topics = [
        FetchTopic(
            topic=topic,
            partitions=[
                FetchPartition(partition=each.partition, fetch_offset=positions[each], partition_max_bytes=room_bytes)
                for each in partitions
            ],
        )
        for topic, partitions in groupby(sorted(positions), key=lambda partition: partition.topic)
    ]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=_ANSWER_BYTES_MAX, isolation_level=0, topics=topics)
    version = connection.version_of(ApiKey.FETCH, at_most=FETCH_BY_ID_FROM - 1)
    connection.send(ApiKey.FETCH, version, [encode_request(ApiKey.FETCH, version, request)], deadline)
