from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.storage.errors import LogOffline
from ottla.storage.log_config import FlushPolicy, LogConfig
from tests.unit.storage.failing_disk import FailingDisk
from tests.unit.storage.logs import (
    Place,
    append,
    append_many,
    at_greatest_time,
    at_time,
    batch_of,
    read_all,
    truncate_log,
)

PAIR_BYTES = len(batch_of(2))
CONFIG = LogConfig(segment_bytes=3 * PAIR_BYTES, index_interval_bytes=PAIR_BYTES)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "data", config=CONFIG)


@pytest.mark.parametrize(("offset", "end_offset"), [(19, 18), (18, 18), (13, 12), (12, 12), (7, 6), (1, 0), (0, 0)])
def test_a_log_ends_at_the_batch_boundary_not_above_the_offset(place: Place, offset: int, end_offset: int) -> None:
    log = place.log()
    append_many(log, 10, 2)
    place.flush()
    truncate_log(log, offset)
    assert (log.log_end_offset, log.stable_end, log.flushed_end) == (end_offset,) * 3
    assert read_all(log) == list(range(end_offset))
    log.check_invariants()
    assert append(log, batch_of(2)) == end_offset
    place.flush()
    assert read_all(log, log.stable_end) == list(range(end_offset + 2))
    place.crash()
    assert read_all(place.reopen_log()) == list(range(end_offset + 2))


def test_a_log_that_was_cut_and_crashed_is_not_taken_for_damaged(place: Place) -> None:
    log = place.log()
    append_many(log, 10, 2)
    place.flush()
    truncate_log(log, 7)
    place.crash()
    assert read_all(place.reopen_log()) == list(range(6))


def test_producers_and_epochs_go_back_with_the_log(place: Place) -> None:
    log = place.log()
    for sequence in range(0, 10, 2):
        append(log, batch_of(2, producer_id=1, producer_epoch=0, base_sequence=sequence))
    log.start_epoch(5)
    append(log, batch_of(2, producer_id=1, producer_epoch=0, base_sequence=10))
    truncate_log(log, 8)
    assert log.epoch_of(9) == 0
    assert append(log, batch_of(2, producer_id=1, producer_epoch=0, base_sequence=8)) == 8
    assert log.epoch_of(8) == 5


def test_a_flush_under_way_does_not_count_for_appends_after_a_cut(place: Place) -> None:
    log = place.log()
    append_many(log, 8, 2)
    scheduler = place.open_directory.scheduler
    plan = scheduler.plan(0)
    assert plan is not None
    truncate_log(log, 2)
    append_many(log, 9, 2)
    plan.execute(place.disk)
    scheduler.complete(plan, None, 0)
    assert log.flushed_end == log.stable_end == 0
    place.flush()
    assert read_all(log, log.stable_end) == list(range(20))


def test_timestamps_of_cut_batches_are_forgotten(place: Place) -> None:
    log = place.log()
    log.update_config(replace(CONFIG, segment_bytes=10**6))
    for number in range(6):
        append(log, batch_of(timestamp_ms=1_000 + number))
    place.flush()
    truncate_log(log, 3)
    found = at_greatest_time(log)
    assert found is not None
    assert (found.timestamp_ms, found.offset) == (1_002, 2)
    assert at_time(log, 1_003) is None


@pytest.mark.parametrize("policy", ["ack", "os"])
@pytest.mark.parametrize("unflushed_count", [0, 1, 5])
def test_nothing_that_the_log_remembers_is_above_its_end(
    place: Place, policy: FlushPolicy, unflushed_count: int
) -> None:
    log = place.log()
    log.update_config(replace(CONFIG, flush_policy=policy))
    for _ in range(4):
        append_many(log, 2, 2)
        place.flush()
    append_many(log, unflushed_count, 2)
    for offset in (13, 12, 5, 0):
        truncate_log(log, offset)
        log.check_invariants()
        assert read_all(log) == list(range(log.log_end_offset))
        assert log.read(log.log_end_offset, log.log_end_offset + 1, 10_000, whole_first_batch=True) is None
    append_many(log, 8, 2)
    place.flush()
    log.check_invariants()
    assert read_all(log, log.stable_end) == list(range(16))


def test_observer_is_called_after_each_truncation_that_cut_something(place: Place) -> None:
    log = place.log()
    append_many(log, 10, 2)
    place.flush()
    ends: list[tuple[int, int]] = []
    log.watch(on_stable=lambda: None, on_truncated=lambda: ends.append((log.log_end_offset, log.stable_end)))
    truncate_log(log, 20)
    truncate_log(log, 13)
    truncate_log(log, 4)
    assert ends == [(12, 12), (4, 4)]


@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize(("what", "suffix"), [("truncate", ".log"), ("write", "leader-epoch-checkpoint.tmp")])
def test_truncation_that_fails_in_the_middle_leaves_the_log_offline_and_nothing_above_its_end(
    tmp_path: Path, what: str, suffix: str, error_number: int
) -> None:
    disk = FailingDisk()
    place = Place(tmp_path / "data", disk, CONFIG)
    log = place.log()
    append_many(log, 7, 2)
    log.start_epoch(1)
    append_many(log, 2, 2)
    place.flush()
    ends: list[int] = []
    log.watch(on_stable=lambda: None, on_truncated=lambda: ends.append(log.log_end_offset))
    disk.fail(what, suffix, error_number)
    with pytest.raises(LogOffline):
        truncate_log(log, 8)
    disk.heal()
    assert ends == [8]
    assert (log.log_end_offset, log.stable_end, log.flushed_end) == (8, 8, 8)
    assert read_all(log) == list(range(8))
    log.check_invariants()
    with pytest.raises(LogOffline):
        append(log, batch_of(2))
    place.flush()
    place.crash()
    assert read_all(place.reopen_log())[:8] == list(range(8)), "no shorter, and not taken for damaged"


def test_segment_that_takes_batches_again_does_so_by_the_present_settings(place: Place) -> None:
    log = place.log()
    append_many(log, 6, 2)
    assert len(log.segments) == 2
    log.update_config(replace(CONFIG, segment_bytes=10**6))
    truncate_log(log, 4)
    append_many(log, 20, 2)
    assert len(log.segments) == 1
