"""A crash at every file operation of appends, cleans and swaps, with lost, torn and reordered unsynced writes.

The result is opened: each flushed key has its newest value, no old one came back, tombstones stayed long enough.  The
controls omit a sync or the file that lists the swap: then the same check must find a loss.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from ottla.runtime.disk import Disk
from ottla.storage.compaction import swap as swap_module
from ottla.storage.compaction.cleaner import clean
from ottla.storage.compaction.plan import CleanJob, CleanResult
from ottla.storage.directory import flushed_ends
from ottla.storage.log import flush as flush_module
from ottla.testing.memory_disk import MemoryDisk, MemoryFile, Operation
from tests.cleaning import run_clean

from .compaction_model import CompactedModel, KeyedBatch, check_compacted, log_files
from .distinct_disks import DistinctDisks
from .log_place import LogPlace, partition
from .property_settings import examples, exhaustive, is_tried, timeout_s
from .test_log_compaction import COMPACTED, DELETE_RETENTION_MS

if TYPE_CHECKING:
    from ottla.storage.log.log import Log

SEEDS_COUNT = 2
WORKLOADS_COUNT = 3
STEPS_COUNT = 60
KEYS = (b"a", b"b", b"c", b"d")
pytestmark = pytest.mark.timeout(timeout_s(SEEDS_COUNT))

# The cleaner of the disk: the real one, or one that omits a step.
Cleaning = Callable[[Disk, CleanJob], Iterator[CleanResult]]


def whole_clean(disk: Disk, job: CleanJob) -> Iterator[CleanResult]:
    return clean(disk, job, lambda _: None)


class CompactedWorkload:
    """Appends of a few keys, flushes, rolls, cleans; `visit` is called before each file operation."""

    def __init__(self, seed: int, cleaning: Cleaning = whole_clean) -> None:
        self.rng = random.Random(seed)
        self.disk = MemoryDisk()
        self.place = LogPlace(self.disk, COMPACTED)
        self.place.create(1)
        self.model = CompactedModel()
        self.cleaning = cleaning
        self.sequence = 0
        self.cleans_count = 0
        self.label = ""

    @property
    def log(self) -> Log:
        return self.place.log()

    @property
    def now_ms(self) -> int:
        return self.place.clock.now_ms()

    def run(self, visit: Callable[[MemoryDisk, str], None]) -> None:
        def before(operation: Operation) -> None:
            visit(self.disk, f"{self.label} before {operation}")

        self.disk.on_operation = before
        for number in range(STEPS_COUNT):
            kind = self.rng.choices(["append", "flush", "roll", "clean", "wait"], [10, 4, 3, 4, 2])[0]
            self.label = f"step {number}, {kind},"
            getattr(self, f"_{kind}")()
        self.disk.on_operation = None
        visit(self.disk, "the end")

    def _append(self) -> None:
        count = self.rng.randint(1, 4)
        records = tuple(
            (
                self.rng.choice(KEYS),
                None if self.rng.random() < 0.3 else self.rng.randbytes(self.rng.randrange(60)),
                self.now_ms,
            )
            for _ in range(count)
        )
        batch = KeyedBatch(records)
        if self.rng.random() < 0.4:
            batch = batch._replace(producer_id=7, producer_epoch=0, base_sequence=self.sequence)
            self.sequence += count
        self.model.append(self.log, batch, self.now_ms)

    def _flush(self) -> None:
        self.place.flush()
        self.model.flushed_end = self.log.flushed_end

    def _roll(self) -> None:
        self.log.roll(self.now_ms)
        self._flush()

    def _wait(self) -> None:
        self.place.clock.advance(6_000)
        self.place.directory.housekeep(self.now_ms)

    def _clean(self) -> None:
        compactor = self.place.directory.compactor
        job = compactor.next_job(self.now_ms, self.rng.choice([192, 10_000]))
        if job is None:
            return
        self.cleans_count += 1
        run_clean(compactor, job, lambda job: self.cleaning(self.disk, job), self._between)
        self.model.was_cleaned_up_to(compactor.cleaned_end(partition(0)), self.now_ms)

    def _between(self) -> None:
        """The log continues while a swap waits for the disk."""
        getattr(self, self.rng.choice(["_append", "_flush", "_roll", "_housekeep", "_nothing"]))()

    def _housekeep(self) -> None:
        self.place.directory.housekeep(self.now_ms)

    def _nothing(self) -> None:
        pass


def check_survivor(disk: MemoryDisk, workload: CompactedWorkload, label: str) -> None:
    """Open the log after a crash, compare it, clean it again, compare again."""
    place = LogPlace(disk, COMPACTED)
    assert not place.directory.failed, f"{label}: {place.directory.failed}"
    place.clock.advance(workload.now_ms - place.clock.now_ms())
    log = place.log()
    model = copy.copy(workload.model)
    model.first_cleaned_ms = dict(model.first_cleaned_ms)
    assert log.log_end_offset >= model.flushed_end, f"{label}: flushed up to {model.flushed_end}"
    model.truncate_to(log.log_end_offset)
    check_compacted(log, model, workload.now_ms, DELETE_RETENTION_MS)
    files = log_files(disk)
    again = LogPlace(disk.kill(), COMPACTED)
    assert log_files(again.disk) == files, f"{label}: opening twice gives other bytes"
    again.directory.abandon()
    compactor = place.directory.compactor
    if (job := compactor.next_job(workload.now_ms)) is not None:
        run_clean(compactor, job, lambda job: whole_clean(disk, job))
        assert not compactor.has_failed_last, label
        check_compacted(log, model, workload.now_ms, DELETE_RETENTION_MS)
    place.directory.abandon()


def crash_everywhere(
    workload: CompactedWorkload, seeds_count: int, is_checked: Callable[[int], bool] = lambda _: True
) -> int:
    """Returns the number of crashes, those included that are not checked."""
    distinct = DistinctDisks()
    crashes_count = 0

    def visit(disk: MemoryDisk, label: str) -> None:
        nonlocal crashes_count
        for seed in range(seeds_count):
            crashes_count += 1
            if not is_checked(crashes_count):
                continue
            after = disk.crash(random.Random(f"{crashes_count} {seed}"))
            if not distinct.is_new(after, workload.label, workload.now_ms, workload.model.state):
                continue
            check_survivor(after, workload, f"{label}, crash {crashes_count}")

    workload.run(visit)
    return crashes_count


@pytest.fixture(autouse=True)
def _few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushed_ends, "SLOTS_COUNT_MIN", 16)
    monkeypatch.setattr(flush_module, "SYNCS_ONE_BY_ONE_MAX", 1_000)


@exhaustive
@pytest.mark.parametrize("seed", range(WORKLOADS_COUNT))
def test_newest_values_survive_a_power_loss_at_every_operation(seed: int) -> None:
    workload = CompactedWorkload(seed)
    assert crash_everywhere(workload, examples(SEEDS_COUNT), is_tried) > 200
    assert workload.cleans_count > 3


def test_newest_values_survive_a_kill_at_every_operation() -> None:
    workload = CompactedWorkload(11)
    distinct = DistinctDisks()

    def visit(disk: MemoryDisk, label: str) -> None:
        after = disk.kill()
        if distinct.is_new(after, workload.label, workload.now_ms, workload.model.state):
            check_survivor(after, workload, label)

    workload.run(visit)


@exhaustive
def test_completed_swap_survives_a_power_loss_at_every_operation_of_recovery() -> None:
    workload = CompactedWorkload(1)
    rng = random.Random(5)
    distinct = DistinctDisks()
    checked_count = 0

    def visit(disk: MemoryDisk, label: str) -> None:
        nonlocal checked_count
        if rng.random() > 0.25 or not swap_module.is_swap_begun(disk, workload.log.path):
            return
        after = disk.crash(rng)

        def before(operation: Operation) -> None:
            nonlocal checked_count
            checked_count += 1
            survivor = after.crash(rng)
            if is_tried(checked_count) and distinct.is_new(
                survivor, workload.label, workload.now_ms, workload.model.state
            ):
                check_survivor(survivor, workload, f"{label}, then in recovery before {operation}")

        after.on_operation = before
        LogPlace(after, COMPACTED).directory.abandon()

    workload.run(visit)
    assert checked_count > 100


class _CarelessFile(MemoryFile):
    """Its sync does nothing."""

    __slots__ = ()

    def sync_data(self) -> None:
        pass


class _CarelessDisk:
    """A view of a disk for the cleaner only, whose files or directories are not synced."""

    def __init__(self, disk: MemoryDisk, skipped: str) -> None:
        self._disk = disk
        self._skipped = skipped

    def __getattr__(self, name: str) -> object:
        return getattr(self._disk, name)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        file = self._disk.open(path, create=create, read_only=read_only)
        if self._skipped == "sync":
            file.__class__ = _CarelessFile
        return file

    def sync_directory(self, path: str) -> None:
        if self._skipped != "sync_directory":
            self._disk.sync_directory(path)


def _finds_a_loss(workloads: Callable[[int], CompactedWorkload]) -> bool:
    for seed in range(WORKLOADS_COUNT):
        try:
            crash_everywhere(workloads(seed), SEEDS_COUNT)
        except (AssertionError, OSError):
            return True
    return False


@pytest.mark.parametrize("skipped", ["sync", "sync_directory"])
def test_check_finds_a_loss_without_a_sync_of_the_cleaner(skipped: str) -> None:
    def careless(disk: Disk, job: CleanJob) -> Iterator[CleanResult]:
        assert isinstance(disk, MemoryDisk)
        return clean(_CarelessDisk(disk, skipped), job, lambda _: None)  # type: ignore[arg-type]

    assert _finds_a_loss(lambda seed: CompactedWorkload(seed, careless))


def test_check_finds_a_loss_without_a_swap_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap_module, "commit_swap", lambda _disk, _path, _group: None)
    monkeypatch.setattr(swap_module, "settle_swap", lambda disk, path: disk.sync_directory(path))
    assert _finds_a_loss(CompactedWorkload)
