"""A search by time runs in steps, and the log may change in each of its pauses."""

from __future__ import annotations

import asyncio
from asyncio import gather, sleep
from collections.abc import Callable
from typing import TypeVar

import pytest

from ottla.records.builder import BatchBuilder
from ottla.records.compression import Codec
from ottla.runtime.offload import run_inline
from ottla.storage.compaction.cleaner import clean
from ottla.storage.log import time_search
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.segment import segment as segment_module
from ottla.storage.segment.indexes import TimestampOffset
from ottla.storage.segment.segment import Segment
from ottla.testing.memory_disk import MemoryDisk
from tests.cleaning import run_clean
from tests.unit.storage.logs import NOW_MS, Place, append, at_greatest_time, at_time, batch_of, truncate_log

T = TypeVar("T")

SEGMENT_BYTES = 360
CONFIG = LogConfig(segment_bytes=SEGMENT_BYTES, index_interval_bytes=100, retention_ms=-1, file_delete_delay_ms=0)
BATCHES = 20


class Meddling:
    """An `Offload` in whose pause number `at` something happens; it counts all of them."""

    def __init__(self, at: int = -1, meddle: Callable[[], object] = lambda: None) -> None:
        self.pauses_count = 0
        self._at = at
        self._meddle = meddle

    async def __call__(self, work: Callable[[], T]) -> T:
        result = work()
        await self.pause()
        return result

    async def pause(self) -> None:
        self.pauses_count += 1
        if self.pauses_count == self._at:
            self._meddle()


@pytest.fixture(autouse=True)
def pause_at_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_search, "STEP_BYTES", 0)
    monkeypatch.setattr(segment_module, "STEP_BYTES", 0)


def put(log: Log, *timestamps_ms: int, key: bytes | None = None) -> None:
    builder = BatchBuilder()
    for timestamp_ms in timestamps_ms:
        builder.append(timestamp_ms, key, b"v" * 50)
    append(log, memoryview(builder.build(codec=Codec.ZSTD)))


def filled(config: LogConfig = CONFIG) -> tuple[Place, Log]:
    """Two records in each batch, offset n at 1000 + 10 n; nothing of a closed segment is in memory."""
    place = Place("/data", MemoryDisk(), config)
    log = place.log()
    for offset in range(0, 2 * BATCHES, 2):
        put(log, 1_000 + 10 * offset, 1_010 + 10 * offset, key=b"%d" % (offset % 4))
    place.close()
    return place, place.reopen_log()


WANTED_MS = 1_295
FOUND = TimestampOffset(1_300, 30, 0)


def search(log: Log, offload: Meddling, *, timestamp_ms: int = WANTED_MS) -> TimestampOffset | None:
    return run_inline(log.offset_for_timestamp(timestamp_ms, 2 * BATCHES, offload))


def pauses_of_a_search() -> int:
    _, log = filled()
    quiet = Meddling()
    assert search(log, quiet) == FOUND
    assert len(log.segments) > 4
    assert quiet.pauses_count >= 12
    return quiet.pauses_count


def grow(place: Place) -> None:
    """Records of the time that is looked for, above the limit; and a roll."""
    place.log().roll(NOW_MS)
    for _ in range(10):
        put(place.log(), WANTED_MS)
    place.flush()


def delete_a_segment(place: Place) -> None:
    log = place.log()
    log.delete_records_before(log.segments[1].base_offset)
    assert log.delete_old_segments(NOW_MS) == 1
    place.open_directory.housekeep(NOW_MS)
    place.open_directory.housekeep(NOW_MS)


@pytest.mark.parametrize("change", [grow, delete_a_segment])
def test_search_finds_its_record_although_the_log_grows_or_loses_older_segments(
    change: Callable[[Place], None],
) -> None:
    for at in range(1, pauses_of_a_search() + 1):
        place, log = filled()
        assert search(log, Meddling(at, lambda place=place: change(place))) == FOUND  # type: ignore[misc]
        log.check_invariants()


def cut_and_go_on(place: Place) -> None:
    """Other records at the offsets where the search would have ended: offset 30 is of another time."""
    log = place.log()
    truncate_log(log, 11)
    for _ in range(40):
        append(log, batch_of(timestamp_ms=1_150))
    put(log, 1_296)
    place.flush()


def delete_all_that_fits(place: Place) -> None:
    place.log().delete_records_before(35)


def delete_segments_that_fit(place: Place) -> None:
    delete_all_that_fits(place)
    assert place.log().delete_old_segments(NOW_MS)
    place.open_directory.housekeep(NOW_MS)
    place.open_directory.housekeep(NOW_MS)


@pytest.mark.parametrize("change", [cut_and_go_on, delete_all_that_fits, delete_segments_that_fit])
def test_search_gives_what_the_log_has_at_its_end_when_records_left_it(change: Callable[[Place], None]) -> None:
    place, log = filled()
    change(place)
    after = search(log, Meddling())
    assert after != FOUND
    for at in range(1, pauses_of_a_search() + 1):
        place, log = filled()
        assert search(log, Meddling(at, lambda place=place: change(place))) == after, at  # type: ignore[misc]
        log.check_invariants()


def test_search_continues_in_cleaned_segments() -> None:
    config = LogConfig(
        cleanup_policy="compact",
        segment_bytes=SEGMENT_BYTES,
        min_cleanable_dirty_ratio=0,
        file_delete_delay_ms=0,
        index_interval_bytes=100,
    )

    def swap(place: Place) -> None:
        compactor = place.open_directory.compactor
        job = compactor.next_job(NOW_MS)
        assert job is not None
        run_clean(compactor, job, lambda job: clean(place.disk, job, lambda _: None))
        place.open_directory.housekeep(NOW_MS)

    place, log = filled(config)
    swap(place)
    after = search(log, Meddling())
    assert after is not None
    for at in range(1, pauses_of_a_search() + 1):
        place, log = filled(config)
        assert search(log, Meddling(at, lambda place=place: swap(place))) == after, at  # type: ignore[misc]


def test_greatest_time_is_found_although_the_log_is_cut_meanwhile() -> None:
    _, log = filled()
    quiet = Meddling()
    assert run_inline(log.offset_of_max_timestamp(40, quiet)) == TimestampOffset(1_390, 39, 0)
    for at in range(1, quiet.pauses_count + 1):
        place, log = filled()
        offload = Meddling(at, lambda log=log: truncate_log(log, 20))  # type: ignore[misc]
        assert run_inline(log.offset_of_max_timestamp(40, offload)) == TimestampOffset(1_190, 19, 0)
        place.log().check_invariants()


def test_search_in_a_log_that_is_closed_meanwhile_is_an_error_of_the_disk() -> None:
    for at in range(1, pauses_of_a_search() + 1):
        place, log = filled()
        with pytest.raises(OSError, match="closed"):
            search(log, Meddling(at, place.close))


def test_index_files_that_are_lost_are_made_again_in_steps() -> None:
    place, log = filled()
    for segment in log.segments[:-1]:
        for suffix in (".index", ".timeindex"):
            place.disk.remove(segment.path + suffix)
    quiet = Meddling()
    assert search(log, quiet) == FOUND
    assert quiet.pauses_count >= pauses_of_a_search() + BATCHES / 2
    closed = [segment for segment in log.segments[:-1] if segment.base_offset < 30]
    assert all(place.disk.exists(segment.path + ".index") for segment in closed)


def test_batch_of_many_records_is_searched_in_steps() -> None:
    place = Place("/data", MemoryDisk(), LogConfig(flush_policy="os"))
    log = place.log()
    put(log, *range(1_000, 11_000))
    quiet = Meddling()
    found = run_inline(log.offset_for_timestamp(10_999, 10_000, quiet))
    assert found == TimestampOffset(10_999, 9_999, 0)
    assert quiet.pauses_count > 50


def test_limit_is_that_of_the_beginning() -> None:
    _, log = filled()
    assert at_time(log, WANTED_MS, 30) is None
    assert at_greatest_time(log, 30) == TimestampOffset(1_290, 29, 0)


def test_search_in_the_active_segment_trusts_its_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of later times than the last entry's may follow it there: that is no reason to make them again."""
    place = Place("/data", MemoryDisk(), LogConfig(flush_policy="os"))
    log = place.log()
    for number in range(1_000):
        append(log, batch_of(timestamp_ms=NOW_MS + number))
    monkeypatch.setattr(Segment, "rebuild_indexes", None)
    for number in (3, 500, 990, 999):
        found = at_time(log, NOW_MS + number, 1_000)
        assert found is not None
        assert found.offset == number


def test_one_search_at_a_time_has_a_batch_open() -> None:
    place = Place("/data", MemoryDisk(), LogConfig(flush_policy="os"))
    log = place.log()
    put(log, *range(1_000, 2_000))
    opened: list[int] = []

    class Opening:
        async def __call__(self, work: Callable[[], T]) -> T:
            result = work()
            opened.append(1)
            assert sum(opened) == 1
            await sleep(0)
            return result

        async def pause(self) -> None:
            await sleep(0)

    async def look() -> TimestampOffset | None:
        found = await log.offset_for_timestamp(1_990, 1_000, Opening())
        opened.append(-1)
        return found

    async def look_five_times() -> list[TimestampOffset | None]:
        return await gather(*(look() for _ in range(5)))

    assert asyncio.run(look_five_times()) == [TimestampOffset(1_990, 990, 0)] * 5
