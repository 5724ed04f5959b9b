"""How far behind a reader is, in records and in time.

In time it is the age of the next record to read.  That needs one batch's head for each partition that lags, so all of
a broker's partitions are asked in one Fetch with room for little more than heads, and all brokers at once.  The head
has the time of its batch's first record: for a reader in the middle of a batch the age is that of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Final, NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.deadline import Deadline
from ottla.client.errors import ClientError
from ottla.client.leader_calls import group_by_leader
from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import encode_request
from ottla.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.records.header import BATCH_OVERHEAD_BYTES, read_header

# The first partition of an answer comes with its whole first batch, the others cut at this.
_HEAD_ROOM_BYTES: Final = 256
_MISSING: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class Lag(NamedTuple):
    """`end_offset` None: there is no such partition (any more).  `lag_seconds` None: the next record bears no time, or
    it is not known; 0 when nothing is left to read.
    """

    end_offset: int | None
    lag_records: int | None
    lag_seconds: float | None


NO_PARTITION: Final = Lag(None, None, None)


def lags(cluster: Cluster, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, Lag]:
    """The lag of a reader whose next offset in each partition is the given one."""
    present = _present(cluster, positions)
    ends = list_offsets(cluster, dict.fromkeys(present, LATEST))
    behind = {each: positions[each] for each in present if positions[each] < ends[each].offset}
    times_ms = next_record_times(cluster, behind)
    now_ms = cluster.clock.now_ms()
    found: dict[TopicPartition, Lag] = {}
    for partition, offset in positions.items():
        if partition not in ends:
            found[partition] = NO_PARTITION
            continue
        end_offset = ends[partition].offset
        time_ms = times_ms.get(partition)
        age_s = None if time_ms is None else max(0.0, (now_ms - time_ms) / 1000)
        found[partition] = Lag(end_offset, max(0, end_offset - offset), age_s if partition in behind else 0.0)
    return found


def _present(cluster: Cluster, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    wanted = list(partitions)
    topics = {topic.name: topic for topic in cluster.refresh(sorted({each.topic for each in wanted}))}
    return [
        each
        for each in wanted
        if (topic := topics.get(each.topic)) is not None
        and topic.error_code not in _MISSING
        and each.partition in topic.partitions
    ]


def next_record_times(cluster: Cluster, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The time in ms of the first record at or behind each offset, where one can be had.  Brokers that do not answer
    and partitions that refuse are left out: a lag in time is worth no error.
    """
    found: dict[TopicPartition, int] = {}
    overtaken = _ask_leaders(cluster, positions, found)
    if overtaken:
        # Retention was faster than these readers: the next record is where the log begins.
        starts = list_offsets(cluster, dict.fromkeys(overtaken, EARLIEST))
        _ask_leaders(cluster, {partition: start.offset for partition, start in starts.items()}, found)
    return found


def _ask_leaders(
    cluster: Cluster, positions: Mapping[TopicPartition, int], found: dict[TopicPartition, int]
) -> list[TopicPartition]:
    """Adds to `found`; gives the partitions whose offset is not in the log any more."""
    deadline = cluster.retrying.deadline()
    pool = cluster.new_pool()
    overtaken: list[TopicPartition] = []
    asked: list[Connection] = []
    try:
        for node_id, partitions in group_by_leader(cluster, positions, deadline).items():
            try:
                connection = cluster.connect_broker(node_id, deadline, pool)
                _send(connection, {each: positions[each] for each in partitions}, deadline)
            except ClientError:
                continue
            asked.append(connection)
        for connection in asked:
            try:
                _receive(connection, found, overtaken, deadline)
            except ClientError:
                continue
    finally:
        pool.close()
    return overtaken


def _send(connection: Connection, positions: Mapping[TopicPartition, int], deadline: Deadline) -> None:
    topics = [
        FetchTopic(
            topic=topic,
            partitions=[
                FetchPartition(
                    partition=each.partition, fetch_offset=positions[each], partition_max_bytes=_HEAD_ROOM_BYTES
                )
                for each in partitions
            ],
        )
        for topic, partitions in groupby(sorted(positions), key=lambda partition: partition.topic)
    ]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, isolation_level=0, topics=topics)
    version = connection.version_of(ApiKey.FETCH)
    connection.send(ApiKey.FETCH, version, [encode_request(ApiKey.FETCH, version, request)], deadline)


def _receive(
    connection: Connection,
    found: dict[TopicPartition, int],
    overtaken: list[TopicPartition],
    deadline: Deadline,
) -> None:
    sent, body = connection.receive(deadline)
    response = connection.decode(sent.api, sent.version, body, FetchResponse)
    for topic in response.responses:
        for data in topic.partitions:
            partition = TopicPartition(topic.topic, data.partition_index)
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                overtaken.append(partition)
            elif not data.error_code:
                time_ms = _first_time_ms(memoryview(data.records or b""))
                if time_ms is not None:
                    found[partition] = time_ms


def _first_time_ms(records: memoryview) -> int | None:
    if len(records) < BATCH_OVERHEAD_BYTES:
        return None
    header = read_header(records)
    time_ms = header.max_timestamp_ms if header.is_log_append_time else header.base_timestamp_ms
    return time_ms if time_ms >= 0 else None
