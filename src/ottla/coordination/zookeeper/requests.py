"""The requests of ZooKeeper's protocol that Ottla sends, in the form in which kazoo sends requests.

kazoo reads `type` and calls `serialize()` of a request, passes the answer's bytes to `deserialize(buffer, offset)`, and
registers `watcher` under `path` when a read succeeded.  Writes are all a multi (so each has one change id and one way
to fail), bulk reads a multi of reads, which ZooKeeper has since 3.6.  Pure: bytes in, bytes out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol

from kazoo.exceptions import ConnectionLoss as LossOfConnection

from ottla.coordination.tree import (
    ANY_VERSION,
    CheckNode,
    ConnectionLoss,
    CreateNode,
    DeleteNode,
    Lease,
    Node,
    Operation,
    SetNode,
    Stat,
    TreeError,
)
from ottla.coordination.zookeeper.client import Answer, Request
from ottla.coordination.zookeeper.node_access import AccessEntry, AccessList, NodeAccess, Rights
from ottla.runtime.clock import Clock

# Codes of org.apache.zookeeper.ZooDefs.OpCode.
CREATE: Final = 1
DELETE: Final = 2
GET_DATA: Final = 4
SET_DATA: Final = 5
GET_ACL: Final = 6
SET_ACL: Final = 7
CHECK: Final = 13
MULTI: Final = 14
MULTI_READ: Final = 22
ERROR: Final = -1

EPHEMERAL_FLAG: Final = 1
# Codes of org.apache.zookeeper.KeeperException.Code.
OK: Final = 0
RUNTIME_INCONSISTENCY: Final = -2
NO_NODE: Final = -101

_INT: Final = Struct(">i")
_HEADER: Final = Struct(">i?i")  # of one operation: its type, whether the list ends here, an error code
# czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeralOwner, dataLength, numChildren, pzxid
_STAT: Final = Struct(">qqqqiiiqiiq")
_END: Final = _HEADER.pack(ERROR, True, ERROR)


class Failure(NamedTuple):
    """The operation of a multi that failed, and its error code; nothing was applied."""

    operation_index: int
    code: int


class MultiWrite:
    """All operations or none.  Its answer: the Stat of each `SetNode`, None for the others, or the `Failure`."""

    type: Final = MULTI

    def __init__(self, operations: Sequence[Operation], chroot: str, access: NodeAccess) -> None:
        self._operations = operations
        self._chroot = chroot
        self._access = access

    def serialize(self) -> bytes:
        parts: list[bytes] = []
        for operation in self._operations:
            path = _text(full_path(self._chroot, operation.path))
            match operation:
                case CreateNode(_, data, ephemeral):
                    access = _access_bytes(self._access(operation.path))
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


class ReadAccess:
    """The access list of a node."""

    type: Final = GET_ACL

    def __init__(self, path: str, chroot: str) -> None:
        self._path = full_path(chroot, path)

    def serialize(self) -> bytes:
        return _text(self._path)

    def deserialize(self, buffer: bytes, offset: int) -> AccessList:
        (count,) = _INT.unpack_from(buffer, offset)
        offset += _INT.size
        entries: list[AccessEntry] = []
        for _ in range(count):
            (rights,) = _INT.unpack_from(buffer, offset)
            scheme, offset = _read_text(buffer, offset + _INT.size)
            identity, offset = _read_text(buffer, offset)
            entries.append(AccessEntry(Rights(rights), scheme, identity))
        return tuple(entries)


class WriteAccess:
    """Replaces the access list of a node."""

    type: Final = SET_ACL

    def __init__(self, path: str, chroot: str, access: AccessList) -> None:
        self._path = full_path(chroot, path)
        self._access = access

    def serialize(self) -> bytes:
        return _text(self._path) + _access_bytes(self._access) + _INT.pack(ANY_VERSION)

    def deserialize(self, buffer: bytes, offset: int) -> Stat:
        return _stat(buffer, offset)


def _access_bytes(access: AccessList) -> bytes:
    entries = [_INT.pack(entry.rights) + _text(entry.scheme) + _text(entry.identity) for entry in access]
    return _INT.pack(len(entries)) + b"".join(entries)


def full_path(chroot: str, path: str) -> str:
    """The path on the server."""
    return (chroot or "/") if path == "/" else chroot + path


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _INT.pack(len(encoded)) + encoded


def _read_text(buffer: bytes, offset: int) -> tuple[str, int]:
    (length,) = _INT.unpack_from(buffer, offset)
    offset += _INT.size
    end = offset + max(length, 0)
    return bytes(buffer[offset:end]).decode(), end


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


# The pipe to kazoo's thread takes a byte per request and blocks when it is full: on Linux at some 270.
REQUESTS_MAX: Final = 64


class Sender(Protocol):
    """The part of `SessionClient` that the queue uses."""

    def send(self, request: Request, answer: Answer) -> bool:
        """False: there is no connection now, and nothing was sent."""
        ...


class Call:
    """A request, its place in time, and the future of its answer.  kazoo answers from its own thread."""

    __slots__ = ("_on_answer", "begun_ms", "future", "is_write", "path", "request", "sent_ms")

    def __init__(
        self,
        request: Request,
        path: str,
        begun_ms: int,
        on_answer: Callable[[Call, Any, Exception | None], None],
        *,
        is_write: bool,
    ) -> None:
        self.request = request
        self.path = path
        self.is_write = is_write
        self.begun_ms = begun_ms
        self.sent_ms = begun_ms
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._on_answer = on_answer

    def send(self, sender: Sender, now_ms: int) -> bool:
        self.sent_ms = now_ms
        return sender.send(self.request, self)

    def set(self, value: object) -> None:
        self._on_answer(self, value, None)

    def set_exception(self, error: Exception) -> None:
        self._on_answer(self, None, error)


class RequestQueue:
    """While it is open it sends; while the connection is broken, calls wait until `fail_waiting` gives them up.

    Every answer to a write extends the lease, counted from the moment when that write was sent.
    """

    def __init__(self, sender: Sender, clock: Clock, lease: Lease) -> None:
        self._sender = sender
        self._clock = clock
        self._lease = lease
        self._lease_ms = 0
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Call] = deque()
        self._under_way: dict[Call, None] = {}
        self._is_open = False
        self._ended: type[TreeError] | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def submit(self, request: Request, path: str, *, is_write: bool = False) -> asyncio.Future[Any]:
        """Start a request after all that were submitted before.  Its errors are kazoo's, or `TreeError`."""
        call = Call(request, path, self._clock.boottime_ms(), self._hand_over, is_write=is_write)
        if self._ended is not None:
            call.future.set_exception(self._ended(path))
            return call.future
        self._waiting.append(call)
        self._idle.clear()
        self._send_waiting()
        return call.future

    def open(self, lease_ms: int) -> None:
        """There is a connection; a write's answer now gives this lease."""
        self._lease_ms = lease_ms
        self._is_open = True
        self._send_waiting()

    def hold(self) -> None:
        """The connection broke."""
        self._is_open = False

    def oldest(self) -> Call | None:
        """The call that has been without an answer for longest."""
        return next(iter(self._under_way), None)

    def fail_waiting(self, begun_before_ms: int) -> None:
        """Give up those that have waited for a connection since before then: they were not sent, and will not be."""
        while not self._is_open and self._waiting and self._waiting[0].begun_ms < begun_before_ms:
            call = self._waiting.popleft()
            _fail(call, ConnectionLoss(call.path))
        self._note_idle()

    def end(self, error: type[TreeError]) -> None:
        """The session is over: nothing more is sent or answered."""
        self._is_open = False
        self._ended = error
        for call in (*self._under_way, *self._waiting):
            _fail(call, error(call.path))
        self._under_way.clear()
        self._waiting.clear()
        self._note_idle()

    async def wait_until_idle(self) -> None:
        await self._idle.wait()

    def _send_waiting(self) -> None:
        while self._is_open and self._waiting and len(self._under_way) < REQUESTS_MAX:
            call = self._waiting.popleft()
            if call.future.done():
                continue  # the caller was cancelled: the result is not needed any more
            self._under_way[call] = None
            if not call.send(self._sender, self._clock.boottime_ms()):
                # The connection broke, and this loop has no notice of it yet: the next connection takes the request.
                del self._under_way[call]
                self._waiting.appendleft(call)
                self._is_open = False
        self._note_idle()

    def _hand_over(self, call: Call, value: Any, error: Exception | None) -> None:
        """From kazoo's thread to the loop; a loop that is closed has no callers."""
        try:
            self._loop.call_soon_threadsafe(self._on_answer, call, value, error)
        except RuntimeError:
            return

    def _on_answer(self, call: Call, value: Any, error: Exception | None) -> None:
        if call not in self._under_way:
            return  # it ended with the session
        del self._under_way[call]
        if isinstance(error, LossOfConnection):
            self._is_open = False  # hearing of it may come later, and so may the next connection
        if error is not None:
            _fail(call, error)
        else:
            if call.is_write:
                self._lease.extend(call.sent_ms + self._lease_ms)
            if not call.future.done():
                call.future.set_result(value)
        self._send_waiting()

    def _note_idle(self) -> None:
        if not self._waiting and not self._under_way:
            self._idle.set()


def _fail(call: Call, error: Exception) -> None:
    if not call.future.done():
        call.future.set_exception(error)
