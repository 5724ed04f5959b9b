"""One session's watches: called once, then removed.  Pure bookkeeping."""

from __future__ import annotations

from ottla.coordination.embedded.node_table import TreeChange
from ottla.coordination.tree import Watch


class WatchTable:
    """Watches on a node's data (or its creation and deletion) and on its children's names."""

    def __init__(self) -> None:
        self._data: dict[str, dict[Watch, None]] = {}
        self._children: dict[str, dict[Watch, None]] = {}

    def watch_data(self, path: str, watch: Watch) -> None:
        self._data.setdefault(path, {})[watch] = None

    def watch_children(self, path: str, watch: Watch) -> None:
        self._children.setdefault(path, {})[watch] = None

    def take_for(self, change: TreeChange) -> list[Watch]:
        """Removes and returns the watches that a change fires, each once however often it was set."""
        due: dict[Watch, None] = {}
        for path in change.nodes:
            due.update(self._data.pop(path, {}))
        for path in change.children_changed:
            due.update(self._children.pop(path, {}))
        return list(due)

    def take_all(self) -> list[Watch]:
        """Removes and returns every watch: the session is over."""
        due: dict[Watch, None] = {}
        for watches in (*self._data.values(), *self._children.values()):
            due.update(watches)
        self._data.clear()
        self._children.clear()
        return list(due)
