"""ConsumerGroupHeartbeat v1 (API key 68, KIP-848): the one request of a member of the new protocol."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.wire import Reader

CONSUMER_GROUP_HEARTBEAT: Final = (68, 1)

FENCED_MEMBER_EPOCH: Final = 110
LEAVING: Final = -1

NULL: Final = b"\x00"
NO_TAGS: Final = b"\x00"


def varint(value: int) -> bytes:
    """An unsigned variable-length integer, seven bits a byte, the lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def compact_text(text: str) -> bytes:
    encoded = text.encode()
    return varint(len(encoded) + 1) + encoded


def read_varint(reader: Reader) -> int:
    value = shift = 0
    while True:
        byte = reader.integer("b") & 0xFF
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7


@dataclass(frozen=True, slots=True)
class Owned:
    topic_id: bytes
    partitions: Sequence[int]


def heartbeat(
    group: str,
    member_id: str,
    epoch: int,
    topic: str | None = None,
    rebalance_ms: int = -1,
    owned: Sequence[Owned] | None = None,
) -> bytes:
    """None and -1: as it was said before."""
    body = compact_text(group) + compact_text(member_id) + struct.pack(">i", epoch) + NULL + NULL
    body += struct.pack(">i", rebalance_ms)
    body += NULL if topic is None else varint(2) + compact_text(topic)
    body += NULL + NULL  # no regular expression, the group's own assignor
    if owned is None:
        return body + NULL + NO_TAGS
    parts = [
        each.topic_id
        + varint(len(each.partitions) + 1)
        + struct.pack(f">{len(each.partitions)}i", *each.partitions)
        + NO_TAGS
        for each in owned
    ]
    return body + varint(len(parts) + 1) + b"".join(parts) + NO_TAGS


@dataclass(frozen=True, slots=True)
class Answer:
    error_code: int
    message: str
    epoch: int
    interval_s: float
    assignment: Owned | None
    """None: it is unchanged.  The benchmark subscribes to one topic; without partitions its id is not known."""


def read_heartbeat(answer: Reader) -> Answer:
    answer.integer("i")  # throttle time
    error_code = answer.integer("h")
    message = answer.take(max(0, read_varint(answer) - 1)).decode()
    answer.take(max(0, read_varint(answer) - 1))  # the member's id, which it chose itself
    epoch, interval_ms = answer.integer("i"), answer.integer("i")
    assignment = None
    if answer.integer("b") >= 0:
        assignment = Owned(b"", ())
        for _ in range(read_varint(answer) - 1):
            topic_id = answer.take(16)
            assignment = Owned(topic_id, [answer.integer("i") for _ in range(read_varint(answer) - 1)])
            read_varint(answer)  # no tagged fields
    return Answer(error_code, message, epoch, interval_ms / 1000, assignment)
