"""The requests of a classic group member, in versions without tagged fields, as bodies and as what they answer."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.wire import Reader, text_field

FETCH: Final = (1, 11)
OFFSET_COMMIT: Final = (8, 6)
OFFSET_FETCH: Final = (9, 5)
FIND_COORDINATOR: Final = (10, 1)
JOIN_GROUP: Final = (11, 5)
HEARTBEAT: Final = (12, 3)
LEAVE_GROUP: Final = (13, 3)
SYNC_GROUP: Final = (14, 3)

NONE: Final = 0
COORDINATOR_LOAD_IN_PROGRESS: Final = 14
COORDINATOR_NOT_AVAILABLE: Final = 15
NOT_COORDINATOR: Final = 16
ILLEGAL_GENERATION: Final = 22
UNKNOWN_MEMBER_ID: Final = 25
REBALANCE_IN_PROGRESS: Final = 27
MEMBER_ID_REQUIRED: Final = 79

LOADING: Final = (COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR)

NO_INSTANCE: Final = text_field(None)
PARTITION_BYTES_MAX: Final = 1 << 16
# Of a record batch: base offset and length, where the last offset's delta is, and its header.
BATCH_PREFIX_BYTES: Final = 12
LAST_OFFSET_DELTA_AT: Final = 23
BATCH_HEAD_BYTES: Final = 61


def bytes_field(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def find_coordinator(group: str) -> bytes:
    return text_field(group) + b"\x00"


def subscription(topic: str) -> bytes:
    """The consumer protocol's subscription v0."""
    return struct.pack(">hi", 0, 1) + text_field(topic) + struct.pack(">i", -1)


def assignment(topic: str, partitions: Sequence[int]) -> bytes:
    """The consumer protocol's assignment v0."""
    numbers = struct.pack(f">{len(partitions)}i", *partitions)
    return struct.pack(">hi", 0, 1) + text_field(topic) + struct.pack(">i", len(partitions)) + numbers + b"\xff" * 4


def read_assignment(data: bytes) -> list[int]:
    """The partitions of the one topic that this benchmark subscribes to; none in an empty assignment."""
    if not data:
        return []
    reader = Reader(data)
    reader.integer("h")
    if reader.integer("i") == 0:
        return []
    reader.text()
    return reader.integers("i")


@dataclass(frozen=True, slots=True)
class Joined:
    error_code: int
    generation: int
    leader: str
    member_id: str
    members: list[str]
    """Only the leader receives it."""


def join_group(group: str, member_id: str, topic: str, session_ms: int, rebalance_ms: int) -> bytes:
    head = text_field(group) + struct.pack(">ii", session_ms, rebalance_ms) + text_field(member_id) + NO_INSTANCE
    protocols = struct.pack(">i", 1) + text_field("range") + bytes_field(subscription(topic))
    return head + text_field("consumer") + protocols


def read_join_group(answer: Reader) -> Joined:
    answer.integer("i")  # throttle time
    error_code, generation = answer.integer("h"), answer.integer("i")
    answer.text()  # the protocol: there is one
    leader, member_id = answer.text() or "", answer.text() or ""
    members = []
    for _ in range(answer.integer("i")):
        members.append(answer.text() or "")
        answer.text()
        answer.take(answer.integer("i"))
    return Joined(error_code, generation, leader, member_id, members)


def sync_group(group: str, generation: int, member_id: str, assignments: Mapping[str, bytes]) -> bytes:
    head = text_field(group) + struct.pack(">i", generation) + text_field(member_id) + NO_INSTANCE
    parts = [text_field(member) + bytes_field(data) for member, data in assignments.items()]
    return head + struct.pack(">i", len(parts)) + b"".join(parts)


def read_sync_group(answer: Reader) -> tuple[int, list[int]]:
    """The error code and the assigned partitions."""
    answer.integer("i")
    error_code = answer.integer("h")
    return error_code, read_assignment(answer.take(max(0, answer.integer("i"))))


def heartbeat(group: str, generation: int, member_id: str) -> bytes:
    return text_field(group) + struct.pack(">i", generation) + text_field(member_id) + NO_INSTANCE


def leave_group(group: str, member_id: str) -> bytes:
    return text_field(group) + struct.pack(">i", 1) + text_field(member_id) + NO_INSTANCE


def read_error(answer: Reader) -> int:
    """Of answers that begin with a throttle time and an error code."""
    answer.integer("i")
    return answer.integer("h")


def offset_fetch(group: str, topic: str, partitions: Sequence[int]) -> bytes:
    numbers = struct.pack(f">{len(partitions)}i", *partitions)
    return text_field(group) + struct.pack(">i", 1) + text_field(topic) + struct.pack(">i", len(partitions)) + numbers


def read_offset_fetch(answer: Reader) -> tuple[int, dict[int, int]]:
    """The error code, and partition -> committed offset (-1: none)."""
    answer.integer("i")
    offsets: dict[int, int] = {}
    worst = NONE
    for _ in range(answer.integer("i")):
        answer.text()
        for _ in range(answer.integer("i")):
            index, offset = answer.integer("i"), answer.integer("q")
            answer.integer("i"), answer.text()
            worst = worst or answer.integer("h")
            offsets[index] = offset
    return answer.integer("h") or worst, offsets


def offset_commit(group: str, generation: int, member_id: str, topic: str, offsets: Mapping[int, int]) -> bytes:
    head = text_field(group) + struct.pack(">i", generation) + text_field(member_id)
    parts = b"".join(struct.pack(">iqi", index, offset, -1) + text_field("") for index, offset in offsets.items())
    return head + struct.pack(">i", 1) + text_field(topic) + struct.pack(">i", len(offsets)) + parts


def read_offset_commit(answer: Reader) -> int:
    """The first error code of a partition, 0 if all were committed."""
    answer.integer("i")
    worst = NONE
    for _ in range(answer.integer("i")):
        answer.text()
        for _ in range(answer.integer("i")):
            answer.integer("i")
            worst = worst or answer.integer("h")
    return worst


def fetch(topic: str, partition: int, offset: int, wait_ms: int = 0) -> bytes:
    """What is there now, or the first that comes within `wait_ms`; no fetch session."""
    head = struct.pack(">iiiibii", -1, wait_ms, min(wait_ms, 1), PARTITION_BYTES_MAX, 0, 0, -1)
    asked = struct.pack(">iiqqi", partition, -1, offset, -1, PARTITION_BYTES_MAX)
    return head + struct.pack(">i", 1) + text_field(topic) + struct.pack(">i", 1) + asked + b"\x00" * 4 + b"\x00" * 2


def read_fetched(answer: Reader, offset: int) -> tuple[int, int]:
    """The error code, and the offset after the last whole batch, `offset` where there is none."""
    error_code = read_error(answer)
    answer.integer("i")  # fetch session
    for _ in range(min(1, answer.integer("i"))):
        answer.text()
        answer.integer("i"), answer.integer("i")
        error_code = error_code or answer.integer("h")
        answer.take(3 * 8)  # high watermark, last stable offset, log start offset
        answer.take(max(0, answer.integer("i")) * 16)  # aborted transactions
        answer.integer("i")  # preferred read replica
        offset = _end_of_batches(answer.take(max(0, answer.integer("i"))), offset)
    return error_code, offset


def _end_of_batches(records: bytes, offset: int) -> int:
    position = 0
    while position + BATCH_HEAD_BYTES <= len(records):
        base_offset, length = struct.unpack_from(">qi", records, position)
        (last_offset_delta,) = struct.unpack_from(">i", records, position + LAST_OFFSET_DELTA_AT)
        position += BATCH_PREFIX_BYTES + int(length)
        if position <= len(records):
            offset = int(base_offset) + int(last_offset_delta) + 1
    return offset


def read_fetch(answer: Reader) -> int:
    """The error code, of the answer or of its partition."""
    error_code = read_error(answer)
    answer.integer("i")  # fetch session
    for _ in range(min(1, answer.integer("i"))):
        answer.text()
        answer.integer("i"), answer.integer("i")
        error_code = error_code or answer.integer("h")
    return error_code
