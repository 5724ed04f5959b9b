"""Growing and shrinking the brokers of one machine: partitions change their broker by a rename of their directory.

`ottla serve --processes N` runs N brokers on one data directory.  When N changes, and no broker runs, `resize` gives
each broker its share of the partitions (resize_plan.py): their directories, what the data directories record of them,
and their replicas and states in the tree.

A journal (resize.json) is durable before anything changes, and has every value that is needed; each step may be
repeated.  So a crash at any point is continued by the next call, before anything else, for any number of brokers.
Until then no broker may start: `resize` is called before each start of them.

A log keeps its offsets, its producers' state and its leader epochs, which are in its directory.  Its partition starts
another leader epoch.  A member of an in-sync set that moves is written there under a broker epoch from which on the
directory that it moves to is complete, so its broker reaffirms it as after any restart; a log that its former broker
would not have reaffirmed is not in the set any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from ottla.coordination.embedded.backend import EmbeddedBackend
from ottla.coordination.generations import read_generation
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.tree import Tree
from ottla.maintenance.resize_journal import read_journal, write_journal
from ottla.maintenance.resize_places import Places
from ottla.maintenance.resize_planning import ResizePlanning
from ottla.maintenance.resize_steps import AT_NEXT_START, ResizeResult, ResizeSteps
from ottla.model.identifiers import NodeId
from ottla.observe.events import fields
from ottla.runtime.disk import Disk
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.directory import directory_tree
from ottla.storage.directory.directory_lock import FileLock
from ottla.storage.errors import DirectoryLocked, StorageError

_log = logging.getLogger(__name__)


def is_resize_due(disk: Disk, data_dir: str, brokers: Sequence[NodeId]) -> bool:
    """Whether `resize` has something to do, as far as the directories show it.  Raises as `resize`, and `OSError`."""
    return Places(disk, data_dir, brokers[0]).is_due(brokers)


async def resize(data_dir: str, brokers: Sequence[NodeId], accepted: Callable[[], None]) -> ResizeResult:
    """Give the partitions of a data directory to these brokers, and finish what a crash interrupted before.

    `brokers` are all that will be started, the first one that of `data_dir` itself; the others have, or get, their
    directories in `data_dir/processes`.  Call it before the first of them starts, with no process holding the tree's
    file.  While the brokers are the same as before nothing is moved, also where the directory of one is lost.  With one
    broker the directory is a standalone one again.

    `accepted` records the brokers durably: it is called when their change is planned, before it is started.  So the
    next start finds them after a crash in the change, and the former ones after a change that is refused.

    Raises `DirectoryLocked` while one of the brokers, of before or from now on, runs; `ForeignDirectory` for a
    directory that is not theirs; `StorageError`, and another `OttlaError` of the tree, for what prevents the change,
    before it starts or in between: then the next call continues it.
    """
    disk = PosixDisk()
    with ExitStack() as closing:
        places = Places(disk, data_dir, brokers[0])
        _lock(closing, places)
        if not places.is_due(brokers):
            return ResizeResult()
        backend = await EmbeddedBackend.open(
            f"{data_dir}/{directory_tree.TREE_FILE}", may_be_new=directory_tree.may_have_new_tree(disk, data_dir)
        )
        try:
            return await Resizing(disk, data_dir, await backend.connect()).run(brokers, accepted)
        except OSError as error:
            raise StorageError(
                f"changing the number of brokers of {data_dir} failed: {error}", hint=AT_NEXT_START
            ) from error
        finally:
            await backend.close()


def _lock(closing: ExitStack, places: Places) -> None:
    """The directories of all brokers, until the end."""
    for path in (places.data_dir, *map(places.path, places.others())):
        if not places.disk.exists(path):
            continue
        lock = FileLock()
        try:
            lock.acquire(path)
        except DirectoryLocked as error:
            raise DirectoryLocked(str(error), hint="stop all brokers before their number is changed") from None
        closing.callback(lock.release)


class Resizing:
    """`resize` without its locks, on any disk: `tree` is a session with the tree that is in `data_dir`."""

    def __init__(self, disk: Disk, data_dir: str, tree: Tree) -> None:
        self._disk = disk
        self._data_dir = data_dir
        self._tree = tree

    async def run(self, brokers: Sequence[NodeId], accepted: Callable[[], None]) -> ResizeResult:
        """Raises `OSError` beside the errors of `resize`."""
        places = Places(self._disk, self._data_dir, brokers[0])
        done = ResizeResult()
        journal = read_journal(self._disk, places.folder)
        if journal is not None:
            _log.warning("resize.continued", extra=fields(path=self._data_dir, brokers=list(journal.brokers)))
            done = await ResizeSteps(places, self._tree).run(journal)
        if places.is_due(brokers) and not await self._only_lacks_lost(places, brokers):
            _log.info("brokers.resizing", extra=fields(path=self._data_dir, brokers=list(brokers)))
            journal = await ResizePlanning(places, self._tree).journal(brokers)
            self._disk.make_directory(places.folder)
            self._disk.sync_directory(self._data_dir)
            accepted()
            write_journal(self._disk, places.folder, journal)
            then = await ResizeSteps(places, self._tree).run(journal)
            done = ResizeResult(
                done.moved_count + then.moved_count,
                done.copied_bytes + then.copied_bytes,
                tuple(dict.fromkeys((*done.lowered, *then.lowered))),
                (*done.kept, *then.kept),
            )
        return done

    async def _only_lacks_lost(self, places: Places, brokers: Sequence[NodeId]) -> bool:
        """Whether the brokers are those of before, and the directories of some are lost: they are no new ones, and
        the others must start as they are.
        """
        current = set(places.current())
        if not current.issubset(brokers) or not directory_tree.is_shared(self._disk, self._data_dir):
            return False
        view = await TopicRegistry(self._tree).refresh()
        served = {node_id for _, partition in view.partitions() for node_id in partition.replicas}
        for node_id in set(brokers) - current - served:
            if (await read_generation(self._tree, node_id)).seen is None:
                return False
        return True
