"""The messages between a `TreeServer` and the sessions of other processes.  Pure: no socket, clock or loop.

A message is a JSON object with bytes behind it: node data are not text, and stay as they are.

    length of all that follows  uint32
    length of the object        uint32
    object                      UTF-8
    data of nodes               one after the other; the object has their lengths

Both ends are of one machine and one user; a message that neither of them writes is a fault of one, and ends the
connection.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from ottla.coordination.tree import (
    REQUEST_BYTES_MAX,
    AccessDenied,
    BadVersion,
    CheckNode,
    CreateNode,
    DeleteNode,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NodeTooLarge,
    NoNode,
    NotEmpty,
    Operation,
    RequestTooLarge,
    SessionLost,
    SetNode,
    Stat,
    TreeError,
)
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError

VERSION: Final = 1
_LENGTHS: Final = struct.Struct(">II")
LENGTH_BYTES: Final = 4
# `tree.OPERATION_BYTES` is more than the JSON of an operation takes; the factor is for characters that JSON escapes.
REQUEST_FRAME_BYTES_MAX: Final = 2 * REQUEST_BYTES_MAX
# The names of a node's children are in one message: a million of 60 characters.
RESPONSE_FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
# A response of `get_many` ends with the node that reaches this; the caller reads the others in its next request.
READ_BYTES_MAX: Final = REQUEST_BYTES_MAX

_KINDS: Final[dict[str, type[TreeError]]] = {
    kind.__name__: kind
    for kind in (
        AccessDenied,
        BadVersion,
        NoChildrenForEphemerals,
        NodeExists,
        NodeTooLarge,
        NoNode,
        NotEmpty,
        RequestTooLarge,
        SessionLost,
    )
}


class MalformedMessage(OttlaError):
    """The other end does not write such messages: another version of ottla, or another program, is there."""

    hint = "all processes of one `ottla serve` or `ottla cluster up` are of one installation: stop them and start again"


class NotStored(TreeError):
    """The disk of the tree's holder has no room: the change was not made, and can be tried again."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR
    about = "was not changed: the disk of the tree has no room"


# Of the embedded tree, which this module does not import.
_FULL: Final = "TreeStoreFull"


class Message(NamedTuple):
    """An object, and the node data behind it, in its order."""

    fields: dict[str, Any]
    blobs: tuple[bytes, ...] = ()

    def encode(self) -> bytes:
        """The whole frame."""
        fields = {**self.fields, "sizes": [len(blob) for blob in self.blobs]} if self.blobs else self.fields
        text = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
        size = _LENGTHS.size - LENGTH_BYTES + len(text) + sum(map(len, self.blobs))
        return b"".join((_LENGTHS.pack(size, len(text)), text, *self.blobs))


def frame_bytes(prefix: bytes, bytes_max: int) -> int:
    """How many bytes follow the `LENGTH_BYTES` of a prefix.  Raises `MalformedMessage`."""
    size = int.from_bytes(prefix, "big")
    if not LENGTH_BYTES <= size <= bytes_max:
        raise MalformedMessage(f"a message of a tree's connection has {size} bytes, where {bytes_max} are the most")
    return size


def decode(frame: bytes) -> Message:
    """The message whose frame continues with these bytes after its prefix.  Raises `MalformedMessage`."""
    text_bytes = int.from_bytes(frame[:LENGTH_BYTES], "big")
    end = LENGTH_BYTES + text_bytes
    try:
        fields = json.loads(frame[LENGTH_BYTES:end])
        sizes = fields.pop("sizes", [])
        blobs = []
        for size in sizes:
            blobs.append(frame[end : end + size])
            end += size
    except (ValueError, AttributeError, TypeError) as error:
        raise MalformedMessage(f"a message of a tree's connection is not readable: {error}") from error
    if end != len(frame):
        raise MalformedMessage(f"a message of a tree's connection has {len(frame)} bytes and says {end}")
    return Message(fields, tuple(blobs))


class FrameReader:
    """The messages of one end of a connection, from its bytes as they come."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._received = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete with `data`.  Raises `MalformedMessage`."""
        self._received += data
        while len(self._received) >= LENGTH_BYTES:
            end = LENGTH_BYTES + frame_bytes(bytes(self._received[:LENGTH_BYTES]), self._bytes_max)
            if len(self._received) < end:
                return
            frame = bytes(self._received[LENGTH_BYTES:end])
            del self._received[:end]
            yield decode(frame)


def understood(read: Callable[[], Any]) -> Any:
    """What `read` makes of a message.  Raises `MalformedMessage` for what it lacks."""
    try:
        return read()
    except (KeyError, IndexError, TypeError, ValueError, StopIteration) as error:
        raise MalformedMessage(f"a message of a tree's connection lacks something: {error!r}") from error


def operations_message(call_id: int, operations: Sequence[Operation]) -> Message:
    """The request for a `multi`."""
    rows: list[list[Any]] = []
    blobs: list[bytes] = []
    for operation in operations:
        match operation:
            case CreateNode(path, data, ephemeral):
                rows.append(["create", path, ephemeral])
                blobs.append(data)
            case SetNode(path, data, version):
                rows.append(["set", path, version])
                blobs.append(data)
            case DeleteNode(path, version):
                rows.append(["delete", path, version])
            case CheckNode(path, version):
                rows.append(["check", path, version])
    return Message({"id": call_id, "call": "multi", "operations": rows}, tuple(blobs))


def operations_of(message: Message) -> list[Operation]:
    """Of a request for a `multi`.  Raises `MalformedMessage`."""
    return list(understood(lambda: _operations(message)))


def _operations(message: Message) -> list[Operation]:
    blobs = iter(message.blobs)
    operations: list[Operation] = []
    for kind, path, argument in message.fields["operations"]:
        if not isinstance(path, str) or not isinstance(argument, int):
            raise TypeError([kind, path, argument])
        match kind:
            case "create":
                operations.append(CreateNode(path, next(blobs), bool(argument)))
            case "set":
                operations.append(SetNode(path, next(blobs), argument))
            case "delete":
                operations.append(DeleteNode(path, argument))
            case "check":
                operations.append(CheckNode(path, argument))
            case _:
                raise ValueError(kind)
    return operations


def stats_of(rows: Sequence[Sequence[int] | None]) -> list[Stat | None]:
    return [None if row is None else Stat(*row) for row in rows]


def nodes_message(call_id: int, nodes: Sequence[Node | None]) -> Message:
    """The response with as many of `nodes` as `READ_BYTES_MAX` admits, at least one of them."""
    rows: list[Stat | None] = []
    blobs: list[bytes] = []
    total = 0
    for node in nodes:
        rows.append(None if node is None else node.stat)
        if node is not None:
            blobs.append(node.data)
            total += len(node.data)
        if total >= READ_BYTES_MAX:
            break
    return Message({"id": call_id, "nodes": rows}, tuple(blobs))


def nodes_of(message: Message) -> list[Node | None]:
    """Of a response.  Raises `MalformedMessage`."""
    blobs = iter(message.blobs)
    return list(
        understood(lambda: [None if row is None else Node(next(blobs), Stat(*row)) for row in message.fields["nodes"]])
    )


def error_message(call_id: int, path: str, error: OttlaError) -> Message:
    """The response of a call that failed.  `path`: of the call, for an error that is not of one node."""
    index = None
    if isinstance(error, TreeError):
        path, index = error.path, error.operation_index
    fields = {
        "id": call_id,
        "error": type(error).__name__,
        "path": path,
        "index": index,
        "text": str(error),
        "hint": error.hint,
    }
    return Message(fields)


def error_of(message: Message) -> TreeError:
    """Of a response that has an `error`.  Raises `MalformedMessage`."""
    names = ("error", "path", "index", "text", "hint")
    kind, path, index, text, hint = understood(lambda: [message.fields[name] for name in names])
    if isinstance(kind, str) and kind in _KINDS:
        return _KINDS[kind](path, operation_index=index)
    if kind == _FULL:
        return NotStored(path, hint=hint)
    return TreeError(path, operation_index=index, hint=f"the process that holds the tree says: {text}")
