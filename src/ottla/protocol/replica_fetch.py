"""A follower's side of Fetch v17: the request that it sends to a leader, and the leader's response read in place.

The request is the one that `ottla.protocol.fetch` reads; topics are named by their ids.  Records in a response stay
where they were received.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.model.errors import WireError
from ottla.protocol.fetch import PARTITIONS_MAX, FetchRequest
from ottla.protocol.primitives import (
    check_count,
    ends_early,
    read_compact_length,
    read_uvarint,
    skip_tagged_fields,
    take,
    write_uvarint,
)

REPLICA_FETCH_VERSION: Final = 17

_HEAD: Final = struct.Struct(">iiibii")
_PARTITION: Final = struct.Struct(">iiqiqi")

# Tag 1, 13 bytes: replica id, replica epoch, no tagged fields.
_REPLICA_STATE: Final = struct.Struct(">BBBiqB")


def encode_replica_fetch(request: FetchRequest) -> bytes:
    """The request's body."""
    out = bytearray(
        _HEAD.pack(
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            request.isolation_level,
            request.session_id,
            request.session_epoch,
        )
    )
    write_uvarint(out, len(request.topics) + 1)
    for topic_id, partitions in request.topics:
        out += topic_id
        write_uvarint(out, len(partitions) + 1)
        for fetch in partitions:
            out += _PARTITION.pack(*fetch)
            out.append(0)  # no tagged fields
        out.append(0)
    write_uvarint(out, len(request.forgotten) + 1)
    for topic_id, indexes in request.forgotten:
        out += topic_id
        write_uvarint(out, len(indexes) + 1)
        out += struct.pack(f">{len(indexes)}i", *indexes)
        out.append(0)
    write_uvarint(out, len(request.rack) + 1)
    out += request.rack
    out += _REPLICA_STATE.pack(1, 1, 13, request.replica_id, request.replica_epoch, 0)
    return bytes(out)


class FetchedPartition(NamedTuple):
    """One partition's part of a response.

    `diverging`: (epoch, end offset) where the follower's history leaves the leader's (KIP-595).  `leader`: (leader id,
    leader epoch) where another broker leads (KIP-951).  `records`: whole batches, but for the last one, which may be
    cut; a view of the bytes that were read.
    """

    topic_id: bytes
    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None
    leader: tuple[int, int] | None
    records: memoryview


class FetchedResponse(NamedTuple):
    """`error_code` is the whole request's; the session has the id 0 when the leader keeps none."""

    error_code: int
    session_id: int
    partitions: Sequence[FetchedPartition]


# Throttle time, error code, session id.
_RESPONSE_HEAD: Final = struct.Struct(">ihi")
# Index, error code, high watermark, last stable offset, log start offset.
_RESULT: Final = struct.Struct(">ihqqq")
_ABORTED_BYTES: Final = 16
_PREFERRED_REPLICA_BYTES: Final = 4
_TOPIC_ID_BYTES: Final = 16
# Without records and tagged fields: the result, null for the aborted transactions, the preferred replica, two counts.
_PARTITION_BYTES_MIN: Final = _RESULT.size + 1 + _PREFERRED_REPLICA_BYTES + 1 + 1
_TOPIC_BYTES_MIN: Final = _TOPIC_ID_BYTES + 2
_DIVERGING_TAG: Final = 0
_LEADER_TAG: Final = 1
_EPOCH_AND_OFFSET: Final = struct.Struct(">iq")
_ID_AND_EPOCH: Final = struct.Struct(">ii")


def read_replica_fetch_response(body: memoryview) -> FetchedResponse:
    """The response in `body`; `WireError` for anything but one whole response."""
    _require(body, 0, _RESPONSE_HEAD.size)
    _, error_code, session_id = _RESPONSE_HEAD.unpack_from(body)
    topics_count, position = read_compact_length(body, _RESPONSE_HEAD.size)
    check_count("topics", topics_count, _TOPIC_BYTES_MIN, body, position)
    found: list[FetchedPartition] = []
    for _ in range(topics_count):
        topic_id = bytes(take(body, position, _TOPIC_ID_BYTES))
        count, position = read_compact_length(body, position + _TOPIC_ID_BYTES)
        check_count("partitions", count, _PARTITION_BYTES_MIN, body, position)
        if len(found) + count > PARTITIONS_MAX:
            raise WireError(f"a fetch response has more than {PARTITIONS_MAX} partitions")
        for _ in range(count):
            partition, position = _read_partition(body, position, topic_id)
            found.append(partition)
        position = skip_tagged_fields(body, position)
    position = skip_tagged_fields(body, position)
    if position != len(body):
        raise WireError(f"a fetch response has {len(body) - position} bytes after its end")
    return FetchedResponse(error_code, session_id, found)


def _read_partition(body: memoryview, position: int, topic_id: bytes) -> tuple[FetchedPartition, int]:
    _require(body, position, _RESULT.size)
    index, error_code, high_watermark, _, log_start_offset = _RESULT.unpack_from(body, position)
    position = _skip_aborted(body, position + _RESULT.size) + _PREFERRED_REPLICA_BYTES
    length, position = read_compact_length(body, position)
    # Null means no records too.
    records = take(body, position, max(length, 0))
    position += len(records)
    diverging = leader = None
    if position < len(body) and body[position] == 0:
        position += 1
    else:
        diverging, leader, position = _read_tagged_fields(body, position)
    return (
        FetchedPartition(topic_id, index, error_code, high_watermark, log_start_offset, diverging, leader, records),
        position,
    )


def _skip_aborted(body: memoryview, position: int) -> int:
    count, position = read_compact_length(body, position)
    if count > 0:
        check_count("aborted transactions", count, _ABORTED_BYTES + 1, body, position)
        for _ in range(count):
            position = skip_tagged_fields(body, position + _ABORTED_BYTES)
    return position


def _read_tagged_fields(body: memoryview, position: int) -> tuple[tuple[int, int] | None, tuple[int, int] | None, int]:
    """The diverging epoch, the current leader, and the end of the section."""
    end = skip_tagged_fields(body, position)
    count, position = read_uvarint(body, position)
    diverging = leader = None
    for _ in range(count):
        tag, position = read_uvarint(body, position)
        length, position = read_uvarint(body, position)
        if tag == _DIVERGING_TAG:
            diverging = _pair(body[position : position + length], _EPOCH_AND_OFFSET)
        elif tag == _LEADER_TAG:
            leader = _pair(body[position : position + length], _ID_AND_EPOCH)
        position += length
    return diverging, leader, end


def _pair(value: memoryview, layout: struct.Struct) -> tuple[int, int] | None:
    """Two numbers and tagged fields; None where they are the defaults, which mean no value."""
    _require(value, 0, layout.size)
    if skip_tagged_fields(value, layout.size) != len(value):
        raise WireError(f"a tagged field does not have the {len(value)} bytes that it announces")
    first, second = layout.unpack_from(value)
    return None if first < 0 and second < 0 else (first, second)


def _require(data: memoryview, position: int, size_bytes: int) -> None:
    if position + size_bytes > len(data):
        raise ends_early("a fetch response", size_bytes, len(data) - position)
