"""A data directory whose tree is moved to a ZooKeeper: locked, copied, marked, and only then open to brokers."""

from __future__ import annotations

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
from ottla.storage.errors import DirectoryLocked


class Adopted(NamedTuple):
    """`nodes_count` is None for a directory that was moved before."""

    cluster_id: str
    nodes_count: int | None


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
    lock = FileLock()
    try:
        lock.acquire(data_dir)
    except DirectoryLocked as error:
        raise DirectoryLocked(str(error), hint="stop the broker first") from None
    try:
        target = await zookeeper_backend(settings, SystemClock()).connect()
        try:
            return await _adopt(disk, data_dir, found, target)
        finally:
            await target.close()
    finally:
        lock.release()


async def _adopt(disk: PosixDisk, data_dir: str, found: str, target: Tree) -> Adopted:
    if directory_tree.is_shared(disk, data_dir):
        if await cluster_id(target, new_id=_no_cluster) != found:
            raise OttlaError(
                f"{data_dir} was moved to the ZooKeeper of cluster {found}, and this is another cluster's",
                hint="check --zookeeper",
            )
        await adoption.finish(target)
        return Adopted(found, None)
    backend = await open_embedded(disk, data_dir, SystemClock())
    try:
        source = await backend.connect()
        count = await adoption.adopt(source, target, found)
    finally:
        await backend.close()
    # Its logs hold all that it reported so far, and the states name no life of it any more.
    log_completeness.record_complete_from(disk, data_dir, NO_BROKER_EPOCH)
    directory_tree.mark_shared(disk, data_dir)
    await adoption.finish(target)
    return Adopted(found, count)


def _no_cluster() -> UUID:
    raise OttlaError(
        "the ZooKeeper tree has no cluster yet, and the directory was moved before", hint="check --zookeeper"
    )
