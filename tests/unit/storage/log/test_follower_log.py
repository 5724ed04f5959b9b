"""A follower's log takes the runs of its leader's: whole, in order, and of the right epoch, or not at all."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.records.header import BASE_OFFSET, HEADER, LEADER_EPOCH, LEADER_EPOCH_AT
from ottla.storage.errors import AppendRefused, CorruptRun, DiskFull, LogOffline, RunDoesNotFollow, TooManyOpenFiles
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from tests.unit.storage.failing_disk import FailingDisk
from tests.unit.storage.logs import NOW_MS, Place, append, batch_of, read_all, reset_log, truncate_log

PAIR_BYTES = len(batch_of(2))
CONFIG = LogConfig(segment_bytes=3 * PAIR_BYTES, index_interval_bytes=PAIR_BYTES)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "data", config=CONFIG)


def stamped(base_offset: int, count: int = 2, *, epoch: int = 0, producer_id: int = -1, sequence: int = -1) -> bytes:
    """A batch as a leader's log has it."""
    batch = batch_of(count, producer_id=producer_id, producer_epoch=min(producer_id, 0), base_sequence=sequence)
    BASE_OFFSET.pack_into(batch, 0, base_offset)
    LEADER_EPOCH.pack_into(batch, LEADER_EPOCH_AT, epoch)
    return bytes(batch)


def run_of(*batches: bytes) -> memoryview:
    return memoryview(b"".join(batches))


def pairs(first: int, count: int, epoch: int = 0) -> memoryview:
    return run_of(*(stamped(first + 2 * number, epoch=epoch) for number in range(count)))


def test_run_is_stored_as_it_came_and_is_stable_after_a_flush(place: Place) -> None:
    log = place.log()
    assert log.append_run(pairs(0, 8), NOW_MS) == 16
    assert (log.log_end_offset, log.stable_end) == (16, 0)
    assert len(log.segments) == 3
    assert place.flush() > 0
    assert log.stable_end == 16
    content = b"".join(Path(segment.log_path).read_bytes() for segment in log.segments)
    assert content == bytes(pairs(0, 8))
    log.check_invariants()
    place.crash()
    assert read_all(place.reopen_log()) == list(range(16))


def test_follower_with_flush_policy_interval_is_flushed_at_once(tmp_path: Path) -> None:
    place = Place(tmp_path / "data", config=replace(CONFIG, flush_policy="interval"))
    log = place.log()
    log.append_run(pairs(0, 1), NOW_MS)
    assert place.flush() == 1
    assert log.stable_end == 2


def test_follower_with_flush_policy_os_is_stable_at_once(tmp_path: Path) -> None:
    place = Place(tmp_path / "data", config=replace(CONFIG, flush_policy="os"))
    log = place.log()
    ends: list[int] = []
    log.watch(on_stable=lambda: ends.append(log.stable_end))
    log.append_run(pairs(0, 2), NOW_MS)
    assert ends == [4]


@pytest.mark.parametrize("cut_bytes", [1, 60, PAIR_BYTES - 1])
def test_batch_that_the_answers_limit_cut_is_left_out(place: Place, cut_bytes: int) -> None:
    log = place.log()
    assert log.append_run(pairs(0, 3)[:-cut_bytes], NOW_MS) == 4
    assert log.append_run(pairs(4, 1), NOW_MS) == 6
    assert read_all(log) == list(range(6))


def test_empty_run_changes_nothing(place: Place) -> None:
    assert place.log().append_run(memoryview(b""), NOW_MS) == 0


def _with(position: int, byte: int) -> bytes:
    batch = bytearray(stamped(2))
    batch[position] = byte
    return bytes(batch)


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (_with(70, 0xFF), "checksum"),
        (_with(16, 1), "magic byte 1"),
        (_with(23, 0x80), "last offset delta"),
        (_with(10, 0x00)[:8] + (48).to_bytes(4, "big") + _with(10, 0)[12:], "shorter than its own head"),
    ],
)
def test_run_with_a_damaged_batch_is_refused_whole(place: Place, second: bytes, reason: str) -> None:
    log = place.log()
    with pytest.raises(CorruptRun, match=reason):
        log.append_run(run_of(stamped(0), second, stamped(4)), NOW_MS)
    assert log.log_end_offset == 0
    assert log.size_bytes == 0


@pytest.mark.parametrize("size_bytes", [1, 61, PAIR_BYTES - 1])
def test_run_without_one_whole_batch_is_refused(place: Place, size_bytes: int) -> None:
    with pytest.raises(CorruptRun, match="one whole batch"):
        place.log().append_run(pairs(0, 1)[:size_bytes], NOW_MS)


@pytest.mark.parametrize("base_offset", [0, 3, 5, 2**62])
def test_run_that_does_not_start_at_the_logs_end_is_refused(place: Place, base_offset: int) -> None:
    log = place.log()
    log.append_run(pairs(0, 2), NOW_MS)
    with pytest.raises(RunDoesNotFollow, match=f"base offset {base_offset}.* continues at 4"):
        log.append_run(run_of(stamped(base_offset)), NOW_MS)
    assert log.append_run(pairs(4, 1), NOW_MS) == 6


def test_epochs_of_a_run_are_kept_and_never_fall(place: Place) -> None:
    log = place.log()
    assert log.last_epoch() == -1
    log.append_run(run_of(stamped(0, epoch=2), stamped(2, epoch=2), stamped(4, epoch=5)), NOW_MS)
    assert log.last_epoch() == log.leader_epoch == 5
    assert [tuple(start) for start in log.epoch_starts] == [(2, 0), (5, 4)]
    with pytest.raises(RunDoesNotFollow, match="leader epoch 4 at offset 6, after one of 5"):
        log.append_run(run_of(stamped(6, epoch=4)), NOW_MS)
    log.append_run(run_of(stamped(6, epoch=5)), NOW_MS)
    assert log.epoch_end_offset(2) == (2, 4)
    place.flush()
    place.crash()
    assert place.reopen_log().last_epoch() == 5


def test_epoch_that_this_broker_led_without_a_record_does_not_refuse_an_older_one(place: Place) -> None:
    log = place.log()
    log.append_run(run_of(stamped(0, epoch=3)), NOW_MS)
    log.start_epoch(7)
    assert log.last_epoch() == 3
    log.append_run(run_of(stamped(2, epoch=4)), NOW_MS)
    assert log.last_epoch() == 4
    log.start_epoch(9)
    append(log, batch_of(2))
    assert [tuple(start) for start in log.epoch_starts] == [(3, 0), (4, 2), (9, 4)]


def test_producers_of_a_run_are_known_when_the_follower_leads(place: Place) -> None:
    log = place.log()
    log.append_run(run_of(stamped(0, producer_id=4, sequence=0), stamped(2, producer_id=4, sequence=2)), NOW_MS)
    log.start_epoch(1)
    repeated = batch_of(2, producer_id=4, producer_epoch=0, base_sequence=2)
    assert append(log, repeated) == 2, "a duplicate"
    assert append(log, batch_of(2, producer_id=4, producer_epoch=0, base_sequence=4)) == 4


def test_batch_larger_than_a_segment_gets_its_own_segment(place: Place) -> None:
    log = place.log()
    log.append_run(run_of(stamped(0), stamped(2, 40), stamped(42)), NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 42]
    assert read_all(log) == list(range(44))


def test_gaps_are_taken_where_the_leaders_log_was_compacted_and_later_openings_allow_them(place: Place) -> None:
    log = place.log()
    with pytest.raises(RunDoesNotFollow):
        log.append_run(run_of(stamped(3), stamped(9)), NOW_MS)
    assert log.append_run(run_of(stamped(3), stamped(9)), NOW_MS, may_have_gaps=True) == 11
    assert read_all(log) == [3, 4, 9, 10]
    place.flush()
    assert log.append_run(run_of(stamped(20), stamped(31)), NOW_MS) == 33, "it is known by now"
    place.crash()
    log = place.reopen_log()
    assert read_all(log) == [3, 4, 9, 10, 20, 21, 31, 32]
    assert log.config.was_compacted
    log.check_invariants()


@pytest.mark.parametrize("base_offset", [2**31, 2**40])
def test_gap_that_no_segment_can_hold_is_refused(place: Place, base_offset: int) -> None:
    log = place.log()
    with pytest.raises(RunDoesNotFollow, match=r"more than 2\^31 offsets"):
        log.append_run(run_of(stamped(0), stamped(base_offset + 8)), NOW_MS, may_have_gaps=True)
    assert log.log_end_offset == 2, "what came before the gap stays"
    log.check_invariants()
    assert log.append_run(run_of(stamped(2**31 - 6)), NOW_MS) == 2**31 - 4


def test_overlapping_batch_is_refused_also_where_gaps_are_allowed(place: Place) -> None:
    log = place.log()
    log.append_run(pairs(0, 2), NOW_MS, may_have_gaps=True)
    with pytest.raises(RunDoesNotFollow):
        log.append_run(run_of(stamped(6), stamped(7)), NOW_MS, may_have_gaps=True)
    assert log.log_end_offset == 4


def _failing(tmp_path: Path) -> tuple[FailingDisk, Place, Log]:
    disk = FailingDisk()
    place = Place(tmp_path / "data", disk, CONFIG)
    log = place.log()
    log.append_run(pairs(0, 2), NOW_MS)
    place.flush()
    return disk, place, log


def test_run_that_finds_no_room_is_undone_with_its_epochs_and_works_later(tmp_path: Path) -> None:
    disk, place, log = _failing(tmp_path)
    disk.fail("write", ".log", errno.ENOSPC)
    with pytest.raises(DiskFull):
        log.append_run(pairs(4, 1, epoch=6), NOW_MS)
    disk.heal()
    assert (log.log_end_offset, log.last_epoch()) == (4, 0)
    log.check_invariants()
    # Another leader, whose last record is older than that of the first one.
    assert log.append_run(pairs(4, 4, epoch=5), NOW_MS) == 12
    assert read_all(log) == list(range(12))
    place.flush()
    place.close()
    log = place.reopen_log()
    assert [tuple(start) for start in log.epoch_starts] == [(0, 0), (5, 4)]


def test_run_whose_second_segment_cannot_be_made_ends_with_the_first(tmp_path: Path) -> None:
    disk, place, log = _failing(tmp_path)
    disk.fail("open", ".log", errno.ENOSPC)
    with pytest.raises(DiskFull):
        log.append_run(pairs(4, 4, epoch=3), NOW_MS)
    disk.heal()
    assert log.log_end_offset == 6
    assert log.last_epoch() == 3
    place.flush()
    assert log.stable_end == 6, "what was written is flushed"
    assert log.append_run(pairs(6, 3, epoch=3), NOW_MS) == 12
    assert read_all(log) == list(range(12))


def test_run_after_a_failed_write_is_refused(tmp_path: Path) -> None:
    disk, _, log = _failing(tmp_path)
    disk.fail("write", ".log", errno.EIO)
    for _ in range(2):
        with pytest.raises(LogOffline):
            log.append_run(pairs(4, 1), NOW_MS)
    assert log.log_end_offset == 4


def test_leaders_epoch_whose_first_append_failed_is_not_in_its_log(tmp_path: Path) -> None:
    disk, _, log = _failing(tmp_path)
    log.start_epoch(8)
    disk.fail("write", ".log", errno.ENOSPC)
    with pytest.raises(DiskFull):
        append(log, batch_of(2))
    disk.heal()
    assert log.last_epoch() == 0
    assert append(log, batch_of(2)) == 4
    assert log.last_epoch() == 8


def test_refusals_reach_the_follower_as_errors_of_the_protocol() -> None:
    assert issubclass(CorruptRun, AppendRefused)
    assert issubclass(RunDoesNotFollow, AppendRefused)


def test_head_of_a_cut_batch_is_never_trusted_for_its_size(place: Place) -> None:
    huge = bytearray(stamped(2))
    huge[8:12] = (2**31 - 1).to_bytes(4, "big")
    assert HEADER.unpack_from(huge)[1] == 2**31 - 1
    assert place.log().append_run(run_of(stamped(0), bytes(huge)), NOW_MS) == 2


def _with_history(place: Place) -> Log:
    log = place.log()
    log.append_run(run_of(*(stamped(2 * n, epoch=n // 4, producer_id=1, sequence=2 * n) for n in range(10))), NOW_MS)
    place.flush()
    return log


@pytest.mark.parametrize("offset", [1, 6, 11, 20, 21, 1_000, 2**40])
@pytest.mark.parametrize("is_clean", [False, True])
def test_reset_drops_everything_and_continues_at_the_offset(place: Place, offset: int, is_clean: bool) -> None:
    log = _with_history(place)
    ends: list[tuple[int, int, int]] = []
    log.watch(
        on_stable=lambda: None,
        on_truncated=lambda: ends.append((log.log_start_offset, log.stable_end, log.log_end_offset)),
    )
    reset_log(log, offset)
    assert ends[-1] == (offset, offset, offset)
    assert (log.last_epoch(), log.epoch_starts, len(log.producers), log.size_bytes) == (-1, (), 0, 0)
    log.check_invariants()
    log.append_run(pairs(offset, 8, epoch=1), NOW_MS)
    place.flush()
    assert log.stable_end == offset + 16
    if is_clean:
        place.close()
    else:
        place.crash()
    log = place.reopen_log()
    assert read_all(log) == list(range(offset, offset + 16))
    assert (log.log_start_offset, log.last_epoch(), len(log.producers)) == (offset, 1, 0)


def test_reset_of_a_log_that_ends_at_the_offset_forgets_its_epochs(place: Place) -> None:
    log = _with_history(place)
    log.delete_records_before(20)
    log.roll(NOW_MS)
    log.delete_old_segments(NOW_MS)
    place.open_directory.checkpoint()
    assert log.last_epoch() == 2
    reset_log(log, 20)
    assert (log.log_start_offset, log.log_end_offset, log.last_epoch()) == (20, 20, -1)


@pytest.mark.parametrize("is_checkpointed", [False, True])
@pytest.mark.parametrize("offset", [0, 3, 6])
def test_log_is_cut_below_its_first_segment(place: Place, offset: int, is_checkpointed: bool) -> None:
    log = _with_history(place)
    log.delete_records_before(13)
    log.delete_old_segments(NOW_MS)
    assert log.segments[0].base_offset == 12
    if is_checkpointed:
        place.open_directory.checkpoint()
    truncate_log(log, offset)
    assert (log.log_start_offset, log.log_end_offset) == (offset, offset)
    log.append_run(pairs(offset, 2, epoch=7), NOW_MS)
    place.flush()
    place.clock.ms += 120_000
    place.open_directory.housekeep(place.clock.now_ms())
    place.crash()
    log = place.reopen_log()
    assert read_all(log) == list(range(offset, offset + 4))
    assert not place.open_directory.failed


def test_empty_log_takes_the_batch_that_holds_its_leaders_start(place: Place) -> None:
    log = _with_history(place)
    reset_log(log, 31)
    log.append_run(run_of(stamped(30), stamped(32)), NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (31, 34)
    assert read_all(log) == [31, 32, 33]
    log.check_invariants()
    place.flush()
    place.crash()
    assert read_all(place.reopen_log()) == [31, 32, 33]


def test_batch_that_starts_below_the_end_is_refused_when_it_does_not_hold_it(place: Place) -> None:
    log = place.log()
    reset_log(log, 31)
    for base_offset in (28, 29):
        with pytest.raises(RunDoesNotFollow):
            log.append_run(run_of(stamped(base_offset)), NOW_MS)
    assert log.append_run(pairs(31, 1), NOW_MS) == 33


def test_reset_that_finds_no_descriptor_leaves_an_empty_log_and_works_later(tmp_path: Path) -> None:
    disk, place, log = _failing(tmp_path)
    disk.fail("open", f"{100:020d}.log", errno.EMFILE)
    with pytest.raises(TooManyOpenFiles):
        reset_log(log, 100)
    disk.heal()
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    reset_log(log, 100)
    assert log.append_run(pairs(100, 1), NOW_MS) == 102
    place.flush()
    place.close()
    assert read_all(place.reopen_log()) == [100, 101]


def test_reset_that_cannot_be_recorded_leaves_no_second_segment(tmp_path: Path) -> None:
    disk, place, log = _failing(tmp_path)
    disk.fail("write", "log-start-offset-checkpoint.tmp", errno.ENOSPC)
    with pytest.raises(DiskFull):
        reset_log(log, 100)
    disk.heal()
    assert log.append_run(pairs(0, 1), NOW_MS) == 2
    place.flush()
    place.close()
    assert read_all(place.reopen_log()) == [0, 1]


def test_reset_needs_nothing_of_the_batches(place: Place) -> None:
    log = _with_history(place)
    file = log.segments[0].open()
    file.write_at(0, bytes(300))
    reset_log(log, 40)
    assert log.append_run(pairs(40, 1), NOW_MS) == 42


def test_cut_of_batches_without_producers_keeps_the_producers_without_reading(place: Place) -> None:
    log = place.log()
    log.append_run(run_of(stamped(0, producer_id=1, sequence=0), stamped(2), stamped(4)), NOW_MS)
    producers = log.producers
    truncate_log(log, 2)
    assert log.producers is producers
    truncate_log(log, 0)
    assert len(log.producers) == 0
