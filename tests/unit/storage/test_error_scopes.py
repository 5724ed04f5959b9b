"""A write that fails costs the batch, one that cannot be undone or a sync that fails costs the directory."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ottla.model.error_code import ErrorCode
from ottla.runtime.offload import run_inline
from ottla.storage.errors import DirectoryOffline, DiskFull, LogOffline, StorageError
from ottla.storage.log_config import LogConfig
from tests.unit.storage.failing_disk import FailingDisk
from tests.unit.storage.logs import CLICKS, Place, append, append_many, batch_of, read_all, topic_id

BATCH_BYTES = len(batch_of())


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk()


@pytest.fixture
def place(tmp_path: Path, disk: FailingDisk) -> Place:
    return Place(tmp_path / "data", disk)


@pytest.mark.parametrize("room_bytes", [0, 1, BATCH_BYTES - 1])
def test_a_full_disk_refuses_the_batch_and_appends_continue_when_there_is_room(
    place: Place, disk: FailingDisk, room_bytes: int
) -> None:
    log = place.log()
    append_many(log, 2)
    disk.fill_up_after(room_bytes)
    for _ in range(2):
        with pytest.raises(DiskFull) as refused:
            append(log, batch_of())
        disk.fill_up_after(room_bytes)
    assert refused.value.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_end_offset == 2
    assert Path(log.segments[-1].log_path).stat().st_size == 2 * BATCH_BYTES
    disk.heal()
    assert append(log, batch_of()) == 2
    place.flush()
    assert read_all(log) == [0, 1, 2]
    place.crash()
    assert read_all(place.reopen_log()) == [0, 1, 2]


def test_a_full_disk_while_rolling_refuses_the_batch_and_the_roll_is_done_later(tmp_path: Path) -> None:
    disk = FailingDisk()
    place = Place(tmp_path / "data", disk, LogConfig(segment_bytes=2 * BATCH_BYTES))
    log = place.log()
    append_many(log, 2)
    disk.fail("write", ".timeindex", errno.ENOSPC)
    for _ in range(2):
        with pytest.raises(DiskFull):
            append(log, batch_of())
    disk.heal()
    assert append(log, batch_of()) == 2
    place.flush()
    assert read_all(log) == [0, 1, 2]
    log.check_invariants()


def test_a_refused_idempotent_batch_is_taken_when_it_is_sent_again(place: Place, disk: FailingDisk) -> None:
    log = place.log()
    disk.fill_up_after(0)
    with pytest.raises(DiskFull):
        append(log, batch_of(producer_id=5, producer_epoch=0, base_sequence=0))
    disk.heal()
    assert append(log, batch_of(producer_id=5, producer_epoch=0, base_sequence=0)) == 0
    assert log.log_end_offset == 1


def test_a_write_error_takes_the_partition_offline_and_no_other(place: Place, disk: FailingDisk) -> None:
    log = place.log()
    other = run_inline(place.open_directory.create([(CLICKS._replace(partition=1), topic_id(1))]))[0]
    append_many(log, 2)
    place.flush()
    append(log, batch_of())
    disk.fail("write", "clicks-0/00000000000000000000.log", errno.EIO)
    with pytest.raises(LogOffline):
        append(log, batch_of())
    disk.heal()
    with pytest.raises(LogOffline):
        append(log, batch_of())
    # What was written before is still there, and its flush continues.
    place.flush()
    assert read_all(log, log.stable_end) == [0, 1, 2]
    assert append(other, batch_of()) == 0
    assert place.open_directory.offline is None


def test_a_write_that_cannot_be_undone_takes_the_directory_offline(place: Place, disk: FailingDisk) -> None:
    log = place.log()
    other = run_inline(place.open_directory.create([(CLICKS._replace(partition=1), topic_id(1))]))[0]
    append_many(log, 1)
    disk.fail("write", ".log", errno.ENOSPC)
    disk.fail("truncate", ".log", errno.EIO)
    with pytest.raises(DirectoryOffline):
        append(log, batch_of())
    disk.heal()
    with pytest.raises(DirectoryOffline):
        append(other, batch_of())


@pytest.mark.parametrize("policy", ["ack", "os"])
def test_a_failed_sync_takes_the_directory_offline_and_shows_only_flushed_records(tmp_path: Path, policy: str) -> None:
    disk = FailingDisk()
    place = Place(tmp_path / "data", disk, LogConfig(flush_policy=policy))  # type: ignore[arg-type]
    log = place.log()
    told = place.failures
    append_many(log, 2)
    place.open_directory.scheduler.mark_due(log)
    place.flush()
    append_many(log, 2)
    disk.fail("sync", ".log", errno.EIO)
    place.open_directory.scheduler.mark_due(log)
    place.flush()
    disk.heal()
    assert told == [place.open_directory.offline]
    assert log.flushed_end == 2
    # A second sync would succeed on most file systems although the pages are lost: it must not count.
    place.open_directory.scheduler.mark_due(log)
    place.flush()
    assert log.flushed_end == 2
    assert read_all(log) == [0, 1]
    with pytest.raises(DirectoryOffline):
        append(log, batch_of())
    with pytest.raises(DirectoryOffline):
        run_inline(place.open_directory.create([(CLICKS._replace(partition=7), topic_id(7))]))
    place.close()
    assert not place.open().was_clean


def test_a_failed_sync_of_the_file_system_counts_the_same(place: Place, disk: FailingDisk) -> None:
    place.open()
    names = [(CLICKS._replace(partition=number), topic_id(0)) for number in range(10)]
    logs = run_inline(place.open_directory.create(names))
    for log in logs:
        append(log, batch_of())
    disk.fail("sync_file_system", "data", errno.EIO)
    place.flush()
    assert place.open_directory.offline is not None
    assert [log.stable_end for log in logs] == [0] * 10


def test_a_log_that_cannot_be_created_leaves_nothing_behind(place: Place, disk: FailingDisk) -> None:
    place.open()
    disk.fail("write", "partition.metadata", errno.ENOSPC)
    with pytest.raises(StorageError):
        run_inline(place.open_directory.create([(CLICKS, topic_id(0))]))
    assert CLICKS not in place.open_directory.logs
    assert not (Path(place.path) / str(CLICKS)).exists()
    disk.heal()
    assert append(place.log(), batch_of()) == 0


def test_no_clean_mark_is_left_when_closing_fails(place: Place, disk: FailingDisk) -> None:
    append_many(place.log(), 2)
    disk.fail("write", ".index", errno.ENOSPC)
    disk.fail("write", ".timeindex", errno.ENOSPC)
    place.close()
    disk.heal()
    assert read_all(place.reopen_log()) == [0, 1]
    assert not place.open_directory.was_clean


def test_the_epochs_line_is_written_although_its_first_attempt_failed(place: Place, disk: FailingDisk) -> None:
    log = place.log()
    log.start_epoch(3)
    disk.fail("write", "leader-epoch-checkpoint.tmp", errno.ENOSPC)
    with pytest.raises(DiskFull):
        append(log, batch_of())
    disk.heal()
    append(log, batch_of())
    assert (Path(log.path) / "leader-epoch-checkpoint").read_text() == "0\n1\n3 0\n"


def test_a_log_start_that_could_not_be_written_down_keeps_its_files_and_is_tried_again(tmp_path: Path) -> None:
    disk = FailingDisk()
    place = Place(tmp_path / "data", disk, LogConfig(segment_bytes=2 * BATCH_BYTES))
    log = place.log()
    append_many(log, 6)
    place.flush()
    log.delete_records_before(4)
    assert log.delete_old_segments(place.clock.now_ms()) == 2
    disk.fail("write", "log-start-offset-checkpoint.tmp", errno.ENOSPC)
    place.open_directory.housekeep(place.clock.now_ms())
    first = Path(log.path) / "00000000000000000000.log"
    assert first.exists(), "a crash now must find it"
    disk.heal()
    place.open_directory.housekeep(place.clock.now_ms())
    assert not first.exists()
    place.crash()
    assert read_all(place.reopen_log()) == [4, 5]
