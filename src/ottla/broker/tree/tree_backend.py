"""Where the tree is: in this broker's data directory, or with a ZooKeeper or another process of this machine, which
several brokers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ottla.coordination.tree import Tree
from ottla.model.broker_settings import NODE_ID, TREE_SOCKET, ZOOKEEPER_CONNECT
from ottla.model.errors import ConfigError
from ottla.model.setting import Source
from ottla.model.settings import BrokerSettings
from ottla.runtime.clock import Clock
from ottla.runtime.disk import Disk
from ottla.storage.checkpoints import META_PROPERTIES_FILE
from ottla.storage.directory import directory_tree

if TYPE_CHECKING:
    from ottla.coordination.embedded.backend import EmbeddedBackend


class TreeBackend(Protocol):
    """Gives sessions with one tree."""

    async def connect(self) -> Tree: ...

    async def close(self) -> None: ...


async def open_embedded(
    disk: Disk, data_dir: str, clock: Clock, make_room: Callable[[], bool] | None = None
) -> EmbeddedBackend:
    """The tree of a broker that is the only one; its directory must be locked.

    `make_room` is called in another thread when the disk is full: whether there is room now.
    Raises `TreeStoreError`: `TreeStoreLost`, before anything is written, for a directory of logs without its tree.
    """
    # SQLite is a megabyte that a broker of a cluster does not need.
    from ottla.coordination.embedded.backend import EmbeddedBackend

    may_be_new = directory_tree.may_have_new_tree(disk, data_dir)
    return await EmbeddedBackend.open(
        f"{data_dir}/{directory_tree.TREE_FILE}",
        clock=clock,
        may_be_new=may_be_new,
        make_room=make_room,
        is_synced=disk.is_synced,
    )


def shares_tree(settings: BrokerSettings) -> bool:
    """Whether this broker is one of several.  Raises `ConfigError` for two trees."""
    if settings[ZOOKEEPER_CONNECT] is not None and settings[TREE_SOCKET] is not None:
        raise ConfigError(
            f"{ZOOKEEPER_CONNECT.name} and {TREE_SOCKET.name} name two trees, and a broker has one",
            hint=f"brokers on several machines share a ZooKeeper: remove {TREE_SOCKET.name}",
        )
    return settings[ZOOKEEPER_CONNECT] is not None or settings[TREE_SOCKET] is not None


def with_node_id(settings: BrokerSettings, disk: Disk, data_dir: str) -> BrokerSettings:
    """The settings of a broker of a cluster: its node id is given, or the one that its data directory has.

    Raises `ConfigError`: a default would be that of every broker.
    """
    if settings.given(NODE_ID) is not None:
        return settings
    node_id = directory_tree.node_id_of(disk, data_dir)
    if node_id is None:
        raise ConfigError(
            "a broker of a cluster needs its own node id, and none is given",
            hint="--set node.id=1, and another number for each broker; its data directory keeps it for later starts",
        )
    return settings.overlaid({NODE_ID.name: str(node_id)}, source=Source.STATIC_BROKER, origin=META_PROPERTIES_FILE)
