"""A follower's log that is cut while the event loop continues: what may happen meanwhile and after a power cut."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TypeVar

import pytest

from ottla.runtime.offload import run_inline
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.errors import LogBeingCut, LogOffline
from ottla.storage.log.flush import FlushPlan
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from ottla.testing.memory_disk import MemoryDisk
from tests.unit.storage.logs import (
    CLICKS,
    HandClock,
    append,
    append_many,
    batch_of,
    read_all,
    topic_id,
)

T = TypeVar("T")
APPENDED = 12


class Cutting:
    """A log of several segments, all flushed; it is also the `Offload`, which calls `meanwhile` before each work."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = MemoryDisk() if disk is None else disk
        if disk is None:
            self.disk.make_directory("/data")
        config = LogConfig(segment_bytes=4 * len(batch_of()))
        self.directory = LogDirectory.open(self.disk, "/data", clock=HandClock(), config_of=lambda _: config)
        if disk is None:
            run_inline(self.directory.create([(CLICKS, topic_id(0))]))
            self.log.start_epoch(0)
            append_many(self.log, APPENDED)
            self.flush()
            self.directory.record_high_watermarks({CLICKS: APPENDED})
        self.meanwhile: Callable[[], None] = lambda: None
        self.syncs_elsewhere = 0
        self.works_count = 0

    @property
    def log(self) -> Log:
        return self.directory.logs[CLICKS]

    @property
    def syncs_count(self) -> int:
        return sum(operation.kind.startswith("sync") for operation in self.disk.operations)

    def flush(self) -> None:
        while (plan := self.directory.scheduler.plan(0)) is not None:
            plan.execute(self.disk)
            self.directory.scheduler.complete(plan, None, 0)

    async def __call__(self, work: Callable[[], T]) -> T:
        self.works_count += 1
        self.meanwhile()
        before = self.syncs_count
        done = work()
        self.syncs_elsewhere += self.syncs_count - before
        self.meanwhile()
        return done

    async def pause(self) -> None:
        return None

    def truncate(self, offset: int, is_wanted: Callable[[], bool] = lambda: True) -> bool:
        return run_inline(self.log.truncate_to(offset, self, is_wanted))

    def reset(self, offset: int, is_wanted: Callable[[], bool] = lambda: True) -> bool:
        return run_inline(self.log.reset_to(offset, self, is_wanted))

    def after_power_cut(self, seed: int) -> Log:
        return Cutting(self.disk.crash(Random(seed))).log


@pytest.mark.parametrize("cut", [partial(Cutting.truncate, offset=6), partial(Cutting.reset, offset=30)])
def test_only_the_offload_syncs(cut: Callable[[Cutting], bool]) -> None:
    cutting = Cutting()
    before = cutting.syncs_count
    assert cut(cutting)
    assert cutting.syncs_count - before == cutting.syncs_elsewhere > 0
    cutting.log.check_invariants()


@pytest.mark.parametrize("cut", [partial(Cutting.truncate, offset=6), partial(Cutting.reset, offset=30)])
def test_log_takes_nothing_before_its_cut_is_durable(cut: Callable[[Cutting], bool]) -> None:
    cutting = Cutting()
    refused: list[LogBeingCut] = []

    def try_to_append() -> None:
        with pytest.raises(LogBeingCut) as refusal:
            append(cutting.log, batch_of())
        refused.append(refusal.value)
        assert cutting.log.delete_old_segments(0) == 0

    cutting.meanwhile = try_to_append
    assert cut(cutting)
    assert len(refused) == 2 * cutting.works_count
    end_offset = cutting.log.log_end_offset
    assert append(cutting.log, batch_of()) == end_offset
    cutting.flush()
    assert cutting.log.stable_end == end_offset + 1


def test_flush_and_checkpoint_that_end_meanwhile_raise_no_record_of_a_log_that_is_being_cut() -> None:
    for seed in range(20):
        cutting = Cutting()
        append_many(cutting.log, 1)
        scheduler = cutting.directory.scheduler
        plans = [scheduler.plan(0)]

        def meanwhile(cutting: Cutting = cutting, plans: list[FlushPlan | None] = plans) -> None:
            if cutting.syncs_elsewhere and plans:
                # The records are lowered, the log is as it was.
                assert cutting.log.log_end_offset == APPENDED + 1
                plan = plans.pop()
                assert plan is not None
                plan.execute(cutting.disk)
                cutting.directory.scheduler.complete(plan, None, 0)
                cutting.directory.record_high_watermarks({CLICKS: APPENDED})

        cutting.meanwhile = meanwhile
        assert cutting.truncate(6)
        assert not plans
        assert cutting.directory.high_watermarks()[CLICKS] == 6
        assert read_all(cutting.after_power_cut(seed)) == list(range(6))


@pytest.mark.parametrize("point", range(4))
def test_power_cut_at_any_point_leaves_the_log_as_it_was_or_cut(point: int) -> None:
    for seed in range(20):
        cutting = Cutting()
        left: list[MemoryDisk] = []

        def meanwhile(cutting: Cutting = cutting, left: list[MemoryDisk] = left, seed: int = seed) -> None:
            left.append(cutting.disk.crash(Random(seed)))

        cutting.meanwhile = meanwhile
        assert cutting.truncate(6)
        if point < len(left):
            offsets = read_all(Cutting(left[point]).log)
            assert offsets == list(range(len(offsets)))
            assert 6 <= len(offsets) <= APPENDED


def test_cut_that_is_not_wanted_any_more_leaves_the_log_as_it_was() -> None:
    for cut in (Cutting.truncate, Cutting.reset):
        cutting = Cutting()
        assert not cut(cutting, 6, lambda: False)
        assert read_all(cutting.log) == list(range(APPENDED))
        assert append(cutting.log, batch_of()) == APPENDED
        cutting.flush()
        # What is recorded follows the log again.
        assert read_all(cutting.after_power_cut(1)) == list(range(APPENDED + 1))


def test_log_that_is_deleted_meanwhile_is_not_cut() -> None:
    cutting = Cutting()
    log = cutting.log
    cutting.meanwhile = partial(cutting.directory.delete, CLICKS)
    assert not run_inline(log.truncate_to(6, cutting))
    assert log.failure is None


def test_log_whose_role_changed_after_its_new_start_was_recorded_refuses_appends() -> None:
    cutting = Cutting()
    asked: list[bool] = []

    def is_wanted() -> bool:
        # Once for the truncation, once before the begin is recorded.
        asked.append(True)
        return len(asked) < 3

    with pytest.raises(LogOffline, match="changed its role"):
        cutting.reset(30, is_wanted)
    assert cutting.log.failure is not None
