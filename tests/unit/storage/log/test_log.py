from __future__ import annotations

from pathlib import Path

import pytest

from ottla.records.header import HEADER
from ottla.storage.errors import BatchTooLarge, OffsetOutOfRange, OutOfOrderSequence
from ottla.storage.log_config import LogConfig
from tests.unit.storage.logs import (
    NOW_MS,
    Place,
    append,
    append_many,
    batch_of,
    bytes_of,
    read_all,
    records_in,
    truncate_log,
)

SMALL = LogConfig(segment_bytes=2_000, index_interval_bytes=300)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "data")


def test_append_stamps_base_offset_and_leader_epoch(place: Place) -> None:
    log = place.log()
    log.start_epoch(7)
    assert append(log, batch_of(3)) == 0
    batch = batch_of(2)
    assert append(log, batch) == 3
    header = HEADER.unpack_from(batch)
    assert (header[0], header[2]) == (3, 7)
    assert log.log_end_offset == 5
    assert [record.offset for record in records_in(log.read(0, 5, 10_000, whole_first_batch=True))] == [0, 1, 2, 3, 4]


def test_started_epoch_ends_at_the_logs_end_before_and_after_its_first_batch(place: Place) -> None:
    log = place.log()
    log.start_epoch(0)
    append(log, batch_of(3))
    log.start_epoch(1)
    assert log.epoch_end_offset(1) == (1, 3)
    assert log.epoch_end_offset(0) == (0, 3)
    append(log, batch_of(2))
    assert log.epoch_end_offset(1) == (1, 5)
    assert log.epoch_end_offset(0) == (0, 3)
    assert log.epoch_end_offset(2) == (-1, -1)


def test_epoch_without_batches_below_the_started_one_ends_where_the_last_known_one_does(place: Place) -> None:
    log = place.log()
    log.start_epoch(3)
    append(log, batch_of(4))
    log.start_epoch(5)
    assert log.epoch_end_offset(4) == (3, 4)
    append(log, batch_of(2))
    assert log.epoch_end_offset(4) == (3, 4)
    truncate_log(log, 4)
    assert log.epoch_end_offset(4) == (3, 4), "epoch 5 is started but has no batch again"
    assert log.epoch_end_offset(5) == (5, 4)
    assert log.epoch_end_offset(6) == (-1, -1)


def test_append_rolls_when_the_segment_would_pass_its_size(tmp_path: Path) -> None:
    place = Place(tmp_path / "data", config=SMALL)
    log = place.log()
    append_many(log, 40)
    assert len(log.segments) > 2
    assert all(segment.size_bytes <= 2_000 for segment in log.segments)
    assert read_all(log) == list(range(40))
    log.check_invariants()


def test_append_refuses_a_batch_larger_than_a_segment(tmp_path: Path) -> None:
    log = Place(tmp_path / "data", config=SMALL).log()
    with pytest.raises(BatchTooLarge):
        append(log, batch_of(1, value=b"v" * 3_000))
    assert log.log_end_offset == 0


def test_append_rolls_when_timestamps_pass_the_segment_time(tmp_path: Path) -> None:
    log = Place(tmp_path / "data", config=LogConfig(segment_ms=1_000)).log()
    append(log, batch_of(timestamp_ms=NOW_MS))
    append(log, batch_of(timestamp_ms=NOW_MS + 1_000))
    assert len(log.segments) == 1
    append(log, batch_of(timestamp_ms=NOW_MS + 1_001))
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_append_rolls_by_age_when_records_have_no_timestamp(tmp_path: Path) -> None:
    log = Place(tmp_path / "data", config=LogConfig(segment_ms=1_000)).log()
    append(log, batch_of(timestamp_ms=-1), NOW_MS)
    append(log, batch_of(timestamp_ms=-1), NOW_MS + 1_000)
    assert len(log.segments) == 1
    append(log, batch_of(timestamp_ms=-1), NOW_MS + 1_001)
    assert len(log.segments) == 2


def test_append_rolls_when_the_index_is_full(tmp_path: Path) -> None:
    config = LogConfig(index_interval_bytes=1, segment_index_bytes=36)
    log = Place(tmp_path / "data", config=config).log()
    for number in range(9):
        append(log, batch_of(timestamp_ms=NOW_MS + number))
    assert len(log.segments) > 1
    assert read_all(log) == list(range(9))


def test_duplicate_of_an_idempotent_producer_gets_its_original_offset(place: Place) -> None:
    log = place.log()
    append_many(log, 2)
    first = batch_of(3, producer_id=5, producer_epoch=0, base_sequence=0)
    assert append(log, first) == 2
    assert append(log, batch_of(3, producer_id=5, producer_epoch=0, base_sequence=0)) == 2
    assert log.log_end_offset == 5
    with pytest.raises(OutOfOrderSequence):
        append(log, batch_of(1, producer_id=5, producer_epoch=0, base_sequence=4))


def test_read_is_cut_at_its_size_but_never_before_one_whole_batch_if_requested(place: Place) -> None:
    log = place.log()
    append_many(log, 3)
    size = len(batch_of())
    assert len(bytes_of(log.read(0, 3, 10_000, whole_first_batch=False))) == 3 * size
    assert len(bytes_of(log.read(0, 3, size + 10, whole_first_batch=False))) == size + 10
    assert log.read(0, 3, size - 1, whole_first_batch=False) is None
    assert len(bytes_of(log.read(0, 3, size - 1, whole_first_batch=True))) == size


def test_read_ends_below_its_limit(place: Place) -> None:
    log = place.log()
    append_many(log, 5, 2)
    run = log.read(2, 6, 10_000, whole_first_batch=True)
    assert [record.offset for record in records_in(run)] == [2, 3, 4, 5]
    # Offset 7 lies inside a batch, which is not wholly below the limit.
    assert [record.offset for record in records_in(log.read(2, 7, 10_000, whole_first_batch=True))] == [2, 3, 4, 5]
    assert log.read(6, 6, 10_000, whole_first_batch=True) is None


def test_read_from_inside_a_batch_starts_with_that_batch(place: Place) -> None:
    log = place.log()
    append_many(log, 2, 5)
    assert records_in(log.read(7, 10, 10_000, whole_first_batch=True))[0].offset == 5


def test_read_outside_of_the_log_is_refused(place: Place) -> None:
    log = place.log()
    append_many(log, 2)
    assert log.read(2, 2, 100, whole_first_batch=True) is None
    for offset in (-1, 3):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 2, 100, whole_first_batch=True)


def test_read_finds_every_offset_in_every_segment(tmp_path: Path) -> None:
    log = Place(tmp_path / "data", config=SMALL).log()
    append_many(log, 60, 2)
    for offset in range(120):
        run = log.read(offset, 120, 10, whole_first_batch=True)
        assert records_in(run)[0].offset == offset - offset % 2


def test_log_keeps_its_batches_and_continues_after_a_clean_stop(tmp_path: Path) -> None:
    place = Place(tmp_path / "data", config=SMALL)
    append_many(place.log(), 30, 2)
    place.flush()
    place.close()
    log = place.reopen_log()
    assert place.directory is not None
    assert place.directory.was_clean
    assert read_all(log) == list(range(60))
    assert log.stable_end == 60
    log.start_epoch(0)
    append_many(log, 30, 2)
    assert read_all(log) == list(range(120))


def test_log_keeps_its_batches_after_a_crash_of_the_process(tmp_path: Path) -> None:
    place = Place(tmp_path / "data", config=SMALL)
    append_many(place.log(), 30, 2)
    place.crash()
    log = place.reopen_log()
    assert place.directory is not None
    assert not place.directory.was_clean
    assert read_all(log) == list(range(60))
    assert log.stable_end == log.flushed_end == 60


def test_appended_sums_continue_over_rolls_retention_and_cuts(tmp_path: Path) -> None:
    pair_bytes = len(batch_of(2))
    place = Place(tmp_path / "summed", config=LogConfig(segment_bytes=3 * pair_bytes))
    log = place.log()
    assert log.appended == (0, 0)
    append_many(log, 10, 2)
    assert log.appended == (20, 10 * pair_bytes)
    place.flush()
    log.delete_records_before(7)
    assert log.delete_old_segments(0) > 0
    assert log.appended == (20, 10 * pair_bytes)
    truncate_log(log, 13)
    assert log.log_end_offset == 12
    append_many(log, 2, 2)
    assert log.appended == (24, 12 * pair_bytes)
    place.crash()
    assert place.reopen_log().appended == (0, 0)
