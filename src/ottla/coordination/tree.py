"""The shared tree, in ZooKeeper's terms: the one interface of coordination.

Small nodes under paths like `/brokers/topics/orders`.  A node is persistent, or ephemeral: then it is deleted with the
session that created it, and has no children.  A change gets a *zxid* (change id), which rises with every change and is
never used twice, not even after a crash; a node keeps the zxid of its creation (`czxid`) and of its last change
(`mzxid`).

Two backends implement it: `embedded` (this process, journalled on its disk) and ZooKeeper.  The guarantees here are
those of the weaker one; `tests/contract` checks each of them on every backend.

* A write that returned is durable (except ephemeral nodes, which are memory) and visible to later reads of its session;
  other sessions may see it slightly later, but never in another order.
* Readers never see half of a `multi`, nor a change that a crash could undo.
* A watch is called at most once, on the event loop, after something under it changed or when the session is lost;
  several changes may come as one call.  It does not say what changed: read again.
* Writes of one session take effect in the order in which they were started.
* A session has a *lease*: while the monotonic clock is below it, the session is alive and its ephemeral nodes exist.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import ClassVar, Final, NamedTuple, Protocol, TypeVar

from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError

ANY_VERSION: Final = -1
NO_OWNER: Final = 0
# ZooKeeper refuses a request of more than jute.maxbuffer (1 MiB less one byte); its header and the end of a `multi`
# take less than the rest.
REQUEST_BYTES_MAX: Final = 1024 * 1024 - 1024
# The part of an operation that is not its path or data: numbers and lengths (30 bytes), the chroot, and an access list
# with two users.
OPERATION_BYTES: Final = 448
# A larger node would work in one backend and fail in the other.  The rest of the request is for its path.
NODE_BYTES_MAX: Final = 1_000_000
LEASE_FOREVER: Final = 2**63 - 1

Watch = Callable[[], None]


class Stat(NamedTuple):
    """The metadata of a node.

    `version` counts the changes of the data (0 at creation); `ephemeral_owner` is a session id or `NO_OWNER`.
    """

    version: int
    czxid: int
    mzxid: int
    ephemeral_owner: int
    ctime_ms: int
    children_count: int


class Node(NamedTuple):
    data: bytes
    stat: Stat


class CreateNode(NamedTuple):
    """Create a node; its parent must exist and be persistent."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


class SetNode(NamedTuple):
    """Replace the data of a node that has this version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class DeleteNode(NamedTuple):
    """Delete a node that has this version and no children."""

    path: str
    version: int = ANY_VERSION


class CheckNode(NamedTuple):
    """Change nothing, but fail the whole `multi` unless the node exists with this version."""

    path: str
    version: int = ANY_VERSION


Operation = CreateNode | SetNode | DeleteNode | CheckNode


def request_bytes(operations: Iterable[Operation]) -> int:
    """What `operations` take at most in a request; `multi` refuses more than `REQUEST_BYTES_MAX`.

    It is a sum: a caller that splits its operations over requests may add up the parts.
    """
    total = 0
    for operation in operations:
        total += OPERATION_BYTES + len(operation.path.encode())
        if isinstance(operation, CreateNode | SetNode):
            total += len(operation.data)
    return total


class Lease:
    """The moment until which a session is alive for certain, by `Clock.boottime_ms`: it ends while the machine is
    suspended, too.

    Callers must compare the clock with `until_ms` before they act for the session (acknowledge as leader): then a
    process that was paused does nothing after its session may have ended, even before it receives the event.  0: it has
    ended.
    """

    __slots__ = ("until_ms",)

    def __init__(self, until_ms: int = 0) -> None:
        self.until_ms = until_ms

    def extend(self, until_ms: int) -> None:
        """The session is alive until then; answers may come in any order."""
        self.until_ms = max(self.until_ms, until_ms)

    def end(self) -> None:
        self.until_ms = 0


class SessionState(Enum):
    CONNECTED = "connected"
    """Reads and writes work, ephemeral nodes exist."""

    SUSPENDED = "suspended"
    """Disconnected; the session may or may not survive.  A leader by this session stops acknowledging."""

    LOST = "lost"
    """Final: ephemeral nodes are deleted, watches were called for the last time, every call raises `SessionLost`."""


class TreeError(OttlaError):
    """A tree operation failed.  `operation_index` is its index in a `multi`, of which then nothing was applied."""

    about: ClassVar[str] = "failed"

    def __init__(self, path: str, *, operation_index: int | None = None, hint: str | None = None) -> None:
        super().__init__(f"{path} {self.about}", hint=hint)
        self.path = path
        self.operation_index = operation_index


class NodeExists(TreeError):
    about = "exists already"


class NoNode(TreeError):
    about = "does not exist"


class BadVersion(TreeError):
    about = "was changed by another session since it was read"


class NotEmpty(TreeError):
    about = "has children"


class NoChildrenForEphemerals(TreeError):
    about = "is ephemeral or below an ephemeral node: no child can be made"


class NodeTooLarge(TreeError):
    about = f"would hold more than {NODE_BYTES_MAX} bytes"


class RequestTooLarge(TreeError):
    """Split the operations: `request_bytes` is above `REQUEST_BYTES_MAX`.  Nothing was sent."""

    about = f"is the first of operations that take more than {REQUEST_BYTES_MAX} bytes together"


class AccessDenied(TreeError):
    """The node's access list does not admit these credentials."""

    error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    about = "is closed to this broker's ZooKeeper credentials"
    hint = "all brokers of a cluster need the same ZooKeeper credentials"


class SessionLost(TreeError):
    """The session ended: drop everything cached through it, connect and register again.

    Clients that requested a change repeat the request, perhaps at another broker: NOT_CONTROLLER is the code
    after which Kafka's admin clients look for one that can.
    """

    error_code = ErrorCode.NOT_CONTROLLER
    about = "cannot be reached: the session with the tree is over"


class ConnectionLoss(TreeError):
    """No answer arrived: the operation may have happened or not.  Read before deciding anything."""

    error_code = ErrorCode.REQUEST_TIMED_OUT
    about = "has an unknown outcome: the connection to the tree broke"


class Tree(Protocol):
    """One session with the tree."""

    @property
    def session_id(self) -> int:
        """The owner of this session's ephemeral nodes; never used again by another session."""
        ...

    @property
    def state(self) -> SessionState: ...

    @property
    def lease(self) -> Lease:
        """This session's lease, the same object for its whole life.  Only answers of the tree extend it."""
        ...

    def add_session_listener(self, listener: Callable[[SessionState], None]) -> None:
        """Call `listener` on the event loop at every later change of `state`."""
        ...

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        """Create a node.  Raises NodeExists, NoNode (no parent), NoChildrenForEphemerals, NodeTooLarge."""
        ...

    async def get(self, path: str, *, watch: Watch | None = None) -> Node:
        """Read a node; the watch is called when it is changed or deleted.  Raises NoNode, and then sets no watch."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Read many nodes in as few round trips as the backend can; None for a missing one.  Not an atomic snapshot."""
        ...

    async def set(self, path: str, data: bytes, version: int) -> Stat:
        """Replace the data if the node has this version (or `ANY_VERSION`).

        Raises NoNode, BadVersion, NodeTooLarge.
        """
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove a node.  Raises NoNode, BadVersion, NotEmpty."""
        ...

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        """Names of the children, sorted.  The watch is called when one is created or deleted, or the node itself is
        deleted.

        Raises NoNode, and then sets no watch.
        """
        ...

    async def exists(self, path: str, *, watch: Watch | None = None) -> Stat | None:
        """The node's Stat or None.  The watch is called when it is created, changed or deleted."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        """Apply all operations in order under one zxid, or none.  A `SetNode` results in its new Stat, the others in
        None.

        Raises the error of the first operation that fails, which sees the effects of those before it.  Before anything
        is tried: NodeTooLarge, or RequestTooLarge, for which the caller sends several requests.
        """
        ...

    async def sync(self) -> None:
        """Reads that start after it see every write that any session had committed before it was called.

        Needed before a decision that follows an unknown outcome: an ordinary read may answer with the past.
        """
        ...

    async def close(self) -> None:
        """End the session: its ephemeral nodes are deleted, its state becomes LOST."""
        ...


class SingleWrites(ABC):
    """The writes of one node for a tree that does all of them by `multi`."""

    @abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]: ...

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        await self.multi([CreateNode(path, data, ephemeral)])

    async def set(self, path: str, data: bytes, version: int) -> Stat:
        (stat,) = await self.multi([SetNode(path, data, version)])
        assert stat is not None
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([DeleteNode(path, version)])


def check_size(operations: Sequence[Operation]) -> None:
    """Raise `NodeTooLarge` or `RequestTooLarge` for what not every backend could take."""
    for index, operation in enumerate(operations):
        if isinstance(operation, CreateNode | SetNode) and len(operation.data) > NODE_BYTES_MAX:
            raise NodeTooLarge(operation.path, operation_index=index)
    if request_bytes(operations) > REQUEST_BYTES_MAX:
        raise RequestTooLarge(operations[0].path)


def check_path(path: str) -> None:
    """Raise `ValueError` unless `path` is absolute and plain; all paths come from our own code."""
    if path == "/":
        return
    names = path.split("/")
    if names[0] or len(names) < 2 or any(name in {"", ".", ".."} for name in names[1:]) or not path.isprintable():
        raise ValueError(
            f"{path!r} is not a tree path: it must be absolute, printable, and have no part that is empty, '.' or '..'"
        )


def parent_of(path: str) -> str:
    """The parent path; the root's parent is itself."""
    return path.rpartition("/")[0] or "/"


# The rest is for `/changes`, and for what a last request adds to a batch.
BATCH_BYTES_MAX: Final = REQUEST_BYTES_MAX // 2


def batches(groups: Iterable[Sequence[Operation]], *, groups_max: int | None = None) -> Iterator[list[Operation]]:
    """The operations of all groups in lists that each fit into a request; a group is never divided."""
    batch: list[Operation] = []
    size, count = 0, 0
    for group in groups:
        added = request_bytes(group)
        if batch and (size + added > BATCH_BYTES_MAX or count == groups_max):
            yield batch
            batch, size, count = [], 0, 0
        batch += group
        size += added
        count += 1
    if batch:
        yield batch


Read = TypeVar("Read")


class StandingWatch:
    """`on_call` is called on the event loop when the reader should read again; at most once for each read."""

    def __init__(self, on_call: Callable[[], None] | None) -> None:
        self._on_call = on_call
        # While it is set, a reader that keeps its last read need not read again.
        self.is_set = False

    async def read(self, read: Callable[[Watch | None], Awaitable[Read]]) -> Read:
        """Read with the watch where it is not set.  It is set before the read is answered, so no change is missed."""
        if self.is_set or self._on_call is None:
            return await read(None)
        self.is_set = True
        try:
            return await read(self._call)
        except BaseException:
            self.is_set = False
            raise

    def _call(self) -> None:
        self.is_set = False
        if self._on_call is not None:
            self._on_call()
