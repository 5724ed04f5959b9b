"""A data directory whose tree is moved to a ZooKeeper: locked, copied, marked, and only then open to brokers.

It may be that of several processes (`ottla serve --processes`): their directories are locked and marked together.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple
from uuid import UUID

from ottla.broker.tree.tree_backend import open_embedded
from ottla.broker.tree.zookeeper_sessions import zookeeper_backend
from ottla.coordination import adoption
from ottla.coordination.broker_registry import cluster_id
from ottla.coordination.tree import Tree
from ottla.model.errors import OttlaError
from ottla.model.partition_state import NO_BROKER_EPOCH
from ottla.model.settings import BrokerSettings
from ottla.runtime.clock import SystemClock
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.directory import directory_identity, directory_tree, log_completeness
from ottla.storage.directory.directory_lock import FileLock
from ottla.storage.directory.process_places import finishing_hint, folder_of, has_unfinished_resize, read_places
from ottla.storage.errors import DirectoryLocked


class Adopted(NamedTuple):
    """`nodes_count` is None for a directory that was moved before.

    `brokers` are those of the directory, the first one first, each with its own directory.
    """

    cluster_id: str
    nodes_count: int | None
    brokers: Sequence[AdoptedBroker]


class AdoptedBroker(NamedTuple):
    """A broker that can be started with the ZooKeeper; `ports` are those that it had beside others."""

    node_id: int
    path: str
    ports: Sequence[int]


class ResizeUnfinished(OttlaError):
    """A change of the number of processes was interrupted: the tree does not name the brokers that have the logs."""


class LogsIncomplete(OttlaError):
    """Logs of several processes lack records that their brokers reported."""


async def adopt_directory(settings: BrokerSettings, data_dir: str) -> Adopted:
    """Move the tree of a stopped broker's directory to the ZooKeeper of the settings.  Raises `OttlaError`.

    It may be interrupted anywhere, and is then repeated: the directory is marked after its tree was read back, and the
    tree is open to brokers after the directory was marked.
    """
    disk = PosixDisk()
    found = directory_tree.cluster_id_of(disk, data_dir)
    if directory_identity.owner_of(disk, data_dir) is not directory_identity.Owner.OTTLA or found is None:
        raise OttlaError(
            f"{data_dir} holds no topics of an Ottla broker: there is nothing to move",
            hint="start a broker on a new directory with --zookeeper at once",
        )
    with ExitStack() as locks:
        folder = folder_of(data_dir)
        if disk.exists(folder):
            # A supervisor changes what is in it.
            _lock(locks, folder)
        if has_unfinished_resize(disk, data_dir):
            raise ResizeUnfinished(
                f"a change of the number of processes of {data_dir} was interrupted: logs were moved to brokers that "
                "its tree does not name",
                hint=f"{finishing_hint(data_dir)}; stop it, and adopt again",
            )
        brokers = _brokers(disk, data_dir)
        for broker in brokers:
            _lock(locks, broker.path)
        target = await zookeeper_backend(settings, SystemClock()).connect()
        try:
            return await _adopt(disk, data_dir, found, brokers, target)
        finally:
            await target.close()


def _lock(locks: ExitStack, path: str) -> None:
    lock = FileLock()
    try:
        lock.acquire(path)
    except DirectoryLocked as error:
        raise DirectoryLocked(str(error), hint="stop the broker first") from None
    locks.callback(lock.release)


def _brokers(disk: PosixDisk, data_dir: str) -> list[AdoptedBroker]:
    """Those that have served; a process that never started has no directory, or one without a cluster."""
    places = read_places(disk, data_dir)
    if places is None:
        return [AdoptedBroker(directory_tree.node_id_of(disk, data_dir) or 0, data_dir, ())]
    brokers = [AdoptedBroker(each.node_id, each.path(data_dir), each.ports) for each in places.brokers]
    return [
        each for each in brokers if disk.exists(each.path) and directory_tree.cluster_id_of(disk, each.path) is not None
    ]


async def _adopt(disk: PosixDisk, data_dir: str, found: str, brokers: Sequence[AdoptedBroker], target: Tree) -> Adopted:
    home = directory_tree.shared_home(disk, data_dir)
    if home == directory_tree.SHARED:
        if await cluster_id(target, new_id=_no_cluster) != found:
            raise OttlaError(
                f"{data_dir} was moved to the ZooKeeper of cluster {found}, and this is another cluster's",
                hint="check --zookeeper",
            )
        await adoption.finish(target)
        return Adopted(found, None, brokers)
    if home == directory_tree.OF_PROCESSES:
        _require_complete(disk, data_dir, brokers)
    backend = await open_embedded(disk, data_dir, SystemClock())
    try:
        source = await backend.connect()
        count = await adoption.adopt(source, target, found)
    finally:
        await backend.close()
    # That of the tree is the last one: until it is marked the move is repeated.
    for broker in reversed(brokers):
        # Its logs hold all that it reported so far, and the states name no life of it any more.
        log_completeness.record_complete_from(disk, broker.path, NO_BROKER_EPOCH)
        directory_tree.mark_shared(disk, broker.path)
    await adoption.finish(target)
    return Adopted(found, count, brokers)


def _require_complete(disk: PosixDisk, data_dir: str, brokers: Sequence[AdoptedBroker]) -> None:
    """Raises `LogsIncomplete`: the states of the adopted tree cannot show which logs lack something."""
    for broker in brokers:
        if not log_completeness.are_all_complete(disk, broker.path):
            raise LogsIncomplete(
                f"{broker.path} has logs that lack records which its broker reported",
                hint=f"give all partitions to one broker first: `ottla serve --processes 1 --data-dir "
                f"{shlex.quote(data_dir)}`; stop it, and adopt again",
            )


def _no_cluster() -> UUID:
    raise OttlaError(
        "the ZooKeeper tree has no cluster yet, and the directory was moved before", hint="check --zookeeper"
    )
