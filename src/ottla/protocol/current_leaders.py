"""Who leads the partitions that a response refuses, so that its reader need not ask for metadata first (KIP-951).

Produce has them from version 10 on, Fetch from 16 on: each refused partition its leader in a tagged field, the response
the leaders' addresses in another.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ottla.protocol.primitives import uvarint_bytes, write_uvarint

NodeEndpoint = tuple[int, str, int, str | None]
"""Node id, host, port, rack."""


class CurrentLeaders(NamedTuple):
    """`by_partition`: (leader id, leader epoch) by the topic as the request names it, and partition index."""

    by_partition: Mapping[tuple[bytes, int], tuple[int, int]]
    endpoints: Sequence[NodeEndpoint]


# Tag, 9 bytes: leader id, leader epoch, no tagged fields.
_LEADER: Final = struct.Struct(">BBiiB")
_ENDPOINTS_TAG: Final = 0
_NODE: Final = struct.Struct(">i")


def leader_field(tag: int, leader: tuple[int, int]) -> bytes:
    """A partition's tagged field."""
    return _LEADER.pack(tag, 9, *leader, 0)


def endpoints_section(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The response's section of tagged fields, in which the addresses are the only one."""
    if not endpoints:
        return b"\x00"
    value = bytearray(uvarint_bytes(len(endpoints) + 1))
    for node_id, host, port, rack in endpoints:
        value += _NODE.pack(node_id)
        _append_text(value, host)
        value += _NODE.pack(port)
        if rack is None:
            value.append(0)
        else:
            _append_text(value, rack)
        value.append(0)  # no tagged fields
    out = bytearray((1, _ENDPOINTS_TAG))
    write_uvarint(out, len(value))
    return bytes(out + value)


def _append_text(out: bytearray, text: str) -> None:
    encoded = text.encode()
    write_uvarint(out, len(encoded) + 1)
    out += encoded
