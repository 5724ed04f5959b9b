"""Produce v3-v10 (API key 0) on the hot path: requests are read in place, responses are whole frames.

Topic names stay bytes and records stay in place: the request holds their positions in the buffer.  A request for one
partition, which most producers send under load, has its own path, and so has its response; all others are read and
written in steps (runtime/steps.py), which a small one takes without a pause.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ottla.model.errors import WireError
from ottla.model.identifiers import NO_OFFSET, NO_TIMESTAMP
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
from ottla.runtime.steps import Steps, parts_of, run_steps

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


def refusal_of(index: int, error_code: int, errors: RecordErrors | None = None) -> ProducePartitionResult:
    """The result of a partition whose batch was not appended, or whose outcome is not known."""
    return (index, error_code, NO_OFFSET, NO_TIMESTAMP, NO_OFFSET, errors)


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
_HEAD_FLEXIBLE: Final = struct.Struct(">BhiBB")
# partitions count, partition index, records length
_ONE_PARTITION: Final = struct.Struct(">iii")
# The same without the length, which has one to five bytes.
_ONE_PARTITION_FLEXIBLE: Final = struct.Struct(">Bi")
# Tagged fields of the partition, of its topic and of the request.
_NO_TAGGED_FIELDS: Final = b"\x00\x00\x00"
_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INDEX: Final = struct.Struct(">i")
_HEAD_BYTES: Final = _HEAD.size
_ONE_PARTITION_BYTES: Final = _ONE_PARTITION.size


def read_produce(buffer: RequestBytes, position: int, end: int, version: int) -> ProduceRequest:
    """The request whose body is `buffer[position:end]`, in one of the versions 3 to 10.  Raises `ManyPartitions`."""
    if version >= FLEXIBLE_FROM_VERSION:
        request = _read_one_partition_flexible(buffer, position, end)
        if request is not None:
            return request
    elif end - position >= _HEAD_BYTES:
        # One partition.  Not a function: a call takes a tenth of the time of all this.
        no_id, acks, timeout_ms, topics_count, name_length = _HEAD.unpack_from(buffer, position)
        name_at = position + _HEAD_BYTES
        name_end = name_at + name_length
        records_at = name_end + _ONE_PARTITION_BYTES
        if no_id == -1 and topics_count == 1 and name_length >= 0 and records_at <= end:
            partitions_count, index, length = _ONE_PARTITION.unpack_from(buffer, name_end)
            if partitions_count == 1 and length >= 0 and records_at + length == end:
                name = bytes(buffer[name_at:name_end])
                # The class's own constructor is a Python function, which takes 0.2 us more.
                return tuple.__new__(ProduceRequest, (None, acks, timeout_ms, [(name, [(index, records_at, end)])]))
    return run_steps(_read_steps(buffer, position, end, version, PARTITIONS_AT_ONCE_MAX))


def read_produce_steps(buffer: RequestBytes, position: int, end: int, version: int) -> Steps[ProduceRequest]:
    """`read_produce` with pauses, of a request that may name `PARTITIONS_MAX`."""
    return _read_steps(buffer, position, end, version, PARTITIONS_MAX)


def _read_one_partition_flexible(buffer: RequestBytes, position: int, end: int) -> ProduceRequest | None:
    """A request of v9 or v10 for one partition; None for any other.  Counts and lengths are stored plus one."""
    name_at = position + _HEAD_FLEXIBLE.size
    if name_at > end:
        return None
    no_id, acks, timeout_ms, stored_topics, stored_length = _HEAD_FLEXIBLE.unpack_from(buffer, position)
    name_end = name_at + stored_length - 1
    length_at = name_end + _ONE_PARTITION_FLEXIBLE.size
    if no_id or stored_topics != 2 or not 0 < stored_length < 0x80 or length_at > end:
        return None
    stored_partitions, index = _ONE_PARTITION_FLEXIBLE.unpack_from(buffer, name_end)
    if stored_partitions != 2:
        return None
    length, records_at = read_compact_length(memoryview(buffer)[:end], length_at)
    records_end = records_at + length
    if length < 0 or buffer[records_end:end] != _NO_TAGGED_FIELDS:
        return None
    name = bytes(buffer[name_at:name_end])
    return tuple.__new__(ProduceRequest, (None, acks, timeout_ms, [(name, [(index, records_at, records_end)])]))


def _read_steps(
    buffer: RequestBytes, position: int, end: int, version: int, partitions_max: int
) -> Steps[ProduceRequest]:
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
        if total > partitions_max or topics_count > partitions_max:
            if partitions_max < PARTITIONS_MAX:
                raise ManyPartitions
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
    if position != len(data):
        raise WireError(f"a produce request has {len(data) - position} bytes after its end")
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


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


def _add_partition(partitions: list[ProducePartition], data: memoryview, position: int, index: int, length: int) -> int:
    if length < 0:
        partitions.append((index, -1, -1))
        return position
    if position + length > len(data):
        raise ends_early("records", length, len(data) - position)
    partitions.append((index, position, position + length))
    return position + length


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
# Frame length, correlation id, no tagged fields, topics count, name length.
_FRAME_HEAD_FLEXIBLE: Final = struct.Struct(">iiBBB")
# Partitions count, one result without errors, no tagged fields in it and its topic, throttle time, no tagged fields.
_ONE_RESULT_FLEXIBLE: Final = struct.Struct(">BihqqqBBBBiB")
_LEADER_TAG: Final = 0

_Topics = Sequence[tuple[bytes, Sequence[ProducePartitionResult]]]


def write_produce_response(
    correlation_id: int, version: int, topics: _Topics, leaders: CurrentLeaders | None = None, throttle_ms: int = 0
) -> bytes:
    """The whole frame, length prefix included.

    `leaders`, from v10 on: those of partitions that are led elsewhere.
    """
    if len(topics) == 1 and len(topics[0][1]) == 1 and leaders is None:
        name, ((index, error, base_offset, append_time_ms, log_start_offset, errors),) = topics[0]
        length = len(name)
        if errors is None and length < 0x7F:
            if version >= FLEXIBLE_FROM_VERSION:
                result = (2, index, error, base_offset, append_time_ms, log_start_offset, 1, 0, 0, 0, throttle_ms, 0)
                head = _FRAME_HEAD_FLEXIBLE.pack(47 + length, correlation_id, 0, 2, length + 1)
                return head + name + _ONE_RESULT_FLEXIBLE.pack(*result)
            if version >= 8:
                return (
                    _FRAME_HEAD.pack(54 + length, correlation_id, 1, length)
                    + name
                    + _ONE_RESULT_V8.pack(
                        1, index, error, base_offset, append_time_ms, log_start_offset, 0, -1, throttle_ms
                    )
                )
            if version >= 5:
                return (
                    _FRAME_HEAD.pack(48 + length, correlation_id, 1, length)
                    + name
                    + _ONE_RESULT_V5.pack(1, index, error, base_offset, append_time_ms, log_start_offset, throttle_ms)
                )
            return (
                _FRAME_HEAD.pack(40 + length, correlation_id, 1, length)
                + name
                + _ONE_RESULT_V3.pack(1, index, error, base_offset, append_time_ms, throttle_ms)
            )
    return bytes(run_steps(write_produce_response_steps(correlation_id, version, topics, leaders, throttle_ms)))


def write_produce_response_steps(
    correlation_id: int, version: int, topics: _Topics, leaders: CurrentLeaders | None = None, throttle_ms: int = 0
) -> Steps[bytearray]:
    """`write_produce_response` with pauses."""
    flexible = version >= FLEXIBLE_FROM_VERSION
    if version < LEADERS_FROM_VERSION:
        leaders = None
    # The length is not known yet; from v9 on the header has tagged fields.
    out = bytearray(9 if flexible else 8)
    out += uvarint_bytes(len(topics) + 1) if flexible else _COUNT.pack(len(topics))
    for name, results in topics:
        out += uvarint_bytes(len(name) + 1) if flexible else INT16.pack(len(name))
        out += name
        out += uvarint_bytes(len(results) + 1) if flexible else _COUNT.pack(len(results))
        # Few are one part; a generator for it would take as long as three of them.
        for some in (results,) if len(results) <= _PARTITIONS_OF_STEP else parts_of(results, _PARTITIONS_OF_STEP):
            if flexible:
                _add_flexible(out, name, some, leaders)
            else:
                _add_legacy(out, version, some)
            yield
        if flexible:
            out.append(0)  # no tagged fields
    out += _COUNT.pack(throttle_ms)
    if leaders is not None:
        out += endpoints_section(leaders.endpoints)
    elif flexible:
        out.append(0)  # no tagged fields
    struct.pack_into(">ii", out, 0, len(out) - 4, correlation_id)
    return out


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


def _append_text16(out: bytearray, text: str) -> None:
    encoded = text.encode()
    out += INT16.pack(len(encoded))
    out += encoded


def _append_compact_text(out: bytearray, text: str) -> None:
    encoded = text.encode()
    out += uvarint_bytes(len(encoded) + 1)
    out += encoded
