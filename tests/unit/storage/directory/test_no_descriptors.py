"""A process that may open no more files refuses what needs one, loses nothing, and continues afterwards."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from ottla.model.error_code import ErrorCode
from ottla.runtime.offload import run_inline
from ottla.storage.compaction.cleaner import clean
from ottla.storage.errors import TooManyOpenFiles
from ottla.storage.log_config import LogConfig
from ottla.testing.memory_disk import MemoryDisk
from tests.cleaning import run_clean
from tests.unit.storage.logs import CLICKS, Place, append, append_many, batch_of, read_all, topic_id, truncate_log

BATCH_BYTES = len(batch_of())


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def place(disk: MemoryDisk) -> Place:
    return Place("/data", disk, LogConfig(segment_bytes=2 * BATCH_BYTES))


@contextmanager
def no_descriptors(disk: MemoryDisk) -> Iterator[None]:
    disk.descriptors_max = disk.open_files_count
    yield
    disk.descriptors_max = None


def test_first_append_of_an_epoch_is_refused_and_works_when_files_can_be_opened(place: Place, disk: MemoryDisk) -> None:
    log = place.log()
    with no_descriptors(disk):
        for _ in range(2):
            with pytest.raises(TooManyOpenFiles) as refused:
                append(log, batch_of())
    assert refused.value.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "limit of open files" in (refused.value.hint or "")
    assert (log.failure, place.open_directory.offline) == (None, None)
    assert append(log, batch_of()) == 0
    place.flush()
    assert read_all(log) == [0]
    assert [tuple(each) for each in log.epoch_starts] == [(0, 0)]


def test_roll_is_refused_and_done_when_files_can_be_opened(place: Place, disk: MemoryDisk) -> None:
    log = place.log()
    append_many(log, 2)
    with no_descriptors(disk):
        for _ in range(2):
            with pytest.raises(TooManyOpenFiles):
                append(log, batch_of())
        place.flush()
        assert log.stable_end == 2, "what was appended before is flushed"
    assert append(log, batch_of()) == 2
    place.flush()
    assert read_all(log) == [0, 1, 2]
    log.check_invariants()
    after = Place("/data", disk.kill(), place.config)
    assert read_all(after.reopen_log()) == [0, 1, 2]


def test_flush_needs_no_further_descriptor(place: Place, disk: MemoryDisk) -> None:
    ids = [(CLICKS._replace(partition=number), topic_id(0)) for number in range(20)]
    logs = run_inline(place.open().create(ids))
    for log in logs:
        log.start_epoch(0)
        append_many(log, 3)
    with no_descriptors(disk):
        place.flush()
    assert place.open_directory.offline is None
    assert {log.stable_end for log in logs} == {3}


def test_append_and_roll_leave_no_file_open_but_the_segments(place: Place, disk: MemoryDisk) -> None:
    log = place.log()
    before = disk.open_files_count
    append_many(log, 2)
    assert disk.open_files_count == before
    append_many(log, 2)
    assert disk.open_files_count == before + 1


def test_creation_fails_without_descriptors_and_leaves_the_directory_online(place: Place, disk: MemoryDisk) -> None:
    append_many(place.log(), 1)
    other = (CLICKS._replace(partition=1), topic_id(0))
    with no_descriptors(disk):
        with pytest.raises(TooManyOpenFiles):
            run_inline(place.open_directory.create([other]))
        place.flush()
    assert place.open_directory.offline is None
    run_inline(place.open_directory.create([other]))
    assert place.log().stable_end == 1


def test_read_of_a_closed_segment_fails_and_works_when_files_can_be_opened(place: Place, disk: MemoryDisk) -> None:
    append_many(place.log(), 4)
    place.close()
    log = place.reopen_log()
    with no_descriptors(disk):
        with pytest.raises(OSError) as failed:
            read_all(log)
        assert failed.value.errno == errno.EMFILE
    assert read_all(log) == [0, 1, 2, 3]


def test_housekeeping_without_descriptors_is_tried_again(place: Place, disk: MemoryDisk) -> None:
    log = place.log()
    append_many(log, 4)
    place.flush()
    log.delete_records_before(2)
    with no_descriptors(disk):
        place.open_directory.housekeep(place.clock.now_ms())
    assert place.open_directory.offline is None
    place.open_directory.housekeep(place.clock.now_ms())
    after = Place("/data", disk.kill(), place.config)
    assert after.reopen_log().log_start_offset == 2


def _delete(place: Place) -> None:
    place.open_directory.delete(CLICKS)


def _set_aside(place: Place) -> None:
    place.open_directory.set_aside(CLICKS, topic_id(0))


def _retain(place: Place) -> None:
    place.log().delete_records_before(6)
    place.log().delete_old_segments(place.clock.now_ms())
    place.open_directory.checkpoint()


def _truncate(place: Place) -> None:
    truncate_log(place.log(), 0)


def _compact(place: Place) -> None:
    compactor = place.open_directory.compactor
    job = compactor.next_job(place.clock.now_ms())
    assert job is not None
    run_clean(compactor, job, lambda job: clean(place.disk, job, lambda _: None))


@pytest.mark.parametrize(
    ("leave", "left_count"), [(_delete, 0), (_set_aside, 0), (_retain, 1), (_truncate, 1), (_compact, 1)]
)
def test_segments_that_leave_a_log_are_closed_with_their_last_reader(
    disk: MemoryDisk, leave: Callable[[Place], None], left_count: int
) -> None:
    config = LogConfig(segment_bytes=2 * BATCH_BYTES, min_cleanable_dirty_ratio=0, retention_ms=-1)
    place = Place("/data", disk, replace(config, cleanup_policy="compact") if leave is _compact else config)
    log = place.log()
    others_count = disk.open_files_count - 1
    append_many(log, 7)
    place.flush()
    segments_count = disk.open_files_count - others_count
    assert segments_count == 4
    run = log.read(0, 7, 10 * BATCH_BYTES, whole_first_batch=True)
    assert run is not None
    content = run.file.read_at(run.position, run.length_bytes)
    assert content
    append(log, batch_of())
    plan = place.open_directory.scheduler.plan(place.clock.monotonic_ms())
    assert plan is not None
    leave(place)
    assert run.file.read_at(run.position, run.length_bytes) in {content, b""}, "a cut file has less"
    plan.execute(disk)
    place.open_directory.scheduler.complete(plan, None, place.clock.monotonic_ms())
    del plan, run
    assert disk.open_files_count == others_count + left_count
    assert place.open_directory.offline is None
