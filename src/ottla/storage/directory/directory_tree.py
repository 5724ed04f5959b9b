"""Whether the tree that belongs to a data directory is in the directory itself, or shared with other brokers.

A directory whose tree is shared must not be started with an embedded tree: that would not have its topics, or have
them as they were before.  So `meta.properties` records that it is shared, and where the tree is.
"""

from __future__ import annotations

import os.path
import shlex
from typing import Final

from ottla.runtime.disk import Disk
from ottla.storage import checkpoints
from ottla.storage.directory.directory_identity import is_log
from ottla.storage.directory.process_places import BROKER_PREFIX, PROCESSES_FOLDER
from ottla.storage.errors import ForeignDirectory

# The tree of a standalone broker.
TREE_FILE: Final = "tree.sqlite"
TREE_NAME: Final = "ottla.tree"
# Where a shared one is: with a ZooKeeper or another process, or with the supervisor of `ottla serve --processes`.
SHARED: Final = "zookeeper"
OF_PROCESSES: Final = "processes"


def mark_shared(disk: Disk, path: str, home: str = SHARED) -> None:
    """From now on the directory's tree is one that brokers share.  The directory must be claimed and locked."""
    found = checkpoints.read_meta_properties(disk, path)
    assert found is not None
    if found.get(TREE_NAME) != home:
        checkpoints.write_meta_properties(disk, path, {**found, TREE_NAME: home})


def mark_own(disk: Disk, path: str) -> None:
    """From now on the tree in the directory is that of its broker alone.  The directory must be locked."""
    found = checkpoints.read_meta_properties(disk, path) or {}
    if TREE_NAME in found:
        checkpoints.write_meta_properties(disk, path, {name: text for name, text in found.items() if name != TREE_NAME})


def shared_home(disk: Disk, path: str) -> str | None:
    """`SHARED`, `OF_PROCESSES`, or None for a directory whose tree is its own."""
    found = checkpoints.read_meta_properties(disk, path)
    home = None if found is None else found.get(TREE_NAME)
    return home if home in (SHARED, OF_PROCESSES) else None


def is_shared(disk: Disk, path: str) -> bool:
    return shared_home(disk, path) is not None


def is_tree_elsewhere(disk: Disk, path: str) -> bool:
    """Whether the directory has no tree: in a cluster, and for processes but the first one."""
    home = shared_home(disk, path)
    return home == SHARED or (home == OF_PROCESSES and not disk.exists(f"{path}/{PROCESSES_FOLDER}"))


def may_have_new_tree(disk: Disk, path: str) -> bool:
    """Whether no broker has served the directory yet, and nothing in it belongs to a topic: else its tree is lost when
    it is not there.
    """
    if cluster_id_of(disk, path) is not None:
        return False
    return not any(is_log(disk, path, name) for name in disk.list_directory(path))


def require_own_tree(disk: Disk, path: str) -> None:
    """Raises `ForeignDirectory` for a directory whose tree is shared."""
    home = shared_home(disk, path)
    if home == OF_PROCESSES:
        raise ForeignDirectory(
            f"{path} belongs to one of the brokers of `ottla serve --processes`, which share a tree",
            hint=how_to_own(disk, path),
        )
    if home is not None:
        raise ForeignDirectory(
            f"{path} belongs to a broker of a cluster: its topics are in the cluster's ZooKeeper, not in the directory",
            hint="start it with --zookeeper CONNECT, or give a standalone broker its own empty --data-dir",
        )


def how_to_own(disk: Disk, path: str) -> str:
    """A hint: how a directory of several processes becomes that of one broker, which can be repaired and copied."""
    folder, name = os.path.split(os.path.abspath(path))
    data_dir = path
    if not disk.exists(f"{path}/{PROCESSES_FOLDER}"):
        if os.path.basename(folder) != PROCESSES_FOLDER or not name.startswith(BROKER_PREFIX):
            return "name the data directory that they have together: the one with the folder `processes`"
        data_dir = os.path.dirname(folder)
    return (
        f"stop them; `ottla serve --data-dir {shlex.quote(data_dir)} --processes 1` gives all partitions to one broker "
        f"by renames: stop that and use {data_dir}; a start with more --processes divides them again"
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
