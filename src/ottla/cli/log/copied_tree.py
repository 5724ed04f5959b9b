"""What a data directory's tree holds, read from a copy: beside a running broker too, and nothing there is changed."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from ottla.coordination import layout
from ottla.coordination.broker_registry import cluster_id
from ottla.coordination.configs import ConfigRegistry, ConfigsView
from ottla.coordination.embedded.backend import EmbeddedBackend
from ottla.coordination.embedded.errors import TreeStoreError
from ottla.coordination.embedded.tree_copy import copy_tree
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.topics_view import TopicsView
from ottla.runtime.disk import Disk
from ottla.runtime.event_loop import run
from ottla.storage.checkpoints import read_meta_properties
from ottla.storage.directory import directory_tree
from ottla.storage.directory.directory_identity import FORMAT_NAME
from ottla.storage.directory.directory_tree import TREE_FILE


class CopiedTree(NamedTuple):
    """`cluster_id` is None where a crash came before the cluster had one."""

    topics: TopicsView
    configs: ConfigsView
    cluster_id: str | None


def copied_topic_ids(path: str) -> dict[str, UUID]:
    """The ids of the topics in the tree file at `path`.  Raises `TreeStoreError`, `OSError`."""
    return {name: topic.topic_id for name, topic in read_copied_tree(path).topics.by_name.items()}


def read_copied_tree(path: str) -> CopiedTree:
    """Read the tree file at `path`.  Raises `TreeStoreError`, `OSError`."""
    with tempfile.TemporaryDirectory(prefix="ottla-tree-") as directory:
        copy = f"{directory}/{TREE_FILE}"
        copy_tree(path, copy)
        return run(_read(copy))


def lost_tree_of(disk: Disk, data_dir: str) -> TreeStoreError | None:
    """Why the tree of a data directory cannot be read.  None when it can, when none belongs there - in a cluster,
    for further processes, or before the first start - and for other directories.  Raises `OSError`,
    `DamagedCheckpoint`.
    """
    found: Mapping[str, str] = read_meta_properties(disk, data_dir) or {}
    if FORMAT_NAME not in found or directory_tree.is_tree_elsewhere(disk, data_dir):
        return None
    path = f"{data_dir}/{TREE_FILE}"
    if not disk.exists(path) and directory_tree.may_have_new_tree(disk, data_dir):
        return None
    try:
        with tempfile.TemporaryDirectory(prefix="ottla-tree-") as directory:
            copy_tree(path, f"{directory}/{TREE_FILE}")
    except TreeStoreError as error:
        return error
    return None


async def _read(path: str) -> CopiedTree:
    backend = await EmbeddedBackend.open(path, may_be_new=False)
    try:
        tree = await backend.connect()
        own_id = None if await tree.exists(layout.CLUSTER_ID) is None else await cluster_id(tree)
        await layout.lay_out(tree)
        return CopiedTree(await TopicRegistry(tree).refresh(), await ConfigRegistry(tree).refresh(), own_id)
    finally:
        await backend.close()
