"""Log starts that move are made durable in steps: nothing is synced where other work waits for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TypeVar

import pytest

from ottla.runtime.offload import run_inline
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from ottla.testing.memory_disk import MemoryDisk
from tests.unit.storage.logs import CLICKS, NOW_MS, HandClock, append, append_many, batch_of, read_all, topic_id

T = TypeVar("T")


class Started:
    """A log of three segments on a disk in memory; it is also the `Offload`, and notes what it is given."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = MemoryDisk() if disk is None else disk
        if disk is None:
            self.disk.make_directory("/data")
        self.directory = LogDirectory.open(
            self.disk, "/data", clock=HandClock(), config_of=lambda _: LogConfig(file_delete_delay_ms=0)
        )
        if disk is None:
            run_inline(self.directory.create([(CLICKS, topic_id(0))]))
            self.log.start_epoch(0)
            append(self.log, batch_of(producer_id=7, producer_epoch=0, base_sequence=0))
            for _ in range(3):
                append_many(self.log, 2)
                self.log.roll(NOW_MS)
            self.flush()
        self.syncs_elsewhere = 0
        self.meanwhile: Callable[[], None] = lambda: None

    @property
    def log(self) -> Log:
        return self.directory.logs[CLICKS]

    def flush(self) -> None:
        plan = self.directory.scheduler.plan(0)
        assert plan is not None
        plan.execute(self.disk)
        self.directory.scheduler.complete(plan, None, 0)

    @property
    def syncs_count(self) -> int:
        return sum(operation.kind.startswith("sync") for operation in self.disk.operations)

    async def __call__(self, work: Callable[[], T]) -> T:
        before = self.syncs_count
        done = work()
        self.syncs_elsewhere += self.syncs_count - before
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return done

    async def pause(self) -> None:
        return None

    def settle(self) -> None:
        run_inline(self.directory.checkpoint_in_steps(self))

    def after_power_cut(self, seed: int) -> Log:
        return Started(self.disk.crash(Random(seed))).log


def test_nothing_is_synced_but_by_the_offload() -> None:
    started = Started()
    started.log.delete_records_before(3)
    before = started.syncs_count
    started.settle()
    assert started.syncs_count - before == started.syncs_elsewhere > 0
    plan = started.directory.scheduler.plan(0)
    assert plan is not None
    assert plan.syncs_file_system, "the epochs, which begin with the new start"


@pytest.mark.parametrize(("moves_on_to", "settled_count", "start"), [(None, 1, 3), (5, 1, 3), (5, 2, 5)])
def test_start_and_producers_outlast_a_power_cut_also_when_the_start_moves_on_meanwhile(
    moves_on_to: int | None, settled_count: int, start: int
) -> None:
    """What moves meanwhile is left for the next call."""
    for seed in range(20):
        started = Started()
        started.log.delete_records_before(3)
        if moves_on_to is not None:
            started.meanwhile = partial(started.log.delete_records_before, moves_on_to)
        for _ in range(settled_count):
            started.settle()
        log = started.after_power_cut(seed)
        assert read_all(log) == list(range(start, 7))
        assert append(log, batch_of(producer_id=7, producer_epoch=0, base_sequence=0)) == 0, "it was appended already"


def test_start_that_another_call_has_settled_meanwhile_does_not_go_back() -> None:
    for seed in range(20):
        started = Started()
        started.log.delete_records_before(3)

        def move_on(started: Started = started) -> None:
            started.log.delete_records_before(5)
            started.directory.checkpoint()

        started.meanwhile = move_on
        started.settle()
        assert read_all(started.after_power_cut(seed)) == [5, 6]


def test_log_that_is_deleted_meanwhile_is_no_error() -> None:
    started = Started()
    started.log.delete_records_before(3)
    started.meanwhile = partial(started.directory.delete, CLICKS)
    started.settle()
    assert CLICKS not in started.directory.logs
