"""From the tree and the directories of stopped brokers to the journal of a change of their number."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

from ottla.coordination import layout
from ottla.coordination.broker_registry import cluster_id
from ottla.coordination.generations import is_stale, read_generation
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.topics_view import PartitionNode, Topic, TopicsView
from ottla.coordination.tree import Tree
from ottla.maintenance.found_topics import greatest_leader_epoch
from ottla.maintenance.resize_journal import LogMove, LogRecords, PartitionChange, Phase, ResizeJournal
from ottla.maintenance.resize_places import Places, held_generation, topic_of
from ottla.maintenance.resize_plan import PartitionCopies, PlannedPartition, plan_resize
from ottla.model.identifiers import LeaderEpoch, NodeId, TopicPartition
from ottla.model.partition_state import NO_BROKER_EPOCH, NO_LEADER, PartitionState, ReplicaIncarnation
from ottla.runtime.disk import Disk
from ottla.runtime.offload import run_inline
from ottla.storage import checkpoints
from ottla.storage.directory import directory_identity, directory_tree
from ottla.storage.directory.directory_identity import is_same_boot, write_boot_note
from ottla.storage.directory.flushed_ends import read_flushed_ends
from ottla.storage.directory.log_checkpoints import LogStarts
from ottla.storage.directory.log_completeness import LogCompleteness
from ottla.storage.directory.partition_directory import is_strange
from ottla.storage.errors import ForeignDirectory, StaleDirectory, StorageError
from ottla.storage.log_files import UNFLUSHED_FILE, base_offsets_in, topic_partition_of


class RecordedDirectory:
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
        """From which broker epoch on logs that come are complete; None where nothing says it yet."""
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


class ResizePlanning:
    """From the tree and the directories to the journal; changes nothing but marks that each start would make."""

    def __init__(self, places: Places, tree: Tree) -> None:
        self._places = places
        self._disk = places.disk
        self._tree = tree
        self._directories: dict[NodeId, RecordedDirectory] = {}

    async def journal(self, brokers: Sequence[NodeId]) -> ResizeJournal:
        places = self._places
        current = places.current()
        await self._check(current)
        view = await self._topics()
        is_standalone = not directory_tree.is_shared(self._disk, places.data_dir)
        for node_id in dict.fromkeys((*current, *brokers)):
            directory = RecordedDirectory(
                self._disk,
                places.path(node_id),
                node_id,
                is_standalone=is_standalone and node_id == places.first,
            )
            self._directories[node_id] = directory
        self._mark_unflushed_lost(view)
        found = {each.topic_partition: each for each in self._copies(view, current)}
        planned = plan_resize(list(found.values()), current, brokers)
        planned += _ended_moves(view, found, planned, brokers)
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
        if directory_tree.shared_home(disk, places.data_dir) == directory_tree.SHARED:
            directory_tree.require_own_tree(disk, places.data_dir)
        if await self._tree.exists(layout.CLUSTER_ID) is None:
            return
        own = await cluster_id(self._tree)
        for node_id in current:
            directory_identity.check(disk, places.path(node_id), node_id, own)
            await self._check_generation(node_id)

    async def _check_generation(self, node_id: NodeId) -> None:
        """Raises `StaleDirectory` for a copy of an earlier time: its logs must not replace what the broker reported."""
        path = self._places.path(node_id)
        seen = (await read_generation(self._tree, node_id)).seen
        if seen is not None and is_stale(held_generation(self._disk, path), seen):
            raise StaleDirectory(
                f"{path} is not as broker {node_id} left it, but a copy of an earlier time, or another directory: it "
                "may lack records that were acknowledged",
                hint="put the newest directory back, or start with as many processes as before: its start says more",
            )

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
        if self._disk.exists(directory.path):
            _require_free(self._disk, directory.path, node_id)
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


def _require_free(disk: Disk, path: str, node_id: NodeId) -> None:
    """Raises `ForeignDirectory` where a new broker's directory holds files that are no broker's."""
    try:
        directory_identity.check(disk, path, node_id, None)
    except ForeignDirectory as error:
        if disk.exists(f"{path}/{checkpoints.META_PROPERTIES_FILE}"):
            raise
        raise ForeignDirectory(
            str(error), hint="a former broker had it: move what is left there elsewhere, and start again"
        ) from None


def _settled_replicas(partition: PartitionNode) -> tuple[NodeId, ...]:
    """The replicas without a move that was under way: as after it where all of those are in sync, else as before."""
    if not partition.is_moving:
        return partition.replicas
    in_sync = set(partition.state.in_sync_nodes())
    if in_sync.issuperset(partition.target):
        return partition.target
    return partition.origin if in_sync.intersection(partition.origin) else partition.replicas


def _ended_moves(
    view: TopicsView,
    copies: Mapping[TopicPartition, PartitionCopies],
    planned: Sequence[PlannedPartition],
    brokers: Collection[NodeId],
) -> list[PlannedPartition]:
    """Partitions whose move to or from a broker that goes was under way, and that stay where they are."""
    known = {each.topic_partition for each in planned}
    found: list[PlannedPartition] = []
    for topic, partition in view.partitions():
        name = TopicPartition(topic.name, partition.partition_index)
        if partition.is_moving and name not in known and not set(partition.replicas) <= set(brokers):
            replicas = copies[name].replicas
            found.append(PlannedPartition(name, replicas, {node_id: node_id for node_id in replicas}))
    return found
