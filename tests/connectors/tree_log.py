"""All changes that were ever made in a ZooKeeper, in order: its transaction log.

It is read after the server has stopped.  A watch may come late and once for many changes, and a read sees one moment.
The log has each change, with the session that made it, and the ends of sessions with the deleted ephemeral nodes.

The format is ZooKeeper's: a header, then for each transaction a checksum, its length, its bytes in Jute, and `B`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

_MAGIC: Final = b"ZKLG"
_HEADER_BYTES: Final = 16
_END_OF_RECORD: Final = b"B"

_CREATE: Final = 1
_DELETE: Final = 2
_SET_DATA: Final = 5
_CHECK: Final = 13
_MULTI: Final = 14
_CREATE_2: Final = 15
_ERROR: Final = -1
_CREATE_SESSION: Final = -10
_CLOSE_SESSION: Final = -11
# Operations that change nodes in ways that are not parsed here; no client uses them in these runs.
_OTHERS: Final = {7: "setACL", 16: "reconfig", 19: "createContainer", 20: "deleteContainer", 21: "createTTL"}


class Kind(Enum):
    CREATED = "created"
    WRITTEN = "written"
    DELETED = "deleted"


class Change(NamedTuple):
    """One node was changed; changes with one `zxid` happened together.

    `at_ms` is the server's wall clock when it accepted the change: after the request, and before any client could see
    it.  `session_ended`: the node was ephemeral, and was deleted because its session ended.
    """

    zxid: int
    at_ms: int
    session_id: int
    kind: Kind
    path: str
    data: bytes
    session_ended: bool = False


class TreeLogDamaged(Exception):
    """The file is not a ZooKeeper log, or has operations that are not parsed here."""


def read_tree_log(data_dir: Path) -> Iterator[Change]:
    """All changes, in their order; `data_dir` is the server's `dataDir`."""
    ephemerals: dict[int, set[str]] = {}
    for path in sorted((data_dir / "version-2").glob("log.*"), key=lambda path: int(path.suffix[1:], 16)):
        for transaction in _transactions(path):
            yield from _changes(transaction, ephemerals)


class _Transaction(NamedTuple):
    zxid: int
    at_ms: int
    session_id: int
    kind: int
    body: bytes


def _transactions(path: Path) -> Iterator[_Transaction]:
    data = path.read_bytes()
    if data[:4] != _MAGIC:
        raise TreeLogDamaged(f"{path} is not a log of transactions")
    position = _HEADER_BYTES
    # The file is allocated ahead: a length of 0 is its end, and so is a record that a kill has truncated.
    while position + 12 <= len(data):
        checksum, length = struct.unpack_from(">qi", data, position)
        record = data[position + 12 : position + 12 + length]
        if length <= 0 or data[position + 12 + length : position + 13 + length] != _END_OF_RECORD:
            return
        if checksum != zlib.adler32(record):
            raise TreeLogDamaged(f"{path}: another checksum at byte {position}")
        session_id, _, zxid, at_ms, kind = struct.unpack_from(">qiqqi", record)
        yield _Transaction(zxid, at_ms, session_id, kind, record[32:])
        position += 13 + length


def _changes(transaction: _Transaction, ephemerals: dict[int, set[str]]) -> Iterator[Change]:
    zxid, at_ms, session_id, kind, body = transaction
    if kind == _CLOSE_SESSION:
        for path in sorted(ephemerals.pop(session_id, ())):
            yield Change(zxid, at_ms, session_id, Kind.DELETED, path, b"", session_ended=True)
        return
    if kind == _MULTI:
        parts = _parts(body)
        # A multi that was refused is logged as the errors of its parts.
        if any(part_kind == _ERROR for part_kind, _ in parts):
            return
    else:
        parts = [(kind, body)]
    for part_kind, part in parts:
        reader = _Jute(part)
        if part_kind in (_CREATE, _CREATE_2):
            path, data = reader.text(), reader.data()
            reader.skip_acl()
            if reader.byte():
                ephemerals.setdefault(session_id, set()).add(path)
            yield Change(zxid, at_ms, session_id, Kind.CREATED, path, data)
        elif part_kind == _DELETE:
            path = reader.text()
            for paths in ephemerals.values():
                paths.discard(path)
            yield Change(zxid, at_ms, session_id, Kind.DELETED, path, b"")
        elif part_kind == _SET_DATA:
            yield Change(zxid, at_ms, session_id, Kind.WRITTEN, reader.text(), reader.data())
        elif part_kind not in (_CHECK, _ERROR, _CREATE_SESSION):
            raise TreeLogDamaged(f"a transaction that is not read here: {_OTHERS.get(part_kind, part_kind)}")


def _parts(body: bytes) -> list[tuple[int, bytes]]:
    reader = _Jute(body)
    return [(reader.number(), reader.data()) for _ in range(reader.number())]


class _Jute:
    """ZooKeeper's own encoding: big-endian numbers; texts and bytes after their length, -1 for none."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self) -> int:
        (value,) = struct.unpack_from(">i", self._data, self._position)
        self._position += 4
        return int(value)

    def byte(self) -> int:
        self._position += 1
        return self._data[self._position - 1]

    def data(self) -> bytes:
        length = max(self.number(), 0)
        self._position += length
        return self._data[self._position - length : self._position]

    def text(self) -> str:
        return self.data().decode()

    def skip_acl(self) -> None:
        for _ in range(self.number()):
            self.number(), self.data(), self.data()
