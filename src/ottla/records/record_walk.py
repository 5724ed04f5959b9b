"""Walks a batch's records without decoding them: are they whole, have they keys, are their timestamps within bounds?

For the rules that make a broker inspect records; a walk reads four varints of each and skips the rest.
`compiled_bounds.c` does the same where it was built, without the interpreter's lock for large batches.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.records.errors import CorruptBatch
from ottla.records.record import INT64_LIMIT, INT64_MIN
from ottla.records.varint import read_varint, read_varlong

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Length, attributes, timestamp delta, offset delta, key length, value length, headers count: a byte each.
_RECORD_BYTES_MIN: Final = 7
_NO_TIMESTAMP: Final = -1
# Faults that a walk names, when every record breaks a rule: enough to find the mistake.
FAULTS_NAMED_MAX: Final = 1_000


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
    timestamp_ms_min: int = INT64_MIN
    timestamp_ms_max: int = INT64_LIMIT - 1


def _compiled() -> CompiledWalk | None:
    try:
        from ottla.records.compiled_bounds import walk_records
    except ImportError:
        return None
    return walk_records


# See compiled_bounds.pyi; None where the package was built without it.
CompiledWalk: TypeAlias = (
    "Callable[[Buffer, int, int, bool, int, int, int], tuple[int, int, int, list[tuple[int, int, int]]] | None]"
)
_COMPILED: Final = _compiled()


class Walked(NamedTuple):
    """`max_timestamp_ms` is the maximum of all records, -1 without timestamps.

    `faults` are the first `FAULTS_NAMED_MAX`; the counts are of all.
    """

    max_timestamp_ms: int
    faults_count: int
    timestamp_faults_count: int
    faults: list[RecordFault]


def walk_records(data: Buffer, records_count: int, base_timestamp_ms: int, rules: WalkRules) -> Walked:
    """Walk the uncompressed records of a batch.

    Raises `CorruptBatch` unless `data` is exactly `records_count` records with the offset deltas 0, 1, 2, ...
    """
    if _COMPILED is None:
        return walk_records_in_python(data, records_count, base_timestamp_ms, rules)
    found = _COMPILED(data, records_count, base_timestamp_ms, *rules, FAULTS_NAMED_MAX)
    if found is None:
        raise CorruptBatch(f"they are not {records_count} whole records with the offset deltas 0, 1, 2 and so on")
    latest_ms, faults_count, timestamps_count, rows = found
    faults = [RecordFault(number, FaultKind(kind), timestamp_ms) for number, kind, timestamp_ms in rows]
    return Walked(latest_ms, faults_count, timestamps_count, faults)


def walk_records_in_python(data: Buffer, records_count: int, base_timestamp_ms: int, rules: WalkRules) -> Walked:
    """See `walk_records`.  One to two microseconds a record."""
    area = bytes(data)
    if records_count * _RECORD_BYTES_MIN > len(area):
        raise CorruptBatch(f"{records_count} records cannot be in {len(area)} bytes")
    faults: list[RecordFault] = []
    requires_keys, lowest_ms, highest_ms = rules
    faults_count = timestamps_count = 0
    latest_ms = _NO_TIMESTAMP
    position = 0
    for number in range(records_count):
        length, start = read_varint(area, position)
        position = start + length
        if length < _RECORD_BYTES_MIN - 1 or position > len(area):
            raise CorruptBatch(f"a record of {length} bytes, {len(area) - start} are left")
        timestamp_delta, at = read_varlong(area, start + 1)
        offset_delta, at = read_varint(area, at)
        key_length, at = read_varint(area, at)
        if offset_delta != number or at > position or key_length > position - at:
            raise CorruptBatch(f"record {number} has the offset delta {offset_delta} and a key of {key_length} bytes")
        timestamp_ms = base_timestamp_ms + timestamp_delta
        if not INT64_MIN <= timestamp_ms < INT64_LIMIT:
            raise CorruptBatch(f"record {number} has a timestamp beyond 64 bits")
        latest_ms = max(latest_ms, timestamp_ms)
        # As in Apache Kafka only one fault of a record is reported: the missing key first.
        if requires_keys and key_length < 0:
            kind = FaultKind.NO_KEY
        elif not lowest_ms <= timestamp_ms <= highest_ms and timestamp_ms != _NO_TIMESTAMP:
            kind = FaultKind.TIMESTAMP
            timestamps_count += 1
        else:
            continue
        faults_count += 1
        if faults_count <= FAULTS_NAMED_MAX:
            faults.append(RecordFault(number, kind, timestamp_ms))
    if records_count < 0 or position != len(area):
        raise CorruptBatch(f"{len(area) - position} bytes follow the last record")
    return Walked(latest_ms, faults_count, timestamps_count, faults)
