"""Brokers of one machine on a memory disk, with their tree in memory: made, resized, compared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, cast
from uuid import UUID
from zlib import crc32

from ottla.coordination import layout
from ottla.coordination.broker_registry import cluster_id
from ottla.coordination.embedded.backend import EmbeddedBackend, EmbeddedSession
from ottla.coordination.embedded.journal import Journal, JournalEntry
from ottla.coordination.embedded.node_table import NodeTable
from ottla.coordination.generations import NO_VERSION, SeenGeneration, generation_write
from ottla.coordination.topic_nodes import TopicPointer
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.topics_view import TopicsView
from ottla.coordination.tree import Operation, Stat
from ottla.maintenance.resize import Resizing
from ottla.maintenance.resize_places import held_generation
from ottla.maintenance.resize_steps import ResizeResult
from ottla.model.identifiers import LeaderEpoch, NodeId, TopicPartition, uuid_to_text
from ottla.model.partition_state import PartitionState, ReplicaIncarnation
from ottla.runtime.offload import run_inline
from ottla.storage import checkpoints
from ottla.storage.directory import directory_tree
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.log.log import Log
from ottla.testing.fake_clock import FakeClock
from ottla.testing.memory_disk import MemoryDisk

from .log_model import START_MS, BatchShape, Stored
from .log_place import SMALL_SEGMENTS, append, read_log

DATA = "/data"
CLUSTER = UUID(int=2**99 + 5)
# Of the brokers' registrations before the change.
BROKER_EPOCH = 40
FIRST = NodeId(1)


class _NoJournal:
    """Every commit is durable at once, in the table that the test copies."""

    path = "tree"
    commits_count = 0

    def commit(self, entry: JournalEntry) -> None:
        pass

    def close(self) -> None:
        pass


class TreeInMemory:
    """The tree's content, from which sessions are started; `visit` is called before and after each change."""

    def __init__(self, table: NodeTable | None = None) -> None:
        self.table = table or NodeTable()
        self.visit: Callable[[], None] = lambda: None

    async def use(self, act: Callable[[EmbeddedSession], Awaitable[None]]) -> None:
        thread = ThreadPoolExecutor(max_workers=1)
        backend = EmbeddedBackend(cast(Journal, _NoJournal()), self.table, 1_000, thread, FakeClock(START_MS))
        try:
            session = await backend.connect()
            self._watch(session)
            await act(session)
        finally:
            self.table = backend.committed
            await backend.close()

    def _watch(self, session: EmbeddedSession) -> None:
        multi = session.multi

        async def watched(operations: Sequence[Operation]) -> list[Stat | None]:
            self.visit()
            try:
                return await multi(operations)
            finally:
                self.visit()

        session.multi = watched  # type: ignore[method-assign]


class LogTruth(NamedTuple):
    """What a partition's log must have: at least up to `flushed_end`, and nothing else than `batches`."""

    batches: list[Stored]
    log_start_offset: int
    flushed_end: int


class PartitionPlace(NamedTuple):
    """A partition as it is before the change; the first replica leads.  All are in sync unless given."""

    topic_partition: TopicPartition
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...] | None = None


def topic_id(topic: str) -> UUID:
    return UUID(int=2**90 + crc32(topic.encode()))


def path_of(node_id: int) -> str:
    return DATA if node_id == FIRST else f"{DATA}/processes/broker-{node_id}"


def open_directory(disk: MemoryDisk, node_id: int) -> LogDirectory:
    return LogDirectory.open(
        disk,
        path_of(node_id),
        clock=FakeClock(START_MS),
        config_of=lambda _: SMALL_SEGMENTS,
        node_id=node_id,
        cluster_id=uuid_to_text(CLUSTER),
    )


class Machine:
    """`brokers` with these partitions; those in `killed` were not stopped in order."""

    def __init__(
        self, brokers: Sequence[int], partitions: Sequence[PartitionPlace], killed: Sequence[int] = (), seed: int = 0
    ) -> None:
        self.disk = MemoryDisk()
        self.tree = TreeInMemory()
        self.brokers = tuple(brokers)
        self.partitions = tuple(partitions)
        # Of the best log of each partition.
        self.truth: dict[TopicPartition, LogTruth] = {}
        self._seed = seed
        for node_id in brokers:
            self._fill(node_id, is_killed=node_id in killed)

    def _fill(self, node_id: int, *, is_killed: bool) -> None:
        directory = open_directory(self.disk, node_id)
        if len(self.brokers) > 1:
            directory.set_complete_from(BROKER_EPOCH)
            directory_tree.mark_shared(self.disk, path_of(node_id), directory_tree.OF_PROCESSES)
        own = [each for each in self.partitions if node_id in each.replicas]
        wanted = [(each.topic_partition, topic_id(each.topic_partition.topic)) for each in own]
        for log, place in zip(run_inline(directory.create(wanted)), own, strict=True):
            log.start_epoch(3)
            self._write(directory, log, place, node_id)
        checkpoints.write_generation(self.disk, path_of(node_id), 3)
        directory.record_high_watermarks({each.topic_partition: 2 for each in own})
        directory.abandon() if is_killed else directory.close()

    def _write(self, directory: LogDirectory, log: Log, place: PartitionPlace, node_id: int) -> None:
        is_best = node_id in (place.in_sync if place.in_sync is not None else place.replicas)
        stored: list[Stored] = []
        for number in range(5 if is_best else 2):
            shape = BatchShape(
                2,
                90,
                fill=place.topic_partition.partition * 16 + number,
                producer_id=7,
                producer_epoch=0,
                base_sequence=2 * number,
            )
            _, batch = append(log, shape)
            assert batch is not None
            stored.append(batch)
            if number == 1:
                log.roll(START_MS)
            if number == 3:
                self._flush(directory)
        if is_best:
            if place.topic_partition.partition % 2 == 0:
                log.delete_records_before(4)
                directory.checkpoint()
            self.truth[place.topic_partition] = LogTruth(stored, log.log_start_offset, log.flushed_end)

    def _flush(self, directory: LogDirectory) -> None:
        for log in directory.logs.values():
            flush = log.begin_flush()
            self.disk.sync_file_system("/")
            log.end_flush(flush)

    async def make_tree(self) -> None:
        async def fill(tree: EmbeddedSession) -> None:
            await layout.lay_out(tree)
            await cluster_id(tree, new_id=lambda: CLUSTER)
            registry = TopicRegistry(tree)
            for topic in dict.fromkeys(each.topic_partition.topic for each in self.partitions):
                own = sorted(each for each in self.partitions if each.topic_partition.topic == topic)
                pointer = TopicPointer(topic_id(topic), tuple(tuple(map(NodeId, each.replicas)) for each in own))
                states = [
                    PartitionState(
                        NodeId(each.replicas[0]),
                        LeaderEpoch(3),
                        tuple(
                            ReplicaIncarnation(NodeId(node_id), BROKER_EPOCH)
                            for node_id in (each.in_sync if each.in_sync is not None else each.replicas)
                        ),
                    )
                    for each in own
                ]
                await registry.install(topic, pointer, states, {})
            for node_id in self.brokers:
                held = held_generation(self.disk, path_of(node_id))
                seen = SeenGeneration(held.directory_id, held.generation)
                await tree.multi([generation_write(NodeId(node_id), seen, NO_VERSION)])

        await self.tree.use(fill)


async def resized(
    disk: MemoryDisk, tree: TreeInMemory, brokers: Sequence[int], accepted: Callable[[], None] = lambda: None
) -> ResizeResult:
    results: list[ResizeResult] = []

    async def act(session: EmbeddedSession) -> None:
        results.append(await Resizing(disk, DATA, session).run([NodeId(each) for each in brokers], accepted))

    await tree.use(act)
    return results[0]


async def view_of(tree: TreeInMemory) -> TopicsView:
    views: list[TopicsView] = []

    async def act(session: EmbeddedSession) -> None:
        views.append(await TopicRegistry(session).refresh())

    await tree.use(act)
    return views[0]


def folders_of(disk: MemoryDisk, brokers: Sequence[int]) -> dict[str, list[int]]:
    """Each partition's directory, and the brokers that have it."""
    found: dict[str, list[int]] = {}
    for node_id in brokers:
        if disk.exists(path_of(node_id)):
            for name in disk.list_directory(path_of(node_id)):
                found.setdefault(name, []).append(node_id)
    return found


async def check_resized(
    disk: MemoryDisk, tree: TreeInMemory, brokers: Sequence[int], truth: Mapping[TopicPartition, LogTruth], label: str
) -> None:
    """The brokers that start now serve every record at its offset, each partition at the places of the tree."""
    view = await view_of(tree)
    folders = folders_of(disk, range(1, 6))
    directories = {node_id: open_directory(disk, node_id) for node_id in brokers if disk.exists(path_of(node_id))}
    for node_id, directory in directories.items():
        assert not directory.failed, f"{label}: broker {node_id}: {directory.failed}"
    for topic, partition in view.partitions():
        name = TopicPartition(topic.name, partition.partition_index)
        assert set(partition.replicas) <= set(brokers), f"{label}: {name} {partition.replicas}"
        places = folders.get(str(name), [])
        assert set(places) == set(partition.replicas), f"{label}: {name} is at {places}, not at {partition.replicas}"
        assert partition.state.in_sync, f"{label}: {name} has no replica in sync"
        for member in partition.state.in_sync:
            directory = directories[member.node_id]
            assert name in directory.logs, f"{label}: broker {member.node_id} has no log {name}"
            if len(brokers) > 1:
                assert directory.is_complete(name, member.broker_epoch), f"{label}: {name} at broker {member}"
            check_log(directory.logs[name], truth[name], label)
    for node_id, directory in directories.items():
        extra = directory.logs.keys() - {
            TopicPartition(topic.name, each.partition_index)
            for topic, each in view.partitions()
            if node_id in each.replicas
        }
        assert not extra, f"{label}: broker {node_id} has {extra} too"
        directory.abandon()
    check_again(disk, directories, label)


def check_again(disk: MemoryDisk, killed: Mapping[int, LogDirectory], label: str) -> None:
    """Brokers that are killed after their first start know as much at the second one."""
    for node_id, before in killed.items():
        directory = open_directory(disk, node_id)
        assert not directory.failed, f"{label}: broker {node_id} after a kill: {directory.failed}"
        ends = {name: (log.flushed_end, log.log_end_offset) for name, log in directory.logs.items()}
        assert ends == {name: (log.flushed_end, log.log_end_offset) for name, log in before.logs.items()}, label
        directory.abandon()


def check_log(log: Log, truth: LogTruth, label: str) -> None:
    assert log.log_end_offset >= truth.flushed_end, f"{label}: {log.topic_partition} ends at {log.log_end_offset}"
    assert log.log_start_offset == truth.log_start_offset, f"{label}: {log.topic_partition}"
    found = read_log(log, log.log_start_offset, log.log_end_offset)
    kept = [each for each in truth.batches if truth.log_start_offset < each.next_offset <= log.log_end_offset]
    assert [each.data for each in found] == [each.data for each in kept], f"{label}: {log.topic_partition}"
    (entry,) = dict(log.producers.entries()).values()
    assert entry.epoch == 0
