"""Where the tree is: in this broker's data directory, or in a ZooKeeper that several brokers share."""

from __future__ import annotations

from typing import Protocol

from ottla.coordination.embedded.home import EmbeddedHome
from ottla.coordination.tree import Tree
from ottla.runtime.clock import Clock

TREE_FILE = "tree.sqlite"


class TreeHome(Protocol):
    """Gives sessions with one tree."""

    async def connect(self) -> Tree: ...

    async def close(self) -> None: ...


async def open_embedded(data_dir: str, clock: Clock) -> EmbeddedHome:
    """The tree of a broker that is the only one; its directory must be locked."""
    return await EmbeddedHome.open(f"{data_dir}/{TREE_FILE}", clock=clock)
