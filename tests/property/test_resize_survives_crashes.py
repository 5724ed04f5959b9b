"""A crash at every operation of a change of the number of brokers, with lost, torn and reordered unsynced writes.

The next call continues it, for the same number or another: each partition is at one place, the tree's, with every
record at its offset, and a broker that starts confirms its place in the in-sync set.  The controls omit a step: then
the same check must find a loss.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from ottla.coordination.embedded.node_table import NodeTable
from ottla.maintenance import resize_steps as steps_module
from ottla.maintenance.resize_journal import Phase, ResizeJournal, write_journal
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.runtime.disk import Disk, read_file, write_fully
from ottla.runtime.event_loop import run
from ottla.storage.directory import flushed_ends
from ottla.storage.directory.process_places import has_unfinished_resize
from ottla.testing.memory_disk import MemoryDisk, Operation

from .distinct_disks import DistinctDisks
from .property_settings import examples, exhaustive, is_tried, timeout_s
from .resized_brokers import DATA, Machine, PartitionPlace, TreeInMemory, check_resized, resized

SEEDS_COUNT = 2
pytestmark = pytest.mark.timeout(timeout_s(SEEDS_COUNT))


class Change(NamedTuple):
    """From some brokers with their partitions to others."""

    before: tuple[int, ...]
    partitions: tuple[PartitionPlace, ...]
    after: tuple[int, ...]
    killed: tuple[int, ...] = ()
    other_file_system: bool = False


def places(topic: str, *replicas: int | tuple[int, ...]) -> tuple[PartitionPlace, ...]:
    return tuple(
        PartitionPlace(TopicPartition(topic, index), each if isinstance(each, tuple) else (each,))
        for index, each in enumerate(replicas)
    )


OUT_OF_SYNC = (
    PartitionPlace(TopicPartition("replicated", 0), (2, 1), in_sync=(2,)),
    PartitionPlace(TopicPartition("replicated", 1), (1, 2)),
)
CHANGES = {
    "growth of one": Change((1,), places("orders", 1, 1, 1, 1) + places("__consumer_offsets", 1, 1), (1, 2, 3)),
    "growth of one that was killed": Change((1,), places("orders", 1, 1, 1, 1), (1, 2), killed=(1,)),
    "shrinking to two": Change((1, 2, 3), places("orders", 1, 2, 3, 1, 2, 3), (1, 2), killed=(3,)),
    "shrinking to one": Change((1, 2, 3), places("orders", 1, 2, 3) + places("single", 3), (1,)),
    "a replica that is out of sync": Change((1, 2), OUT_OF_SYNC, (1,)),
    "replicas at fewer brokers": Change((1, 2, 3), places("replicated", (1, 2), (2, 3), (3, 1)), (1, 2)),
    "another file system": Change((1, 2), places("orders", 1, 2, 1, 2), (1,), other_file_system=True),
}


@pytest.fixture(autouse=True)
def _few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushed_ends, "SLOTS_COUNT_MIN", 16)
    monkeypatch.setattr(steps_module, "_ROOM_LEFT_BYTES", 0)


class Crash(NamedTuple):
    label: str
    disk: MemoryDisk
    tree: NodeTable


def separate(disk: MemoryDisk, change: Change) -> MemoryDisk:
    """No directory of a partition can be renamed into the first broker's."""
    if change.other_file_system:
        for each in change.partitions:
            path = f"/processes/broker-2/{each.topic_partition} -> "
            disk.faults.fail("rename", error=errno.EXDEV, times=None, path_contains=path)
    return disk


async def crashes_of(
    change: Change, machine: Machine, seeds: Sequence[int | None], is_checked: Callable[[int], bool]
) -> list[Crash]:
    """The disks and trees that a crash before each operation of the change leaves; a seed of None is a kill."""
    found: list[Crash] = []
    distinct = DistinctDisks()
    number = 0
    disk, tree = separate(machine.disk, change), machine.tree

    def visit(label: str, table: NodeTable) -> None:
        nonlocal number
        for seed in seeds:
            number += 1
            if not is_checked(number):
                continue
            after = disk.kill() if seed is None else disk.crash(random.Random(f"{number} {seed}"))
            state = hash(tuple((path, node.data) for path, node in table.items() if path.startswith("/brokers")))
            if distinct.is_new(after, state):
                found.append(Crash(f"{label}, crash {number}", after, table.copy()))

    def before(operation: Operation) -> None:
        visit(f"before {operation}", tree.table)

    disk.on_operation = before
    tree.visit = lambda: visit("at a change of the tree", tree.table)
    await resized(disk, tree, change.after)
    disk.on_operation = None
    tree.visit = lambda: None
    await check_resized(disk.kill(), tree, change.after, machine.truth, "without a crash")
    return found


async def check_continued(crash: Crash, change: Change, machine: Machine, wanted: Sequence[int]) -> None:
    tree = TreeInMemory(crash.tree.copy())
    disk = separate(crash.disk, change)
    await resized(disk, tree, wanted)
    assert not has_unfinished_resize(disk, DATA), crash.label
    for node_id in set(change.before) - set(wanted):
        assert tree.table.find(f"/brokers/generations/{node_id}") is None, crash.label
        assert not disk.exists(f"{DATA}/processes/broker-{node_id}"), crash.label
    await check_resized(disk, tree, wanted, machine.truth, f"{crash.label}, then {list(wanted)}")


async def crash_everywhere(change: Change, seeds: Sequence[int | None], is_checked: Callable[[int], bool]) -> int:
    machine = Machine(change.before, change.partitions, change.killed)
    await machine.make_tree()
    crashes = await crashes_of(change, machine, seeds, is_checked)
    for crash in crashes:
        await check_continued(crash, change, machine, change.after)
    return len(crashes)


@exhaustive
@pytest.mark.parametrize("name", CHANGES)
def test_change_is_continued_after_a_power_loss_at_every_operation(name: str) -> None:
    assert run(crash_everywhere(CHANGES[name], range(examples(SEEDS_COUNT)), is_tried)) > 5


@exhaustive
@pytest.mark.parametrize("name", ["growth of one that was killed", "a replica that is out of sync"])
def test_change_is_continued_after_a_kill_at_every_operation(name: str) -> None:
    assert run(crash_everywhere(CHANGES[name], [None], is_tried)) > 2


@pytest.mark.parametrize("wanted", [(1,), (1, 2, 3)])
def test_change_is_continued_by_a_call_for_another_number(wanted: tuple[int, ...]) -> None:
    """The journal's change first, then the one from its brokers to those that are wanted now."""

    async def check() -> None:
        change = CHANGES["shrinking to two"]
        machine = Machine(change.before, change.partitions, change.killed)
        await machine.make_tree()
        crashes = await crashes_of(change, machine, [3], lambda number: number % 7 == 0)
        assert len(crashes) > 5
        for crash in crashes:
            # Where the first change had not started, nothing that it would have removed is looked at.
            tree = TreeInMemory(crash.tree.copy())
            await resized(crash.disk, tree, wanted)
            await check_resized(crash.disk, tree, wanted, machine.truth, f"{crash.label}, then {list(wanted)}")

    run(check())


def finds_a_loss(name: str) -> bool:
    try:
        run(crash_everywhere(CHANGES[name], [None, 0], lambda _: True))
    except (AssertionError, OSError, OttlaError):
        return True
    return False


def test_check_finds_a_loss_without_a_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_module, "write_journal", lambda _disk, _folder, _journal: None)
    monkeypatch.setattr(steps_module, "remove_journal", lambda _disk, _folder: None)
    assert finds_a_loss("shrinking to one")


def test_check_finds_a_loss_without_flushed_ends_in_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_module.ResizeSteps, "_record", lambda _self, _path, _arriving: None)
    assert finds_a_loss("shrinking to two")


def test_check_finds_a_leftover_without_the_phase_of_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that came in the place of one that gave way must not give way itself when the change is continued."""

    def write(disk: Disk, folder: str, journal: ResizeJournal) -> None:
        if journal.phase is Phase.PREPARE:
            write_journal(disk, folder, journal)

    monkeypatch.setattr(steps_module, "write_journal", write)
    assert finds_a_loss("a replica that is out of sync")


def test_check_finds_a_copy_that_is_not_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied files must be synced before the log that they were copied from is removed."""

    def copy(disk: Disk, source: str, target: str) -> int:
        content = read_file(disk, source)
        file = disk.open(target, create=True)
        write_fully(file, 0, content)
        file.close()
        return len(content)

    monkeypatch.setattr(steps_module, "_copy_file", copy)
    assert finds_a_loss("another file system")
