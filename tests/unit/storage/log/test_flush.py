from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from ottla.model.identifiers import TopicPartition
from ottla.runtime.offload import run_inline
from ottla.storage.log.flush import (
    PROBE_AFTER_MS,
    RETRY_MS,
    SLOW_SYNC_MS,
    STUCK_FLUSH_MS,
    SYNCS_ONE_BY_ONE_MAX,
)
from ottla.storage.log.log import Log, LogFlush
from ottla.storage.log_config import LogConfig
from tests.unit.storage.logs import Place, append, append_many, batch_of, topic_id
from tests.unit.storage.quick_disk import QuickDisk, QuickFile

BATCH_BYTES = len(batch_of())


class WatchedFile(QuickFile):
    __slots__ = ("watched",)
    watched: WatchedDisk

    def sync_data(self) -> None:
        if self.watched.meeting is not None:
            # Passes when as many threads sync at the same time.
            self.watched.meeting.wait()
        if self.watched.failing_path is not None and self.path.startswith(self.watched.failing_path):
            raise OSError(errno.EIO, "failed", self.path)
        self.watched.synced.append(Path(self.path).name)


class WatchedDisk(QuickDisk):
    """Notes what is synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []
        self.meeting: threading.Barrier | None = None
        self.failing_path: str | None = None

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> WatchedFile:
        opened = super().open(path, create=create, read_only=read_only)
        file = WatchedFile(opened._fd, path, self)
        opened._fd = -1  # the descriptor is the watched file's now
        file.watched = self
        return file

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        self.synced.append(f"{Path(path).name}/")

    def sync_file_system(self, path: str) -> None:
        super().sync_file_system(path)
        self.synced.append("file system")


def watched(path: Path, config: LogConfig | None = None) -> tuple[Place, WatchedDisk]:
    disk = WatchedDisk()
    return Place(path / "data", disk, config), disk


def logs_of(place: Place, count: int) -> list[Log]:
    logs = run_inline(place.open().create([(TopicPartition("clicks", number), topic_id(0)) for number in range(count)]))
    for log in logs:
        log.start_epoch(0)
        append(log, batch_of())
    place.flush()
    return logs


def test_a_few_dirty_files_are_synced_one_by_one(tmp_path: Path) -> None:
    place, disk = watched(tmp_path)
    logs = logs_of(place, SYNCS_ONE_BY_ONE_MAX)
    disk.synced.clear()
    for log in logs:
        append(log, batch_of())
    assert place.flush() == 1
    assert disk.synced == ["00000000000000000000.log"] * SYNCS_ONE_BY_ONE_MAX


def test_many_dirty_files_are_synced_by_one_sync_of_the_file_system(tmp_path: Path) -> None:
    place, disk = watched(tmp_path)
    logs = logs_of(place, SYNCS_ONE_BY_ONE_MAX + 1)
    disk.synced.clear()
    for log in logs:
        append(log, batch_of())
    assert place.flush() == 1
    assert disk.synced == ["file system"]
    assert all(log.stable_end == 2 for log in logs)


def test_an_untouched_log_is_in_no_plan(tmp_path: Path) -> None:
    place, _ = watched(tmp_path)
    logs = logs_of(place, 3)
    append(logs[1], batch_of())
    plan = place.open_directory.scheduler.plan(0)
    assert plan is not None
    assert [flush.log for flush in plan.flushes] == [logs[1]]


def test_the_first_flush_of_an_epoch_makes_its_line_durable_with_the_batch(tmp_path: Path) -> None:
    place, disk = watched(tmp_path)
    log = place.log()
    disk.synced.clear()
    append(log, batch_of())
    assert (Path(log.path) / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n", "before any acknowledgement"
    place.flush()
    assert disk.synced == ["file system"]


def test_a_rolled_segment_its_indexes_and_the_new_files_name_are_synced_together(tmp_path: Path) -> None:
    place, disk = watched(tmp_path, LogConfig(segment_bytes=2 * BATCH_BYTES))
    log = place.log()
    append_many(log, 2)
    place.flush()
    append(log, batch_of())
    plan = place.open_directory.scheduler.plan(0)
    assert plan is not None
    disk.synced.clear()
    plan.execute(disk)
    assert disk.synced == [
        "file system",
    ]
    place.open_directory.scheduler.complete(plan, None, 0)
    append(log, batch_of())
    disk.synced.clear()
    place.flush()
    assert disk.synced == ["00000000000000000002.log"], "once is enough"


def test_a_deleted_log_is_in_no_later_plan(tmp_path: Path) -> None:
    place, _ = watched(tmp_path)
    logs = logs_of(place, 2)
    for log in logs:
        append(log, batch_of())
    place.open_directory.delete(logs[0].topic_partition)
    plan = place.open_directory.scheduler.plan(0)
    assert plan is not None
    assert [flush.log for flush in plan.flushes] == [logs[1]]


def test_next_due_is_the_earliest_age_that_is_waited_for(tmp_path: Path) -> None:
    place, _ = watched(tmp_path, LogConfig(flush_policy="interval"))
    logs = logs_of(place, 2)
    place.clock.ms = 10_000
    place.flush()
    scheduler = place.open_directory.scheduler
    assert scheduler.next_due_ms(10_000) is None
    append(logs[0], batch_of())
    place.clock.ms = 10_400
    append(logs[1], batch_of())
    assert scheduler.next_due_ms(10_400) == 11_000
    place.clock.ms = 11_000
    plan = scheduler.plan(11_000)
    assert plan is not None
    assert [flush.log for flush in plan.flushes] == [logs[0]]
    scheduler.complete(plan, None, 11_000)
    assert scheduler.next_due_ms(11_000) == 11_400


def slow_flush(place: Place, log: Log, took_ms: float) -> None:
    append(log, batch_of())
    scheduler = place.open_directory.scheduler
    plan = scheduler.plan(0)
    assert plan is not None
    plan.execute(place.disk)
    plan.took_ms = took_ms
    scheduler.complete(plan, None, 0)


def test_files_are_synced_at_the_same_time_after_a_slow_sync(tmp_path: Path) -> None:
    place, disk = watched(tmp_path)
    logs = logs_of(place, SYNCS_ONE_BY_ONE_MAX)
    slow_flush(place, logs[0], SLOW_SYNC_MS)
    disk.synced.clear()
    for log in logs:
        append(log, batch_of())
    disk.meeting = threading.Barrier(SYNCS_ONE_BY_ONE_MAX, timeout=30)
    assert place.flush() == 1
    assert disk.synced == ["00000000000000000000.log"] * SYNCS_ONE_BY_ONE_MAX
    assert all(log.stable_end == log.log_end_offset for log in logs)


def test_files_are_synced_one_by_one_again_once_a_sync_was_fast(tmp_path: Path) -> None:
    place, _ = watched(tmp_path)
    logs = logs_of(place, 2)
    slow_flush(place, logs[0], SLOW_SYNC_MS)
    slow_flush(place, logs[0], SLOW_SYNC_MS - 1)
    for log in logs:
        append(log, batch_of())
    plan = place.open_directory.scheduler.plan(0)
    assert plan is not None
    assert not plan.syncs_at_once


def test_plan_whose_files_are_synced_at_the_same_time_fails_when_one_sync_fails(tmp_path: Path) -> None:
    place, disk = watched(tmp_path)
    logs = logs_of(place, 3)
    slow_flush(place, logs[0], SLOW_SYNC_MS)
    for log in logs:
        append(log, batch_of())
    disk.failing_path = logs[2].path
    place.flush()
    assert place.open_directory.offline is not None
    assert [log.stable_end for log in logs] == [2, 1, 1]


class FailingBegin:
    """One log's `begin_flush` fails until it is healed."""

    def __init__(self, failing: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_failing = True
        begin_flush = Log.begin_flush

        def begin(log: Log) -> LogFlush:
            if log is failing and self.is_failing:
                raise ValueError("a bug")
            return begin_flush(log)

        monkeypatch.setattr(Log, "begin_flush", begin)


def test_log_that_cannot_be_planned_leaves_the_others_of_its_plan_to_be_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, _ = watched(tmp_path)
    logs = logs_of(place, 3)
    failing = FailingBegin(logs[0], monkeypatch)
    for log in logs:
        append(log, batch_of())
    place.flush()
    assert [log.stable_end for log in logs] == [1, 2, 2]
    assert place.open_directory.scheduler.next_due_ms(0) == RETRY_MS
    failing.is_failing = False
    place.clock.ms = RETRY_MS
    place.flush()
    assert [log.stable_end for log in logs] == [2, 2, 2]


def test_log_whose_observer_fails_leaves_the_others_of_its_plan_to_be_announced(tmp_path: Path) -> None:
    place, _ = watched(tmp_path)
    logs = logs_of(place, 2)
    announced: list[int] = []

    def fail() -> None:
        raise ValueError("a bug")

    logs[0].watch(on_stable=fail)
    logs[1].watch(on_stable=lambda: announced.append(logs[1].stable_end))
    for log in logs:
        append(log, batch_of())
    place.flush()
    assert announced == [2]


def test_late_flush_is_stuck_when_an_acknowledgement_waits_for_it(tmp_path: Path) -> None:
    place, _ = watched(tmp_path)
    (log,) = logs_of(place, 1)
    scheduler = place.open_directory.scheduler
    append(log, batch_of())
    assert scheduler.plan(1_000) is not None
    assert not scheduler.becomes_stuck(1_000 + STUCK_FLUSH_MS - 1)
    assert place.open_directory.is_usable(log.topic_partition)
    assert scheduler.becomes_stuck(1_000 + STUCK_FLUSH_MS)
    assert not scheduler.becomes_stuck(1_000 + 2 * STUCK_FLUSH_MS), "it is already"
    assert not place.open_directory.is_usable(log.topic_partition)
    assert place.open_directory.is_usable(log.topic_partition, though_stuck=True)


def test_late_flush_is_not_stuck_while_all_its_logs_are_stable(tmp_path: Path) -> None:
    place, _ = watched(tmp_path, LogConfig(flush_policy="os", flush_ms=0))
    log = place.log()
    scheduler = place.open_directory.scheduler
    append(log, batch_of())
    assert scheduler.plan(0) is not None
    assert not scheduler.becomes_stuck(10 * STUCK_FLUSH_MS)


def test_stuck_disk_is_probed_until_a_sync_is_fast_enough(tmp_path: Path) -> None:
    place, disk = watched(tmp_path)
    (log,) = logs_of(place, 1)
    scheduler = place.open_directory.scheduler
    append(log, batch_of())
    late = scheduler.plan(0)
    assert late is not None
    assert scheduler.becomes_stuck(STUCK_FLUSH_MS)
    now_ms = 4 * STUCK_FLUSH_MS
    scheduler.complete(late, None, now_ms)
    assert log.stable_end == log.log_end_offset
    # Another sync may be as late.
    is_stuck_after = [scheduler.is_stuck]
    for took_ms in (STUCK_FLUSH_MS, STUCK_FLUSH_MS - 1):
        assert scheduler.plan(now_ms) is None
        now_ms += PROBE_AFTER_MS
        assert scheduler.next_due_ms(now_ms) == now_ms
        probe = scheduler.plan(now_ms)
        assert probe is not None
        disk.synced.clear()
        probe.execute(disk)
        assert disk.synced == ["file system"]
        now_ms += took_ms
        scheduler.complete(probe, None, now_ms)
        is_stuck_after.append(scheduler.is_stuck)
    assert is_stuck_after == [True, True, False]
    assert scheduler.next_due_ms(now_ms + PROBE_AFTER_MS) is None


def test_flush_of_a_log_is_made_before_a_probe_and_counts_as_one(tmp_path: Path) -> None:
    place, _ = watched(tmp_path)
    (log,) = logs_of(place, 1)
    scheduler = place.open_directory.scheduler
    append(log, batch_of())
    late = scheduler.plan(0)
    assert late is not None
    assert scheduler.becomes_stuck(STUCK_FLUSH_MS)
    append(log, batch_of())
    scheduler.complete(late, None, STUCK_FLUSH_MS)
    plan = scheduler.plan(STUCK_FLUSH_MS)
    assert plan is not None
    assert [flush.log for flush in plan.flushes] == [log]
    scheduler.complete(plan, None, STUCK_FLUSH_MS + 1)
    assert not scheduler.is_stuck
