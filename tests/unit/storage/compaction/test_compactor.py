"""Which log is cleaned when, and what a clean does to a log that lives on."""

from __future__ import annotations

import errno
import io
import logging
import os
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

from ottla.records.builder import BatchBuilder
from ottla.records.end_marker import EndMarker
from ottla.records.header import HEADER
from ottla.runtime.offload import run_inline
from ottla.storage.compaction.cleaner import clean
from ottla.storage.compaction.compactor import GIVEN_UP_MAX, MAP_BYTES, ROOM_RETRY_MS, Compactor
from ottla.storage.compaction.plan import CleanedGroup, CleanFailure, CleanJob, CleanSummary, result_from_json
from ottla.storage.compaction.swap import SWAP_FILE, DiskWork
from ottla.storage.compaction.worker import BrokerGone, Pace, serve
from ottla.storage.errors import CorruptLog
from ottla.storage.log_config import LogConfig
from ottla.storage.producers.aborted_transactions import AbortedTransaction
from ottla.testing.memory_disk import MemoryDisk
from tests.cleaning import blocking_calls, run_clean
from tests.unit.storage.failing_disk import FailingDisk
from tests.unit.storage.logs import (
    CLICKS,
    NOW_MS,
    Place,
    at_time,
    bytes_of,
    read_all,
    records_in,
    topic_id,
    truncate_log,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.records.record import Record
    from ottla.storage.log.log import Log

COMPACTED = LogConfig(cleanup_policy="compact", segment_bytes=1_000, min_cleanable_dirty_ratio=0, retention_ms=-1)


class UnseenDisk(MemoryDisk):
    """Its free space may be unreadable."""

    is_unseen = False

    def free_bytes(self, path: str) -> int:
        if self.is_unseen:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return super().free_bytes(path)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, config=COMPACTED)


def put(log: Log, key: bytes, value: bytes | None, timestamp_ms: int = NOW_MS, **options: int) -> None:
    builder = BatchBuilder()
    builder.append(timestamp_ms, key, value)
    batch = memoryview(builder.build(**options))  # type: ignore[arg-type]
    header = HEADER.unpack_from(batch)
    guard = log.transactions.guard(*header[9:12]) if options.get("is_transactional") else None
    log.append(batch, header, NOW_MS, guard)


def fill(place: Place, rounds: int = 10, value: bytes = b"v" * 50) -> Log:
    """Two keys, again and again, closed and flushed."""
    log = place.log()
    for number in range(rounds):
        put(log, b"a", value + b"%d" % number)
        put(log, b"b", value + b"%d" % number)
    roll(place)
    return log


def roll(place: Place) -> None:
    place.log().roll(NOW_MS)
    place.flush()


def compactor_of(place: Place) -> Compactor:
    return place.open_directory.compactor


def clean_all(place: Place, map_bytes: int = MAP_BYTES) -> CleanJob | None:
    compactor = compactor_of(place)
    job = compactor.next_job(place.clock.now_ms(), map_bytes)
    if job is not None:
        run_clean(compactor, job, lambda job: clean(place.disk, job, lambda _: None))
    return job


def all_records(log: Log) -> list[Record]:
    records: list[Record] = []
    for segment in log.segments:
        run = log.read(
            max(segment.base_offset, log.log_start_offset), log.log_end_offset, 10**6, whole_first_batch=True
        )
        records += [record for record in records_in(run) if record.offset not in {known.offset for known in records}]
    return records


def test_clean_keeps_the_newest_record_of_each_key_at_its_offset(place: Place) -> None:
    log = fill(place)
    size_before = log.size_bytes
    clean_all(place)
    assert [(record.offset, record.key) for record in all_records(log)] == [(18, b"a"), (19, b"b")]
    assert log.size_bytes < size_before / 3
    assert compactor_of(place).cleaned_end(CLICKS) == 20
    assert clean_all(place) is None


def test_cleaned_log_is_found_again_after_a_restart_and_after_a_crash(place: Place) -> None:
    log = fill(place)
    clean_all(place)
    expected = all_records(log)
    place.close()
    assert all_records(place.reopen_log()) == expected
    place.crash()
    log = place.reopen_log()
    assert all_records(log) == expected
    assert compactor_of(place).cleaned_end(CLICKS) == 20


def test_active_segment_and_unflushed_segments_are_never_cleaned(place: Place) -> None:
    log = place.log()
    for _ in range(30):
        put(log, b"a", b"v" * 100)
    assert clean_all(place) is None
    place.flush()
    job = clean_all(place)
    assert job is not None
    assert job.limit_offset == log.active_base_offset < log.log_end_offset


def test_open_transaction_stops_the_clean_below_it(place: Place) -> None:
    log = fill(place)
    put(log, b"a", b"x", producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    roll(place)
    job = clean_all(place)
    assert job is not None
    assert job.limit_offset == 20


def test_clean_knows_the_aborted_transactions_that_end_above_it(place: Place) -> None:
    log = fill(place)
    put(log, b"a", b"x", producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    roll(place)
    log.append_marker(EndMarker(False, 0), 5, 1, NOW_MS, advances_epoch=True)
    place.flush()
    job = clean_all(place)
    assert job is not None
    assert (job.limit_offset, job.aborted_later) == (21, (AbortedTransaction(20, 21, 5, 22),))
    assert [record.value for record in all_records(log) if record.key == b"a"] == [b"v" * 50 + b"9"]


def test_log_is_cleaned_when_its_dirty_part_is_large_enough(place: Place) -> None:
    place.config = replace(COMPACTED, min_cleanable_dirty_ratio=0.5)
    log = place.log()
    for number in range(20):
        put(log, b"%d" % number, b"v" * 100)
    roll(place)
    assert clean_all(place) is not None
    put(log, b"new", b"v" * 100)
    roll(place)
    assert clean_all(place) is None
    for number in range(25):
        put(log, b"%d" % number, b"v" * 100)
    roll(place)
    assert clean_all(place) is not None


def test_young_segments_wait_for_their_lag(place: Place) -> None:
    place.config = replace(COMPACTED, min_compaction_lag_ms=1_000)
    fill(place)
    assert clean_all(place) is None
    place.clock.ms = 1_001
    assert clean_all(place) is not None


def test_old_segments_do_not_wait_for_the_ratio(place: Place) -> None:
    place.config = replace(COMPACTED, min_cleanable_dirty_ratio=1, max_compaction_lag_ms=1_000)
    fill(place)
    assert clean_all(place) is None
    place.clock.ms = 1_001
    assert clean_all(place) is not None


def test_compacted_log_rolls_by_the_greatest_lag() -> None:
    config = replace(COMPACTED, segment_ms=10_000, max_compaction_lag_ms=500)
    assert config.roll_ms == 500
    assert replace(config, cleanup_policy="delete").roll_ms == 10_000


def test_map_that_fills_up_ends_the_clean_and_the_next_one_continues(place: Place) -> None:
    log = place.log()
    for number in range(60):
        put(log, b"%d" % (number % 20), b"v" * 50)
    roll(place)
    ends = []
    while clean_all(place, map_bytes=12 * 24) is not None:
        ends.append(compactor_of(place).cleaned_end(CLICKS))
    assert ends == sorted(set(ends))
    assert len(ends) > 3
    assert ends[-1] == 60
    assert [record.offset for record in all_records(log)] == list(range(40, 60))


def test_reader_of_an_old_segment_reads_on_after_the_swap(place: Place) -> None:
    log = fill(place)
    run = log.read(0, log.log_end_offset, 10**6, whole_first_batch=True)
    before = bytes_of(run)
    clean_all(place)
    place.open_directory.housekeep(place.clock.now_ms())
    assert bytes_of(run) == before
    place.clock.ms += COMPACTED.file_delete_delay_ms + 1
    place.open_directory.housekeep(place.clock.now_ms())
    assert not list(Path(place.path).glob("clicks-0/*.deleted"))


def test_retention_takes_old_segments_of_a_log_that_is_compacted_too(place: Place) -> None:
    place.config = replace(COMPACTED, cleanup_policy="compact,delete", retention_ms=1_000)
    log = fill(place)
    clean_all(place)
    place.clock.ms = 2_000
    assert log.delete_old_segments(place.clock.now_ms()) > 0
    assert read_all(log) == []
    place.close()
    assert read_all(place.reopen_log()) == []


def test_records_below_a_moved_start_stay_away(place: Place) -> None:
    log = fill(place)
    clean_all(place)
    log.delete_records_before(19)
    place.open_directory.housekeep(place.clock.now_ms())
    assert read_all(log) == [19]
    place.crash()
    assert read_all(place.reopen_log()) == [19]


def test_policy_may_change_after_a_clean(place: Place) -> None:
    log = fill(place)
    clean_all(place)
    place.config = replace(COMPACTED, cleanup_policy="delete")
    log.update_config(place.config)
    assert [record.offset for record in records_in(log.read(3, log.log_end_offset, 1, whole_first_batch=True))] == [18]
    place.crash()
    assert read_all(place.reopen_log()) == [18, 19]


def test_gap_in_a_log_that_was_never_compacted_is_damage(place: Place) -> None:
    log = fill(place)
    clean_all(place)
    place.config = replace(COMPACTED, cleanup_policy="delete")
    place.close()
    Path(log.path, "compacted").unlink()
    error = place.open().failed[CLICKS]
    assert isinstance(error, CorruptLog)
    assert "instead of" in str(error) or "the next segment starts at" in str(error)


def test_offsets_below_the_first_batch_of_a_segment_lead_to_it(place: Place) -> None:
    log = fill(place)
    clean_all(place)
    for offset in range(18):
        assert [record.offset for record in records_in(log.read(offset, 20, 1, whole_first_batch=True))] == [18]
    found = at_time(log, NOW_MS)
    assert found is not None
    assert found.offset == 18


def test_cut_log_is_cleaned_again_from_the_cut(place: Place) -> None:
    log = fill(place)
    clean_all(place)
    truncate_log(log, 19)
    assert compactor_of(place).cleaned_end(CLICKS) == 19
    put(log, b"a", b"new")
    roll(place)
    clean_all(place)
    assert [(record.offset, record.key) for record in all_records(log)] == [(19, b"a")]


def test_clean_of_a_log_that_was_cut_meanwhile_is_given_up(place: Place) -> None:
    log = fill(place)
    compactor = compactor_of(place)
    job = compactor.next_job(NOW_MS)
    assert job is not None
    results = list(clean(place.disk, job, lambda _: None))
    truncate_log(log, 15)
    assert not run_inline(compactor.apply_result(results[0]))
    assert not compactor.is_cleaning
    assert compactor.has_failed_last
    assert read_all(log) == list(range(15))
    assert not list(Path(log.path).glob("*.cleaned"))


def test_clean_of_segments_that_retention_took_continues_with_the_others(place: Place) -> None:
    place.config = replace(COMPACTED, cleanup_policy="compact,delete")
    log = place.log()
    for number in range(40):
        put(log, b"a", b"v" * 100 + b"%d" % number)
    roll(place)
    compactor = compactor_of(place)
    job = compactor.next_job(NOW_MS)
    assert job is not None
    results = list(clean(place.disk, job, lambda _: None))
    log.delete_records_before(job.segments[1].base_offset)
    log.delete_old_segments(NOW_MS)
    for result in results:
        if not run_inline(compactor.apply_result(result)):
            break
    assert not compactor.has_failed_last
    assert [record.offset for record in all_records(log)] == [39]


def test_deleted_topic_made_again_is_dirty_from_its_start(place: Place) -> None:
    fill(place)
    clean_all(place)
    place.open_directory.delete(CLICKS)
    assert compactor_of(place).cleaned_end(CLICKS) == 0


def test_damaged_log_is_left_alone_with_an_error(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    log = fill(place)
    with Path(log.segments[0].log_path).open("r+b") as file:
        file.seek(80)
        file.write(b"\xff")
    output = io.BytesIO()
    job = compactor_of(place).next_job(NOW_MS)
    assert job is not None
    serve(place.disk, io.BytesIO(job.to_json().encode() + b"\n"), output, Pace(lambda _: None, lambda: None))
    failure = result_from_json(output.getvalue().decode())
    assert isinstance(failure, CleanFailure)
    assert failure.is_damage
    assert not run_inline(compactor_of(place).apply_result(failure))
    assert CLICKS in compactor_of(place).uncleanable
    assert compactor_of(place).next_job(NOW_MS) is None
    assert "log.uncleanable" in [record.getMessage() for record in caplog.records]


def test_failures_without_damage_are_tried_again_but_not_for_ever(place: Place) -> None:
    fill(place)
    compactor = compactor_of(place)
    for _ in range(GIVEN_UP_MAX):
        assert compactor.next_job(NOW_MS) is not None
        run_inline(compactor.apply_result(CleanFailure("the worker is gone", is_damage=False)))
    assert compactor.next_job(NOW_MS) is None


def test_log_that_finds_no_room_is_cleaned_when_there_is_some(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    place = Place("/data", disk, COMPACTED)
    log = fill(place, rounds=40)
    used_bytes = sum(len(content) for content in disk.files().values())
    disk.room_bytes = used_bytes + 100
    for _ in range(2 * GIVEN_UP_MAX):
        output = io.BytesIO()
        job = compactor_of(place).next_job(NOW_MS)
        assert job is not None
        serve(disk, io.BytesIO(job.to_json().encode() + b"\n"), output, Pace(lambda _: None, lambda: None))
        failure = result_from_json(output.getvalue().decode().splitlines()[-1])
        assert isinstance(failure, CleanFailure)
        run_inline(compactor_of(place).apply_result(failure))
        assert compactor_of(place).next_job(NOW_MS) is None
        place.clock.ms += ROOM_RETRY_MS
    assert {record.getMessage() for record in caplog.records} == {"log.clean_without_room"}
    job = compactor_of(place).next_job(NOW_MS)
    assert job is not None
    run_inline(compactor_of(place).apply_result(CleanFailure("no room", is_damage=False, lacks_room=True)))
    disk.room_bytes = used_bytes + log.size_bytes + 1_000
    clean_all(place)
    assert [record.offset for record in all_records(log)] == [78, 79]


def test_log_that_finds_no_room_waits_for_its_time_where_the_free_space_cannot_be_read() -> None:
    disk = UnseenDisk()
    place = Place("/data", disk, COMPACTED)
    fill(place)
    compactor = compactor_of(place)
    assert compactor.next_job(NOW_MS) is not None
    disk.is_unseen = True
    run_inline(compactor.apply_result(CleanFailure("no room", is_damage=False, lacks_room=True)))
    assert compactor.next_job(NOW_MS) is None
    place.clock.ms += ROOM_RETRY_MS
    assert compactor.next_job(NOW_MS) is not None


def test_disk_without_room_for_the_swap_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    disk = FailingDisk()
    place = Place(tmp_path, disk=disk, config=COMPACTED)
    log = fill(place)
    disk.fail("write", "compaction-swap.tmp", 28)
    clean_all(place)
    assert compactor_of(place).has_failed_last
    assert read_all(log) == list(range(20))
    disk.heal()
    place.clock.ms += ROOM_RETRY_MS
    clean_all(place)
    assert [record.offset for record in all_records(log)] == [18, 19]


def test_failure_in_the_middle_of_a_swap_takes_the_log_offline_and_a_restart_completes_it(tmp_path: Path) -> None:
    disk = FailingDisk()
    place = Place(tmp_path, disk=disk, config=COMPACTED)
    log = fill(place)
    compactor = compactor_of(place)
    job = compactor.next_job(NOW_MS)
    assert job is not None
    results = list(clean(disk, job, lambda _: None))
    fails_after = [2]
    rename = disk.rename

    def rename_twice(source: str, target: str) -> None:
        fails_after[0] -= 1
        if fails_after[0] < 0:
            raise OSError(5, "an error of the device")
        rename(source, target)

    disk.rename = rename_twice  # type: ignore[method-assign]
    assert not run_inline(compactor.apply_result(results[0]))
    assert log.failure is not None
    disk.rename = rename  # type: ignore[method-assign]
    place.crash()
    # The first group has lost its old records, the others are as they were.
    assert isinstance(results[0], CleanedGroup)
    complete_from = job.segments[len(results[0].replaced)].base_offset
    assert complete_from > 0
    assert [record.offset for record in all_records(place.reopen_log())] == list(range(complete_from, 20))


def test_clean_logs_its_result(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = fill(place)
    clean_all(place)
    [told] = [record for record in caplog.records if record.getMessage() == "log.cleaned"]
    facts = told.__dict__["ottla_facts"]
    assert (facts["records_read"], facts["records_kept"], facts["keys"]) == (20, 2, 2)
    assert facts["bytes_after"] < facts["bytes_before"]
    assert any("cleaned" in line for line in log.history.as_fact().lines)


def test_producer_continues_after_its_batches_were_cleaned_and_after_a_restart(place: Place) -> None:
    log = place.log()
    for sequence in range(8):
        put(log, b"a", b"v", producer_id=3, producer_epoch=0, base_sequence=sequence)
    roll(place)
    put(log, b"a", b"newest")
    roll(place)
    clean_all(place)
    place.crash()
    for name in Path(log.path).glob("*.snapshot"):
        name.unlink()
    log = place.reopen_log()
    # A repeated batch of the last five is known, the next sequence follows.
    put(log, b"a", b"v", producer_id=3, producer_epoch=0, base_sequence=4)
    assert log.log_end_offset == 9
    put(log, b"a", b"v", producer_id=3, producer_epoch=0, base_sequence=8)
    assert log.log_end_offset == 10


def test_worker_ends_when_its_broker_is_gone() -> None:
    checks = iter([None, BrokerGone()])

    def check() -> None:
        problem = next(checks)
        if problem is not None:
            raise problem

    pace = Pace(lambda _: None, check)
    pace(2**20)
    with pytest.raises(BrokerGone):
        pace(2**20)


def test_result_that_is_none_is_refused() -> None:
    for text in ("[]", "{}", '["CleanSummary", 1]', "x", '["CleanedGroup", [], [[1]]]'):
        with pytest.raises(ValueError):
            result_from_json(text)
    summary = CleanSummary(1, 2, 3, 4, 5, 6, 7, 8, True)
    assert isinstance(summary, CleanSummary)


def begun_swap(place: Place) -> Iterator[Callable[[], object]]:
    """The first swap of a clean, before its first blocking call."""
    job = compactor_of(place).next_job(NOW_MS)
    assert job is not None
    result = next(clean(place.disk, job, lambda _: None))
    assert isinstance(result, CleanedGroup)
    return blocking_calls(compactor_of(place), result)


@pytest.mark.parametrize("steps_count", [0, 1, 2, 3])
def test_log_that_is_cut_while_a_swap_waits_has_it_finished_first(place: Place, steps_count: int) -> None:
    log = fill(place)
    steps = begun_swap(place)
    work = next(steps)
    for number in range(steps_count):
        if number % 2 == 0:
            work()
        else:
            work = next(steps)
    cut_at = log.active_base_offset - 1
    truncate_log(log, cut_at)
    assert not log.is_swapping
    assert log.log_end_offset <= cut_at
    assert not place.disk.exists(f"{log.path}/{SWAP_FILE}")
    before = all_records(log)
    work()
    with pytest.raises(StopIteration) as over:
        next(steps)
    assert over.value.value in (True, False)
    assert all_records(log) == before
    place.flush()
    place.crash()
    log = place.reopen_log()
    assert log.log_end_offset <= cut_at
    assert all_records(log) == before


@pytest.mark.parametrize("is_committed", [False, True])
def test_recreated_topic_while_a_swap_of_the_old_one_waits_has_nothing_of_it(place: Place, is_committed: bool) -> None:
    fill(place)
    steps = begun_swap(place)
    work = next(steps)
    if is_committed:
        work()
        work = next(steps)
    place.open_directory.delete(CLICKS)
    log = run_inline(place.open_directory.create([(CLICKS, topic_id(1))]))[0]
    names = list(place.disk.list_directory(log.path))
    work()
    with pytest.raises(StopIteration):
        next(steps)
    assert list(place.disk.list_directory(log.path)) == names
    assert not log.is_swapping


def test_clean_that_is_given_up_while_its_swap_waits_has_the_swap_finished_first(place: Place) -> None:
    log = fill(place)
    steps = begun_swap(place)
    next(steps)()
    compactor_of(place).give_up("the broker stops")
    assert not place.disk.exists(f"{log.path}/{SWAP_FILE}")
    before = [record.offset for record in all_records(log)]
    assert before != list(range(20))
    place.close()
    assert [record.offset for record in all_records(place.reopen_log())] == before


def test_retention_waits_for_a_swap(place: Place) -> None:
    log = fill(place)
    steps = begun_swap(place)
    work = next(steps)
    log.delete_records_before(log.stable_end)
    assert log.delete_old_segments(NOW_MS) == 0
    work()
    next(steps)()
    with pytest.raises(StopIteration):
        next(steps)
    assert log.delete_old_segments(NOW_MS) > 0


def test_work_is_done_once_and_awaited_by_a_second_caller() -> None:
    begun, may_end = Event(), Event()
    done: list[int] = []

    def slow() -> None:
        begun.set()
        assert may_end.wait(10)
        done.append(1)

    work = DiskWork(slow)
    first = Thread(target=work)
    first.start()
    assert begun.wait(10)
    second = Thread(target=work)
    second.start()
    was_done = work.is_done
    may_end.set()
    first.join(10)
    second.join(10)
    assert not was_done
    assert work.is_done
    assert done == [1]


def test_swap_that_cannot_be_committed_fails_for_a_second_caller_too(tmp_path: Path) -> None:
    disk = FailingDisk()
    place = Place(tmp_path, disk=disk, config=COMPACTED)
    log = fill(place)
    steps = begun_swap(place)
    work = next(steps)
    disk.fail("write", "compaction-swap.tmp", 28)
    compactor_of(place).finish_swap()
    disk.heal()
    work()
    with pytest.raises(StopIteration) as over:
        next(steps)
    assert over.value.value is False
    assert compactor_of(place).has_failed_last
    assert read_all(log) == list(range(20))


def test_batches_that_were_a_producers_last_ones_at_the_limit_stay(place: Place) -> None:
    log = place.log()
    for number in range(10):
        put(log, b"a", b"%d" % number, producer_id=7, producer_epoch=0, base_sequence=number)
        if number == 6:
            roll(place)
    # What came since fills the producer's window but for two, and may be lost with the power.
    job = compactor_of(place).next_job(NOW_MS)
    assert job is not None
    assert job.limit_offset == 7
    assert job.kept_last_offsets == (2, 3, 4, 5, 6)
