"""A compacted log and a plain list get the same random operations: appends, rolls, cleans, truncations, restarts."""

from __future__ import annotations

import random
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.records.compression import Codec
from ottla.storage.compaction.cleaner import clean
from ottla.storage.compaction.compacted_mark import read_compacted_end
from ottla.storage.compaction.plan import CleanJob, CleanResult, result_from_json, result_to_json
from ottla.storage.directory import flushed_ends
from ottla.storage.log_config import LogConfig
from ottla.testing.memory_disk import MemoryDisk
from tests.cleaning import run_clean
from tests.unit.storage.logs import at_time, truncate_log

from .compaction_model import CompactedModel, KeyedBatch, check_cleaned, check_compacted, check_cut, shown
from .log_model import START_MS
from .log_place import LogPlace, partition
from .property_settings import example_settings, timeout_s

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.storage.log.log import Log

EXAMPLES_COUNT = 60
pytestmark = pytest.mark.timeout(timeout_s(EXAMPLES_COUNT))

DELETE_RETENTION_MS = 10_000
COMPACTED = LogConfig(
    cleanup_policy="compact",
    segment_bytes=700,
    index_interval_bytes=150,
    segment_index_bytes=10_000,
    retention_ms=-1,
    segment_ms=10**12,
    file_delete_delay_ms=1_000,
    min_cleanable_dirty_ratio=0,
    delete_retention_ms=DELETE_RETENTION_MS,
)
KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"a key that is longer than fifteen bytes", b""])
VALUES = st.one_of(st.none(), st.binary(max_size=40))
RECORDS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4)
CODECS = st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])


class CompactionAgainstModel(RuleBasedStateMachine):
    """Every clean runs on the log's own memory disk."""

    config = COMPACTED

    @initialize()
    def start(self) -> None:
        self.place = LogPlace(MemoryDisk(), self.config)
        self.place.create(1)
        self.model = CompactedModel()
        # The offset of a truncation below a clean's end.
        self.cut_at: int | None = None

    @property
    def log(self) -> Log:
        return self.place.log()

    @property
    def now_ms(self) -> int:
        return self.place.clock.now_ms()

    @rule(records=RECORDS, codec=CODECS, age_ms=st.integers(-500, 500))
    def append(self, records: list[tuple[bytes, bytes | None]], codec: Codec, age_ms: int) -> None:
        timed = tuple((key, value, START_MS + age_ms + at) for at, (key, value) in enumerate(records))
        self.model.append(self.log, KeyedBatch(timed, codec), self.now_ms)

    @rule(batches=st.lists(RECORDS, min_size=3, max_size=8), codec=CODECS)
    def append_many(self, batches: list[list[tuple[bytes, bytes | None]]], codec: Codec) -> None:
        for records in batches:
            self.append(records, codec, 0)

    @rule(value=VALUES)
    def append_without_key(self, value: bytes | None) -> None:
        self.model.append(self.log, KeyedBatch(((None, value, START_MS), (b"a", b"1", START_MS))), self.now_ms)

    @rule(records=RECORDS, producer_id=st.integers(1, 3), next_epoch=st.booleans())
    def append_of_producer(self, records: list[tuple[bytes, bytes | None]], producer_id: int, next_epoch: bool) -> None:
        epoch, window = self.model.producers().get(producer_id, (0, []))
        sequence = (window[-1][1] + 1) % 2**31 if window else 2**31 - 3
        if window and next_epoch:
            epoch, sequence = epoch + 1, 0
        timed = tuple((key, value, START_MS) for key, value in records)
        self.model.append(self.log, KeyedBatch(timed, Codec.NONE, producer_id, epoch, sequence), self.now_ms)

    @rule()
    def roll_and_flush(self) -> None:
        self.log.roll(self.now_ms)
        self.place.flush()
        self.model.flushed_end = self.log.flushed_end

    @rule(duration_ms=st.sampled_from([1, 4_000, 11_000]))
    def wait(self, duration_ms: int) -> None:
        self.place.clock.advance(duration_ms)
        while self.place.directory.housekeep(self.now_ms):
            pass

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.log.delete_records_before(data.draw(st.integers(0, self.log.stable_end)))
        self.place.directory.housekeep(self.now_ms)

    @precondition(lambda self: len(self.model.appended) > 2)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        first = self.log.segments[0].base_offset
        if data.draw(st.integers(0, 3)):
            first = max(first, self._cleaned_end())
        offset = data.draw(st.integers(first, self.log.log_end_offset))
        kept = [head.next_offset for head, _ in shown(self.log) if head.next_offset <= offset]
        cleaned_end = self._cleaned_end()
        truncate_log(self.log, offset)
        assert self.log.log_end_offset <= offset
        # Whole batches stay; where the batches before the cut were cleaned away, the log ends before the gap.
        if kept:
            assert self.log.log_end_offset == max(self.log.active_base_offset, kept[-1])
        if offset < cleaned_end:
            # Values and sequences that the truncation makes current again were cleaned away: a follower is never
            # truncated below its high watermark, and no clean goes above it.
            self.cut_at = self.log.log_end_offset
        elif self.cut_at is not None:
            self.cut_at = min(self.cut_at, self.log.log_end_offset)
        self.model.truncate_to(self.log.log_end_offset)
        # An unflushed truncation may be undone; another test covers that.
        self.place.flush()

    def _cleaned_end(self) -> int:
        """The highest offset that a clean may have reached, also an abandoned one."""
        return read_compacted_end(self.place.disk, self.log.path) or 0

    @rule(
        map_bytes=st.sampled_from([192, 10_000]),
        stops_after=st.sampled_from([None, None, None, 0, 1]),
        closes=st.sampled_from([True, True, False]),
        data=st.data(),
    )
    def clean_once(self, map_bytes: int, stops_after: int | None, closes: bool, data: st.DataObject) -> None:
        if closes:
            self.roll_and_flush()
        compactor = self.place.directory.compactor
        before = compactor.cleaned_end(partition(0))
        job = compactor.next_job(self.now_ms, map_bytes)
        if job is None:
            return
        assert job.limit_offset <= min(self.log.flushed_end, self.log.active_base_offset)

        def between() -> None:
            # No step waits for the swap; another test covers a truncation, which does.
            what = data.draw(st.sampled_from(["nothing", "append", "roll", "delete", "read"]))
            if what == "append":
                self.append([(b"a", b"meanwhile")], Codec.NONE, 0)
            elif what == "roll":
                self.roll_and_flush()
            elif what == "delete":
                self.log.delete_records_before(data.draw(st.integers(0, self.log.stable_end)))
                self.place.directory.housekeep(self.now_ms)
            elif what == "read":
                self.shows_the_newest_values()

        run_clean(compactor, job, lambda job: islice(results_on(self.place.disk, job), stops_after), between)
        cleaned_end = compactor.cleaned_end(partition(0))
        if compactor.is_cleaning:
            compactor.give_up("the test wants it")
            assert cleaned_end == before
            # Some segments are clean: tombstones in them have a delete horizon.
            self.model.was_cleaned_up_to(job.limit_offset, self.now_ms)
            return
        event("clean ended" if cleaned_end == job.limit_offset else "map was full")
        assert not compactor.uncleanable
        assert cleaned_end > job.first_dirty_offset
        self.model.was_cleaned_up_to(cleaned_end, self.now_ms)
        if self.cut_at is None:
            check_cleaned(self.log, cleaned_end, shown(self.log))
        assert not [name for name in self.place.disk.list_directory(self.log.path) if name.endswith(".cleaned")]

    @rule()
    def reopen_after_clean_stop(self) -> None:
        self.place.reopen_clean()
        assert self.place.directory.was_clean

    @rule()
    def reopen_after_kill(self) -> None:
        self.place.reopen_on(self.place.disk.kill())
        assert not self.place.directory.failed

    @rule(seed=st.integers(0, 2**32))
    def reopen_after_power_loss(self, seed: int) -> None:
        self.place.reopen_on(self.place.disk.crash(random.Random(seed)))
        assert not self.place.directory.failed, self.place.directory.failed
        assert self.log.log_end_offset >= self.model.flushed_end
        self.model.truncate_to(self.log.log_end_offset)
        # An unflushed truncation may be undone; another test covers that.
        self.place.flush()

    @rule()
    def reopen_without_snapshots(self) -> None:
        """Producers are known from the batches alone."""
        disk = self.place.disk.kill()
        for name in disk.list_directory(self.log.path):
            if name.endswith(".snapshot") and self.log.log_start_offset == 0:
                disk.remove(f"{self.log.path}/{name}")
        self.place.reopen_on(disk)

    @invariant()
    def shows_the_newest_values(self) -> None:
        self.model.log_start_offset = self.log.log_start_offset
        if self.cut_at is None:
            check_compacted(self.log, self.model, self.now_ms, DELETE_RETENTION_MS)
        else:
            check_cut(self.log, self.model, self.cut_at)

    @rule(data=st.data())
    def finds_any_offset(self, data: st.DataObject) -> None:
        batches = shown(self.log)
        offset = data.draw(st.integers(self.log.log_start_offset, self.log.log_end_offset))
        run = self.log.read(offset, self.log.log_end_offset, 1, whole_first_batch=True)
        expected = [head.base_offset for head, _ in batches if head.next_offset > offset]
        assert (run is None) == (not expected)
        if run is not None:
            assert int.from_bytes(run.file.read_at(run.position, 8), "big") == expected[0]

    @rule(age_ms=st.integers(-600, 700))
    def finds_any_timestamp(self, age_ms: int) -> None:
        found = at_time(self.log, START_MS + age_ms, self.log.log_end_offset)
        expected = [
            record.offset
            for batch in shown(self.log)
            for record in batch.records
            if record.timestamp_ms >= START_MS + age_ms and record.offset >= self.log.log_start_offset
        ]
        assert (None if found is None else found.offset) == (expected[0] if expected else None)


def results_on(disk: MemoryDisk, job: CleanJob) -> Iterator[CleanResult]:
    """The results of a clean, after the encoding that passes them between processes."""
    for result in clean(disk, CleanJob.from_json(job.to_json()), lambda _: None):
        yield result_from_json(result_to_json(result))


@pytest.fixture(autouse=True)
def _few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushed_ends, "SLOTS_COUNT_MIN", 16)


TestCompactionAgainstModel = CompactionAgainstModel.TestCase
TestCompactionAgainstModel.settings = example_settings(EXAMPLES_COUNT)
