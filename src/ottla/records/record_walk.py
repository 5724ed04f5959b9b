"""Walks a batch's records without decoding them: are they whole, have they keys, are their timestamps within bounds?

For the rules that make a broker inspect records; a walk reads four varints of each and skips the rest.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from ottla.records.errors import CorruptBatch
from ottla.records.varint import read_varint, read_varlong

# Length, attributes, timestamp delta, offset delta, key length, value length, headers count: a byte each.
_RECORD_BYTES_MIN: Final = 7
_NO_TIMESTAMP: Final = -1


class FaultKind(IntEnum):
    """The rule that a record breaks."""

    NO_KEY = 1
    TIMESTAMP = 2


class RecordFault(NamedTuple):
    """`number` counts in the batch, from 0; `timestamp_ms` is the record's."""

    number: int
    kind: FaultKind
    timestamp_ms: int


class WalkRules(NamedTuple):
    """Bounds are inclusive; records without a timestamp pass."""

    requires_keys: bool = False
    timestamp_ms_min: int = -(2**63)
    timestamp_ms_max: int = 2**63 - 1


class Walked(NamedTuple):
    """`max_timestamp_ms` is the maximum of all records, -1 without timestamps."""

    faults: list[RecordFault]
    max_timestamp_ms: int


def walk_records(data: bytes, records_count: int, base_timestamp_ms: int, rules: WalkRules) -> Walked:
    """Walk the uncompressed records of a batch.

    Raises `CorruptBatch` unless `data` is exactly `records_count` records with the offset deltas 0, 1, 2, ...
    """
    if records_count * _RECORD_BYTES_MIN > len(data):
        raise CorruptBatch(f"{records_count} records cannot be in {len(data)} bytes")
    faults: list[RecordFault] = []
    requires_keys, lowest_ms, highest_ms = rules
    latest_ms = _NO_TIMESTAMP
    position = 0
    for number in range(records_count):
        length, start = read_varint(data, position)
        position = start + length
        if length < _RECORD_BYTES_MIN - 1 or position > len(data):
            raise CorruptBatch(f"a record of {length} bytes, {len(data) - start} are left")
        timestamp_delta, at = read_varlong(data, start + 1)
        offset_delta, at = read_varint(data, at)
        key_length, at = read_varint(data, at)
        if offset_delta != number or key_length > position - at:
            raise CorruptBatch(f"record {number} has the offset delta {offset_delta} and a key of {key_length} bytes")
        timestamp_ms = base_timestamp_ms + timestamp_delta
        latest_ms = max(latest_ms, timestamp_ms)
        # As in Apache Kafka only one fault of a record is reported: the missing key first.
        if requires_keys and key_length < 0:
            faults.append(RecordFault(number, FaultKind.NO_KEY, timestamp_ms))
        elif not lowest_ms <= timestamp_ms <= highest_ms and timestamp_ms != _NO_TIMESTAMP:
            faults.append(RecordFault(number, FaultKind.TIMESTAMP, timestamp_ms))
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes follow the last record")
    return Walked(faults, latest_ms)
