"""A crash at every file operation of a workload, with lost, torn and reordered unsynced writes (the idea of ALICE).

Each crash leaves a disk that is opened again.  Then every flushed record is there byte by byte; the rest is a
prefix of the appended batches, whole and without a gap; opening again changes nothing; producers, transactions,
epochs and indexes agree with the batches.  The controls omit a sync: then the same check must find a loss.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable
from typing import NamedTuple

import pytest

from ottla.records.end_marker import EndMarker
from ottla.runtime.disk import File
from ottla.storage.directory import flushed_ends
from ottla.storage.log import flush as flush_module
from ottla.storage.log.log import Log
from ottla.storage.producers import producer_snapshot, replay
from ottla.storage.producers.producer_snapshot import decode_snapshot
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.recovery import recovery
from ottla.storage.segment.batch_scan import BatchTuple
from ottla.storage.segment.segment import Segment
from ottla.testing.memory_disk import SYNC_KINDS, MemoryDisk, Operation
from tests.unit.storage.logs import truncate_log

from .distinct_disks import DistinctDisks
from .log_model import START_MS, BatchShape, LogModel, Stored, epoch_starts_of, producers_of, transactions_of
from .log_place import DATA, LogPlace, append, append_marker, partition, producers_in, read_log, transactions_in
from .property_settings import examples, exhaustive, is_tried, timeout_s

# Crashes at each moment, and workloads: `OTTLA_PROPERTY_EXAMPLES` raises the first.
SEEDS_COUNT = 4
WORKLOADS_COUNT = 4
STEPS_COUNT = 60
LOGS_COUNT = 2
pytestmark = pytest.mark.timeout(timeout_s(SEEDS_COUNT))


class RecordLost(AssertionError):
    """A flushed record is not there after a crash."""


class Moment(NamedTuple):
    """The states at a crash now: the disk, and each log's model before the operation."""

    disk: MemoryDisk
    models: list[LogModel]
    number: int
    label: str


class Workload:
    """Appends, flushes, rolls, cuts and retention on a few logs; `moments` are those before each file operation."""

    def __init__(self, seed: int, ignored_syncs: frozenset[str] = frozenset()) -> None:
        self.rng = random.Random(seed)
        self.disk = MemoryDisk()
        self.place = LogPlace(self.disk)
        self.place.create(LOGS_COUNT)
        self.models = [LogModel() for _ in range(LOGS_COUNT)]
        self.epochs = [0] * LOGS_COUNT
        self.sequences: dict[tuple[int, int], int] = {}
        self.number = 0
        self.disk.ignored_syncs = frozenset(kind for kind in SYNC_KINDS if kind in ignored_syncs)

    def run(self, visit: Callable[[Moment], None]) -> None:
        """Run all of it, and pass every moment to `visit`, which must not keep the disk."""

        def before(operation: Operation) -> None:
            visit(Moment(self.disk, self.models, self.number, f"step {self.number} before {operation}"))

        self.disk.on_operation = before
        for number in range(STEPS_COUNT):
            self.number = number
            self._step(self.rng.randrange(LOGS_COUNT))
        self.disk.on_operation = None
        visit(Moment(self.disk, self.models, STEPS_COUNT, "the end"))

    def _step(self, log_number: int) -> None:
        model, log = self.models[log_number], self.place.log(log_number)
        kind = self.rng.choices(
            ["append", "transact", "flush", "roll", "cut", "delete", "drop", "housekeep"], [9, 5, 5, 1, 1, 1, 1, 2]
        )[0]
        if kind == "append":
            self._append(log_number)
        elif kind == "transact":
            self._transact(log_number)
        elif kind == "flush":
            self.place.flush()
            for each, stored in enumerate(self.models):
                if self.place.log(each).flushed_end == stored.log_end_offset:
                    stored.all_flushed()
        elif kind == "roll":
            log.roll(self.place.clock.now_ms())
        elif kind == "cut" and len(model.batches) > 3:
            self._cut(log_number)
        elif kind == "delete":
            log.delete_records_before(self.rng.randint(log.log_start_offset, log.stable_end))
            model.log_start_offset = log.log_start_offset
        elif kind == "drop" and len(log.segments) > 2:
            log.delete_records_before(max(log.log_start_offset, min(log.segments[1].base_offset, log.stable_end)))
            log.delete_old_segments(self.place.clock.now_ms())
            model.log_start_offset = log.log_start_offset
        elif kind == "housekeep":
            self.place.clock.advance(2_000)
            self.place.directory.housekeep(self.place.clock.now_ms())

    def _append(self, log_number: int) -> None:
        count = self.rng.randint(1, 3)
        shape = BatchShape(count, self.rng.randrange(100), START_MS + self.number, self.number)
        if self.rng.random() < 0.6:
            key = (log_number, self.rng.randint(1, 2))
            sequence = self.sequences.get(key, self.rng.choice([0, 2**31 - 2]))
            self.sequences[key] = (sequence + count) % 2**31
            shape = shape._replace(producer_id=key[1], producer_epoch=0, base_sequence=sequence)
        _, stored = append(self.place.log(log_number), shape)
        assert stored is not None
        self.models[log_number].append(stored)

    def _transact(self, log_number: int) -> None:
        """A batch of a transaction, or its marker, with the next epoch or the same one."""
        model, log = self.models[log_number], self.place.log(log_number)
        producer_id = self.rng.choice([11, 12])
        epoch, window = model.producers().get(producer_id, (0, []))
        if producer_id in transactions_of(model.batches).open and self.rng.random() < 0.5:
            epoch += self.rng.randrange(2)
            marker = EndMarker(self.rng.random() < 0.4, self.epochs[log_number])
            model.append(append_marker(log, marker, producer_id, epoch))
            return
        sequence = (window[-1][1] + 1) % 2**31 if window else 0
        shape = BatchShape(1, self.rng.randrange(50), START_MS + self.number, self.number, producer_id, epoch, sequence)
        _, stored = append(log, shape._replace(is_transactional=True))
        assert stored is not None
        model.append(stored)

    def _cut(self, log_number: int) -> None:
        model, log = self.models[log_number], self.place.log(log_number)
        offset = self.rng.randint(max(log.segments[0].base_offset, model.log_end_offset - 6), model.log_end_offset)
        end_offset = model.end_if_truncated_to(offset)
        # From here on a crash may find the log cut or not.
        model.abandoned.append(list(model.batches))
        model.flushed_end = min(model.flushed_end, end_offset)
        truncate_log(log, offset)
        model.truncate_to(offset)
        for key in [key for key in self.sequences if key[0] == log_number]:
            _, window = model.producers().get(key[1], (0, []))
            self.sequences[key] = (window[-1][1] + 1) % 2**31 if window else 0
        self.epochs[log_number] += 1
        log.start_epoch(self.epochs[log_number])


def check_survivors(disk: MemoryDisk, models: list[LogModel], label: str) -> None:
    """Open the log after a crash, and compare it with its possible contents."""
    place = LogPlace(disk)
    assert not place.directory.failed, f"{label}: {place.directory.failed}"
    for number, model in enumerate(models):
        if partition(number) not in place.directory.logs:
            raise RecordLost(f"{label}: log {number} is gone")
        check_log(place.log(number), copy.copy(model), f"{label}, log {number}")
    files = log_files(disk)
    again = LogPlace(disk.kill())
    assert log_files(again.disk) == files, f"{label}: opening twice gives other bytes"
    again.directory.abandon()
    place.directory.abandon()


def check_log(log: Log, model: LogModel, label: str) -> None:
    log.check_invariants()
    start_offset, end_offset = log.log_start_offset, log.log_end_offset
    if end_offset < model.flushed_end or start_offset > max(model.log_start_offset, 0):
        raise RecordLost(f"{label}: [{start_offset}, {end_offset}) is left, flushed up to {model.flushed_end}")
    found = read_log(log, start_offset, end_offset)
    model.accept_survivors(found, start_offset, end_offset)
    check_derived(log, model, found)


def check_derived(log: Log, model: LogModel, found: list[Stored]) -> None:
    """Producers, epochs and indexes against the batches themselves."""
    assert producers_in(log) == producers_of(model.batches)
    transactions = transactions_of(model.batches)
    first_offset = log.segments[0].base_offset
    kept = transactions._replace(aborted=[each for each in transactions.aborted if each[1] >= first_offset])
    assert transactions_in(log) == kept
    starts = epoch_starts_of(found, log.log_start_offset)
    known = [tuple(entry) for entry in log.epoch_starts if entry.start_offset > log.log_start_offset]
    assert known == [start for start in starts if start[1] > log.log_start_offset]
    for stored in found:
        offset = stored.next_offset - 1
        if offset >= log.log_start_offset:
            run = log.read(offset, log.log_end_offset, 1, whole_first_batch=True)
            assert run is not None
            assert run.file.read_at(run.position, run.length_bytes) == stored.data


def log_files(disk: MemoryDisk) -> dict[str, bytes]:
    return {path: content for path, content in disk.files().items() if path.endswith(".log")}


def crash_everywhere(workload: Workload, seeds_count: int, is_checked: Callable[[int], bool] = lambda _: True) -> int:
    """Crash at every moment of a workload; returns the number of crashes, those included that are not checked."""
    distinct = DistinctDisks()
    crashes_count = 0

    def visit(moment: Moment) -> None:
        nonlocal crashes_count
        for seed in range(seeds_count):
            crashes_count += 1
            if not is_checked(crashes_count):
                continue
            after = moment.disk.crash(random.Random(f"{crashes_count} {seed}"))
            if not distinct.is_new(after, moment.number, *(model.state for model in moment.models)):
                continue
            check_survivors(after, moment.models, f"{moment.label}, crash {crashes_count}")

    workload.run(visit)
    return crashes_count


@pytest.fixture(autouse=True)
def _few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushed_ends, "SLOTS_COUNT_MIN", 16)


@pytest.fixture(params=["one by one", "all at once"])
def _way_to_sync(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush_module, "SYNCS_ONE_BY_ONE_MAX", 1_000 if request.param == "one by one" else 0)


@exhaustive
@pytest.mark.usefixtures("_way_to_sync")
@pytest.mark.parametrize("seed", range(WORKLOADS_COUNT))
def test_flushed_records_survive_a_power_loss_at_every_operation(seed: int) -> None:
    assert crash_everywhere(Workload(seed), examples(SEEDS_COUNT), is_tried) > 100


@exhaustive
@pytest.mark.parametrize("seed", range(WORKLOADS_COUNT))
def test_all_records_survive_a_kill_at_every_operation(seed: int) -> None:
    moments = itertools.count()

    def visit(moment: Moment) -> None:
        if not is_tried(next(moments)):
            return
        place = LogPlace(moment.disk.kill())
        assert not place.directory.failed
        for number, model in enumerate(moment.models):
            # A truncation under way has started or not; everything else is there to the last byte.
            if not model.abandoned:
                assert place.log(number).log_end_offset >= model.log_end_offset, moment.label
            check_log(place.log(number), copy.copy(model), moment.label)
        place.directory.abandon()

    Workload(seed).run(visit)


def test_recovery_survives_a_power_loss_at_each_of_its_operations() -> None:
    rng = random.Random(7)
    checked_count = 0

    def visit(moment: Moment) -> None:
        if rng.random() > 0.1:
            return
        disk = moment.disk.crash(rng)

        def before(operation: Operation) -> None:
            nonlocal checked_count
            checked_count += 1
            label = f"{moment.label}, then in recovery before {operation}"
            check_survivors(disk.crash(rng), moment.models, label)

        disk.on_operation = before
        LogPlace(disk).directory.abandon()

    Workload(3).run(visit)
    assert checked_count > 50


def test_clean_stop_survives_a_power_loss_at_every_operation() -> None:
    workload = Workload(4)
    workload.run(lambda _: None)
    rng = random.Random(4)

    def before(operation: Operation) -> None:
        check_survivors(workload.disk.crash(rng), workload.models, f"stopping, before {operation}")

    workload.disk.on_operation = before
    workload.place.directory.close()
    workload.disk.on_operation = None
    for model in workload.models:
        model.all_flushed()
    place = LogPlace(workload.disk.crash(rng))
    assert place.directory.was_clean
    for number, model in enumerate(workload.models):
        check_log(place.log(number), copy.copy(model), "after a clean stop")


@pytest.mark.parametrize("left_out", [SYNC_KINDS, frozenset({"sync"}), frozenset({"sync_file_system"})])
def test_check_finds_a_loss_without_a_sync(left_out: frozenset[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush_module, "SYNCS_ONE_BY_ONE_MAX", 1_000)
    with pytest.raises(AssertionError) as found:
        crash_everywhere(Workload(0, left_out), SEEDS_COUNT)
    # Lost and detected by the log itself, or lost silently: the check finds both.
    assert isinstance(found.value, RecordLost) or ".log is damaged" in str(found.value)


def test_data_directory_is_at_the_path_of_the_test() -> None:
    workload = Workload(0)
    workload.run(lambda _: None)
    assert all(path.startswith(f"{DATA}/clicks-") for path in log_files(workload.disk))
    assert any(log_files(workload.disk).values())


def open_no_markers(patch: pytest.MonkeyPatch) -> None:
    """The epochs of coordinators, in the values of markers, are not read."""

    def marker_at(file: File, position: int, head: BatchTuple) -> EndMarker | None:
        found = replay.marker_at(file, position, head)
        return None if found is None else found._replace(coordinator_epoch=0)

    patch.setattr(recovery, "marker_at", marker_at)


def rebuild_no_index(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery.LogRecovery, "_scan", _scan_without_aborted)


_scan = recovery.LogRecovery._scan


def _scan_without_aborted(self: recovery.LogRecovery, segment: Segment) -> str | None:
    problem = _scan(self, segment)
    segment.start_aborted()
    return problem


def keep_no_first_offsets(patch: pytest.MonkeyPatch) -> None:
    """Snapshots have no open transactions."""

    def decode(data: bytes, expiration_ms: int) -> ProducerStates:
        states = decode_snapshot(data, expiration_ms)
        for _, entry in states.entries():
            entry.current_txn_first_offset = -1
        return states

    patch.setattr(producer_snapshot, "decode_snapshot", decode)


def write_no_index(patch: pytest.MonkeyPatch) -> None:
    """A closed segment has no file of its aborted transactions."""
    patch.setattr("ottla.storage.segment.segment.write_aborted", lambda *_: None)


@pytest.mark.parametrize("plant", [open_no_markers, rebuild_no_index, keep_no_first_offsets, write_no_index])
def test_check_finds_a_bug_in_what_a_restart_knows_of_transactions(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(20):
        try:
            crash_everywhere(Workload(seed), 1)
        except AssertionError:
            return
    pytest.fail("20 workloads found nothing")
