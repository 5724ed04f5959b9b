"""A log and a plain list get the same random operations; after each step both have the same contents."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.storage.directory import flushed_ends
from ottla.storage.errors import (
    DirectoryOffline,
    DiskFull,
    InvalidProducerEpoch,
    LogOffline,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StorageError,
)
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from ottla.testing.memory_disk import MemoryDisk
from tests.unit.storage.logs import at_time, truncate_log

from .log_model import START_MS, LogModel
from .log_place import SMALL_SEGMENTS, BatchShape, LogPlace, append, producers_in, read_log
from .property_settings import example_settings, timeout_s

EXAMPLES_COUNT = 200
pytestmark = pytest.mark.timeout(timeout_s(EXAMPLES_COUNT))

COUNTS = st.integers(1, 4)
SIZES = st.integers(0, 120)
PRODUCERS = st.integers(1, 3)
# Near the greatest sequence, so that some windows wrap.
FIRST_SEQUENCES = st.sampled_from([0, 0, 5, 2**31 - 3, 2**31 - 1])


class LogAgainstModel(RuleBasedStateMachine):
    """Appends, flushes, truncations, restarts and power losses in any order."""

    config: LogConfig = SMALL_SEGMENTS

    @initialize()
    def start(self) -> None:
        self.place = LogPlace(MemoryDisk(), self.config)
        self.place.create(1)
        self.model = LogModel()
        self.epoch = 0
        self.appended_count = 0

    @property
    def log(self) -> Log:
        return self.place.log()

    def _append(self, shape: BatchShape) -> int:
        self.appended_count += 1
        base_offset, stored = append(self.log, shape._replace(fill=self.appended_count), self.place.clock.now_ms())
        assert stored is not None
        assert stored.base_offset == base_offset == self.model.log_end_offset
        assert stored.epoch == self.epoch
        self.model.append(stored)
        return base_offset

    @rule(count=COUNTS, value_bytes=SIZES, age_ms=st.integers(-500, 500))
    def append_batch(self, count: int, value_bytes: int, age_ms: int) -> None:
        self._append(BatchShape(count, value_bytes, START_MS + age_ms + self.appended_count))

    @rule(producer_id=PRODUCERS, count=COUNTS, first=FIRST_SEQUENCES)
    def append_next_of_producer(self, producer_id: int, count: int, first: int) -> None:
        epoch, window = self.model.producers().get(producer_id, (0, []))
        sequence = (window[-1][1] + 1) % 2**31 if window else first
        self._append(
            BatchShape(count, 20, START_MS, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        )

    @rule(producer_id=PRODUCERS, count=COUNTS)
    def append_of_new_producer_epoch(self, producer_id: int, count: int) -> None:
        epoch, _ = self.model.producers().get(producer_id, (0, []))
        self._append(
            BatchShape(count, 20, START_MS, producer_id=producer_id, producer_epoch=epoch + 1, base_sequence=0)
        )

    @rule(producer_id=PRODUCERS, back=st.integers(0, 4))
    def repeat_batch_of_producer(self, producer_id: int, back: int) -> None:
        epoch, window = self.model.producers().get(producer_id, (0, []))
        if back >= len(window):
            return
        first, _, base_offset, delta = window[-1 - back]
        shape = BatchShape(delta + 1, 20, START_MS, 0, producer_id, epoch, first)
        assert append(self.log, shape) == (base_offset, None)

    @rule(producer_id=PRODUCERS, ahead=st.integers(1, 50), count=COUNTS)
    def refuse_gap_and_old_epoch_of_producer(self, producer_id: int, ahead: int, count: int) -> None:
        epoch, window = self.model.producers().get(producer_id, (0, []))
        if not window:
            return
        gap = BatchShape(count, 5, START_MS, 0, producer_id, epoch, (window[-1][1] + 1 + ahead) % 2**31)
        with pytest.raises(OutOfOrderSequence):
            append(self.log, gap)
        if epoch > 0:
            with pytest.raises(InvalidProducerEpoch):
                append(self.log, gap._replace(producer_epoch=epoch - 1))

    @rule(step=st.integers(1, 3))
    def start_epoch(self, step: int) -> None:
        self.epoch += step
        self.log.start_epoch(self.epoch)

    @rule()
    def roll(self) -> None:
        self.log.roll(self.place.clock.now_ms())

    @rule()
    def flush(self) -> None:
        self.place.flush()
        self.model.all_flushed()
        assert self.log.flushed_end == self.log.stable_end == self.model.log_end_offset

    @precondition(lambda self: len(self.model.batches) > 2)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        first_kept = self.log.segments[0].base_offset
        offset = data.draw(st.integers(first_kept, self.model.log_end_offset))
        self.model.abandoned.append(list(self.model.batches))
        truncate_log(self.log, offset)
        self.model.truncate_to(offset)
        # Logs are truncated when a new leader has another history, so later batches have a higher epoch.
        self.start_epoch(1)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.log.stable_end))
        self.log.delete_records_before(offset)
        self.model.log_start_offset = max(self.model.log_start_offset, offset)
        with pytest.raises(OffsetOutOfRange):
            self.log.delete_records_before(self.log.stable_end + 1)

    @rule(kept_bytes=st.sampled_from([0, 700, 1_500]))
    def drop_old_segments(self, kept_bytes: int) -> None:
        log = self.log
        log.update_config(_with_retention(self.config, kept_bytes))
        size_before, end_before = log.size_bytes, log.stable_end
        count = log.delete_old_segments(self.place.clock.now_ms())
        log.update_config(self.config)
        assert self.model.log_start_offset <= log.log_start_offset <= end_before
        if count:
            assert log.log_start_offset >= log.segments[0].base_offset
            assert log.size_bytes >= min(kept_bytes, size_before) or log.log_start_offset > 0
        self.model.log_start_offset = log.log_start_offset

    @rule(duration_ms=st.sampled_from([1, 2_000, 400_000]))
    def housekeep(self, duration_ms: int) -> None:
        self.place.clock.advance(duration_ms)
        while self.place.directory.housekeep(self.place.clock.now_ms()):
            pass
        self.model.log_start_offset = self.log.log_start_offset

    @rule(count=COUNTS, room_bytes=st.integers(0, 60))
    def append_to_full_disk(self, count: int, room_bytes: int) -> None:
        disk = self.place.disk
        disk.room_bytes = sum(len(content) for content in disk.files().values()) + room_bytes
        with pytest.raises(DiskFull):
            append(self.log, BatchShape(count, 50, START_MS))
        disk.room_bytes = None

    @rule(taken_bytes=st.integers(1, 80))
    def append_with_short_write(self, taken_bytes: int) -> None:
        self.place.disk.faults.shorten_write(taken_bytes)
        self.append_batch(2, 30, 0)
        self.place.disk.faults.clear()

    @rule(data=st.data(), taken_bytes=st.sampled_from([None, 20]), is_power_loss=st.booleans())
    def restart_after_failed_write(self, data: st.DataObject, taken_bytes: int | None, is_power_loss: bool) -> None:
        faults = self.place.disk.faults
        if taken_bytes is not None:
            faults.shorten_write(taken_bytes, path_contains=".log")
        faults.fail("write", error=errno.EIO, path_contains=".log", nth=1 if taken_bytes is None else 2)
        with pytest.raises(LogOffline):
            append(self.log, BatchShape(2, 30, START_MS))
        faults.clear()
        self._refuses_and_shows_only_what_is_flushed(LogOffline)
        if is_power_loss:
            self.reopen_after_power_loss(data.draw(st.integers(0, 2**32)))
        else:
            self.reopen_after_kill()

    @precondition(lambda self: self.log.flushed_end < self.log.log_end_offset)
    @rule(seed=st.integers(0, 2**32))
    def restart_after_failed_sync(self, seed: int) -> None:
        self.place.disk.faults.fail("sync", times=None)
        self.place.disk.faults.fail("sync_file_system", times=None)
        flushed_end = self.log.flushed_end
        self.place.flush()
        self.place.disk.faults.clear()
        assert self.place.directory.offline is not None
        assert self.log.flushed_end == self.log.stable_end == flushed_end
        # A retry would return: it must not be believed.
        self.place.flush()
        assert self.log.flushed_end == flushed_end
        self._refuses_and_shows_only_what_is_flushed(DirectoryOffline)
        self.reopen_after_power_loss(seed)

    def _refuses_and_shows_only_what_is_flushed(self, error: type[StorageError]) -> None:
        log = self.log
        with pytest.raises(error):
            append(log, BatchShape(1, 5, START_MS))
        if log.log_start_offset < log.flushed_end:
            last = read_log(log, log.log_start_offset, log.flushed_end)[-1]
            assert last.next_offset == log.flushed_end
        if log.log_start_offset <= log.flushed_end:
            assert log.read(log.flushed_end, log.log_end_offset, 1_000, whole_first_batch=True) is None

    @rule()
    def reopen_after_clean_stop(self) -> None:
        self.place.reopen_clean()
        assert self.place.directory.was_clean
        self._after_restart(keeps_start=True)

    @rule()
    def reopen_after_kill(self) -> None:
        self.place.reopen_on(self.place.disk.kill())
        assert not self.place.directory.was_clean
        self._after_restart(keeps_start=False)

    @rule(seed=st.integers(0, 2**32))
    def reopen_after_power_loss(self, seed: int) -> None:
        self.place.reopen_on(self.place.disk.crash(random.Random(seed)))
        assert not self.place.directory.failed
        start_offset, end_offset = self.log.log_start_offset, self.log.log_end_offset
        self.model.accept_survivors(read_log(self.log, start_offset, end_offset), start_offset, end_offset)
        self._after_restart(keeps_start=False)

    def _after_restart(self, *, keeps_start: bool) -> None:
        assert not self.place.directory.failed
        # DeleteRecords is durable with the next checkpoint; until then a crash may undo it.
        if keeps_start:
            assert self.log.log_start_offset == self.model.log_start_offset
        assert self.log.log_start_offset <= self.model.log_start_offset
        self.model.log_start_offset = self.log.log_start_offset
        assert self.log.stable_end == self.log.flushed_end == self.log.log_end_offset == self.model.log_end_offset
        self.model.all_flushed()
        self.epoch = max(self.epoch, self.log.leader_epoch)
        self.log.start_epoch(self.epoch)

    @invariant()
    def tells_what_the_model_tells(self) -> None:
        log, model = self.log, self.model
        log.check_invariants()
        assert log.log_end_offset == model.log_end_offset
        assert log.log_start_offset == model.log_start_offset
        assert log.flushed_end >= min(model.flushed_end, log.log_end_offset)
        batches = read_log(log, model.log_start_offset, model.log_end_offset)
        assert b"".join(stored.data for stored in batches) == model.data_from(model.log_start_offset)
        assert read_log(log, log.log_start_offset, log.stable_end) == [
            stored for stored in batches if stored.base_offset < log.stable_end
        ]

    @invariant()
    def knows_its_producers(self) -> None:
        assert producers_in(self.log) == self.model.producers()

    @rule(data=st.data())
    def finds_any_offset(self, data: st.DataObject) -> None:
        log, model = self.log, self.model
        offset = data.draw(st.integers(model.log_start_offset, model.log_end_offset))
        if offset == model.log_end_offset:
            assert log.read(offset, offset, 1_000, whole_first_batch=True) is None
        else:
            found = read_log(log, offset, model.log_end_offset, data.draw(st.sampled_from([1, 300, 10_000])))
            assert b"".join(stored.data for stored in found) == model.data_from(offset)
        for outside in (model.log_start_offset - 1, model.log_end_offset + 1):
            with pytest.raises(OffsetOutOfRange):
                log.read(outside, model.log_end_offset, 1_000, whole_first_batch=True)

    @rule(age_ms=st.integers(-600, 700))
    def finds_any_timestamp(self, age_ms: int) -> None:
        found = at_time(self.log, START_MS + age_ms, self.log.log_end_offset)
        assert (None if found is None else found.offset) == self.model.first_at_or_after(START_MS + age_ms)

    @rule(epoch=st.integers(-1, 40))
    def finds_the_end_of_any_epoch(self, epoch: int) -> None:
        found = self.log.epoch_end_offset(epoch)
        expected = self.model.epoch_end_offset(epoch, self.log.leader_epoch)
        # Epochs whose batches retention removed may still be known or not.
        if expected[0] != epoch or expected[1] > self.log.segments[0].base_offset:
            assert found == expected or 0 <= found[1] <= self.model.log_start_offset


def _with_retention(config: LogConfig, retention_bytes: int) -> LogConfig:
    return replace(config, retention_bytes=retention_bytes)


@pytest.fixture(autouse=True)
def _few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushed_ends, "SLOTS_COUNT_MIN", 16)


TestLogAgainstModel = LogAgainstModel.TestCase
TestLogAgainstModel.settings = example_settings(EXAMPLES_COUNT, steps_count=50)
