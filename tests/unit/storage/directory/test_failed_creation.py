"""Logs that cannot be created or deleted, and what is left of them: nothing, or what the next attempt removes."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

import pytest

from ottla.model.identifiers import TopicPartition
from ottla.runtime.offload import INLINE, Offload, run_inline
from ottla.storage.directory.flushed_ends import read_flushed_ends
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.errors import DirectoryOffline, StorageError
from ottla.storage.log_files import FLUSHED_ENDS_FILE
from ottla.testing.disk_faults import OperationKind
from ottla.testing.fake_clock import FakeClock
from ottla.testing.memory_disk import MemoryDisk

T = TypeVar("T")

FIRST, SECOND = UUID(int=1), UUID(int=2)
FEW = [TopicPartition("clicks", index) for index in range(2)]
MANY = [TopicPartition("clicks", index) for index in range(5)]


class Place:
    """A directory on a disk in memory."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.clock = FakeClock()
        self.directory = self.open()

    def open(self) -> LogDirectory:
        self.directory = LogDirectory.open(self.disk, "/data", clock=self.clock)
        return self.directory

    def restart(self) -> LogDirectory:
        self.directory.abandon()
        return self.open()

    def create(self, names: list[TopicPartition], topic_id: UUID = FIRST, offload: Offload = INLINE) -> None:
        run_inline(self.directory.create([(name, topic_id) for name in names], offload))

    @property
    def directories(self) -> list[str]:
        return [name for name in self.disk.list_directory("/data") if self.disk.is_directory(f"/data/{name}")]


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.mark.parametrize("names", [FEW, MANY], ids=["few", "many"])
@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("make_directory", "clicks-1"),
        ("create", "clicks-1/0000"),
        ("create", "clicks-1/partition.metadata"),
        ("write", "clicks-1/partition.metadata"),
        ("open", "clicks-1/0000"),
    ],
)
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE], ids=["no-room", "no-descriptor"])
def test_failed_creation_leaves_nothing_and_succeeds_when_it_is_tried_again(
    place: Place, names: list[TopicPartition], kind: OperationKind, where: str, error: int
) -> None:
    place.disk.faults.fail(kind, error=error, path_contains=where)
    with pytest.raises(StorageError, match="creating logs in /data failed"):
        place.create(names)
    assert place.directories == []
    assert place.directory.logs == {}
    assert place.directory.offline is None
    place.create(names, SECOND)
    assert list(place.directory.logs) == names
    assert {log.topic_id for log in place.restart().logs.values()} == {SECOND}


class NoListing(MemoryDisk):
    """Listing a directory takes a descriptor, and there is none."""

    is_exhausted = False

    def list_directory(self, path: str) -> list[str]:
        if self.is_exhausted:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return list(super().list_directory(path))


def test_failed_creation_leaves_nothing_when_directories_cannot_be_listed() -> None:
    place = Place()
    place.disk = NoListing()
    place.open()
    place.disk.is_exhausted = True
    with pytest.raises(StorageError):
        place.create(MANY)
    place.disk.is_exhausted = False
    assert place.directories == []


@pytest.fixture
def stuck(place: Place) -> Place:
    """A creation failed, and what it had made could not be removed."""
    place.disk.faults.fail("write", error=errno.ENOSPC, path_contains="clicks-3/partition.metadata")
    place.disk.faults.fail("remove", times=None)
    with pytest.raises(StorageError):
        place.create(MANY)
    assert place.directories
    return place


def test_what_a_failed_creation_left_is_removed_by_the_next_attempt(stuck: Place) -> None:
    with pytest.raises(StorageError):
        stuck.create(MANY, SECOND)
    stuck.disk.faults.clear()
    stuck.create(MANY, SECOND)
    assert {log.topic_id for log in stuck.restart().logs.values()} == {SECOND}


def test_what_a_failed_creation_left_is_removed_by_the_deletion(stuck: Place) -> None:
    with pytest.raises(OSError):
        stuck.directory.delete(*MANY)
    stuck.disk.faults.clear()
    stuck.directory.delete(*MANY)
    assert stuck.directories == []


def test_logs_do_not_take_appends_when_the_directory_fails_while_they_are_made(place: Place) -> None:
    class FailsMeanwhile(Offload):
        async def __call__(self, work: Callable[[], T]) -> T:
            result = work()
            place.directory.directory_failed(OSError(errno.EIO, "another sync failed"))
            return result

        async def pause(self) -> None:
            return None

    with pytest.raises(DirectoryOffline):
        place.create(MANY, offload=FailsMeanwhile())
    assert place.directory.logs == {}


def test_creation_lets_others_run_after_each_log_that_it_makes_and_opens(place: Place) -> None:
    class CountsPauses(Offload):
        pauses_count = 0

        async def __call__(self, work: Callable[[], T]) -> T:
            return work()

        async def pause(self) -> None:
            self.pauses_count += 1

    offload = CountsPauses()
    place.create(MANY, offload=offload)
    assert offload.pauses_count >= 2 * len(MANY)


def test_deletion_that_fails_leaves_the_log_in_the_directorys_care(place: Place) -> None:
    place.create(FEW)
    place.disk.faults.fail("rename", path_contains="clicks-1")
    with pytest.raises(OSError):
        place.directory.delete(*FEW)
    assert list(place.directory.logs) == FEW[1:]
    assert [place.directory.topic_id_of(name) for name in FEW] == [FIRST, FIRST], "neither is deleted durably"
    with pytest.raises(StorageError):
        place.create(FEW[:1], SECOND)
    place.directory.delete(*FEW)
    assert [place.directory.topic_id_of(name) for name in FEW] == [None, None]
    place.create(FEW, SECOND)


def test_deletion_is_not_over_before_its_sync_succeeds(place: Place) -> None:
    place.create(FEW)
    place.disk.faults.fail("sync_directory", error=errno.EMFILE)
    with pytest.raises(OSError):
        place.directory.delete(*FEW)
    assert place.directory.topic_id_of(FEW[0]) == FIRST
    synced = [operation for operation in place.disk.operations if operation.kind == "sync_directory"]
    place.directory.delete(*FEW)
    assert [operation for operation in place.disk.operations if operation.kind == "sync_directory"] != synced
    assert place.directory.topic_id_of(FEW[0]) is None


def test_topic_of_a_log_that_could_not_be_opened_is_known(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.create(FEW)
    with caplog.at_level(logging.CRITICAL):
        place.directory.abandon()
        place.disk.faults.fail("open", path_contains="clicks-0/0000")
        place.open()
    assert list(place.directory.failed) == FEW[:1]
    assert place.directory.topic_id_of(FEW[0]) == FIRST


@pytest.mark.parametrize("names", [FEW, MANY], ids=["few", "many"])
def test_second_attempt_writes_the_flushed_ends_that_the_first_one_could_not(
    place: Place, names: list[TopicPartition]
) -> None:
    place.disk.faults.fail("write", error=errno.ENOSPC, path_contains=FLUSHED_ENDS_FILE)
    with pytest.raises(StorageError):
        place.create(names)
    place.create(names)
    recorded = read_flushed_ends(place.disk.kill(), "/data")
    assert recorded == {(FIRST, name.partition): 0 for name in names}
