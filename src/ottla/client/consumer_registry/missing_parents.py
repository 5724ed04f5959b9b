"""Persistent parents of other nodes: the first user of one creates it."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.coordination.tree import CreateNode, NodeExists, Tree


async def make_missing(tree: Tree, paths: Sequence[str]) -> None:
    """Create those of `paths` that do not exist; parents come before their children.

    Raises `NoNode` where a parent that is not among them is missing.
    """
    while True:
        nodes = await tree.get_many(paths)
        missing = [path for path, node in zip(paths, nodes, strict=True) if node is None]
        if not missing:
            return
        try:
            await tree.multi([CreateNode(path) for path in missing])
        except NodeExists:
            # Another consumer was faster: a read after a write of this session sees what that one saw.
            continue
        return
