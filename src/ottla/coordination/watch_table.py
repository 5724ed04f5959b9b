"""The watches of one session.  Pure."""

from __future__ import annotations

from collections.abc import Iterable

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

    def take_for(self, nodes: Iterable[str], children_changed: Iterable[str]) -> list[Watch]:
        """Removes and returns the watches that one change fires, each once however often it was set.

        `nodes` were created, changed or deleted; the names below `children_changed` are others.
        """
        due: dict[Watch, None] = {}
        for path in nodes:
            due.update(self._data.pop(path, {}))
        for path in children_changed:
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
