"""Messages of a tree's connection: what is written is read, and anything else is refused."""

from __future__ import annotations

import struct

import pytest

from ottla.coordination.embedded.errors import TreeStoreFull
from ottla.coordination.local.messages import (
    LENGTH_BYTES,
    READ_BYTES_MAX,
    REQUEST_FRAME_BYTES_MAX,
    MalformedMessage,
    Message,
    NotStored,
    decode,
    error_message,
    error_of,
    frame_bytes,
    nodes_message,
    nodes_of,
    operations_message,
    operations_of,
)
from ottla.coordination.tree import (
    REQUEST_BYTES_MAX,
    BadVersion,
    CheckNode,
    CreateNode,
    DeleteNode,
    Node,
    NodeExists,
    NoNode,
    Operation,
    SessionLost,
    SetNode,
    Stat,
    TreeError,
    request_bytes,
)
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError

OPERATIONS: list[Operation] = [
    CreateNode("/a", b"\x00\xff", ephemeral=True),
    SetNode("/b", b"", 7),
    DeleteNode("/c"),
    CheckNode("/d", 0),
    CreateNode("/größe", b"{}"),
]


def received(message: Message) -> Message:
    """As the other end reads it."""
    frame = message.encode()
    assert frame_bytes(frame[:LENGTH_BYTES], REQUEST_FRAME_BYTES_MAX) == len(frame) - LENGTH_BYTES
    return decode(frame[LENGTH_BYTES:])


def test_operations_are_read_as_they_were_written() -> None:
    message = received(operations_message(3, OPERATIONS))
    assert message.fields["id"] == 3
    assert operations_of(message) == OPERATIONS


def test_request_of_the_largest_size_fits_into_a_frame() -> None:
    operations: list[Operation] = [CheckNode("/" + "ä" * 100) for _ in range(1500)]
    while request_bytes(operations) < REQUEST_BYTES_MAX - 1000:
        operations.append(CheckNode("/x"))
    assert operations_of(received(operations_message(1, operations))) == operations


def test_nodes_are_read_as_they_were_written_and_the_missing_ones_marked() -> None:
    nodes = [Node(b"\x00data", Stat(1, 2, 3, 4, 5, 6)), None, Node(b"", Stat(0, 2, 3, 0, 5, 0))]
    assert nodes_of(received(nodes_message(1, nodes))) == nodes


def test_response_ends_with_the_node_that_reaches_the_limit() -> None:
    large = Node(b"x" * (READ_BYTES_MAX // 2), Stat(0, 1, 1, 0, 0, 0))
    assert len(nodes_of(nodes_message(1, [large] * 5))) == 2


@pytest.mark.parametrize(
    "error", [NoNode("/a"), BadVersion("/b", operation_index=4), SessionLost("/"), NodeExists("/c")]
)
def test_error_of_the_tree_is_read_as_the_same(error: TreeError) -> None:
    found = error_of(received(error_message(1, "/called", error)))
    assert type(found) is type(error)
    assert (found.path, found.operation_index) == (error.path, error.operation_index)


def test_other_error_names_the_call_and_what_the_holder_says() -> None:
    found = error_of(received(error_message(1, "/called", OttlaError("the disk is full"))))
    assert type(found) is TreeError
    assert found.path == "/called"
    assert "the disk is full" in str(found.hint)


def test_full_disk_of_the_holder_is_an_error_of_storage() -> None:
    found = error_of(received(error_message(1, "/called", TreeStoreFull("/t/tree.sqlite", "has no room"))))
    assert type(found) is NotStored
    assert found.error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert found.hint


@pytest.mark.parametrize("size", [0, 3, REQUEST_FRAME_BYTES_MAX + 1, 2**32 - 1])
def test_length_that_no_message_has_is_refused_before_it_is_read(size: int) -> None:
    with pytest.raises(MalformedMessage):
        frame_bytes(struct.pack(">I", size), REQUEST_FRAME_BYTES_MAX)


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">I", 2) + b"{]",
        struct.pack(">I", 2) + b"[]",
        struct.pack(">I", 2) + b"\xff\xfe",
        struct.pack(">I", 2) + b"{}rest",
        struct.pack(">I", 100) + b"{}",
        struct.pack(">I", 13) + b'{"sizes":[9]}' + b"short",
        struct.pack(">I", 15) + b'{"sizes":["9"]}',
        struct.pack(">I", 11) + b'{"sizes":1}',
    ],
)
def test_damaged_frame_is_refused(frame: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(frame)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"operations": 7},
        {"operations": [["create", "/a", False]]},
        {"operations": [["move", "/a", 0]]},
        {"operations": [["delete", 5, 0]]},
        {"operations": [["delete", "/a", "0"]]},
        {"operations": [["delete", "/a"]]},
    ],
)
def test_request_without_its_parts_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(MalformedMessage):
        operations_of(Message(fields))
