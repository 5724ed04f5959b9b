"""A disk that fails where indexes are loaded, made again or written: an error, and nothing is left half changed."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from ottla.storage.errors import StorageError
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from ottla.testing.disk_faults import OperationKind
from ottla.testing.memory_disk import MemoryDisk
from tests.unit.storage.logs import NOW_MS, Place, append, at_greatest_time, at_time, batch_of, read_all, records_in

# Some entries in each index, some reads for each segment.
CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=2_000, retention_ms=-1, flush_policy="os")
RETAINED = replace(CONFIG, retention_ms=1_000)
VALUE = b"v" * 1_500
BATCHES = 40
ALL = list(range(BATCHES))


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def place(disk: MemoryDisk) -> Place:
    """The batch at offset n has the timestamp NOW_MS + n; a restart has left no index in memory."""
    place = Place("/data", disk, CONFIG)
    log = place.log()
    for number in range(BATCHES):
        append(log, batch_of(timestamp_ms=NOW_MS + number, value=VALUE))
    place.close()
    place.reopen_log()
    return place


def read_closed(log: Log) -> None:
    log.read(3, log.log_end_offset, 10_000, whole_first_batch=True)


def look_up_time(log: Log) -> None:
    at_time(log, NOW_MS + 3)


def look_up_greatest_time(log: Log) -> None:
    at_greatest_time(log)


def retain(log: Log) -> None:
    log.update_config(RETAINED)
    log.delete_old_segments(NOW_MS + 1_015)


READS: list[Callable[[Log], None]] = [read_closed, look_up_time, look_up_greatest_time, retain]


def assert_whole(place: Place) -> None:
    log = place.log()
    assert log.failure is None
    log.check_invariants()
    assert read_all(log) == ALL
    for number in (0, 3, 11, BATCHES - 1):
        found = at_time(log, NOW_MS + number)
        assert found is not None
        assert found.offset == number
    assert log.delete_old_segments(NOW_MS + 500) == 0
    append(log, batch_of())
    log.check_invariants()


@pytest.mark.parametrize("look", READS)
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".log"])
@pytest.mark.parametrize("kind", ["open", "read"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_log_is_as_it_was_when_an_index_cannot_be_loaded(
    place: Place, disk: MemoryDisk, look: Callable[[Log], None], suffix: str, kind: OperationKind, nth: int
) -> None:
    disk.faults.fail(kind, path_contains=suffix, nth=nth)
    with suppress(OSError):
        look(place.log())
    disk.faults.clear()
    if look is not retain:
        assert_whole(place)
        return
    place.log().check_invariants()
    look(place.log())
    assert read_all(place.log())[0] == place.log().segments[0].base_offset == 12


def lose_indexes(place: Place) -> None:
    for segment in place.log().segments[:-1]:
        place.disk.remove(segment.path + ".index")


@pytest.mark.parametrize("look", [read_closed, look_up_time, look_up_greatest_time])
@pytest.mark.parametrize("nth", range(1, 12))
def test_log_is_as_it_was_when_an_index_cannot_be_made_again(
    place: Place, disk: MemoryDisk, look: Callable[[Log], None], nth: int
) -> None:
    lose_indexes(place)
    # The first one checks a time index that is there still.
    disk.faults.fail("read", path_contains="0.log", nth=nth)
    with suppress(OSError):
        look(place.log())
    disk.faults.clear()
    assert_whole(place)


def test_retention_keeps_young_segments_when_an_index_could_not_be_rebuilt(place: Place, disk: MemoryDisk) -> None:
    """Half an index knows the older records of its segment only."""
    lose_indexes(place)
    log = place.log()
    first = log.segments[0]
    disk.faults.fail("read", path_contains="0.log", nth=3)
    with pytest.raises(OSError, match="Input/output"):
        log.read(1, log.log_end_offset, 10_000, whole_first_batch=True)
    log.update_config(RETAINED)
    latest_ms = NOW_MS + log.segments[1].base_offset - 1
    assert log.delete_old_segments(latest_ms + 1_000) == 0
    assert log.delete_old_segments(latest_ms + 1_001) == 1
    assert log.segments[0] is not first


@pytest.mark.parametrize("kind", ["write", "truncate", "create"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_readers_are_served_when_an_index_that_was_made_again_cannot_be_written(
    place: Place, disk: MemoryDisk, caplog: pytest.LogCaptureFixture, kind: OperationKind, suffix: str, error: int
) -> None:
    log = place.log()
    for segment in log.segments[:-1]:
        for each in (".index", ".timeindex"):
            disk.remove(segment.path + each)
    disk.faults.fail(kind, path_contains=suffix, error=error)
    found = log.read(3, log.log_end_offset, 10_000, whole_first_batch=True)
    assert records_in(found)[0].offset == 3
    assert "index.not_written" in caplog.text
    stem = log.segments[0].path
    assert not disk.exists(stem + ".index"), "half a file"
    assert not disk.exists(stem + ".timeindex")
    disk.faults.clear()
    log.segments[0].drop_indexes()
    assert_whole(place)
    assert disk.exists(stem + ".index")


ROLL_WRITES: list[tuple[OperationKind, str]] = [
    ("create", ".snapshot"),
    ("write", ".snapshot"),
    ("create", ".index"),
    ("truncate", ".index"),
    ("write", ".index"),
    ("create", ".timeindex"),
    ("write", ".timeindex"),
    ("create", ".log"),
]


@pytest.mark.parametrize(("kind", "suffix"), ROLL_WRITES)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_roll_that_fails_refuses_the_batch_and_leaves_the_log_as_it_was(
    disk: MemoryDisk, kind: OperationKind, suffix: str, error: int
) -> None:
    place = Place("/data", disk, CONFIG)
    log = place.log()
    while log.segments[-1].size_bytes + len(batch_of()) <= CONFIG.segment_bytes:
        append(log, batch_of())
    end_offset = log.log_end_offset
    disk.faults.fail(kind, path_contains=suffix, error=error)
    with pytest.raises(StorageError):
        append(log, batch_of())
    disk.faults.clear()
    log.check_invariants()
    assert (log.log_end_offset, len(log.segments)) == (end_offset, 1)
    if error == errno.ENOSPC:
        assert append(log, batch_of()) == end_offset
        assert len(log.segments) == 2
        assert read_all(log) == list(range(end_offset + 1))
        end_offset += 1
    else:
        assert log.failure is not None
    place.crash()
    log = place.reopen_log()
    assert read_all(log) == list(range(end_offset))
    assert append(log, batch_of()) == end_offset


def test_readers_stay_below_the_stable_end_when_the_disk_fails_in_retention(disk: MemoryDisk) -> None:
    place = Place("/data", disk, LogConfig(segment_bytes=2 * len(batch_of()), retention_ms=1_000))
    log = place.log()
    append(log, batch_of())
    append(log, batch_of())
    place.flush()
    append(log, batch_of(timestamp_ms=NOW_MS + 10_000))
    assert (log.stable_end, [segment.base_offset for segment in log.segments]) == (2, [0, 2])
    disk.faults.fail("read", path_contains=".log", times=None)
    assert log.delete_old_segments(NOW_MS + 9_000) == 1, "the stable end's new place needs no search"
    disk.faults.clear()
    log.check_invariants()
    assert log.read(2, log.stable_end, 10_000, whole_first_batch=True) is None
    assert log.log_start_offset == 2
