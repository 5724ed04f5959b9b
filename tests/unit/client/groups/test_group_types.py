from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.groups.group_types import decode_assignment
from ottla.model.errors import WireError
from ottla.model.identifiers import TopicPartition


def assignment(topics: dict[str, list[int]], version: int = 3, user_data: bytes = b"") -> bytes:
    data = struct.pack(">hi", version, len(topics))
    for name, partitions in topics.items():
        data += (
            struct.pack(">h", len(name))
            + name.encode()
            + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
        )
    return data + struct.pack(">i", len(user_data)) + user_data


def test_assignment_is_read_whatever_follows_it() -> None:
    data = assignment({"orders": [2, 0], "clicks": []}, user_data=b"more")
    assert decode_assignment(data) == (TopicPartition("orders", 0), TopicPartition("orders", 2))
    assert decode_assignment(b"") == ()
    assert decode_assignment(assignment({})) == ()


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",
        struct.pack(">hi", 0, 2**31 - 1),
        struct.pack(">hi", 0, -1),
        struct.pack(">hih", 0, 1, 99) + b"x",
        struct.pack(">hih", 0, 1, 1) + b"\xff" + struct.pack(">i", 0),
        struct.pack(">hih", 0, 1, 1) + b"x" + struct.pack(">i", 1 << 30),
        struct.pack(">hih", 0, 1, 1) + b"x" + struct.pack(">ii", -1, 0),
    ],
)
def test_assignment_with_false_claims_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_assignment(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_assignment_or_refused(data: bytes) -> None:
    try:
        found = decode_assignment(data)
    except WireError:
        return
    assert len(found) * 4 <= len(data)
