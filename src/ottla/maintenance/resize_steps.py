"""The steps of a journal: each may be repeated after a crash in it, and after a crash in those that follow."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.coordination import layout
from ottla.coordination.broker_registry import cluster_id
from ottla.coordination.generations import SeenGeneration, generation_write, next_generation, read_generation
from ottla.coordination.reassignment import Reassigned
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.topics_view import NO_MOVE, PartitionNode
from ottla.coordination.tree import Tree
from ottla.maintenance.resize_journal import (
    LogMove,
    LogRecords,
    PartitionChange,
    Phase,
    ResizeJournal,
    remove_journal,
    write_journal,
)
from ottla.maintenance.resize_places import Places, held_generation, topic_of
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.model.limits import MIB
from ottla.model.partition_state import NO_BROKER_EPOCH
from ottla.observe.events import fields
from ottla.runtime.disk import Disk, write_fully
from ottla.storage import checkpoints
from ottla.storage.directory import directory_identity, directory_tree
from ottla.storage.directory.directory_identity import BOOT_NOTE_FILE, PROBE_FILE, write_boot_note
from ottla.storage.directory.directory_lock import LOCK_FILE
from ottla.storage.directory.directory_space import RESERVE_FILE
from ottla.storage.directory.flushed_ends import FlushedEnds, LogKey
from ottla.storage.directory.log_checkpoints import LogStarts
from ottla.storage.directory.log_completeness import record_complete_from
from ottla.storage.directory.partition_directory import is_strange
from ottla.storage.directory.removals import remove_tree
from ottla.storage.errors import DiskFull
from ottla.storage.log_files import (
    CUT_DIRECTORY_SUFFIX,
    DAMAGED_DIRECTORY_SUFFIX,
    DELETED_DIRECTORY_SUFFIX,
    FLUSHED_ENDS_FILE,
    STRAY_DIRECTORY_SUFFIX,
    UNFINISHED_CUT_SUFFIX,
    base_offsets_in,
    deleted_directory_name,
    segment_file_name,
    topic_partition_of,
)

_log = logging.getLogger(__name__)

# No partition's name ends so: a log that is being copied from another file system.
UNFINISHED_SUFFIX: Final = ".moving"
# Of most file systems; the names are ASCII.
_NAME_BYTES_MAX: Final = 255
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
AT_NEXT_START: Final = "it is continued at the next start, before any broker starts"


class KeptDirectory(NamedTuple):
    """The directory of a removed broker that remains: with what is left in it (`names`), or empty as a mount point."""

    path: str
    names: tuple[str, ...]


class ResizeResult(NamedTuple):
    """What `resize` did.

    `moved_count` logs changed their broker; of these `copied_bytes` had to be copied, to another file system.
    `lowered` are the partitions that have fewer replicas now, since there are fewer brokers than they had replicas.
    `kept` are directories of removed brokers that remain.
    """

    moved_count: int = 0
    copied_bytes: int = 0
    lowered: tuple[TopicPartition, ...] = ()
    kept: tuple[KeptDirectory, ...] = ()


class ResizeSteps:
    """The steps of a journal.  Each may be repeated after a crash in it, and after a crash in those that follow."""

    def __init__(self, places: Places, tree: Tree) -> None:
        self._places = places
        self._disk = places.disk
        self._tree = tree
        self._registry = TopicRegistry(tree)
        self._copied_bytes = 0
        self._kept: list[KeptDirectory] = []

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
        return ResizeResult(moved_count, self._copied_bytes, lowered, tuple(self._kept))

    async def _prepare(self, journal: ResizeJournal) -> None:
        disk, places = self._disk, self._places
        if len(journal.brokers) > 1 and not directory_tree.is_shared(disk, places.data_dir):
            # In this order: its logs are all complete, since it was the only broker.
            record_complete_from(disk, places.data_dir, NO_BROKER_EPOCH)
            checkpoints.write_kept_from(disk, places.data_dir, {})
            directory_tree.mark_shared(disk, places.data_dir, directory_tree.OF_PROCESSES)
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
                self._remove_deleted(places.path(node_id), arriving)
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
            self._delete(path, change.topic_partition, found or change.topic_id)
            return
        self._disk.rename(source, f"{path}/{self._free_name(path, _stray_name(change.topic_partition, found))}")
        self._disk.sync_directory(path)

    def _free_name(self, path: str, name: str) -> str:
        """The name, or with a number in front of its suffix where another directory has it."""
        stem, dash, suffix = name.rpartition("-")
        number = 1
        while self._disk.exists(f"{path}/{name}"):
            number += 1
            tail = f".{number}{dash}{suffix}"
            name = stem[: _NAME_BYTES_MAX - len(tail)] + tail
        return name

    def _delete(self, path: str, topic_partition: TopicPartition, topic_id: UUID) -> None:
        """Remove a log; after a crash in between the next start of its broker removes the rest."""
        target = f"{path}/{deleted_directory_name(topic_partition, topic_id.hex)}"
        if self._disk.exists(target):
            remove_tree(self._disk, target)
        self._disk.rename(f"{path}/{topic_partition}", target)
        self._disk.sync_directory(path)
        remove_tree(self._disk, target)

    def _remove_deleted(self, path: str, arriving: Sequence[tuple[PartitionChange, LogMove]]) -> None:
        """What is left of deleted logs of the same topics and partitions as those that come."""
        names = set(self._disk.list_directory(path))
        for each, _ in arriving:
            name = deleted_directory_name(each.topic_partition, each.topic_id.hex)
            if name in names:
                remove_tree(self._disk, f"{path}/{name}")

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
        self._rename_or_copy(source, target)

    def _copy_log(self, source: str, target: str) -> None:
        """To another file system: whole and durable before it gets its name there."""
        disk, parent = self._disk, target.rpartition("/")[0]
        names = disk.list_directory(source)
        for name in names:
            if disk.is_directory(f"{source}/{name}"):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), f"{source}/{name}")
        size_bytes = sum(disk.file_size_bytes(f"{source}/{name}") for name in names)
        free_bytes = disk.free_bytes(parent)
        if free_bytes < size_bytes + _ROOM_LEFT_BYTES:
            raise DiskFull(
                f"{source} has to be copied to {parent}, which is on another file system: {size_bytes} bytes, and "
                f"{free_bytes} are free there",
                hint=f"make room there and start again: the change of the number of brokers was started, and "
                f"{AT_NEXT_START}",
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
        targets = {move.target for each in journal.partitions for move in each.moves}
        for node_id in targets.difference(journal.made):
            await self._move_generation(node_id)
        for node_id in (*journal.made, *journal.removed):
            # Another directory of this number is not the one that was seen.
            if await self._tree.exists(layout.generation_path(node_id)) is not None:
                await self._tree.delete(layout.generation_path(node_id))

    async def _move_generation(self, node_id: NodeId) -> None:
        """A copy that was made of the directory before lacks the logs that came: its broker must not start with it."""
        path = self._places.path(node_id)
        node = await read_generation(self._tree, node_id)
        if node.seen is not None:
            held = held_generation(self._disk, path)
            after = SeenGeneration(held.directory_id, next_generation(held, node.seen))
            checkpoints.write_generation(self._disk, path, after.generation)
            await self._tree.multi([generation_write(node_id, after, node.version)])

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
        if not others:
            try:
                disk.remove_directory(path)
                return
            except OSError as error:
                # A mount point or a symbolic link, which the administrator made.
                if error.errno not in (errno.EBUSY, errno.ENOTDIR, errno.ENOTEMPTY):
                    raise
        names = tuple(sorted(disk.list_directory(path)))
        _log.warning("broker.directory_kept", extra=fields(path=path, files_count=len(names)))
        self._kept.append(KeptDirectory(path, names))

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
        data_dir = self._places.data_dir
        try:
            self._rename_or_copy(source, f"{data_dir}/{self._free_name(data_dir, target)}")
        except IsADirectoryError:
            return False  # an operator has put more there than a log has
        return True

    def _rename_or_copy(self, source: str, target: str) -> None:
        try:
            self._disk.rename(source, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self._copy_log(source, target)
            remove_tree(self._disk, source)


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
