"""Growing and shrinking the brokers of one machine: partitions change their broker by a rename of their directory.

`ottla serve --processes N` runs N brokers on one data directory.  When N changes, and no broker runs, `resize` gives
each broker its share of the partitions (resize_plan.py): their directories, what the data directories record of them,
and their replicas and states in the tree.

A journal (resize.json) is durable before anything changes, and has every value that is needed; each step may be
repeated.  So a crash at any point is continued by the next call, before anything else, whatever number of brokers that
one is for.  Until then no broker may start: `resize` is called before each start of them.

A log keeps its offsets, its producers' state and its leader epochs, which are in its directory.  Its partition starts
another leader epoch.  A member of an in-sync set that moves is written there under a broker epoch from which on the
directory that it moves to is complete, so its broker reaffirms it as after any restart; a log that its former broker
would not have reaffirmed is not in the set any more.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple
from uuid import UUID

from ottla.coordination import layout
from ottla.coordination.broker_registry import cluster_id
from ottla.coordination.embedded.backend import EmbeddedBackend
from ottla.coordination.reassignment import Reassigned
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.topics_view import NO_MOVE, PartitionNode, Topic, TopicsView
from ottla.coordination.tree import Tree
from ottla.maintenance.found_topics import greatest_leader_epoch
from ottla.maintenance.resize_journal import (
    LogMove,
    LogRecords,
    PartitionChange,
    Phase,
    ResizeJournal,
    read_journal,
    remove_journal,
    write_journal,
)
from ottla.maintenance.resize_plan import PartitionCopies, PlannedPartition, plan_resize
from ottla.model.identifiers import LeaderEpoch, NodeId, TopicPartition
from ottla.model.limits import MIB
from ottla.model.partition_state import NO_BROKER_EPOCH, NO_LEADER, PartitionState, ReplicaIncarnation
from ottla.observe.events import fields
from ottla.runtime.disk import Disk, write_fully
from ottla.runtime.offload import run_inline
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage import checkpoints
from ottla.storage.directory import directory_identity, directory_tree
from ottla.storage.directory.directory_identity import BOOT_NOTE_FILE, PROBE_FILE, is_same_boot, write_boot_note
from ottla.storage.directory.directory_lock import LOCK_FILE, FileLock
from ottla.storage.directory.directory_space import RESERVE_FILE
from ottla.storage.directory.flushed_ends import FlushedEnds, LogKey, read_flushed_ends
from ottla.storage.directory.log_checkpoints import LogStarts
from ottla.storage.directory.log_completeness import LogCompleteness, record_complete_from
from ottla.storage.directory.partition_directory import is_strange
from ottla.storage.directory.removals import remove_tree
from ottla.storage.errors import DirectoryLocked, DiskFull, ForeignDirectory, StorageError
from ottla.storage.log_files import (
    CUT_DIRECTORY_SUFFIX,
    DAMAGED_DIRECTORY_SUFFIX,
    DELETED_DIRECTORY_SUFFIX,
    FLUSHED_ENDS_FILE,
    STRAY_DIRECTORY_SUFFIX,
    UNFINISHED_CUT_SUFFIX,
    UNFLUSHED_FILE,
    base_offsets_in,
    deleted_directory_name,
    segment_file_name,
    topic_partition_of,
)

_log = logging.getLogger(__name__)

PROCESSES_FOLDER: Final = "processes"
_BROKER_PREFIX: Final = "broker-"
# No partition's name ends so: a log that is being copied from another file system.
UNFINISHED_SUFFIX: Final = ".moving"
_COPY_BYTES: Final = 4 * MIB
_ROOM_LEFT_BYTES: Final = 64 * MIB
# What a data directory has beside its logs, and what goes with its broker.
_OWN_FILES: Final = frozenset(
    (
        checkpoints.META_PROPERTIES_FILE,
        checkpoints.RECOVERY_POINT_FILE,
        checkpoints.LOG_START_FILE,
        checkpoints.HIGH_WATERMARK_FILE,
        checkpoints.KEPT_FROM_FILE,
        checkpoints.GENERATION_FILE,
        checkpoints.CLEANER_FILE,
        checkpoints.CLEAN_SHUTDOWN_FILE,
        FLUSHED_ENDS_FILE,
        BOOT_NOTE_FILE,
        RESERVE_FILE,
        LOCK_FILE,
        PROBE_FILE,
    )
)
_AT_NEXT_START: Final = "it is continued at the next start, before any broker starts"


class ResizeResult(NamedTuple):
    """What `resize` did.

    `moved_count` logs changed their broker; of these `copied_bytes` had to be copied, to another file system.
    `lowered` are the partitions that have fewer replicas now, since there are fewer brokers than they had replicas.
    `kept_paths` are directories of removed brokers with files that are not Ottla's: those remain.
    """

    moved_count: int = 0
    copied_bytes: int = 0
    lowered: tuple[TopicPartition, ...] = ()
    kept_paths: tuple[str, ...] = ()


async def resize(data_dir: str, brokers: Sequence[NodeId]) -> ResizeResult:
    """Give the partitions of a data directory to these brokers, and finish what a crash interrupted before.

    `brokers` are all that will be started, the first one that of `data_dir` itself; the others have, or get, their
    directories in `data_dir/processes`.  Call it before the first of them starts, with no process holding the tree's
    file.  While the brokers are the same as before nothing is moved, and the tree is not opened.  With one broker the
    directory is a standalone one again.

    Raises `DirectoryLocked` while one of the brokers, of before or from now on, runs; `ForeignDirectory` for a
    directory that is not theirs; `StorageError`, and another `OttlaError` of the tree, for what prevents the change,
    before it starts or in between: then the next call continues it.
    """
    disk = PosixDisk()
    with ExitStack() as closing:
        places = _Places(disk, data_dir, brokers[0])
        _lock(closing, places)
        if not places.is_due(brokers):
            return ResizeResult()
        backend = await EmbeddedBackend.open(
            f"{data_dir}/{directory_tree.TREE_FILE}", may_be_new=directory_tree.may_have_new_tree(disk, data_dir)
        )
        try:
            return await Resizing(disk, data_dir, await backend.connect()).run(brokers)
        except OSError as error:
            raise StorageError(
                f"changing the number of brokers of {data_dir} failed: {error}", hint=_AT_NEXT_START
            ) from error
        finally:
            await backend.close()


def _lock(closing: ExitStack, places: _Places) -> None:
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


class _Places:
    """Where the directories of the brokers are; `first` has the data directory itself."""

    def __init__(self, disk: Disk, data_dir: str, first: NodeId) -> None:
        self.disk: Final = disk
        self.data_dir: Final = data_dir
        self.first: Final = first
        self.folder: Final = f"{data_dir}/{PROCESSES_FOLDER}"

    def path(self, node_id: NodeId) -> str:
        return self.data_dir if node_id == self.first else f"{self.folder}/{_BROKER_PREFIX}{node_id}"

    def others(self) -> list[NodeId]:
        """The brokers that have a folder, besides the first one."""
        if not self.disk.exists(self.folder):
            return []
        numbers = [
            name.removeprefix(_BROKER_PREFIX)
            for name in self.disk.list_directory(self.folder)
            if name.startswith(_BROKER_PREFIX)
        ]
        return sorted(NodeId(int(each)) for each in numbers if each.isascii() and each.isdigit())

    def current(self) -> list[NodeId]:
        """The brokers that have a data directory.  Raises `ForeignDirectory` for one of another broker."""
        found: list[NodeId] = []
        for node_id in (self.first, *self.others()):
            properties = checkpoints.read_meta_properties(self.disk, self.path(node_id))
            if properties is None:
                continue
            directory_identity.check(self.disk, self.path(node_id), node_id, None)
            found.append(node_id)
        return found

    def is_due(self, brokers: Sequence[NodeId]) -> bool:
        """Whether there is anything to do, as far as the directories show it."""
        current = self.current()
        if read_journal(self.disk, self.folder) is not None:
            return True
        # A directory that no broker has served has nothing to give away.
        has_topics = directory_tree.cluster_id_of(self.disk, self.data_dir) is not None
        return has_topics and set(current) != set(brokers)


class Resizing:
    """`resize` without its locks, on any disk: `tree` is a session with the tree that is in `data_dir`."""

    def __init__(self, disk: Disk, data_dir: str, tree: Tree) -> None:
        self._disk = disk
        self._data_dir = data_dir
        self._tree = tree

    async def run(self, brokers: Sequence[NodeId]) -> ResizeResult:
        """Raises `OSError` beside the errors of `resize`."""
        places = _Places(self._disk, self._data_dir, brokers[0])
        done = ResizeResult()
        journal = read_journal(self._disk, places.folder)
        if journal is not None:
            _log.warning("resize.continued", extra=fields(path=self._data_dir, brokers=list(journal.brokers)))
            done = await _Execution(places, self._tree).run(journal)
        if places.is_due(brokers):
            journal = await _Planning(places, self._tree).journal(brokers)
            self._disk.make_directory(places.folder)
            self._disk.sync_directory(self._data_dir)
            write_journal(self._disk, places.folder, journal)
            then = await _Execution(places, self._tree).run(journal)
            done = ResizeResult(
                done.moved_count + then.moved_count,
                done.copied_bytes + then.copied_bytes,
                tuple(dict.fromkeys((*done.lowered, *then.lowered))),
                (*done.kept_paths, *then.kept_paths),
            )
        return done


class _Directory:
    """What a data directory records of its logs, as it is before the change."""

    def __init__(self, disk: Disk, path: str, node_id: NodeId, *, is_standalone: bool) -> None:
        self.disk: Final = disk
        self.path: Final = path
        self.node_id: Final = node_id
        self.is_standalone: Final = is_standalone
        self.is_new: Final = not disk.exists(f"{path}/{checkpoints.META_PROPERTIES_FILE}")
        self.was_clean: Final = not self.is_new and checkpoints.has_clean_shutdown_mark(disk, path)
        # Of a standalone broker, whose logs nothing else could replace, all are complete.
        self._completeness: Final = (
            None if self.is_new or is_standalone else LogCompleteness(disk, path, has_logs=bool(self.logs()))
        )
        self._flushed_ends: Final = {} if self.is_new else read_flushed_ends(disk, path)
        self._starts: Final = None if self.is_new else LogStarts(disk, path)
        self._high_watermarks: Final = checkpoints.read_high_watermarks(disk, path)
        self._cleaned_ends: Final = checkpoints.read_cleaned_ends(disk, path)
        self._recovery_points: Final = checkpoints.read_recovery_points(disk, path)

    def logs(self) -> list[str]:
        """Names of directories that are partitions'."""
        return [name for name in self.disk.list_directory(self.path) if topic_partition_of(name) is not None]

    @property
    def complete_from(self) -> int | None:
        """From which broker epoch on logs that come are complete; None where that is to be recorded."""
        if self._completeness is None:
            return None if self.is_new else NO_BROKER_EPOCH
        return self._completeness.complete_from

    def is_complete(self, topic_partition: TopicPartition, broker_epoch: int, *, is_alone: bool) -> bool:
        """Whether its broker would confirm an entry of this epoch; `is_alone`: no other replica could be better."""
        if self._completeness is None:
            return True
        if self._completeness.complete_from is None and is_alone:
            return True
        return self._completeness.is_complete(topic_partition, broker_epoch)

    def mark_incomplete(self, partitions: Collection[TopicPartition]) -> None:
        assert self._completeness is not None
        run_inline(self._completeness.mark_incomplete(partitions))

    def has_log(self, topic_partition: TopicPartition, topic_id: UUID) -> bool:
        """Whether the partition's directory is there, and is this topic's as far as can be read."""
        path = f"{self.path}/{topic_partition}"
        return self.disk.exists(path) and topic_of(self.disk, path) in (topic_id, None)

    def records_of(self, topic_partition: TopicPartition, topic_id: UUID) -> LogRecords:
        start = None if self._starts is None else self._starts.start_of(topic_partition)
        path = f"{self.path}/{topic_partition}"
        if start is None and self.disk.exists(path):
            # The file was lost: each log starts where its first segment does.
            start = next(iter(base_offsets_in(self.disk.list_directory(path))), None)
        return LogRecords(
            self._flushed_ends.get((topic_id, topic_partition.partition)),
            start,
            self._high_watermarks.get(topic_partition),
            self._cleaned_ends.get(topic_partition),
            self._recovery_points.get(topic_partition),
        )


def topic_of(disk: Disk, path: str) -> UUID | None:
    """The topic's id of a partition's directory; None where it cannot be read."""
    try:
        return checkpoints.read_topic_id(disk, path)
    except checkpoints.DamagedCheckpoint:
        return None


class _Planning:
    """From the tree and the directories to the journal; changes nothing but marks that each start would make."""

    def __init__(self, places: _Places, tree: Tree) -> None:
        self._places = places
        self._disk = places.disk
        self._tree = tree
        self._directories: dict[NodeId, _Directory] = {}

    async def journal(self, brokers: Sequence[NodeId]) -> ResizeJournal:
        places = self._places
        current = places.current()
        await self._check(current)
        view = await self._topics()
        is_standalone = not directory_tree.is_shared(self._disk, places.data_dir)
        for node_id in dict.fromkeys((*current, *brokers)):
            directory = _Directory(
                self._disk,
                places.path(node_id),
                node_id,
                is_standalone=is_standalone and node_id == places.first,
            )
            self._directories[node_id] = directory
        self._mark_unflushed_lost(view)
        found = {each.topic_partition: each for each in self._copies(view, current)}
        planned = plan_resize(list(found.values()), current, brokers)
        targets = {target for each in planned for _, target in each.moves}
        made = tuple(node_id for node_id in brokers if node_id in targets and self._is_made(node_id))
        partitions = tuple(self._change(view, found[each.topic_partition], each) for each in planned)
        self._check_names(partitions)
        unclean = {
            move.target for each in partitions for move in each.moves if not self._directories[move.source].was_clean
        }
        removed = tuple(node_id for node_id in current if node_id not in brokers)
        return ResizeJournal(Phase.PREPARE, tuple(brokers), removed, made, tuple(sorted(unclean)), partitions)

    async def _check(self, current: Collection[NodeId]) -> None:
        """Raises `ForeignDirectory` where the tree is not that of the directories."""
        places, disk = self._places, self._disk
        if directory_tree.is_shared(disk, places.data_dir) and not disk.exists(places.folder):
            raise ForeignDirectory(
                f"{places.data_dir} belongs to a broker of a cluster, whose tree is not in the directory",
                hint="start it with --zookeeper CONNECT, or give other brokers their own empty --data-dir",
            )
        if await self._tree.exists(layout.CLUSTER_ID) is None:
            return
        own = await cluster_id(self._tree)
        for node_id in current:
            directory_identity.check(disk, places.path(node_id), node_id, own)

    async def _topics(self) -> TopicsView:
        await layout.lay_out(self._tree)
        return await TopicRegistry(self._tree).refresh()

    def _mark_unflushed_lost(self, view: TopicsView) -> None:
        """A power cut took what some logs had not flushed: as at their brokers' start, these count as incomplete where
        there are other replicas.  Their directories need not be compared with the boot any more.
        """
        alone = {
            TopicPartition(topic.name, each.partition_index)
            for topic, each in view.partitions()
            if len(each.replicas) == 1
        }
        for directory in self._directories.values():
            if directory.is_new or directory.is_standalone or directory.was_clean:
                continue
            if is_same_boot(self._disk, directory.path):
                continue
            names = {name: topic_partition_of(name) for name in directory.logs()}
            shared = {name: each for name, each in names.items() if each is not None and each not in alone}
            if not shared:
                continue
            marked = [
                each for name, each in shared.items() if self._disk.exists(f"{directory.path}/{name}/{UNFLUSHED_FILE}")
            ]
            directory.mark_incomplete(marked)
            write_boot_note(self._disk, directory.path)

    def _copies(self, view: TopicsView, current: Collection[NodeId]) -> Iterator[PartitionCopies]:
        for topic, partition in view.partitions():
            name = TopicPartition(topic.name, partition.partition_index)
            replicas = _settled_replicas(partition)
            for node_id in replicas:
                if node_id not in current:
                    raise StorageError(
                        f"{name} has a replica on broker {node_id}, and its directory is not in {self._places.folder}",
                        hint="put the directory back; where it is lost, start with as many processes as before: what "
                        "other brokers have then stays readable",
                    )
            complete = {node_id for node_id in replicas if self._is_complete(name, partition, replicas, node_id)}
            yield PartitionCopies(
                name,
                replicas,
                partition.state.leader,
                frozenset(complete.intersection(partition.state.in_sync_nodes())),
                frozenset(complete.intersection(member.node_id for member in partition.state.eligible)),
            )

    def _is_complete(
        self, name: TopicPartition, partition: PartitionNode, replicas: Sequence[NodeId], node_id: NodeId
    ) -> bool:
        members = (*partition.state.in_sync, *partition.state.eligible)
        return all(
            self._directories[node_id].is_complete(name, member.broker_epoch, is_alone=len(replicas) == 1)
            for member in members
            if member.node_id == node_id
        )

    def _is_made(self, node_id: NodeId) -> bool:
        directory = self._directories[node_id]
        if directory.complete_from is not None:
            return False
        if not directory.is_new and directory.logs():
            raise StorageError(
                f"no log in {directory.path} is known to be complete, so others cannot be moved there",
                hint="start with as many processes as before, and stop them when their partitions are in sync",
            )
        return True

    def _change(self, view: TopicsView, copies: PartitionCopies, planned: PlannedPartition) -> PartitionChange:
        name = planned.topic_partition
        topic = view.by_name[name.topic]
        partition = topic.partitions[name.partition]
        moves = tuple(self._move(name, topic, source, target) for source, target in planned.moves)
        gives_way = tuple(
            move.target for move in moves if self._disk.exists(f"{self._places.path(move.target)}/{name}")
        )
        # A move that was under way, and ends, has further ones.
        dropped = tuple(
            node_id
            for node_id in dict.fromkeys((*planned.dropped, *partition.replicas))
            if node_id not in planned.sources.values() and node_id not in gives_way
        )
        return PartitionChange(
            name,
            topic.topic_id,
            partition.state.leader_epoch,
            planned.before,
            planned.replicas,
            self._state(name, partition.state, copies, planned),
            moves,
            gives_way,
            tuple(node_id for node_id in dropped if node_id in self._directories),
        )

    def _move(self, name: TopicPartition, topic: Topic, source: NodeId, target: NodeId) -> LogMove:
        directory = self._directories[source]
        has_log = directory.has_log(name, topic.topic_id)
        return LogMove(source, target, has_log, directory.records_of(name, topic.topic_id))

    def _state(
        self, name: TopicPartition, state: PartitionState, copies: PartitionCopies, planned: PlannedPartition
    ) -> PartitionState:
        """The members of the sets at their new places, in the next leader epoch: above all of the logs, too."""
        in_sync, eligible = (
            {each.node_id: each for each in state.in_sync},
            {each.node_id: each for each in state.eligible},
        )

        def moved(
            members: Mapping[NodeId, ReplicaIncarnation], able: Collection[NodeId]
        ) -> Iterator[ReplicaIncarnation]:
            for target, source in planned.sources.items():
                if source in members and source in able:
                    epoch = self._directories[target].complete_from or NO_BROKER_EPOCH
                    yield members[source] if source == target else ReplicaIncarnation(target, epoch)

        log_epoch = max(
            (
                greatest_leader_epoch(self._disk, f"{self._places.path(source)}/{name}")
                for source in planned.sources.values()
                if source is not None and self._disk.exists(f"{self._places.path(source)}/{name}")
            ),
            default=-1,
        )
        after = PartitionState(
            planned.replicas[0],
            LeaderEpoch(max(state.leader_epoch, log_epoch) + 1),
            tuple(moved(in_sync, copies.in_sync)),
            tuple(moved(eligible, copies.eligible)),
        )
        return after if after.leader in after.in_sync_nodes() else after._replace(leader=NO_LEADER)

    def _check_names(self, partitions: Iterable[PartitionChange]) -> None:
        for each in partitions:
            for move in each.moves:
                path = f"{self._places.path(move.target)}/{each.topic_partition}"
                if self._disk.exists(path) and (not self._disk.is_directory(path) or is_strange(self._disk, path)):
                    raise StorageError(
                        f"{path} is no log, and a log needs its name", hint="move it out of the data directory"
                    )


def _settled_replicas(partition: PartitionNode) -> tuple[NodeId, ...]:
    """The replicas without a move that was under way: as after it where all of those are in sync, else as before."""
    if not partition.is_moving:
        return partition.replicas
    in_sync = set(partition.state.in_sync_nodes())
    if in_sync.issuperset(partition.target):
        return partition.target
    return partition.origin if in_sync.intersection(partition.origin) else partition.replicas


class _Execution:
    """The steps of a journal.  Each may be repeated after a crash in it, and after a crash in those that follow."""

    def __init__(self, places: _Places, tree: Tree) -> None:
        self._places = places
        self._disk = places.disk
        self._tree = tree
        self._registry = TopicRegistry(tree)
        self._copied_bytes = 0
        self._kept_paths: list[str] = []

    async def run(self, journal: ResizeJournal) -> ResizeResult:
        folder = self._places.folder
        if journal.phase is Phase.PREPARE:
            await self._prepare(journal)
            journal = journal._replace(phase=Phase.MOVE)
            write_journal(self._disk, folder, journal)
        self._move(journal)
        await self._change_tree(journal)
        await self._clear(journal)
        moved_count = sum(len(each.moves) for each in journal.partitions)
        _log.info(
            "brokers.resized",
            extra=fields(
                path=self._places.data_dir,
                brokers=list(journal.brokers),
                moved_count=moved_count,
                copied_bytes=self._copied_bytes,
            ),
        )
        # Last: nothing of it is left to do.
        remove_journal(self._disk, folder)
        lowered = tuple(each.topic_partition for each in journal.partitions if len(each.replicas) < len(each.before))
        return ResizeResult(moved_count, self._copied_bytes, lowered, tuple(self._kept_paths))

    async def _prepare(self, journal: ResizeJournal) -> None:
        disk, places = self._disk, self._places
        if len(journal.brokers) > 1 and not directory_tree.is_shared(disk, places.data_dir):
            # In this order: its logs are all complete, since it was the only broker.
            record_complete_from(disk, places.data_dir, NO_BROKER_EPOCH)
            checkpoints.write_kept_from(disk, places.data_dir, {})
            directory_tree.mark_shared(disk, places.data_dir)
        own = await cluster_id(self._tree)
        for node_id in journal.made:
            self._make(node_id, own, is_clean=node_id not in journal.unclean)
        for node_id in journal.unclean:
            self._make_unclean(places.path(node_id))
        deleted = {deletion.topic_id for deletion in await self._registry.pending_deletions()}
        for each in journal.partitions:
            for node_id in each.gives_way:
                self._set_out_of_the_way(places.path(node_id), each, deleted)
        for node_id in journal.brokers:
            arriving = [(each, move) for each in journal.partitions for move in each.moves if move.target == node_id]
            if arriving:
                self._record(places.path(node_id), arriving)

    def _make(self, node_id: NodeId, own_cluster_id: str, *, is_clean: bool) -> None:
        """A data directory without logs, in which all that come are complete."""
        disk, path = self._disk, self._places.path(node_id)
        disk.make_directory(path)
        disk.sync_directory(self._places.folder)
        directory_identity.check_or_write(disk, path, node_id, own_cluster_id)
        checkpoints.write_kept_from(disk, path, {})
        record_complete_from(disk, path, NO_BROKER_EPOCH)
        checkpoints.write_log_starts(disk, path, {})
        write_boot_note(disk, path)
        if is_clean:
            checkpoints.write_clean_shutdown_mark(disk, path)

    def _make_unclean(self, path: str) -> None:
        """A log comes whose end must be searched: the next start looks at all.  Nothing was lost of those that are
        here, so they are as of this boot.
        """
        if checkpoints.has_clean_shutdown_mark(self._disk, path):
            write_boot_note(self._disk, path)
            checkpoints.take_clean_shutdown_mark(self._disk, path)

    def _set_out_of_the_way(self, path: str, change: PartitionChange, deleted: Collection[UUID]) -> None:
        """What has the partition's name where its log moves to: a log that is worth less, or another topic's."""
        source = f"{path}/{change.topic_partition}"
        if not self._disk.exists(source):
            return
        found = topic_of(self._disk, source)
        if found == change.topic_id or found in deleted or _is_empty(self._disk, source):
            self._delete(path, change.topic_partition, change.topic_id)
            return
        self._disk.rename(source, f"{path}/{_stray_name(change.topic_partition, found)}")
        self._disk.sync_directory(path)

    def _delete(self, path: str, topic_partition: TopicPartition, topic_id: UUID) -> None:
        """Remove a log; after a crash in between the next start of its broker removes the rest."""
        target = f"{path}/{deleted_directory_name(topic_partition, topic_id.hex)}"
        if self._disk.exists(target):
            remove_tree(self._disk, target)
        self._disk.rename(f"{path}/{topic_partition}", target)
        self._disk.sync_directory(path)
        remove_tree(self._disk, target)

    def _record(self, path: str, arriving: Sequence[tuple[PartitionChange, LogMove]]) -> None:
        """What is known of the logs that will come, durably before they do."""
        disk = self._disk
        keys: list[LogKey] = [(each.topic_id, each.topic_partition.partition) for each, _ in arriving]
        ends = FlushedEnds.open(disk, path)
        try:
            ends.forget(key for key, (_, move) in zip(keys, arriving, strict=True) if move.records.flushed_end is None)
            known = ((*key, move.records.flushed_end) for key, (_, move) in zip(keys, arriving, strict=True))
            ends.add((topic_id, index, end) for topic_id, index, end in known if end is not None)
            ends.sync()
        finally:
            ends.close()
        starts = LogStarts(disk, path)
        for each, move in arriving:
            starts.set(each.topic_partition, move.records.log_start or 0)
        starts.write()
        names = {each.topic_partition: move.records for each, move in arriving}
        for read, write, value_of in _OFFSET_FILES:
            _merge(read(disk, path), {name: value_of(found) for name, found in names.items()}, disk, path, write)
        # They are complete here, for the epoch of their entries.
        _merge(
            checkpoints.read_kept_from(disk, path) or {}, dict.fromkeys(names), disk, path, checkpoints.write_kept_from
        )

    def _move(self, journal: ResizeJournal) -> None:
        disk, places = self._disk, self._places
        targets: dict[str, None] = {}
        sources: dict[str, None] = {}
        for each in journal.partitions:
            for move in each.moves:
                if move.has_log:
                    source, target = places.path(move.source), places.path(move.target)
                    self._move_log(f"{source}/{each.topic_partition}", f"{target}/{each.topic_partition}")
                    targets[target] = sources[source] = None
        # The new names first: a log without a name would be lost.
        for path in (*targets, *sources):
            if disk.exists(path):
                disk.sync_directory(path)

    def _move_log(self, source: str, target: str) -> None:
        disk = self._disk
        if not disk.exists(source):
            return  # done before
        if disk.exists(target):
            remove_tree(disk, source)  # it was copied, and is durable there
            return
        try:
            disk.rename(source, target)
            return
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        self._copy_log(source, target)
        remove_tree(disk, source)

    def _copy_log(self, source: str, target: str) -> None:
        """To another file system: whole and durable before it gets its name there."""
        disk, parent = self._disk, target.rpartition("/")[0]
        names = disk.list_directory(source)
        size_bytes = sum(disk.file_size_bytes(f"{source}/{name}") for name in names)
        free_bytes = disk.free_bytes(parent)
        if free_bytes < size_bytes + _ROOM_LEFT_BYTES:
            raise DiskFull(
                f"{source} has to be copied to {parent}, which is on another file system: {size_bytes} bytes, and "
                f"{free_bytes} are free there",
                hint=f"make room there and start again: the change of the number of brokers was started, and "
                f"{_AT_NEXT_START}",
            )
        unfinished = target + UNFINISHED_SUFFIX
        if disk.exists(unfinished):
            remove_tree(disk, unfinished)
        disk.make_directory(unfinished)
        for name in names:
            self._copied_bytes += _copy_file(disk, f"{source}/{name}", f"{unfinished}/{name}")
        disk.sync_directory(unfinished)
        disk.rename(unfinished, target)
        disk.sync_directory(parent)

    async def _change_tree(self, journal: ResizeJournal) -> None:
        """The replicas and states, those of a topic together; then what the tree knows of the directories."""
        by_topic: dict[tuple[str, UUID], dict[int, PartitionChange]] = {}
        for each in journal.partitions:
            topic, index = each.topic_partition
            by_topic.setdefault((topic, each.topic_id), {})[index] = each
        for (topic, topic_id), changes in by_topic.items():
            refused = await self._registry.change_assignments(topic, topic_id, list(changes), _decision(changes))
            problem = next((error for error in refused.values() if error is not None), None)
            if problem is not None:
                raise problem
        for node_id in (*journal.made, *journal.removed):
            # Another directory of this number is not the one that was seen.
            if await self._tree.exists(layout.generation_path(node_id)) is not None:
                await self._tree.delete(layout.generation_path(node_id))

    async def _clear(self, journal: ResizeJournal) -> None:
        """The logs that are not used any more, and what directories record of those that moved or went."""
        left: dict[NodeId, list[tuple[TopicPartition, UUID]]] = {}
        for each in journal.partitions:
            key = each.topic_partition, each.topic_id
            for move in each.moves:
                left.setdefault(move.source, []).append(key)
            for node_id in each.dropped:
                left.setdefault(node_id, []).append(key)
                path = self._places.path(node_id)
                if self._disk.exists(f"{path}/{each.topic_partition}"):
                    self._delete(path, *key)
        for node_id, keys in left.items():
            if node_id not in journal.removed:
                self._forget(self._places.path(node_id), keys)
        await self._remove_brokers(journal.removed)
        if len(journal.brokers) == 1:
            directory_tree.mark_own(self._disk, self._places.data_dir)

    def _forget(self, path: str, logs: Sequence[tuple[TopicPartition, UUID]]) -> None:
        disk = self._disk
        ends = FlushedEnds.open(disk, path)
        try:
            ends.forget((topic_id, name.partition) for name, topic_id in logs)
        finally:
            ends.close()
        names = [name for name, _ in logs]
        starts = LogStarts(disk, path)
        starts.forget(names)
        if starts.is_stale:
            starts.write()
        for read, write, _ in _OFFSET_FILES:
            _merge(read(disk, path), dict.fromkeys(names), disk, path, write)
        kept_from = checkpoints.read_kept_from(disk, path)
        if kept_from is not None:
            _merge(kept_from, dict.fromkeys(names), disk, path, checkpoints.write_kept_from)

    async def _remove_brokers(self, removed: Sequence[NodeId]) -> None:
        if not removed:
            return
        deletions = await self._registry.pending_deletions()
        deleted = {deletion.topic_id for deletion in deletions}
        for node_id in removed:
            if self._disk.exists(self._places.path(node_id)):
                self._remove_directory(self._places.path(node_id), deleted)
            own = [deletion.topic_id for deletion in deletions if node_id in deletion.brokers]
            if own:
                await self._registry.finish_deletions(own, node_id)
        self._disk.sync_directory(self._places.folder)

    def _remove_directory(self, path: str, deleted: Collection[UUID]) -> None:
        """Remove the directory of a broker whose logs have moved.

        Logs that are kept for an operator go to the first broker's directory, which reports them at each start; what is
        no broker's stays.
        """
        disk, others = self._disk, 0
        for name in disk.list_directory(path):
            if name in _OWN_FILES or name.removesuffix(".tmp") in _OWN_FILES:
                continue
            if not disk.is_directory(f"{path}/{name}") or not self._clear_directory(path, name, deleted):
                others += 1
        disk.sync_directory(self._places.data_dir)
        # The owner's name last: until then the directory is known to be a broker's.
        own = [name for name in disk.list_directory(path) if name.removesuffix(".tmp") in _OWN_FILES]
        for name in sorted(own, key=lambda name: name == checkpoints.META_PROPERTIES_FILE):
            disk.remove(f"{path}/{name}")
        if others:
            _log.warning("broker.directory_kept", extra=fields(path=path, files_count=others))
            self._kept_paths.append(path)
        else:
            disk.remove_directory(path)

    def _clear_directory(self, path: str, name: str, deleted: Collection[UUID]) -> bool:
        """Whether a directory beside the logs is gone from here."""
        disk, source = self._disk, f"{path}/{name}"
        if name.endswith((DELETED_DIRECTORY_SUFFIX, CUT_DIRECTORY_SUFFIX + UNFINISHED_CUT_SUFFIX, UNFINISHED_SUFFIX)):
            remove_tree(disk, source)
            return True
        target = name
        topic_partition = topic_partition_of(name)
        if topic_partition is not None and not is_strange(disk, source):
            topic_id = topic_of(disk, source)
            if topic_id in deleted or _is_empty(disk, source):
                remove_tree(disk, source)
                return True
            target = _stray_name(topic_partition, topic_id)
        elif not name.endswith((DAMAGED_DIRECTORY_SUFFIX, STRAY_DIRECTORY_SUFFIX, CUT_DIRECTORY_SUFFIX)):
            return False
        if disk.exists(f"{self._places.data_dir}/{target}"):
            return False
        try:
            disk.rename(source, f"{self._places.data_dir}/{target}")
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            return False
        return True


Read = Callable[[Disk, str], dict[TopicPartition, int]]
Write = Callable[[Disk, str, Mapping[TopicPartition, int]], None]

_OFFSET_FILES: Final[tuple[tuple[Read, Write, Callable[[LogRecords], int | None]], ...]] = (
    (checkpoints.read_high_watermarks, checkpoints.write_high_watermarks, lambda records: records.high_watermark),
    (checkpoints.read_cleaned_ends, checkpoints.write_cleaned_ends, lambda records: records.cleaned_end),
    (checkpoints.read_recovery_points, checkpoints.write_recovery_points, lambda records: records.recovery_point),
)


def _merge(
    found: Mapping[TopicPartition, int],
    changes: Mapping[TopicPartition, int | None],
    disk: Disk,
    path: str,
    write: Write,
) -> None:
    """Replace a file of offsets where these change it; None: there is none."""
    kept = {name: offset for name, offset in found.items() if name not in changes}
    merged = kept | {name: offset for name, offset in changes.items() if offset is not None}
    if merged != found:
        write(disk, path, merged)


def _decision(changes: Mapping[int, PartitionChange]) -> Callable[[PartitionNode], Reassigned | None]:
    def decide(partition: PartitionNode) -> Reassigned | None:
        change = changes[partition.partition_index]
        if partition.state.leader_epoch > change.epoch_before:
            return None  # written before a crash
        return Reassigned(change.replicas, NO_MOVE, change.state)

    return decide


def _is_empty(disk: Disk, path: str) -> bool:
    """Whether a partition's directory has no batch."""
    bases = base_offsets_in(disk.list_directory(path))
    return not any(disk.file_size_bytes(f"{path}/{segment_file_name(base)}") for base in bases)


def _stray_name(topic_partition: TopicPartition, topic_id: UUID | None) -> str:
    unique = "unknown" if topic_id is None else topic_id.hex
    return deleted_directory_name(topic_partition, unique, STRAY_DIRECTORY_SUFFIX)


def _copy_file(disk: Disk, source: str, target: str) -> int:
    """Durably; returns the size."""
    read = disk.open(source, read_only=True)
    try:
        copy = disk.open(target, create=True)
        try:
            size_bytes = read.size_bytes()
            for position in range(0, size_bytes, _COPY_BYTES):
                content = read.read_at(position, min(_COPY_BYTES, size_bytes - position))
                if len(content) < min(_COPY_BYTES, size_bytes - position):
                    raise OSError(errno.EIO, os.strerror(errno.EIO), source)
                write_fully(copy, position, content)
            copy.sync_data()
        finally:
            copy.close()
    finally:
        read.close()
    return size_bytes
