from __future__ import annotations

import random

import pytest

from ottla.runtime.disk import read_file
from ottla.storage.checkpoints import EpochStart
from ottla.storage.log.leader_epochs import LeaderEpochs
from ottla.testing.memory_disk import MemoryDisk, Survival


@pytest.fixture
def disk() -> MemoryDisk:
    made = MemoryDisk()
    made.make_directory("/t-0")
    made.sync_directory("/")
    return made


@pytest.fixture
def epochs(disk: MemoryDisk) -> LeaderEpochs:
    """Epoch 2 wrote 0-9, epoch 5 wrote 10-29, epoch 6 writes from 30 on."""
    made = LeaderEpochs.empty(disk, "/t-0")
    for epoch, start_offset in ((2, 0), (5, 10), (6, 30)):
        made.assign(EpochStart(epoch, start_offset))
    return made


def reloaded(disk: MemoryDisk) -> tuple[tuple[int, int], ...]:
    loaded = LeaderEpochs.load(disk, "/t-0")
    assert loaded is not None
    return loaded.entries


@pytest.mark.parametrize(
    ("epoch", "found"),
    [
        (-1, (-1, -1)),  # no epoch at all
        (0, (0, 0)),  # below all: what it wrote is gone, the first known one starts at 0
        (2, (2, 10)),
        (3, (2, 10)),  # between: the greatest not above
        (4, (2, 10)),
        (5, (5, 30)),
        (6, (6, 40)),  # the latest ends with the log
        (7, (-1, -1)),  # above all
    ],
)
def test_end_offset_is_where_the_next_epoch_starts(epochs: LeaderEpochs, epoch: int, found: tuple[int, int]) -> None:
    assert epochs.end_offset_for(epoch, 40) == found


@pytest.mark.parametrize(
    ("epoch", "found"),
    [
        (2, (2, 10)),
        (6, (6, 40)),  # the latest that has batches ends where the started one begins
        (7, (6, 40)),  # between them: an epoch that appended nothing
        (9, (9, 40)),
        (10, (-1, -1)),  # above the started one
    ],
)
def test_started_epoch_is_known_and_starts_at_the_log_end_before_its_first_append(
    epochs: LeaderEpochs, epoch: int, found: tuple[int, int]
) -> None:
    assert epochs.end_offset_for(epoch, 40, leader_epoch=9) == found


@pytest.mark.parametrize(("epoch", "found"), [(-1, (-1, -1)), (0, (0, 0)), (3, (3, 0)), (4, (4, 0)), (5, (-1, -1))])
def test_started_epoch_is_the_first_known_one_of_an_empty_log(
    disk: MemoryDisk, epoch: int, found: tuple[int, int]
) -> None:
    assert LeaderEpochs.empty(disk, "/t-0").end_offset_for(epoch, 0, leader_epoch=4) == found


def test_no_epoch_is_known_without_entries(disk: MemoryDisk) -> None:
    empty = LeaderEpochs.empty(disk, "/t-0")
    assert empty.latest_epoch is None
    assert empty.end_offset_for(0, 40) == (-1, -1)
    assert empty.epoch_of(0) == -1


@pytest.mark.parametrize(("offset", "epoch"), [(0, 2), (9, 2), (10, 5), (29, 5), (30, 6), (1_000, 6)])
def test_epoch_of_an_offset(epochs: LeaderEpochs, offset: int, epoch: int) -> None:
    assert epochs.epoch_of(offset) == epoch


def test_assigned_epoch_is_durable_when_the_file_system_is_synced(disk: MemoryDisk, epochs: LeaderEpochs) -> None:
    before = disk.open_files_count
    epochs.assign(EpochStart(8, 40))
    assert disk.open_files_count == before
    disk.sync_file_system("/")
    after = disk.crash(random.Random(1), Survival.NOTHING)
    assert reloaded(after) == epochs.entries == ((2, 0), (5, 10), (6, 30), (8, 40))
    assert read_file(disk, "/t-0/leader-epoch-checkpoint") == b"0\n4\n2 0\n5 10\n6 30\n8 40\n"


def test_moved_start_is_durable_when_the_file_system_is_synced(disk: MemoryDisk, epochs: LeaderEpochs) -> None:
    assert epochs.truncate_from_start(4)
    assert not epochs.truncate_from_start(4), "nothing needs a sync"
    disk.sync_file_system("/")
    after = disk.crash(random.Random(1), Survival.NOTHING)
    assert reloaded(after) == epochs.entries == ((2, 4), (5, 10), (6, 30))


def test_cut_is_durable_when_the_file_system_is_synced(disk: MemoryDisk, epochs: LeaderEpochs) -> None:
    epochs.truncate_from_end(30)
    disk.sync_file_system("/")
    after = disk.crash(random.Random(1), Survival.NOTHING)
    assert reloaded(after) == epochs.entries == ((2, 0), (5, 10))


def test_same_epoch_again_keeps_its_start(epochs: LeaderEpochs) -> None:
    for start_offset in (30, 35):
        epochs.assign(EpochStart(6, start_offset))
    assert epochs.entries[-1] == (6, 30)


def test_epoch_that_wrote_nothing_gives_way_to_the_next(epochs: LeaderEpochs) -> None:
    epochs.assign(EpochStart(8, 30))
    assert epochs.entries == ((2, 0), (5, 10), (8, 30))


def test_epochs_that_contradict_a_new_one_are_dropped(epochs: LeaderEpochs) -> None:
    epochs.assign(EpochStart(4, 20))
    assert epochs.entries == ((2, 0), (4, 20))


def test_truncation_of_the_end_drops_epochs_that_start_there_or_later(disk: MemoryDisk, epochs: LeaderEpochs) -> None:
    epochs.truncate_from_end(31)
    assert epochs.latest_epoch == 6
    epochs.truncate_from_end(30)
    assert epochs.entries == ((2, 0), (5, 10)) == reloaded(disk)
    epochs.truncate_from_end(0)
    assert list(reloaded(disk)) == []


@pytest.mark.parametrize(
    ("start_offset", "left"),
    [
        (0, ((2, 0), (5, 10), (6, 30))),
        (4, ((2, 4), (5, 10), (6, 30))),
        (10, ((5, 10), (6, 30))),
        (15, ((5, 15), (6, 30))),
        (99, ((6, 99),)),
    ],
)
def test_truncation_of_the_start_moves_the_epoch_that_holds_it(
    disk: MemoryDisk, epochs: LeaderEpochs, start_offset: int, left: tuple[tuple[int, int], ...]
) -> None:
    epochs.truncate_from_start(start_offset)
    assert epochs.entries == left == reloaded(disk)


def test_start_below_the_first_epoch_changes_nothing(disk: MemoryDisk) -> None:
    epochs = LeaderEpochs.empty(disk, "/t-0")
    epochs.assign(EpochStart(3, 50))
    epochs.truncate_from_start(20)
    assert epochs.entries == ((3, 50),)


@pytest.mark.parametrize(
    "content",
    [b"0\n2\n2 0\n", b"1\n0\n", b"0\n2\n5 0\n2 10\n", b"0\n1\n2 -1\n", b"\xff", b"0\n1\nx y\n", b"0\n2\n0 0\n1 1"],
)
def test_damaged_checkpoint_is_as_good_as_none(disk: MemoryDisk, content: bytes) -> None:
    disk.open("/t-0/leader-epoch-checkpoint", create=True).write_at(0, content)
    assert LeaderEpochs.load(disk, "/t-0") is None


def test_missing_checkpoint_differs_from_an_empty_one(disk: MemoryDisk) -> None:
    assert LeaderEpochs.load(disk, "/t-0") is None
    LeaderEpochs.empty(disk, "/t-0").save()
    assert reloaded(disk) == ()


def test_epochs_of_a_scan_replace_the_known_ones(disk: MemoryDisk, epochs: LeaderEpochs) -> None:
    count = len(disk.operations)
    epochs.replace_from(10, [EpochStart(2, 10), EpochStart(3, 12), EpochStart(3, 14), EpochStart(5, 20)])
    assert epochs.entries == ((2, 0), (3, 12), (5, 20)) == reloaded(disk)
    assert [operation.kind for operation in disk.operations[count:]].count("sync") == 1


def test_scan_without_a_new_epoch_writes_nothing(disk: MemoryDisk, epochs: LeaderEpochs) -> None:
    count = len(disk.operations)
    epochs.replace_from(10, [EpochStart(5, 10), EpochStart(6, 30)])
    assert len(disk.operations) == count
