from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.groups.group_types import (
    CommittedOffset,
    GroupMetadata,
    GroupOffsets,
    decode_assignment,
    group_offsets_of,
)
from ottla.model.errors import ConfigError, WireError
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


OF_A_STREAM = GroupOffsets(GroupMetadata("g", 3, "member"), {TopicPartition("t", 0): CommittedOffset(5)})


def test_offsets_by_name_are_of_no_member() -> None:
    assert group_offsets_of({("t", 0): 5}, "g") == GroupOffsets(
        GroupMetadata("g"), {TopicPartition("t", 0): CommittedOffset(5)}
    )


def test_offsets_of_a_stream_have_their_group() -> None:
    assert group_offsets_of(OF_A_STREAM, None) is OF_A_STREAM
    with pytest.raises(ConfigError, match="of group g"):
        group_offsets_of(OF_A_STREAM, "g")


@pytest.mark.parametrize("group", [None, ""])
def test_offsets_by_name_need_a_group(group: str | None) -> None:
    with pytest.raises(ConfigError, match="which group"):
        group_offsets_of({("t", 0): 5}, group)
