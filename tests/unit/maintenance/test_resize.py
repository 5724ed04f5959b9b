"""What `resize` does beside moving logs: what it refuses, keeps, removes and reports."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import pytest

from ottla.coordination.embedded.backend import EmbeddedSession
from ottla.coordination.generations import read_generation
from ottla.coordination.reassignment import Reassigned
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.topics_view import Move, PartitionNode
from ottla.maintenance import resize_steps
from ottla.maintenance.resize import resize
from ottla.maintenance.resize_steps import KeptDirectory, ResizeResult
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.model.partition_state import NO_BROKER_EPOCH, ReplicaIncarnation
from ottla.runtime.disk import read_file, replace_file
from ottla.runtime.event_loop import run
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage import checkpoints
from ottla.storage.directory import directory_identity, directory_tree, flushed_ends
from ottla.storage.directory.directory_identity import BOOT_ID_PATH, is_same_boot
from ottla.storage.directory.directory_lock import FileLock
from ottla.storage.directory.flushed_ends import read_flushed_ends
from ottla.storage.directory.process_places import RESIZE_FILE, has_unfinished_resize
from ottla.storage.directory.removals import remove_tree
from ottla.storage.errors import DirectoryLocked, DiskFull, ForeignDirectory, StaleDirectory, StorageError
from ottla.storage.log_files import deleted_directory_name
from ottla.testing.memory_disk import MemoryDisk, Operation
from tests.property.resized_brokers import (
    BROKER_EPOCH,
    DATA,
    Machine,
    PartitionPlace,
    TreeInMemory,
    check_resized,
    folders_of,
    path_of,
    resized,
    topic_id,
    view_of,
)

ORDERS = [PartitionPlace(TopicPartition("orders", index), (1 + index % 2,)) for index in range(4)]


@pytest.fixture(autouse=True)
def _few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushed_ends, "SLOTS_COUNT_MIN", 16)


def machine_of(brokers: list[int], partitions: list[PartitionPlace], killed: tuple[int, ...] = ()) -> Machine:
    machine = Machine(brokers, partitions, killed)
    run(machine.make_tree())
    return machine


def act(tree: TreeInMemory, step: Callable[[EmbeddedSession], Awaitable[None]]) -> None:
    run(tree.use(step))


def test_logs_move_without_being_copied_and_their_records_with_them() -> None:
    machine = machine_of([1, 2], ORDERS)
    result = run(resized(machine.disk, machine.tree, [1]))
    assert (result.moved_count, result.copied_bytes, result.lowered, result.kept) == (2, 0, (), ())
    run(check_resized(machine.disk, machine.tree, [1], machine.truth, ""))
    assert not machine.disk.exists(path_of(2))
    assert not directory_tree.is_shared(machine.disk, DATA)


def test_moved_partition_starts_another_leader_epoch_with_an_entry_that_its_broker_confirms() -> None:
    machine = machine_of([1, 2, 3], [PartitionPlace(TopicPartition("orders", 0), (3,))])
    run(resized(machine.disk, machine.tree, [1, 2]))
    ((_, partition),) = run(view_of(machine.tree)).partitions()
    assert partition.state.leader_epoch == 4
    assert partition.state.in_sync == (ReplicaIncarnation(partition.replicas[0], BROKER_EPOCH),)


def test_new_directory_counts_as_complete_from_the_first_epoch() -> None:
    machine = machine_of([1], [PartitionPlace(TopicPartition("orders", index), (1,)) for index in range(2)])
    run(resized(machine.disk, machine.tree, [1, 2]))
    moved = [each for _, each in run(view_of(machine.tree)).partitions() if each.replicas == (NodeId(2),)]
    assert [each.state.in_sync for each in moved] == [(ReplicaIncarnation(NodeId(2), NO_BROKER_EPOCH),)]
    assert directory_tree.node_id_of(machine.disk, path_of(2)) == 2
    assert directory_tree.is_shared(machine.disk, DATA)


def test_nothing_is_changed_while_the_brokers_are_the_same() -> None:
    machine = machine_of([1, 2], ORDERS)
    before = machine.disk.files()
    assert run(resized(machine.disk, machine.tree, [1, 2])).moved_count == 0
    assert machine.disk.files() == before


def test_directory_that_no_broker_has_served_gives_nothing_away() -> None:
    disk = MemoryDisk()
    disk.make_directory(DATA)
    assert run(resized(disk, TreeInMemory(), [1, 2, 3])).moved_count == 0


def test_target_that_was_stopped_in_order_is_searched_when_a_log_of_a_killed_broker_comes() -> None:
    machine = machine_of([1, 2], ORDERS, killed=(2,))
    assert checkpoints.has_clean_shutdown_mark(machine.disk, DATA)
    run(resized(machine.disk, machine.tree, [1]))
    assert not checkpoints.has_clean_shutdown_mark(machine.disk, DATA)


def test_clean_stop_stays_one_when_all_logs_that_come_were_stopped_in_order() -> None:
    machine = machine_of([1, 2], ORDERS)
    run(resized(machine.disk, machine.tree, [1, 2, 3]))
    assert checkpoints.has_clean_shutdown_mark(machine.disk, DATA)
    assert checkpoints.has_clean_shutdown_mark(machine.disk, path_of(3))


def test_former_directory_forgets_what_it_recorded_of_a_log_that_moved() -> None:
    machine = machine_of([1], [PartitionPlace(TopicPartition("orders", index), (1,)) for index in range(2)])
    run(resized(machine.disk, machine.tree, [1, 2]))
    (moved,) = set(folders_of(machine.disk, [2])) & {"orders-0", "orders-1"}
    index = int(moved[-1])
    assert (topic_id("orders"), index) in read_flushed_ends(machine.disk, path_of(2))
    assert (topic_id("orders"), index) not in read_flushed_ends(machine.disk, DATA)
    assert TopicPartition("orders", index) not in checkpoints.read_high_watermarks(machine.disk, DATA)
    assert TopicPartition("orders", index) in checkpoints.read_high_watermarks(machine.disk, path_of(2))


def test_partition_with_more_replicas_than_brokers_is_reported() -> None:
    machine = machine_of([1, 2], [PartitionPlace(TopicPartition("orders", 0), (1, 2))])
    assert run(resized(machine.disk, machine.tree, [1])).lowered == (TopicPartition("orders", 0),)


def test_log_of_another_topic_with_the_name_of_one_that_comes_is_set_aside() -> None:
    machine = machine_of([1, 2], ORDERS)
    path = f"{DATA}/orders-1"
    machine.disk.make_directory(path)
    checkpoints.write_topic_id(machine.disk, path, UUID(int=77))
    file = machine.disk.open(f"{path}/{0:020d}.log", create=True)
    file.write_at(0, b"records of another topic")
    run(resized(machine.disk, machine.tree, [1]))
    assert f"orders-1.{UUID(int=77).hex}-stray" in machine.disk.list_directory(DATA)
    run(check_resized(machine.disk, machine.tree, [1], machine.truth, ""))


def test_directory_with_a_partitions_name_that_is_no_log_is_refused_before_anything_changes() -> None:
    machine = machine_of([1, 2], ORDERS)
    machine.disk.make_directory(f"{DATA}/orders-1")
    machine.disk.open(f"{DATA}/orders-1/photo.jpg", create=True).close()
    before = machine.disk.files()
    with pytest.raises(StorageError, match="orders-1 is no log") as caught:
        run(resized(machine.disk, machine.tree, [1]))
    assert caught.value.hint == "move it out of the data directory"
    assert machine.disk.files() == before


def test_logs_that_an_operator_keeps_go_to_the_first_directory_and_other_files_stay() -> None:
    machine = machine_of([1, 2], ORDERS)
    machine.disk.make_directory(f"{path_of(2)}/old-0.12.34-damaged")
    machine.disk.open(f"{path_of(2)}/notes.txt", create=True).close()
    result = run(resized(machine.disk, machine.tree, [1]))
    assert result.kept == (KeptDirectory(path_of(2), ("notes.txt",)),)
    assert "old-0.12.34-damaged" in machine.disk.list_directory(DATA)
    assert machine.disk.list_directory(path_of(2)) == ["notes.txt"]
    with pytest.raises(ForeignDirectory, match=r"it holds notes\.txt") as caught:
        run(resized(machine.disk, machine.tree, [1, 2]))
    assert caught.value.hint == "a former broker had it: move what is left there elsewhere, and start again"


def test_directory_that_a_power_cut_ended_is_compared_with_the_boot_once() -> None:
    """What moves there was written in this boot, so its broker's start must not take it for lost."""
    orders = [PartitionPlace(TopicPartition("orders", 0), (1,)), PartitionPlace(TopicPartition("orders", 1), (2,))]
    machine = machine_of([1, 2], orders, killed=(1,))
    for path in ("/proc", "/proc/sys", "/proc/sys/kernel", "/proc/sys/kernel/random"):
        machine.disk.make_directory(path)
    replace_file(machine.disk, BOOT_ID_PATH, b"another boot")
    run(resized(machine.disk, machine.tree, [1, 3]))
    assert is_same_boot(machine.disk, DATA)


def make_log(disk: MemoryDisk, path: str, content: bytes, topic: UUID | None = None) -> None:
    disk.make_directory(path)
    if topic is not None:
        checkpoints.write_topic_id(disk, path, topic)
    disk.open(f"{path}/{0:020d}.log", create=True).write_at(0, content)


def test_log_that_an_operator_keeps_is_copied_from_another_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resize_steps, "_ROOM_LEFT_BYTES", 0)
    machine = machine_of([1, 2], ORDERS)
    make_log(machine.disk, f"{path_of(2)}/old-0.12.34-cut", b"acknowledged")
    machine.disk.faults.fail("rename", error=errno.EXDEV, times=None, path_contains="broker-2/old-0.12.34-cut -> ")
    assert run(resized(machine.disk, machine.tree, [1])).kept == ()
    assert read_file(machine.disk, f"{DATA}/old-0.12.34-cut/{0:020d}.log") == b"acknowledged"
    assert not machine.disk.exists(path_of(2))


def test_directory_that_cannot_be_copied_as_a_log_is_left_and_reported() -> None:
    machine = machine_of([1, 2], ORDERS)
    for path in ("old-0.12.34-cut", "old-0.12.34-cut/notes"):
        machine.disk.make_directory(f"{path_of(2)}/{path}")
    machine.disk.faults.fail("rename", error=errno.EXDEV, times=None, path_contains="broker-2/old-0.12.34-cut -> ")
    assert run(resized(machine.disk, machine.tree, [1])).kept == (KeptDirectory(path_of(2), ("old-0.12.34-cut",)),)


def test_log_that_an_operator_keeps_gets_a_free_name_with_its_suffix() -> None:
    machine = machine_of([1, 2], ORDERS)
    for path, content in ((DATA, b"first"), (path_of(2), b"second")):
        make_log(machine.disk, f"{path}/old-0.12.34-damaged", content)
    assert run(resized(machine.disk, machine.tree, [1])).kept == ()
    assert read_file(machine.disk, f"{DATA}/old-0.12.34-damaged/{0:020d}.log") == b"first"
    assert read_file(machine.disk, f"{DATA}/old-0.12.34.2-damaged/{0:020d}.log") == b"second"


def test_log_of_another_topic_is_set_aside_beside_one_that_was_before() -> None:
    machine = machine_of([1, 2], ORDERS)
    stray = f"orders-1.{UUID(int=77).hex}"
    for name in ("orders-1", f"{stray}-stray"):
        make_log(machine.disk, f"{DATA}/{name}", name.encode(), UUID(int=77))
    run(resized(machine.disk, machine.tree, [1]))
    assert read_file(machine.disk, f"{DATA}/{stray}.2-stray/{0:020d}.log") == b"orders-1"
    assert read_file(machine.disk, f"{DATA}/{stray}-stray/{0:020d}.log") == f"{stray}-stray".encode()


def test_log_of_a_deleted_topic_goes_with_its_broker() -> None:
    machine = machine_of([1, 2], [*ORDERS, PartitionPlace(TopicPartition("gone", 0), (2,))])

    async def delete(tree: EmbeddedSession) -> None:
        await TopicRegistry(tree).delete("gone")

    act(machine.tree, delete)
    run(resized(machine.disk, machine.tree, [1]))
    assert not machine.disk.exists(path_of(2))
    assert not [name for name in machine.disk.list_directory(DATA) if name.startswith("gone")]

    async def check(tree: EmbeddedSession) -> None:
        assert await TopicRegistry(tree).pending_deletions() == []

    act(machine.tree, check)


def lose_directory(machine: Machine, node_id: int) -> None:
    for name in machine.disk.list_directory(path_of(node_id)):
        if machine.disk.is_directory(f"{path_of(node_id)}/{name}"):
            remove_tree(machine.disk, f"{path_of(node_id)}/{name}")
    remove_tree(machine.disk, path_of(node_id))


def test_missing_directory_of_a_replica_is_refused() -> None:
    machine = machine_of([1, 2], ORDERS)
    lose_directory(machine, 2)
    recorded: list[bool] = []
    with pytest.raises(StorageError, match="has a replica on broker 2"):
        run(resized(machine.disk, machine.tree, [1, 3], lambda: recorded.append(True)))
    assert recorded == [], "the next start would repeat the refused change"


def test_brokers_are_recorded_before_their_change_starts() -> None:
    """After a crash in it the next start without the flag must find them."""
    machine = machine_of([1, 2], ORDERS)
    unfinished: list[bool] = []
    run(resized(machine.disk, machine.tree, [1], lambda: unfinished.append(has_unfinished_resize(machine.disk, DATA))))
    assert unfinished == [False]
    assert "orders-1" in machine.disk.list_directory(DATA)


def test_lost_directory_of_a_broker_lets_the_others_start_as_before() -> None:
    machine = machine_of([1, 2], ORDERS)
    lose_directory(machine, 2)
    before = machine.disk.files()
    assert run(resized(machine.disk, machine.tree, [1, 2])) == ResizeResult()
    assert machine.disk.files() == before


def test_broker_that_never_started_gets_its_share_at_the_next_start() -> None:
    """As after a start of two that ended before the second one had its directory."""
    machine = machine_of([1], [PartitionPlace(TopicPartition("orders", index), (1,)) for index in range(2)])
    directory_tree.mark_shared(machine.disk, DATA, directory_tree.OF_PROCESSES)
    assert run(resized(machine.disk, machine.tree, [1, 2])).moved_count == 1


@pytest.mark.parametrize("error", [errno.EBUSY, errno.ENOTDIR, errno.ENOTEMPTY])
def test_directory_that_cannot_be_removed_is_kept(error: int) -> None:
    """A mount point, a symbolic link, a file that another program makes meanwhile."""
    machine = machine_of([1, 2], ORDERS)
    machine.disk.faults.fail("remove_directory", error=error, times=None, path_contains="processes/broker-2")
    assert run(resized(machine.disk, machine.tree, [1])).kept == (KeptDirectory(path_of(2), ()),)
    assert not has_unfinished_resize(machine.disk, DATA)
    assert machine.disk.list_directory(path_of(2)) == []
    run(check_resized(machine.disk, machine.tree, [1], machine.truth, ""))
    assert run(resized(machine.disk, machine.tree, [1, 2])).moved_count == 2


def test_log_that_comes_back_keeps_its_flushed_end_beside_what_is_left_of_its_deletion() -> None:
    """A reassignment's deletion that was delayed, and not done when the brokers were stopped."""
    machine = machine_of([1, 2], ORDERS)
    left = f"{DATA}/{deleted_directory_name(TopicPartition('orders', 1), topic_id('orders').hex)}"
    machine.disk.make_directory(left)
    machine.disk.open(f"{left}/{0:020d}.log", create=True).close()
    run(resized(machine.disk, machine.tree, [1]))
    assert not machine.disk.exists(left)
    machine.disk.make_directory(left)
    run(check_resized(machine.disk, machine.tree, [1], machine.truth, ""))


def test_log_of_a_former_topic_that_gives_way_is_deleted_by_its_own_id() -> None:
    """Its remains must not make the next start forget the log that came."""
    machine = machine_of([1, 2], ORDERS)
    path = f"{DATA}/orders-1"
    machine.disk.make_directory(path)
    checkpoints.write_topic_id(machine.disk, path, UUID(int=77))
    renamed: list[str] = []

    def note(operation: Operation) -> None:
        if operation.kind == "rename":
            renamed.append(operation.path)

    machine.disk.on_operation = note
    run(resized(machine.disk, machine.tree, [1]))
    assert f"{path} -> {path}.{UUID(int=77).hex}-delete" in renamed


def test_directory_of_another_clusters_broker_is_refused() -> None:
    machine = machine_of([1], [PartitionPlace(TopicPartition("orders", 0), (1,))])
    for path in (f"{DATA}/processes", path_of(2)):
        machine.disk.make_directory(path)
    directory_identity.check_or_write(machine.disk, path_of(2), 2, "AAAACAAAAAAAAAAAAAAABg")
    with pytest.raises(ForeignDirectory, match=r"belongs to cluster\.id"):
        run(resized(machine.disk, machine.tree, [1]))


def test_copy_of_an_earlier_time_is_refused_before_its_logs_are_moved() -> None:
    machine = machine_of([1, 2], ORDERS)
    checkpoints.write_generation(machine.disk, path_of(2), 2)
    with pytest.raises(StaleDirectory, match="broker-2 is not as broker 2 left it"):
        run(resized(machine.disk, machine.tree, [1]))
    assert "orders-1" in machine.disk.list_directory(path_of(2))


def test_copy_of_a_directory_before_logs_came_is_stale_afterwards() -> None:
    machine = machine_of([1, 2], ORDERS)
    run(resized(machine.disk, machine.tree, [1]))

    async def check(tree: EmbeddedSession) -> None:
        seen = (await read_generation(tree, NodeId(1))).seen
        assert seen is not None
        assert seen.generation == checkpoints.read_generation(machine.disk, DATA) == 4

    act(machine.tree, check)


def test_move_of_replicas_that_was_under_way_ends_where_its_broker_goes() -> None:
    machine = machine_of([1, 2], [PartitionPlace(TopicPartition("orders", 0), (1, 2), in_sync=(1,))])

    async def start_move(tree: EmbeddedSession) -> None:
        def decide(partition: PartitionNode) -> Reassigned:
            return Reassigned(partition.replicas, Move(adding=(NodeId(2),)), partition.state)

        await TopicRegistry(tree).change_assignments("orders", None, [0], decide)

    act(machine.tree, start_move)
    assert run(resized(machine.disk, machine.tree, [1])).lowered == ()
    ((_, partition),) = run(view_of(machine.tree)).partitions()
    assert (partition.replicas, partition.is_moving) == ((NodeId(1),), False)
    run(check_resized(machine.disk, machine.tree, [1], machine.truth, ""))


def test_copy_to_another_file_system_needs_room_there() -> None:
    machine = machine_of([1, 2], ORDERS)
    machine.disk.faults.fail("rename", error=18, times=None, path_contains="/broker-2/orders-1 -> ")
    machine.disk.room_bytes = 10_000_000
    with pytest.raises(DiskFull, match="has to be copied") as caught:
        run(resized(machine.disk, machine.tree, [1]))
    assert caught.value.hint is not None
    machine.disk.room_bytes = None
    result = run(resized(machine.disk, machine.tree, [1]))
    assert result.copied_bytes > 0
    run(check_resized(machine.disk, machine.tree, [1], machine.truth, ""))


def test_damaged_journal_is_refused() -> None:
    machine = machine_of([1, 2], ORDERS)
    replace_file(machine.disk, f"{DATA}/processes/{RESIZE_FILE}", b'12\n{"version":1}')
    with pytest.raises(StorageError, match="cannot be read: its checksum"):
        run(resized(machine.disk, machine.tree, [1]))


def test_running_broker_is_reported(tmp_path: Path) -> None:
    disk = PosixDisk()
    directory_identity.check_or_write(disk, str(tmp_path), 1, "AAAACAAAAAAAAAAAAAAABQ")
    lock = FileLock()
    lock.acquire(str(tmp_path))
    with pytest.raises(DirectoryLocked, match="is in use by process") as caught:
        run(resize(str(tmp_path), [NodeId(1), NodeId(2)], lambda: None))
    assert caught.value.hint == "stop all brokers before their number is changed"
    lock.release()
