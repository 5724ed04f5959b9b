from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ottla.storage.directory.log_directory import RETENTION_CHECK_INTERVAL_MS
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from tests.unit.storage.logs import NOW_MS, Place, append, batch_of, read_all

BATCH_BYTES = len(batch_of())
FOREVER = LogConfig(segment_bytes=2 * BATCH_BYTES, retention_ms=-1)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "data", config=FOREVER)


def fill(place: Place, batches: int) -> Log:
    """Two batches in each segment; the batch at offset n has timestamp NOW_MS + n."""
    log = place.log()
    for number in range(batches):
        append(log, batch_of(timestamp_ms=NOW_MS + number))
    place.flush()
    return log


def test_nothing_goes_without_a_limit(place: Place) -> None:
    assert fill(place, 8).delete_old_segments(NOW_MS + 10**12) == 0


def test_by_time_segments_go_whose_latest_record_is_too_old(place: Place) -> None:
    log = fill(place, 8)
    log.update_config(replace(FOREVER, retention_ms=1_000))
    assert log.delete_old_segments(NOW_MS + 1_003) == 1
    assert log.delete_old_segments(NOW_MS + 1_004) == 1
    assert read_all(log) == [4, 5, 6, 7]
    log.check_invariants()


def test_by_time_a_whole_log_goes_and_an_empty_segment_takes_its_place(place: Place) -> None:
    log = fill(place, 8)
    log.update_config(replace(FOREVER, retention_ms=1_000))
    assert log.delete_old_segments(NOW_MS + 5_000) == 4
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (8, 8, 0)
    assert log.delete_old_segments(NOW_MS + 9_000) == 0
    place.open_directory.housekeep(place.clock.now_ms())
    place.crash()
    log = place.reopen_log()
    assert (log.log_start_offset, log.log_end_offset) == (8, 8)
    assert append(log, batch_of()) == 8


def test_by_size_the_oldest_go_while_the_rest_is_enough(place: Place) -> None:
    log = fill(place, 8)
    log.update_config(replace(FOREVER, retention_bytes=5 * BATCH_BYTES))
    assert log.delete_old_segments(NOW_MS) == 1
    assert read_all(log) == [2, 3, 4, 5, 6, 7]
    assert log.delete_old_segments(NOW_MS) == 0


def test_segments_below_the_log_start_are_dropped_with_any_limits(place: Place) -> None:
    log = fill(place, 8)
    log.delete_records_before(5)
    assert log.delete_old_segments(NOW_MS) == 2
    assert log.segments[0].base_offset == 4
    assert read_all(log) == [5, 6, 7]


def test_nothing_goes_above_the_stable_end_or_the_limit_given(place: Place) -> None:
    log = fill(place, 4)
    for number in range(4):
        append(log, batch_of(timestamp_ms=NOW_MS + 4 + number))
    log.update_config(replace(FOREVER, retention_ms=1_000))
    assert log.stable_end == 4
    assert log.delete_old_segments(NOW_MS + 10**6, limit_offset=2) == 1
    assert log.delete_old_segments(NOW_MS + 10**6) == 1
    assert log.log_start_offset == 4
    place.flush()
    assert read_all(log) == [4, 5, 6, 7]


def test_a_reader_keeps_its_files_until_the_delay_is_over(place: Place) -> None:
    log = fill(place, 8)
    run = log.read(0, 8, 10_000, whole_first_batch=True)
    assert run is not None
    log.delete_records_before(6)
    directory = place.open_directory
    assert log.delete_old_segments(NOW_MS) == 3
    directory.housekeep(place.clock.now_ms())
    assert len(run.file.read_at(run.position, run.length_bytes)) == run.length_bytes
    assert {path.suffix for path in Path(log.path).glob("00000000000000000000.*")} == {".deleted"}
    place.clock.ms += FOREVER.file_delete_delay_ms
    directory.housekeep(place.clock.now_ms())
    assert not list(Path(log.path).glob("00000000000000000000.*"))
    assert not list(Path(log.path).glob("*.deleted"))


def test_a_reader_keeps_its_files_when_the_wall_clock_jumps_forward(place: Place) -> None:
    log = fill(place, 8)
    run = log.read(0, 8, 10_000, whole_first_batch=True)
    assert run is not None
    log.delete_records_before(6)
    assert log.delete_old_segments(NOW_MS) == 3
    place.open_directory.housekeep(place.clock.now_ms())
    place.clock.off_ms = 10 * FOREVER.file_delete_delay_ms
    place.open_directory.housekeep(place.clock.now_ms())
    assert len(run.file.read_at(run.position, run.length_bytes)) == run.length_bytes


def test_retention_continues_when_the_wall_clock_has_gone_back(place: Place) -> None:
    log = fill(place, 8)
    place.clock.off_ms = 3_600_000
    place.open_directory.housekeep(place.clock.now_ms())
    assert log.log_start_offset == 0
    place.clock.off_ms = 0
    log.update_config(replace(FOREVER, retention_ms=1_000))
    place.clock.ms = RETENTION_CHECK_INTERVAL_MS
    place.open_directory.housekeep(place.clock.now_ms())
    assert log.log_start_offset == 8


def test_unflushed_rolled_files_that_go_are_not_synced_any_more(tmp_path: Path) -> None:
    config = replace(FOREVER, flush_policy="os", file_delete_delay_ms=0)
    place = Place(tmp_path / "data", config=config)
    log = place.log()
    for _ in range(5):
        append(log, batch_of())
    log.delete_records_before(4)
    assert log.delete_old_segments(NOW_MS) == 2
    place.open_directory.housekeep(place.clock.now_ms())
    place.flush()
    assert place.open_directory.offline is None
    assert log.flushed_end == 5


def test_housekeeping_goes_round_all_logs_in_slices(place: Place) -> None:
    log = fill(place, 8)
    log.update_config(replace(FOREVER, retention_ms=1_000))
    place.clock.ms = 10_000
    assert not place.open_directory.housekeep(place.clock.now_ms())
    assert log.log_start_offset == 8
