"""Fetch v4-v17 (API key 1) on the hot path: requests are read in place, responses are pieces around the records.

Records go from the segment file to the socket without passing here, so a response is a list of byte pieces with the
caller's own objects (file runs) between them, and a length prefix that counts both.

From version 13 on topics have their id (16 bytes) where they had their name (KIP-516); from 15 on a replica gives its
id and its broker epoch in a tagged field (KIP-903); from 16 on a partition that is led elsewhere has its leader
(KIP-951).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from ottla.model.errors import WireError
from ottla.protocol.current_leaders import NodeEndpoint, endpoints_section, leader_field
from ottla.protocol.primitives import (
    INT16,
    RequestBytes,
    check_count,
    ends_early,
    read_compact_length,
    read_length16,
    read_length32,
    read_uvarint,
    skip_tagged_fields,
    take,
    uvarint_bytes,
    write_uvarint,
)
from ottla.runtime.steps import Steps, run_steps

# A consumer names its rack, and may be sent to another replica.
PREFERRED_REPLICA_FROM_VERSION: Final = 11
FLEXIBLE_FROM_VERSION: Final = 12
TOPIC_IDS_FROM_VERSION: Final = 13
LEADERS_FROM_VERSION: Final = 16
_REPLICA_STATE_FROM_VERSION: Final = 15
_TOPIC_ID_BYTES: Final = 16
NO_PREFERRED_REPLICA: Final = -1
# The isolation level of a reader of committed records.
READ_COMMITTED: Final = 1

# Sessions (KIP-227).  A request without one, and the epochs of requests that name all their partitions: one opens a
# session, the other none.
NO_SESSION: Final = 0
NEW_SESSION_EPOCH: Final = 0
NO_SESSION_EPOCH: Final = -1
FIRST_SESSION_EPOCH: Final = 1
_SESSION_EPOCH_MAX: Final = 2**31 - 1
# Of one request, and as many topics: a partition takes 16 bytes on the wire and some 250 in memory.
PARTITIONS_MAX: Final = 65_536
# Of a large request, read between two pauses, each in a microsecond.
_PARTITIONS_OF_STEP: Final = 256

Run = TypeVar("Run")
Element = TypeVar("Element")

FetchPartition = tuple[int, int, int, int, int, int]
"""Partition, current leader epoch, fetch offset, last fetched epoch, log start offset, bytes at most."""


def next_session_epoch(epoch: int) -> int:
    """Epochs count a session's requests and continue with 1 after the greatest: 0 would open another session."""
    return FIRST_SESSION_EPOCH if epoch >= _SESSION_EPOCH_MAX else epoch + 1


class FetchRequest(NamedTuple):
    """Fields that a version lacks have the protocol's defaults: epochs -1, session 0 with epoch -1, no rack.

    Topics are named by the UTF-8 bytes of their names, from version 13 on by the bytes of their ids.
    """

    # -1 for consumers
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[tuple[bytes, list[FetchPartition]]]
    forgotten: list[tuple[bytes, list[int]]]
    rack: bytes
    # The broker epoch of the replica; -1 for consumers, and before version 15 for all.
    replica_epoch: int = -1


_HEAD_V4: Final = struct.Struct(">iiiib")
_HEAD_V7: Final = struct.Struct(">iiiibii")
_HEAD_V15: Final = struct.Struct(">iiibii")
_PARTITION_V4: Final = struct.Struct(">iqi")
_PARTITION_V5: Final = struct.Struct(">iqqi")
_PARTITION_V9: Final = struct.Struct(">iiqqi")
_PARTITION_V12: Final = struct.Struct(">iiqiqi")
# The head of v7, the topics count, the first topic's name length.
_HEAD_AND_NAME: Final = struct.Struct(">iiiibiiih")
# The partitions count, one partition of v9, the forgotten topics count, and from v11 on the rack's length.
_ONE_PARTITION_V9: Final = struct.Struct(">iiiqqii")
_ONE_PARTITION_V11: Final = struct.Struct(">iiiqqiih")
# Counts are stored plus one: one topic's id, one partition of v12, no tagged fields in either, nothing forgotten.
_ONE_PARTITION_V13: Final = struct.Struct(">B16sBiiqiqiBBB")
# No topics, and none forgotten.
_NO_TOPICS: Final = memoryview(b"\x01\x01")
_CONSUMER: Final = -1
_NO_EPOCH: Final = -1
# Of which version 4 knows nothing: id and epoch.
_WITHOUT_SESSION: Final = (NO_SESSION, NO_SESSION_EPOCH)
_REPLICA_STATE_TAG: Final = 1
# Replica id, replica epoch.
_REPLICA_STATE: Final = struct.Struct(">iq")
# One tagged field, its tag, its length, replica id, replica epoch, no tagged fields in it.
_ONE_REPLICA_STATE: Final = struct.Struct(">BBBiqB")


def read_fetch(buffer: RequestBytes, position: int, end: int, version: int) -> FetchRequest:
    """The request whose body is `buffer[position:end]`, in one of the versions 4 to 17."""
    if 9 <= version < FLEXIBLE_FROM_VERSION:
        request = _read_one_partition(buffer, position, end, version)
        if request is not None:
            return request
    data = memoryview(buffer)[:end]
    head, position = _read_head(data, position, version)
    if version >= TOPIC_IDS_FROM_VERSION:
        request = _read_session_or_one_partition(data, position, version, head)
        if request is not None:
            return request
    return run_steps(_read_body_steps(data, position, version, head))


def read_fetch_steps(buffer: RequestBytes, position: int, end: int, version: int) -> Steps[FetchRequest]:
    """`read_fetch` with pauses, of a request that may name many partitions."""
    data = memoryview(buffer)[:end]
    head, position = _read_head(data, position, version)
    return (yield from _read_body_steps(data, position, version, head))


def _read_body_steps(data: memoryview, position: int, version: int, head: _Head) -> Steps[FetchRequest]:
    read: Callable[[memoryview, int, int], tuple[list[FetchPartition], int]]
    if version >= FLEXIBLE_FROM_VERSION:
        read, size_bytes = _read_partitions_flexible, _PARTITION_V12.size + 1
    else:
        layout = _layout(version)
        read, size_bytes = partial(_read_partitions, layout=layout), layout.size
    topics, position = yield from _read_topics_steps(data, position, version, "partitions", size_bytes, read)
    forgotten: list[tuple[bytes, list[int]]] = []
    if version >= 7:
        forgotten, position = yield from _read_topics_steps(
            data, position, version, "forgotten partitions", 4, _read_indexes
        )
    return _read_rest(data, position, version, head, topics, forgotten)


_Head = tuple[int, int, int, int, int, int, int]
"""Replica id, wait, least and most bytes, isolation level, session id and epoch."""


def _read_head(data: memoryview, position: int, version: int) -> tuple[_Head, int]:
    head = _HEAD_V15 if version >= _REPLICA_STATE_FROM_VERSION else _HEAD_V7 if version >= 7 else _HEAD_V4
    size_bytes = head.size
    if position + size_bytes > len(data):
        raise ends_early("a fetch request", size_bytes, len(data) - position)
    values = head.unpack_from(data, position)
    if version >= _REPLICA_STATE_FROM_VERSION:
        return (_CONSUMER, *values), position + size_bytes
    return values if version >= 7 else values + _WITHOUT_SESSION, position + size_bytes


def _read_rest(
    data: memoryview,
    position: int,
    version: int,
    head: _Head,
    topics: list[tuple[bytes, list[FetchPartition]]],
    forgotten: list[tuple[bytes, list[int]]],
) -> FetchRequest:
    """What follows the topics, and the whole."""
    replica_id, replica_epoch = head[0], _NO_EPOCH
    rack = b""
    if version >= FLEXIBLE_FROM_VERSION:
        length, position = read_compact_length(data, position)
        rack = bytes(take(data, position, length))
        position += length
        if version >= _REPLICA_STATE_FROM_VERSION:
            replica_id, replica_epoch, position = _read_replica_state(data, position)
        else:
            position = skip_tagged_fields(data, position)
    elif version >= 11:
        length, position = read_length16(data, position)
        rack = bytes(take(data, position, length))
        position += length
    end = len(data)
    if position != end:
        raise WireError(f"a fetch request has {end - position} bytes after its end")
    # The class's own constructor is a Python function, which takes 0.2 us more.
    return tuple.__new__(FetchRequest, (replica_id, *head[1:], topics, forgotten, rack, replica_epoch))


def _read_one_partition(buffer: RequestBytes, position: int, end: int, version: int) -> FetchRequest | None:
    """A request of v9 to v11 for one partition, which most consumers send; None for any other."""
    name_at = position + _HEAD_AND_NAME.size
    if name_at > end:
        return None
    replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, topics_count, name_length = (
        _HEAD_AND_NAME.unpack_from(buffer, position)
    )
    rest = _ONE_PARTITION_V11 if version >= 11 else _ONE_PARTITION_V9
    name_end = name_at + name_length
    rack_at = name_end + rest.size
    if topics_count != 1 or name_length < 0 or rack_at > end:
        return None
    partitions_count, index, epoch, offset, start, limit, forgotten_count, *rack_length = rest.unpack_from(
        buffer, name_end
    )
    rack = bytes(buffer[rack_at:end])
    if partitions_count != 1 or forgotten_count != 0 or len(rack) != sum(rack_length):
        return None
    name = bytes(buffer[name_at:name_end])
    topics = [(name, [(index, epoch, offset, _NO_EPOCH, start, limit)])]
    return FetchRequest(
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, topics, [], rack
    )


def _read_session_or_one_partition(data: memoryview, position: int, version: int, head: _Head) -> FetchRequest | None:
    """A request of v13 on that adds nothing to its session, or that names one partition; None for any other."""
    if data[position : position + 2] == _NO_TOPICS:
        return _read_rest(data, position + len(_NO_TOPICS), version, head, [], [])
    rest_at = position + _ONE_PARTITION_V13.size
    if rest_at > len(data):
        return None
    stored_topics, topic_id, stored_partitions, *fetch, tagged, topic_tagged, stored_forgotten = (
        _ONE_PARTITION_V13.unpack_from(data, position)
    )
    if (stored_topics, stored_partitions, tagged, topic_tagged, stored_forgotten) != (2, 2, 0, 0, 1):
        return None
    return _read_rest(data, rest_at, version, head, [(topic_id, [tuple(fetch)])], [])


def _require(data: memoryview, position: int, size_bytes: int) -> None:
    if position + size_bytes > len(data):
        raise ends_early("a fetch request", size_bytes, len(data) - position)


def _too_many() -> WireError:
    return WireError(f"a fetch request has more than {PARTITIONS_MAX} topics or partitions")


def _layout(version: int) -> struct.Struct:
    return _PARTITION_V9 if version >= 9 else _PARTITION_V5 if version >= 5 else _PARTITION_V4


def _read_partitions(
    data: memoryview, position: int, count: int, layout: struct.Struct
) -> tuple[list[FetchPartition], int]:
    end = position + count * layout.size
    found = layout.iter_unpack(data[position:end])
    if layout is _PARTITION_V9:
        return [(index, epoch, offset, -1, start, limit) for index, epoch, offset, start, limit in found], end
    if layout is _PARTITION_V5:
        return [(index, -1, offset, -1, start, limit) for index, offset, start, limit in found], end
    return [(index, -1, offset, -1, -1, limit) for index, offset, limit in found], end


def _read_partitions_flexible(data: memoryview, position: int, count: int) -> tuple[list[FetchPartition], int]:
    size_bytes, end = _PARTITION_V12.size, len(data)
    partitions: list[FetchPartition] = []
    for _ in range(count):
        if position + size_bytes > end:
            raise ends_early("a fetch request", size_bytes, end - position)
        partitions.append(_PARTITION_V12.unpack_from(data, position))
        position = skip_tagged_fields(data, position + size_bytes)
    return partitions, position


def _read_indexes(data: memoryview, position: int, count: int) -> tuple[list[int], int]:
    check_count("forgotten partitions", count, 4, data, position)
    return list(struct.unpack_from(f">{count}i", data, position)), position + 4 * count


def _read_topics_steps(
    data: memoryview,
    position: int,
    version: int,
    what: str,
    size_bytes: int,
    read: Callable[[memoryview, int, int], tuple[list[Element], int]],
) -> Steps[tuple[list[tuple[bytes, list[Element]]], int]]:
    """Topics, each with an array that `read` reads, some of its elements (of at least so many bytes) at a time."""
    flexible, by_id = version >= FLEXIBLE_FROM_VERSION, version >= TOPIC_IDS_FROM_VERSION
    read_count = read_compact_length if flexible else read_length32
    read_name_length = read_compact_length if flexible else read_length16
    topics_count, position = read_count(data, position)
    check_count("topics", topics_count, 18 if by_id else 3 if flexible else 6, data, position)
    if topics_count > PARTITIONS_MAX:
        raise _too_many()
    topics: list[tuple[bytes, list[Element]]] = []
    total = 0
    length = _TOPIC_ID_BYTES
    for _ in range(topics_count):
        if not by_id:
            length, position = read_name_length(data, position)
        topic = bytes(take(data, position, length))
        count, position = read_count(data, position + length)
        check_count(what, count, size_bytes, data, position)
        total += count
        if total > PARTITIONS_MAX:
            raise _too_many()
        elements: list[Element] = []
        while len(elements) < count:
            some, position = read(data, position, min(count - len(elements), _PARTITIONS_OF_STEP))
            elements += some
            yield
        if flexible:
            position = skip_tagged_fields(data, position)
        topics.append((topic, elements))
        if not count:
            yield
    return topics, position


def _read_replica_state(data: memoryview, position: int) -> tuple[int, int, int]:
    """Replica id and epoch in the request's tagged field 1, both -1 when it is left out, as consumers do; its end."""
    if position + _ONE_REPLICA_STATE.size <= len(data):
        # As replicas send it.
        count, tag, length, replica_id, replica_epoch, rest = _ONE_REPLICA_STATE.unpack_from(data, position)
        if count == 1 and tag == _REPLICA_STATE_TAG and length == _REPLICA_STATE.size + 1 and rest == 0:
            return replica_id, replica_epoch, position + _ONE_REPLICA_STATE.size
    end = skip_tagged_fields(data, position)
    count, position = read_uvarint(data, position)
    replica_id, replica_epoch = _CONSUMER, _NO_EPOCH
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        length, position = read_uvarint(data, position)
        if tag == _REPLICA_STATE_TAG:
            state = data[position : position + length]
            _require(state, 0, _REPLICA_STATE.size)
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(state)
            if skip_tagged_fields(state, _REPLICA_STATE.size) != length:
                raise WireError(f"a replica state does not have the {length} bytes that it announces")
        position += length
    return replica_id, replica_epoch, end


_COUNT: Final = struct.Struct(">i")
_LENGTH_AND_CORRELATION: Final = struct.Struct(">ii")
_SESSION: Final = struct.Struct(">hi")
# Index, error, high watermark, last stable offset, log start offset (v5+).
_RESULT_V4: Final = struct.Struct(">ihqq")
_RESULT_V5: Final = struct.Struct(">ihqqq")
_ABORTED: Final = struct.Struct(">qq")
_NONE_PREFERRED: Final = _COUNT.pack(NO_PREFERRED_REPLICA)
# Tag 0: 13 bytes: epoch, end offset, no tagged fields.
_DIVERGING: Final = struct.Struct(">BBiqB")
_LEADER_TAG: Final = 1


def set_throttle_time(head: bytearray, version: int, throttle_time_ms: int) -> None:
    """Change the throttle time of a response, of which this is the first piece."""
    _COUNT.pack_into(head, 9 if version >= FLEXIBLE_FROM_VERSION else 8, throttle_time_ms)


class FetchResponseWriter(Generic[Run]):
    """Writes one response: `topic` and, for each of its partitions, `partition`, in order; `finish` returns the pieces.

    Throttle time is 0, unless `set_throttle_time` changes it.
    """

    __slots__ = (
        "_by_id",
        "_chunk",
        "_flexible",
        "_partitions_left",
        "_pieces",
        "_size_bytes",
        "_topics_left",
        "_version",
    )

    def __init__(
        self, correlation_id: int, version: int, *, topics_count: int, error_code: int = 0, session_id: int = 0
    ) -> None:
        self._version = version
        self._flexible = version >= FLEXIBLE_FROM_VERSION
        self._by_id = version >= TOPIC_IDS_FROM_VERSION
        self._topics_left = topics_count
        self._partitions_left = 0
        self._pieces: list[bytearray | Run] = []
        # Of all pieces so far.
        self._size_bytes = 0
        # The length is not known yet; then correlation id, the header's tagged fields, throttle time.
        chunk = bytearray(_LENGTH_AND_CORRELATION.pack(0, correlation_id))
        chunk += b"\x00\x00\x00\x00\x00" if self._flexible else b"\x00\x00\x00\x00"
        if version >= 7:
            chunk += _SESSION.pack(error_code, session_id)
        if self._flexible:
            write_uvarint(chunk, topics_count + 1)
        else:
            chunk += _COUNT.pack(topics_count)
        self._chunk = chunk

    def topic(self, topic: bytes, partitions_count: int) -> None:
        """Start a topic, by its name or, from version 13 on, its id."""
        assert self._partitions_left == 0
        assert self._topics_left > 0
        self._topics_left -= 1
        self._partitions_left = partitions_count
        chunk = self._chunk
        if self._flexible:
            if not self._by_id:
                write_uvarint(chunk, len(topic) + 1)
            chunk += topic
            write_uvarint(chunk, partitions_count + 1)
            if partitions_count == 0:
                chunk.append(0)
        else:
            chunk += INT16.pack(len(topic))
            chunk += topic
            chunk += _COUNT.pack(partitions_count)

    def partition(
        self,
        index: int,
        error_code: int,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        *,
        aborted: Sequence[tuple[int, int]] | None = None,
        diverging: tuple[int, int] | None = None,
        leader: tuple[int, int] | None = None,
        preferred_replica: int = NO_PREFERRED_REPLICA,
        records: Run | None = None,
        records_length: int = 0,
    ) -> None:
        """`records` is placed between the pieces and counts for `records_length` bytes; None is no records (not null).

        `aborted`: (producer id, first offset) of each; None, which is null, for readers of uncommitted records.
        `diverging`: (epoch, end offset), from v12 on (KIP-595).  `leader`: (leader id, leader epoch) where another
        broker leads, from v16 on.  `preferred_replica`: the broker to fetch from instead, from v11 on (KIP-392).
        """
        assert self._partitions_left > 0
        assert (records is None) == (records_length == 0)
        self._partitions_left -= 1
        chunk, version = self._chunk, self._version
        if version >= 5:
            chunk += _RESULT_V5.pack(index, error_code, high_watermark, last_stable_offset, log_start_offset)
        else:
            chunk += _RESULT_V4.pack(index, error_code, high_watermark, last_stable_offset)
        self._write_aborted(chunk, aborted)
        if version >= PREFERRED_REPLICA_FROM_VERSION:
            chunk += _NONE_PREFERRED if preferred_replica < 0 else _COUNT.pack(preferred_replica)
        chunk += uvarint_bytes(records_length + 1) if self._flexible else _COUNT.pack(records_length)
        if records is not None:
            self._pieces.append(chunk)
            self._pieces.append(records)
            self._size_bytes += len(chunk) + records_length
            self._chunk = chunk = bytearray()
        if self._flexible:
            if diverging is None and leader is None:
                chunk.append(0)
            else:
                chunk.append((diverging is not None) + (leader is not None))
                if diverging is not None:
                    chunk += _DIVERGING.pack(0, 13, *diverging, 0)
                if leader is not None:
                    chunk += leader_field(_LEADER_TAG, leader)
            if self._partitions_left == 0:
                chunk.append(0)  # the topic's tagged fields

    def _write_aborted(self, chunk: bytearray, aborted: Sequence[tuple[int, int]] | None) -> None:
        if self._flexible:
            write_uvarint(chunk, 0 if aborted is None else len(aborted) + 1)
        else:
            chunk += _COUNT.pack(-1 if aborted is None else len(aborted))
        for producer_id, first_offset in aborted or ():
            chunk += _ABORTED.pack(producer_id, first_offset)
            if self._flexible:
                chunk.append(0)

    def finish(self, endpoints: Sequence[NodeEndpoint] = ()) -> list[bytearray | Run]:
        """Bytes and runs in the order in which they go out; the first piece starts with the length prefix.

        `endpoints`: the addresses of the leaders that partitions were given, from v16 on.
        """
        assert self._topics_left == 0
        assert self._partitions_left == 0
        if endpoints:
            self._chunk += endpoints_section(endpoints)
        elif self._flexible:
            self._chunk.append(0)
        pieces = self._pieces
        if self._chunk:
            pieces.append(self._chunk)
        size_bytes = self._size_bytes + len(self._chunk)
        first = pieces[0]
        assert isinstance(first, bytearray)
        _COUNT.pack_into(first, 0, size_bytes - 4)
        return pieces
