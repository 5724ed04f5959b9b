"""Whether the tree that belongs to a data directory is in the directory itself, or shared with other brokers.

A directory whose tree is shared must not be started with an embedded tree: that would not have its topics, or have
them as they were before.  So `meta.properties` records that it is shared.
"""

from __future__ import annotations

from typing import Final

from ottla.runtime.disk import Disk
from ottla.storage import checkpoints
from ottla.storage.directory.directory_identity import is_log
from ottla.storage.errors import ForeignDirectory

# The tree of a standalone broker.
TREE_FILE: Final = "tree.sqlite"
TREE_NAME: Final = "ottla.tree"
SHARED: Final = "zookeeper"


def mark_shared(disk: Disk, path: str) -> None:
    """From now on the directory's tree is one that brokers share.  The directory must be claimed and locked."""
    found = checkpoints.read_meta_properties(disk, path)
    assert found is not None
    if found.get(TREE_NAME) != SHARED:
        checkpoints.write_meta_properties(disk, path, {**found, TREE_NAME: SHARED})


def is_shared(disk: Disk, path: str) -> bool:
    found = checkpoints.read_meta_properties(disk, path)
    return found is not None and found.get(TREE_NAME) == SHARED


def may_have_new_tree(disk: Disk, path: str) -> bool:
    """Whether no broker has served the directory yet, and nothing in it belongs to a topic: else its tree is lost when
    it is not there.
    """
    if cluster_id_of(disk, path) is not None:
        return False
    return not any(is_log(disk, path, name) for name in disk.list_directory(path))


def require_own_tree(disk: Disk, path: str) -> None:
    """Raises `ForeignDirectory` for a directory whose tree is shared."""
    if is_shared(disk, path):
        raise ForeignDirectory(
            f"{path} belongs to a broker of a cluster: its topics are in the cluster's ZooKeeper, not in the directory",
            hint="start it with --zookeeper CONNECT, or give a standalone broker its own empty --data-dir",
        )


def cluster_id_of(disk: Disk, path: str) -> str | None:
    """The cluster whose topics the directory holds; None for a new one."""
    found = checkpoints.read_meta_properties(disk, path)
    return None if found is None else found.get("cluster.id")


def node_id_of(disk: Disk, path: str) -> int | None:
    """The node that the directory belongs to; None for a new one, or one of another program."""
    if not disk.exists(path):
        return None
    found = checkpoints.read_meta_properties(disk, path)
    text = None if found is None else found.get("node.id")
    return int(text) if text is not None and text.isdecimal() else None
