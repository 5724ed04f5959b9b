"""The nodes of the embedded tree and the rules for changing them.  Pure: no file, thread, clock or loop.

The backend keeps two tables that share their (immutable) nodes.  *Committed* is what readers see.  *Staged* is
committed plus the batch that is being made durable: requests are checked and applied there, so that each sees its
predecessors.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Sequence
from typing import NamedTuple

from ottla.coordination.tree import (
    ANY_VERSION,
    NO_OWNER,
    BadVersion,
    CheckNode,
    CreateNode,
    DeleteNode,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SetNode,
    Stat,
    TreeError,
    check_path,
    parent_of,
)


class StoredNode(NamedTuple):
    data: bytes
    version: int
    czxid: int
    mzxid: int
    ctime_ms: int
    ephemeral_owner: int = NO_OWNER


class Origin(NamedTuple):
    """The session, zxid and time of a change: the same for all operations of one `multi`."""

    session_id: int
    zxid: int
    now_ms: int


ROOT = StoredNode(b"", 0, 0, 0, 0)
_NO_NAMES: dict[str, None] = {}


class NodeTable:
    """Nodes by path, and the names below each path."""

    def __init__(self) -> None:
        self._nodes: dict[str, StoredNode] = {"/": ROOT}
        self._names: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def items(self) -> Iterator[tuple[str, StoredNode]]:
        return iter(self._nodes.items())

    def find(self, path: str) -> StoredNode | None:
        return self._nodes.get(path)

    def children(self, path: str) -> KeysView[str]:
        return self._names.get(path, _NO_NAMES).keys()

    def read(self, path: str) -> Node | None:
        node = self._nodes.get(path)
        return None if node is None else Node(node.data, self.stat(path))

    def stat(self, path: str) -> Stat:
        node = self._nodes[path]
        return Stat(node.version, node.czxid, node.mzxid, node.ephemeral_owner, node.ctime_ms, len(self.children(path)))

    def put(self, path: str, node: StoredNode) -> None:
        """Create or replace a node; the caller ensures that its parent exists (or will, while a table is loaded)."""
        if path not in self._nodes and path != "/":
            parent, _, name = path.rpartition("/")
            self._names.setdefault(parent or "/", {})[name] = None
        self._nodes[path] = node

    def remove(self, path: str) -> None:
        assert path != "/"
        assert not self.children(path), f"{path} still has children"
        del self._nodes[path]
        parent, _, name = path.rpartition("/")
        siblings = self._names[parent or "/"]
        del siblings[name]
        if not siblings:
            del self._names[parent or "/"]

    def restore(self, path: str, node: StoredNode | None) -> None:
        """Restore the former node."""
        if node is not None:
            self.put(path, node)
        elif path in self._nodes:
            self.remove(path)

    def apply(self, change: TreeChange) -> None:
        """Apply a batch's changes.  Children are removed before their parents, in any order of the changes."""
        for path in sorted((path for path, node in change.nodes.items() if node is None), key=len, reverse=True):
            self.restore(path, None)
        for path, node in change.nodes.items():
            if node is not None:
                self.put(path, node)

    def ephemerals_of(self, session_id: int) -> list[str]:
        """Paths owned by a session.  Scans all nodes: sessions end rarely."""
        return [path for path, node in self._nodes.items() if node.ephemeral_owner == session_id]

    def copy(self) -> NodeTable:
        table = NodeTable()
        table._nodes = dict(self._nodes)
        table._names = {path: dict(names) for path, names in self._names.items()}
        return table

    def orphan(self) -> str | None:
        """A path whose parent is missing or ephemeral; None in a sound tree."""
        for path in self._names:
            parent = self._nodes.get(path)
            if parent is None or parent.ephemeral_owner != NO_OWNER:
                return path
        return None


class TreeChange(NamedTuple):
    """The changes of a batch: each changed path with its new node (None: deleted), and the nodes whose children
    changed."""

    nodes: dict[str, StoredNode | None]
    children_changed: set[str]


class _Step(NamedTuple):
    path: str
    before: StoredNode | None
    after: StoredNode | None


class Staging:
    """A table under change: applies whole requests, and can roll the whole batch back."""

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self._steps: list[_Step] = []

    def apply(self, operations: Sequence[Operation], origin: Origin) -> list[Stat | None]:
        """Apply all of them or none; raises the `TreeError` of the first that fails, with its index."""
        first_step = len(self._steps)
        results: list[Stat | None] = []
        try:
            for operation in operations:
                results.append(self._apply_one(operation, origin))  # noqa: PERF401 (the index of a failure is needed)
        except BaseException as error:
            self._roll_back(first_step)
            if isinstance(error, TreeError):
                error.operation_index = len(results)
            raise
        return results

    def summary(self) -> TreeChange:
        """All changes of the batch so far."""
        nodes: dict[str, StoredNode | None] = {}
        children_changed: set[str] = set()
        for path, before, after in self._steps:
            nodes[path] = after
            if before is None or after is None:
                children_changed.add(path)
                children_changed.add(parent_of(path))
        return TreeChange(nodes, children_changed)

    def commit(self) -> None:
        """The batch is durable: forget its undo steps."""
        self._steps.clear()

    def roll_back(self) -> None:
        """The batch could not be made durable: restore the table."""
        self._roll_back(0)

    def _roll_back(self, first_step: int) -> None:
        while len(self._steps) > first_step:
            step = self._steps.pop()
            self.table.restore(step.path, step.before)

    def _apply_one(self, operation: Operation, origin: Origin) -> Stat | None:
        match operation:
            case CreateNode():
                self._create(operation, origin)
            case SetNode(path, data, version):
                node = self._require(path, version)
                self._change(path, node._replace(data=data, version=node.version + 1, mzxid=origin.zxid))
                return self.table.stat(path)
            case DeleteNode(path, version):
                self._require(path, version)
                if path == "/" or self.table.children(path):
                    raise NotEmpty(path)
                self._change(path, None)
            case CheckNode(path, version):
                self._require(path, version)
        return None

    def _create(self, operation: CreateNode, origin: Origin) -> None:
        path = operation.path
        check_path(path)
        if self.table.find(path) is not None:
            raise NodeExists(path)
        parent = self.table.find(parent_of(path))
        if parent is None:
            raise NoNode(parent_of(path))
        if parent.ephemeral_owner != NO_OWNER:
            raise NoChildrenForEphemerals(path)
        owner = origin.session_id if operation.ephemeral else NO_OWNER
        self._change(path, StoredNode(operation.data, 0, origin.zxid, origin.zxid, origin.now_ms, owner))

    def _require(self, path: str, version: int) -> StoredNode:
        check_path(path)
        node = self.table.find(path)
        if node is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path)
        return node

    def _change(self, path: str, node: StoredNode | None) -> None:
        self._steps.append(_Step(path, self.table.find(path), node))
        if node is None:
            self.table.remove(path)
        else:
            self.table.put(path, node)
