"""The second step: the data directory is locked, and a session with the tree starts."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.assembly.broker_start import BrokerStart
from ottla.broker.assembly.listening import Listening
from ottla.broker.live_brokers import LiveBrokers
from ottla.broker.net.advertising import registered_listeners
from ottla.broker.tree.broker_lifecycle import BrokerLifecycle
from ottla.broker.tree.coordination import Coordination
from ottla.broker.tree.tree_backend import TreeBackend, open_embedded
from ottla.coordination.broker_registry import BrokerRegistration
from ottla.coordination.features import SUPPORTED_FEATURES
from ottla.model import broker_settings as setting
from ottla.runtime.loop_offload import LoopOffload
from ottla.runtime.posix_disk import volume_size
from ottla.storage.directory import directory_identity, directory_tree
from ottla.storage.directory.directory_lock import FileLock
from ottla.storage.directory.directory_space import DirectorySpace
from ottla.storage.directory.disk_space import SpaceRules
from ottla.storage.directory.process_places import PROCESSES_FOLDER

if TYPE_CHECKING:
    from ottla.broker.tree.directory_generation import DirectoryGeneration


class TreeParts(NamedTuple):
    """This broker's part in the tree.  `space` is the room on the data directory's disk."""

    space: DirectorySpace
    coordination: Coordination
    brokers: LiveBrokers
    # None for a standalone broker, which has the only copy of its tree in the directory.
    generation: DirectoryGeneration | None

    @property
    def lifecycle(self) -> BrokerLifecycle:
        return self.coordination.lifecycle


async def open_tree(start: BrokerStart, listening: Listening, on_stale: Callable[[], None]) -> TreeParts:
    """`on_stale`: called when other brokers have changed the tree."""
    path = start.options.data_dir
    # First: two brokers in one directory would each follow their own tree.
    lock = FileLock()
    directory_identity.claim(start.disk, path, start.node_id, lock)
    start.closing.callback(lock.release)
    space = _space(start)
    # Before anything that needs room: on a full disk the reserve is released for the start.
    space.look(makes=False)
    if start.is_sole:
        directory_tree.require_own_tree(start.disk, path)
    coordination = await Coordination.open(
        start.backend or await _open_backend(start, space),
        _registration(start, listening),
        start.clock,
        None if start.is_sole else on_stale,
        on_session_lost=start.events.session_lost,
        retries=start.retries,
        data_dir=path,
        found_cluster_id=directory_tree.cluster_id_of(start.disk, path),
    )
    start.closing.push_async_callback(coordination.close)
    brokers = LiveBrokers(
        coordination.registrar,
        coordination.lifecycle,
        listening.advertising,
        start.options.inter_broker_listener.name,
        start.clock,
        start.settings[setting.ZOOKEEPER_SESSION_TIMEOUT_MS],
    )
    generation = None if start.is_sole else await _open_generation(start, coordination, space)
    return TreeParts(space, coordination, brokers, generation)


def _space(start: BrokerStart) -> DirectorySpace:
    path, settings = start.options.data_dir, start.settings
    rules = SpaceRules.of_volume(
        volume_size(path).total_bytes, settings[setting.LOG_DIR_RESERVE_BYTES], settings[setting.LOG_DIR_LOW_BYTES]
    )
    return DirectorySpace(start.disk, path, rules)


async def _open_backend(start: BrokerStart, space: DirectorySpace) -> TreeBackend:
    path = start.options.data_dir
    backend: TreeBackend
    if start.is_sole:
        backend = await open_embedded(start.disk, path, start.clock, space.relieve)
    elif start.settings[setting.TREE_SOCKET] is not None:
        from ottla.broker.tree.local_sessions import LocalTreeBackend

        backend = LocalTreeBackend(start.settings, start.clock)
    else:
        # It imports the client of ZooKeeper, which a standalone broker does not need.
        from ottla.broker.tree.zookeeper_sessions import SharedTreeBackend, protection_check, zookeeper_backend

        zookeeper = zookeeper_backend(start.settings, start.clock)
        waits = start.settings[setting.ZOOKEEPER_CONNECTION_TIMEOUT_MS] is None
        backend = SharedTreeBackend(
            zookeeper,
            start.disk,
            path,
            start.clock,
            waits=waits,
            check=protection_check(start.settings, zookeeper.security, start.retries),
        )
    start.closing.push_async_callback(backend.close)
    return backend


def _registration(start: BrokerStart, listening: Listening) -> BrokerRegistration:
    listeners = registered_listeners(start.options, listening.addresses, socket.gethostname())
    return BrokerRegistration(start.node_id, listeners, start.settings[setting.BROKER_RACK], SUPPORTED_FEATURES)


async def _open_generation(
    start: BrokerStart, coordination: Coordination, space: DirectorySpace
) -> DirectoryGeneration:
    from ottla.broker.tree.directory_generation import DirectoryGeneration

    disk, path = start.disk, start.options.data_dir
    generation = DirectoryGeneration(
        coordination.tree, coordination.lifecycle, disk, path, space.relieve, start.loop, LoopOffload
    )
    start.closing.push_async_callback(generation.stop)
    # Before anything is written there: a copy that is refused stays as it is.
    await start.retries.until_done(generation.check)
    directory_tree.mark_shared(disk, path, _home(start))
    return generation


def _home(start: BrokerStart) -> str:
    folder = os.path.basename(os.path.dirname(start.settings[setting.TREE_SOCKET] or ""))
    return directory_tree.OF_PROCESSES if folder == PROCESSES_FOLDER else directory_tree.SHARED
