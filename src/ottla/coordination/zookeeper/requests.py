"""The requests of ZooKeeper's protocol that Ottla sends, in the form in which kazoo sends requests.

kazoo asks a request for `type` and `serialize()`, gives the answer's bytes to `deserialize(buffer, offset)`, and
registers `watcher` under `path` when a read succeeded.  Writes are all a multi (so each has one change id and one way
to fail), bulk reads a multi of reads, which ZooKeeper has since 3.6.  Pure: bytes in, bytes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from ottla.coordination.tree import CheckNode, CreateNode, DeleteNode, Node, Operation, SetNode, Stat

# Codes of org.apache.zookeeper.ZooDefs.OpCode.
CREATE: Final = 1
DELETE: Final = 2
GET_DATA: Final = 4
SET_DATA: Final = 5
CHECK: Final = 13
MULTI: Final = 14
MULTI_READ: Final = 22
ERROR: Final = -1

EPHEMERAL_FLAG: Final = 1
PERMISSIONS_ALL: Final = 31
# Codes of org.apache.zookeeper.KeeperException.Code.
OK: Final = 0
RUNTIME_INCONSISTENCY: Final = -2
NO_NODE: Final = -101

_INT: Final = Struct(">i")
_HEADER: Final = Struct(">i?i")  # of one operation: its type, whether the list ends here, an error code
# czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeralOwner, dataLength, numChildren, pzxid
_STAT: Final = Struct(">qqqqiiiqiiq")
_END: Final = _HEADER.pack(ERROR, True, ERROR)


class AccessList(NamedTuple):
    """One entry of an access list: all rights for `identity` of a scheme."""

    scheme: str
    identity: str

    def serialize(self) -> bytes:
        entry = _INT.pack(PERMISSIONS_ALL) + _text(self.scheme) + _text(self.identity)
        return _INT.pack(1) + entry


OPEN: Final = AccessList("world", "anyone")
# The server replaces it by the users of the session that creates the node.
CREATOR_ONLY: Final = AccessList("auth", "")


class Failure(NamedTuple):
    """The operation of a multi that failed, and its error code; nothing was applied."""

    operation_index: int
    code: int


class MultiWrite:
    """All operations or none.  Its answer: the Stat of each `SetNode`, None for the others, or the `Failure`."""

    type: Final = MULTI

    def __init__(self, operations: Sequence[Operation], chroot: str, access: AccessList) -> None:
        self._operations = operations
        self._chroot = chroot
        self._access = access

    def serialize(self) -> bytes:
        access = self._access.serialize()
        parts: list[bytes] = []
        for operation in self._operations:
            path = _text(full_path(self._chroot, operation.path))
            match operation:
                case CreateNode(_, data, ephemeral):
                    flags = _INT.pack(EPHEMERAL_FLAG if ephemeral else 0)
                    parts += (_HEADER.pack(CREATE, False, ERROR), path, _bytes(data), access, flags)
                case SetNode(_, data, version):
                    parts += (_HEADER.pack(SET_DATA, False, ERROR), path, _bytes(data), _INT.pack(version))
                case DeleteNode(_, version):
                    parts += (_HEADER.pack(DELETE, False, ERROR), path, _INT.pack(version))
                case CheckNode(_, version):
                    parts += (_HEADER.pack(CHECK, False, ERROR), path, _INT.pack(version))
        parts.append(_END)
        return b"".join(parts)

    def deserialize(self, buffer: bytes, offset: int) -> list[Stat | Failure | None]:
        results: list[Stat | Failure | None] = []
        failure: Failure | None = None
        while True:
            kind, is_end, _ = _HEADER.unpack_from(buffer, offset)
            offset += _HEADER.size
            if is_end:
                return [failure] if failure is not None else results
            if kind == CREATE:
                (length,) = _INT.unpack_from(buffer, offset)
                offset += _INT.size + max(length, 0)
                results.append(None)
            elif kind == SET_DATA:
                results.append(_stat(buffer, offset))
                offset += _STAT.size
            elif kind == ERROR:
                # Those before the failed one have OK, those after it RUNTIME_INCONSISTENCY.
                (code,) = _INT.unpack_from(buffer, offset)
                offset += _INT.size
                if failure is None and code not in (OK, RUNTIME_INCONSISTENCY):
                    failure = Failure(len(results), code)
                results.append(None)
            else:
                results.append(None)


class MultiRead:
    """Many nodes' data in one round trip.  Its answer: each node, None for a missing one, an int for another error."""

    type: Final = MULTI_READ

    def __init__(self, paths: Sequence[str], chroot: str) -> None:
        self._paths = paths
        self._chroot = chroot

    def serialize(self) -> bytes:
        header = _HEADER.pack(GET_DATA, False, ERROR)
        parts: list[bytes] = []
        for path in self._paths:
            parts += (header, _text(full_path(self._chroot, path)), b"\0")
        parts.append(_END)
        return b"".join(parts)

    def deserialize(self, buffer: bytes, offset: int) -> list[Node | int | None]:
        results: list[Node | int | None] = []
        while True:
            kind, is_end, _ = _HEADER.unpack_from(buffer, offset)
            offset += _HEADER.size
            if is_end:
                return results
            if kind == GET_DATA:
                node, offset = _node(buffer, offset)
                results.append(node)
            else:
                (code,) = _INT.unpack_from(buffer, offset)
                offset += _INT.size
                results.append(None if code == NO_NODE else code)


def full_path(chroot: str, path: str) -> str:
    """The path on the server."""
    return (chroot or "/") if path == "/" else chroot + path


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _INT.pack(len(encoded)) + encoded


def _bytes(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _node(buffer: bytes, offset: int) -> tuple[Node, int]:
    (length,) = _INT.unpack_from(buffer, offset)
    offset += _INT.size
    end = offset + max(length, 0)  # -1: a node that was created with no data at all
    return Node(bytes(buffer[offset:end]), _stat(buffer, end)), end + _STAT.size


def _stat(buffer: bytes, offset: int) -> Stat:
    czxid, mzxid, ctime_ms, _, version, _, _, owner, _, children_count, _ = _STAT.unpack_from(buffer, offset)
    return Stat(version, czxid, mzxid, owner, ctime_ms, children_count)
