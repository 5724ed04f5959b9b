"""A lost write-back is detected in any order of reports; every failed sync takes the directory offline."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import pytest

from ottla.runtime.offload import run_inline
from ottla.storage.checkpoints import has_clean_shutdown_mark
from ottla.storage.directory.flushed_ends import read_flushed_ends
from ottla.storage.errors import DirectoryOffline, StorageError
from ottla.storage.log_config import LogConfig
from ottla.testing.disk_faults import OperationKind
from ottla.testing.memory_disk import MemoryDisk
from tests.unit.storage.logs import CLICKS, Place, append, append_many, batch_of, read_all, topic_id, truncate_log

BATCH_BYTES = len(batch_of())


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def place(disk: MemoryDisk) -> Place:
    """A log with three flushed batches and a fourth one that is only in the page cache."""
    made = Place("/data", disk, LogConfig(segment_bytes=3 * BATCH_BYTES))
    log = made.log()
    append_many(log, 3)
    made.flush()
    append(log, batch_of())
    return made


def tell_another_process(disk: MemoryDisk) -> None:
    """It syncs the file system by a descriptor of its own, and this process hears nothing of it."""
    report = disk.report_failed_syncs(None)
    with pytest.raises(OSError):
        disk.sync_file_system("/")
    disk.report_failed_syncs(report)


def test_flush_detects_a_lost_write_back_although_another_process_got_the_report_before(
    place: Place, disk: MemoryDisk
) -> None:
    disk.lose_write_back(".log")
    tell_another_process(disk)
    place.flush()
    log = place.log()
    assert place.open_directory.offline is not None
    assert log.stable_end == 3, "the fourth batch is lost, and is not acknowledged"
    assert read_all(log) == [0, 1, 2]


@pytest.mark.parametrize("count", [1, 10])
def test_creation_that_detects_a_lost_write_back_takes_the_directory_offline(
    place: Place, disk: MemoryDisk, count: int
) -> None:
    disk.lose_write_back(".log")
    if count == 1:
        disk.faults.fail("sync_directory")
    names = [(CLICKS._replace(partition=number), topic_id(1)) for number in range(1, count + 1)]
    with pytest.raises(StorageError):
        run_inline(place.open_directory.create(names))
    assert place.open_directory.offline is not None
    place.flush()
    assert place.log().stable_end == 3
    with pytest.raises(DirectoryOffline):
        append(place.log(), batch_of())
    with pytest.raises(DirectoryOffline):
        run_inline(place.open_directory.create(names))


def checkpoint(place: Place) -> None:
    place.log().delete_records_before(2)
    place.open_directory.checkpoint()


def housekeep(place: Place) -> None:
    place.log().delete_records_before(2)
    place.open_directory.housekeep(place.clock.now_ms())


def truncate(place: Place) -> None:
    truncate_log(place.log(), 1)


def delete(place: Place) -> None:
    place.open_directory.delete(CLICKS)


@pytest.mark.parametrize(
    ("kind", "work"),
    [
        ("sync", checkpoint),
        ("sync", housekeep),
        ("sync", truncate),
        ("sync", delete),
        ("sync_directory", checkpoint),
        ("sync_directory", housekeep),
        ("sync_directory", delete),
    ],
)
def test_failed_sync_of_any_work_takes_the_directory_offline(
    place: Place, disk: MemoryDisk, work: Callable[[Place], None], kind: OperationKind
) -> None:
    place.flush()
    other = CLICKS._replace(partition=1)
    run_inline(place.open_directory.create([(other, topic_id(1))]))
    told = place.failures
    disk.faults.fail(kind)
    with contextlib.suppress(OSError, StorageError):
        work(place)
    offline = place.open_directory.offline
    assert told == [offline]
    with pytest.raises(DirectoryOffline):
        append(place.open_directory.logs[other], batch_of())


def test_failed_sync_of_another_thread_takes_the_directory_offline_on_the_next_turn_of_housekeeping(
    place: Place, disk: MemoryDisk
) -> None:
    disk.faults.fail("sync_directory")

    def sync() -> None:
        with pytest.raises(OSError):
            disk.sync_directory("/data/clicks-0")

    thread = threading.Thread(target=sync)
    thread.start()
    thread.join()
    directory = place.open_directory
    assert directory.offline is None, "logs belong to the thread of the loop"
    assert not directory.housekeep(place.clock.now_ms())
    assert directory.offline is not None


@pytest.mark.parametrize("kind", ["sync", "sync_file_system"])
def test_directory_is_not_opened_when_a_sync_of_its_recovery_fails(
    place: Place, disk: MemoryDisk, kind: OperationKind
) -> None:
    place.flush()
    after = disk.kill()
    after.remove("/data/clicks-0/leader-epoch-checkpoint")
    after.faults.fail(kind)
    with pytest.raises(DirectoryOffline):
        Place("/data", after).open()
    assert read_all(Place("/data", after).reopen_log()) == [0, 1, 2, 3]


def test_directory_is_not_opened_when_the_process_before_lost_a_write_back(place: Place, disk: MemoryDisk) -> None:
    disk.lose_write_back(".log")
    with pytest.raises(DirectoryOffline):
        Place("/data", disk.kill()).open()


def fail_in_another_thread(work: Callable[[], None]) -> None:
    """Run `work` in a thread of its own, as the loop's thread pool does; its `OSError` does not reach the loop yet."""

    def run() -> None:
        with pytest.raises(OSError):
            work()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def test_flush_acknowledges_nothing_when_another_thread_has_learned_of_a_lost_write_back(
    place: Place, disk: MemoryDisk
) -> None:
    scheduler = place.open_directory.scheduler
    append_many(place.log(), 3)
    plan = scheduler.plan(0)
    assert plan is not None
    assert plan.syncs_file_system
    disk.lose_write_back(".log")
    fail_in_another_thread(lambda: disk.sync_file_system("/data"))
    plan.execute(disk)
    scheduler.complete(plan, None, 0)
    assert place.log().stable_end == 3, "the one descriptor has reported the loss already"
    place.open_directory.housekeep(place.clock.now_ms())
    assert place.open_directory.offline is not None


def test_directory_is_not_marked_as_cleanly_closed_when_another_thread_has_learned_of_a_lost_write_back(
    place: Place, disk: MemoryDisk
) -> None:
    disk.lose_write_back(".log")
    fail_in_another_thread(lambda: disk.sync_file_system("/data"))
    place.open_directory.close()
    assert not has_clean_shutdown_mark(disk, "/data")
    assert read_flushed_ends(disk, "/data")[topic_id(0), 0] == 3
