"""Produce v3-v10 (API key 0) on the hot path: requests are read in place, responses are whole frames.

Topic names stay bytes and records stay in place: the request holds their positions in the buffer.  A request for one
partition, which most producers send under load, has its own path.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ottla.model.errors import WireError
from ottla.protocol.current_leaders import CurrentLeaders, endpoints_section, leader_field
from ottla.protocol.primitives import (
    INT16,
    RequestBytes,
    check_count,
    ends_early,
    read_compact_length,
    read_length16,
    read_length32,
    skip_tagged_fields,
    take,
    uvarint_bytes,
)
from ottla.runtime.steps import Steps, parts_of

FLEXIBLE_FROM_VERSION: Final = 9
LEADERS_FROM_VERSION: Final = 10
# Of one request, and as many topics.  Producers send a megabyte, in batches of 70 bytes and more.
PARTITIONS_MAX: Final = 65_536
# A request that names more is read in steps.
PARTITIONS_AT_ONCE_MAX: Final = 1_024
# Of one step: some tenths of a millisecond.
_PARTITIONS_OF_STEP: Final = 256

ProducePartition = tuple[int, int, int]
"""Partition index; start of its records, -1 when they are null; their end."""


class RecordErrors(NamedTuple):
    """Why records of a batch were refused (KIP-467): for the batch, and (index, text) for single records."""

    message: str
    rows: Sequence[tuple[int, str]] = ()


ProducePartitionResult = tuple[int, int, int, int, int, RecordErrors | None]
"""Partition index, error code, base offset, log append time in ms, log start offset, errors."""


class ManyPartitions(Exception):
    """A produce request names more than `PARTITIONS_AT_ONCE_MAX`: `read_produce_steps` reads it."""


class ProduceRequest(NamedTuple):
    """Positions are those of the buffer that was read."""

    transactional_id: bytes | None
    acks: int
    timeout_ms: int
    topics: list[tuple[bytes, list[ProducePartition]]]


# transactional id's length, acks, timeout, topics count, the first topic's name length
_HEAD: Final = struct.Struct(">hhiih")
# partitions count, partition index, records length
_ONE_PARTITION: Final = struct.Struct(">iii")
_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INDEX: Final = struct.Struct(">i")
_HEAD_BYTES: Final = _HEAD.size
_ONE_PARTITION_BYTES: Final = _ONE_PARTITION.size


def read_produce(buffer: RequestBytes, position: int, end: int, version: int) -> ProduceRequest:
    """The request whose body is `buffer[position:end]`, in one of the versions 3 to 10.  Raises `ManyPartitions`."""
    if version < FLEXIBLE_FROM_VERSION:
        if end - position >= _HEAD_BYTES:
            no_id, acks, timeout_ms, topics_count, name_length = _HEAD.unpack_from(buffer, position)
            name_at = position + _HEAD_BYTES
            name_end = name_at + name_length
            records_at = name_end + _ONE_PARTITION_BYTES
            if no_id == -1 and topics_count == 1 and name_length >= 0 and records_at <= end:
                partitions_count, index, length = _ONE_PARTITION.unpack_from(buffer, name_end)
                if partitions_count == 1 and length >= 0 and records_at + length == end:
                    name = bytes(buffer[name_at:name_end])
                    # The class's own constructor is a Python function, which takes 0.2 us more.
                    values = (None, acks, timeout_ms, [(name, [(index, records_at, end)])])
                    return tuple.__new__(ProduceRequest, values)
        return _read_legacy(memoryview(buffer)[:end], position)
    return _read_flexible(memoryview(buffer)[:end], position)


def read_produce_steps(
    buffer: RequestBytes, position: int, end: int, version: int
) -> Steps[ProduceRequest]:  # fmt: skip
    """`read_produce` in steps, however many partitions there are."""
    data = memoryview(buffer)[:end]
    flexible = version >= FLEXIBLE_FROM_VERSION
    read_count = read_compact_length if flexible else read_length32
    read_name_length = read_compact_length if flexible else read_length16
    read_partitions = _read_partitions_flexible if flexible else _read_partitions
    (transactional_id, acks, timeout_ms), position = _read_head(data, position, read_name_length)
    topics_count, position = read_count(data, position)
    check_count("topics", topics_count, 3 if flexible else 6, data, position)
    topics: list[tuple[bytes, list[ProducePartition]]] = []
    total = 0
    for _ in range(topics_count):
        length, position = read_name_length(data, position)
        name = bytes(take(data, position, length))
        count, position = read_count(data, position + length)
        check_count("partitions", count, 6 if flexible else 8, data, position)
        total += count
        if max(total, topics_count) > PARTITIONS_MAX:
            raise WireError(f"a produce request has more than {PARTITIONS_MAX} topics or partitions")
        partitions: list[ProducePartition] = []
        topics.append((name, partitions))
        while len(partitions) < count:
            position = read_partitions(data, position, min(count - len(partitions), _PARTITIONS_OF_STEP), partitions)
            yield
        if flexible:
            position = skip_tagged_fields(data, position)
        if not count:
            yield
    if flexible:
        position = skip_tagged_fields(data, position)
    return _finished(ProduceRequest(transactional_id, acks, timeout_ms, topics), data, position)


def _read_legacy(data: memoryview, position: int) -> ProduceRequest:
    (transactional_id, acks, timeout_ms), position = _read_head(data, position, read_length16)
    topics_count, position = read_length32(data, position)
    check_count("topics", topics_count, 6, data, position)
    topics: list[tuple[bytes, list[ProducePartition]]] = []
    total = topics_count
    for _ in range(topics_count):
        name_length, position = read_length16(data, position)
        name = bytes(take(data, position, name_length))
        partitions_count, position = read_length32(data, position + name_length)
        check_count("partitions", partitions_count, 8, data, position)
        total += partitions_count
        if total > PARTITIONS_AT_ONCE_MAX:
            raise ManyPartitions
        partitions: list[ProducePartition] = []
        position = _read_partitions(data, position, partitions_count, partitions)
        topics.append((name, partitions))
    return _finished(ProduceRequest(transactional_id, acks, timeout_ms, topics), data, position)


def _read_flexible(data: memoryview, position: int) -> ProduceRequest:
    (transactional_id, acks, timeout_ms), position = _read_head(data, position, read_compact_length)
    topics_count, position = read_compact_length(data, position)
    check_count("topics", topics_count, 3, data, position)
    topics: list[tuple[bytes, list[ProducePartition]]] = []
    total = topics_count
    for _ in range(topics_count):
        name_length, position = read_compact_length(data, position)
        name = bytes(take(data, position, name_length))
        partitions_count, position = read_compact_length(data, position + name_length)
        check_count("partitions", partitions_count, 6, data, position)
        total += partitions_count
        if total > PARTITIONS_AT_ONCE_MAX:
            raise ManyPartitions
        partitions: list[ProducePartition] = []
        position = skip_tagged_fields(data, _read_partitions_flexible(data, position, partitions_count, partitions))
        topics.append((name, partitions))
    position = skip_tagged_fields(data, position)
    return _finished(ProduceRequest(transactional_id, acks, timeout_ms, topics), data, position)


def _read_partitions(data: memoryview, position: int, count: int, into: list[ProducePartition]) -> int:
    for _ in range(count):
        index = _index(data, position)
        length, position = read_length32(data, position + 4)
        position = _add_partition(into, data, position, index, length)
    return position


def _read_partitions_flexible(data: memoryview, position: int, count: int, into: list[ProducePartition]) -> int:
    for _ in range(count):
        index = _index(data, position)
        length, position = read_compact_length(data, position + 4)
        position = skip_tagged_fields(data, _add_partition(into, data, position, index, length))
    return position


def _read_head(
    data: memoryview, position: int, read_length: Callable[[memoryview, int], tuple[int, int]]
) -> tuple[tuple[bytes | None, int, int], int]:
    """Transactional id, acks, time-out."""
    length, position = read_length(data, position)
    transactional_id = None
    if length >= 0:
        transactional_id = bytes(take(data, position, length))
        position += length
    if position + _ACKS_TIMEOUT.size > len(data):
        raise ends_early("acks and timeout", _ACKS_TIMEOUT.size, len(data) - position)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(data, position)
    return (transactional_id, acks, timeout_ms), position + _ACKS_TIMEOUT.size


def _index(data: memoryview, position: int) -> int:
    if position + 4 > len(data):
        raise ends_early("a partition index", 4, len(data) - position)
    index: int = _INDEX.unpack_from(data, position)[0]
    return index


def _add_partition(
    partitions: list[ProducePartition], data: memoryview, position: int, index: int, length: int
) -> int:  # fmt: skip
    if length < 0:
        partitions.append((index, -1, -1))
        return position
    if position + length > len(data):
        raise ends_early("records", length, len(data) - position)
    partitions.append((index, position, position + length))
    return position + length


def _finished(request: ProduceRequest, data: memoryview, position: int) -> ProduceRequest:
    if position != len(data):
        raise WireError(f"a produce request has {len(data) - position} bytes after its end")
    return request


# Frame length, correlation id, topics count, name length.
_FRAME_HEAD: Final = struct.Struct(">iiih")
_COUNT: Final = struct.Struct(">i")
# Index, error, base offset, log append time, then by version: log start offset, record errors (always none).
_RESULT_V3: Final = struct.Struct(">ihqq")
_RESULT_V5: Final = struct.Struct(">ihqqq")
_RESULT_V8: Final = struct.Struct(">ihqqqi")
# Partitions count, one result, throttle time.
_ONE_RESULT_V3: Final = struct.Struct(">iihqqi")
_ONE_RESULT_V5: Final = struct.Struct(">iihqqqi")
_ONE_RESULT_V8: Final = struct.Struct(">iihqqqihi")
_LEADER_TAG: Final = 0


def write_produce_response(
    correlation_id: int,
    version: int,
    topics: Sequence[tuple[bytes, Sequence[ProducePartitionResult]]],
    leaders: CurrentLeaders | None = None,
) -> bytes:
    """The whole frame, length prefix included; throttle time 0.

    `leaders`, from v10 on: those of partitions that are led elsewhere.
    """
    if len(topics) == 1 and len(topics[0][1]) == 1 and version < FLEXIBLE_FROM_VERSION:
        name, ((index, error, base_offset, append_time_ms, log_start_offset, errors),) = topics[0]
        if errors is None:
            head_pack = _FRAME_HEAD.pack
            name_length = len(name)
            if version >= 8:
                return (
                    head_pack(54 + name_length, correlation_id, 1, name_length)
                    + name
                    + _ONE_RESULT_V8.pack(1, index, error, base_offset, append_time_ms, log_start_offset, 0, -1, 0)
                )
            if version >= 5:
                return (
                    head_pack(48 + name_length, correlation_id, 1, name_length)
                    + name
                    + _ONE_RESULT_V5.pack(1, index, error, base_offset, append_time_ms, log_start_offset, 0)
                )
            return (
                head_pack(40 + name_length, correlation_id, 1, name_length)
                + name
                + _ONE_RESULT_V3.pack(1, index, error, base_offset, append_time_ms, 0)
            )
    if version >= FLEXIBLE_FROM_VERSION:
        return _write_flexible(correlation_id, topics, leaders if version >= LEADERS_FROM_VERSION else None)
    return _write_legacy(correlation_id, version, topics)


def write_produce_response_steps(
    correlation_id: int,
    version: int,
    topics: Sequence[tuple[bytes, Sequence[ProducePartitionResult]]],
    leaders: CurrentLeaders | None = None,
) -> Steps[bytearray]:
    """`write_produce_response` in steps."""
    flexible = version >= FLEXIBLE_FROM_VERSION
    if version < LEADERS_FROM_VERSION:
        leaders = None
    out = _flexible_head(topics) if flexible else _legacy_head(topics)
    for name, results in topics:
        if flexible:
            _begin_flexible(out, name, results)
        else:
            _begin_legacy(out, name, results)
        yield
        for some in parts_of(results, _PARTITIONS_OF_STEP):
            if flexible:
                _add_flexible(out, name, some, leaders)
            else:
                _add_legacy(out, version, some)
            yield
        if flexible:
            out.append(0)
    if flexible:
        _end_flexible(out, leaders)
    else:
        out += _COUNT.pack(0)
    struct.pack_into(">ii", out, 0, len(out) - 4, correlation_id)
    return out


def _write_legacy(
    correlation_id: int, version: int, topics: Sequence[tuple[bytes, Sequence[ProducePartitionResult]]]
) -> bytes:  # fmt: skip
    out = _legacy_head(topics)
    for name, results in topics:
        _begin_legacy(out, name, results)
        _add_legacy(out, version, results)
    out += _COUNT.pack(0)
    struct.pack_into(">ii", out, 0, len(out) - 4, correlation_id)
    return bytes(out)


def _legacy_head(topics: Sequence[object]) -> bytearray:
    out = bytearray(8)
    out += _COUNT.pack(len(topics))
    return out


def _begin_legacy(out: bytearray, name: bytes, results: Sequence[object]) -> None:
    out += INT16.pack(len(name))
    out += name
    out += _COUNT.pack(len(results))


def _add_legacy(out: bytearray, version: int, results: Sequence[ProducePartitionResult]) -> None:
    for index, error, base_offset, append_time_ms, log_start_offset, errors in results:
        if version < 5:
            out += _RESULT_V3.pack(index, error, base_offset, append_time_ms)
        elif version < 8:
            out += _RESULT_V5.pack(index, error, base_offset, append_time_ms, log_start_offset)
        else:
            rows = () if errors is None else errors.rows
            out += _RESULT_V8.pack(index, error, base_offset, append_time_ms, log_start_offset, len(rows))
            for record_index, text in rows:
                out += _COUNT.pack(record_index)
                _append_text16(out, text)
            if errors is None:
                out += b"\xff\xff"
            else:
                _append_text16(out, errors.message)


def _write_flexible(
    correlation_id: int,
    topics: Sequence[tuple[bytes, Sequence[ProducePartitionResult]]],
    leaders: CurrentLeaders | None,
) -> bytes:
    out = _flexible_head(topics)
    for name, results in topics:
        _begin_flexible(out, name, results)
        _add_flexible(out, name, results, leaders)
        out.append(0)
    _end_flexible(out, leaders)
    struct.pack_into(">ii", out, 0, len(out) - 4, correlation_id)
    return bytes(out)


def _flexible_head(topics: Sequence[object]) -> bytearray:
    out = bytearray(9)  # length, correlation id, the response header's empty tagged fields
    out += uvarint_bytes(len(topics) + 1)
    return out


def _begin_flexible(out: bytearray, name: bytes, results: Sequence[object]) -> None:
    out += uvarint_bytes(len(name) + 1)
    out += name
    out += uvarint_bytes(len(results) + 1)


def _add_flexible(
    out: bytearray, name: bytes, results: Sequence[ProducePartitionResult], leaders: CurrentLeaders | None
) -> None:
    for index, error, base_offset, append_time_ms, log_start_offset, errors in results:
        out += _RESULT_V5.pack(index, error, base_offset, append_time_ms, log_start_offset)
        if errors is None:
            out += b"\x01\x00"  # no rows, no message
        else:
            out += uvarint_bytes(len(errors.rows) + 1)
            for record_index, text in errors.rows:
                out += _COUNT.pack(record_index)
                _append_compact_text(out, text)
                out.append(0)  # no tagged fields
            _append_compact_text(out, errors.message)
        leader = None if leaders is None else leaders.by_partition.get((name, index))
        if leader is None:
            out.append(0)  # no tagged fields
        else:
            out.append(1)
            out += leader_field(_LEADER_TAG, leader)


def _end_flexible(out: bytearray, leaders: CurrentLeaders | None) -> None:
    out += b"\x00\x00\x00\x00"  # throttle time
    if leaders is None:
        out.append(0)  # no tagged fields
    else:
        out += endpoints_section(leaders.endpoints)


def _append_text16(out: bytearray, text: str) -> None:
    encoded = text.encode()
    out += INT16.pack(len(encoded))
    out += encoded


def _append_compact_text(out: bytearray, text: str) -> None:
    encoded = text.encode()
    out += uvarint_bytes(len(encoded) + 1)
    out += encoded
