"""Committed offsets as records: Kafka's OffsetCommitKey v0 and v1, OffsetCommitValue v0 to v4.

    key    int16 version 1 | string group | string topic | int32 partition
    value  int16 version 3 | int64 offset | int32 leader epoch | string metadata | int64 commit time

Strings have an int16 length.  Version 1 of the value has no leader epoch, and the time of expiry at its end: Kafka
still writes it for commits that say how long to keep them, and so do we.  A shard keeps values as the logged bytes, in
one of these two versions, checked once; a value is decoded when it is fetched.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ottla.groups.commands import OffsetToCommit
from ottla.groups.group_log import GroupRecordError
from ottla.model.errors import WireError
from ottla.model.identifiers import NO_LEADER_EPOCH
from ottla.protocol.primitives import read_compact_length, skip_tagged_fields, take_text

OFFSET_KEY_VERSION: Final = 1
_LENGTH: Final = struct.Struct(">H")
_PARTITION: Final = struct.Struct(">i")
# Version, offset, leader epoch, length of the metadata; and the fields after the metadata.
_HEAD_V3: Final = struct.Struct(">hqih")
_HEAD_V1: Final = struct.Struct(">hqh")
# A whole v3 value without metadata, as nearly all are.
_PLAIN_V3: Final = struct.Struct(">hqihq")
_TIME: Final = struct.Struct(">q")
_TIMES_V1: Final = struct.Struct(">qq")
_SIZE_V3: Final = _HEAD_V3.size + _TIME.size
_SIZE_V1: Final = _HEAD_V1.size + _TIMES_V1.size
_METADATA_LENGTH_V3: Final = slice(_HEAD_V3.size - 2, _HEAD_V3.size)
_INT64_MAX: Final = 2**63 - 1
# The format's own limit; a setting may be lower.
METADATA_BYTES_MAX: Final = 2**15 - 1
_SHORTEST_KEY_BYTES: Final = 2 + 2 + 2 + 4


class OffsetKey(NamedTuple):
    group_id: bytes
    topic: bytes
    partition: int


class OffsetValue(NamedTuple):
    """`expires_ms` is None where the broker's own retention applies."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int | None


def offset_key_prefix(group_id: str, topic: str) -> bytes:
    """The key of any partition of `topic`, without the partition at its end."""
    group_bytes, topic_bytes = group_id.encode(), topic.encode()
    return b"\x00\x01%b%b%b%b" % (
        _LENGTH.pack(len(group_bytes)),
        group_bytes,
        _LENGTH.pack(len(topic_bytes)),
        topic_bytes,
    )


def offset_key(prefix: bytes, partition: int) -> bytes:
    return prefix + _PARTITION.pack(partition)


def partition_of(key: bytes) -> int:
    """The partition at the end of a key."""
    partition: int = _PARTITION.unpack_from(key, -4)[0]
    if partition < 0:
        raise _damaged("key", f"has the partition {partition}")
    return partition


def parse_offset_key(key: bytes) -> OffsetKey:
    """A key whose version is 0 or 1 (they have the same fields)."""
    size_bytes = len(key)
    if size_bytes < _SHORTEST_KEY_BYTES:
        raise _damaged("key", f"has {size_bytes} bytes")
    topic_length_at = 4 + ((key[2] << 8) | key[3])
    if topic_length_at + 6 > size_bytes:
        raise _damaged("key", "ends inside its group")
    topic_at = topic_length_at + 2
    partition_at = topic_at + ((key[topic_length_at] << 8) | key[topic_length_at + 1])
    if partition_at + 4 != size_bytes:
        raise _damaged("key", f"should have {partition_at + 4} bytes and has {size_bytes}")
    return OffsetKey(key[4:topic_length_at], key[topic_at:partition_at], partition_of(key))


def offset_value(commit: OffsetToCommit, now_ms: int, retention_ms: int | None) -> bytes:
    if retention_ms is None and not commit.metadata:
        return _PLAIN_V3.pack(3, commit.offset, commit.leader_epoch, 0, now_ms)
    metadata = commit.metadata.encode()
    if retention_ms is None:
        head = _HEAD_V3.pack(3, commit.offset, commit.leader_epoch, len(metadata))
        return head + metadata + _TIME.pack(now_ms)
    head = _HEAD_V1.pack(1, commit.offset, len(metadata))
    return head + metadata + _TIMES_V1.pack(now_ms, min(now_ms + retention_ms, _INT64_MAX))


def checked_offset_value(value: bytes) -> bytes:
    """`value` when it is a sound v3 or v1; other versions are rewritten as v3."""
    if len(value) == _SIZE_V3 and value[:2] == b"\x00\x03" and value[_METADATA_LENGTH_V3] == b"\x00\x00":
        return value
    found = decode_offset_value(value)
    if value[1] in (1, 3):
        return value
    commit = OffsetToCommit("", 0, found.offset, found.leader_epoch, found.metadata)
    return offset_value(commit, found.committed_ms, None)


def decode_offset_value(value: bytes) -> OffsetValue:
    """Any known version; `GroupRecordError` for bytes that are none."""
    version = _LENGTH.unpack_from(value)[0] if len(value) >= 2 else -1
    try:
        if version == 3:
            return _decode_v3(value)
        if version == 1:
            return _decode_v1(value)
        if version in (0, 2):
            return _decode_v0(value)
        if version == 4:
            return _decode_v4(value)
    except struct.error:
        raise _damaged("value", f"v{version} ends early, after {len(value)} bytes") from None
    except WireError as error:
        raise _damaged("value", str(error)) from None
    raise _damaged("value", f"has the unknown version {version}")


def committed_ms(value: bytes) -> int:
    """When a checked value was committed, without decoding the rest."""
    at = len(value) - (_TIME.size if value[1] == 3 else _TIMES_V1.size)
    found: int = _TIME.unpack_from(value, at)[0]
    return found


def expires_ms(value: bytes) -> int | None:
    """The expiry that a checked value carries; None when the broker's retention applies."""
    if value[1] == 3:
        return None
    found: int = _TIME.unpack_from(value, len(value) - _TIME.size)[0]
    return found if found >= 0 else None


def _decode_v3(value: bytes) -> OffsetValue:
    _, offset, leader_epoch, metadata_bytes = _HEAD_V3.unpack_from(value)
    metadata = _metadata(value, _HEAD_V3.size, metadata_bytes, _SIZE_V3)
    return OffsetValue(
        offset, leader_epoch, metadata, _TIME.unpack_from(value, _HEAD_V3.size + metadata_bytes)[0], None
    )


def _decode_v1(value: bytes) -> OffsetValue:
    _, offset, metadata_bytes = _HEAD_V1.unpack_from(value)
    metadata = _metadata(value, _HEAD_V1.size, metadata_bytes, _SIZE_V1)
    at_ms, expire_ms = _TIMES_V1.unpack_from(value, _HEAD_V1.size + metadata_bytes)
    return OffsetValue(offset, NO_LEADER_EPOCH, metadata, at_ms, expire_ms if expire_ms >= 0 else None)


def _decode_v0(value: bytes) -> OffsetValue:
    _, offset, metadata_bytes = _HEAD_V1.unpack_from(value)
    metadata = _metadata(value, _HEAD_V1.size, metadata_bytes, _HEAD_V1.size + _TIME.size)
    at_ms = _TIME.unpack_from(value, _HEAD_V1.size + metadata_bytes)[0]
    return OffsetValue(offset, NO_LEADER_EPOCH, metadata, at_ms, None)


def _decode_v4(value: bytes) -> OffsetValue:
    """The flexible version, which a later broker may have written; its tagged fields are skipped."""
    data = memoryview(value)
    _, offset, leader_epoch = struct.unpack_from(">hqi", value)
    length, position = read_compact_length(data, 14)
    metadata = take_text(data, position, length)
    at_ms = _TIME.unpack_from(value, position + length)[0]
    if skip_tagged_fields(data, position + length + _TIME.size) != len(value):
        raise WireError("v4 has bytes after its end")
    return OffsetValue(offset, leader_epoch, metadata, at_ms, None)


def _metadata(value: bytes, at: int, metadata_bytes: int, fixed_bytes: int) -> str:
    if metadata_bytes < 0 or len(value) != fixed_bytes + metadata_bytes:
        raise WireError(f"its metadata of {metadata_bytes} bytes does not fit its {len(value)} bytes")
    return take_text(memoryview(value), at, metadata_bytes)


def _damaged(what: str, problem: str) -> GroupRecordError:
    return GroupRecordError(f"the {what} of a committed offset {problem}")
