"""When a record becomes visible and acknowledged, for each flush policy.

Both are one question: readers get what is below the stable end, and a produce is answered when the stable end
reaches the end of its batch.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.storage.log.log import Log
from ottla.storage.log_config import FlushPolicy, LogConfig
from tests.unit.storage.logs import Place, append, append_many, batch_of, read_all


class Watched:
    """A log, and the stable ends that it reported."""

    def __init__(self, path: Path, config: LogConfig) -> None:
        self.place = Place(path / "data", config=config)
        self.log: Log = self.place.log()
        self.place.flush()
        self.told: list[int] = []
        self.log.watch(on_stable=lambda: self.told.append(self.log.stable_end))

    def visible(self) -> list[int]:
        return read_all(self.log, self.log.stable_end)


def watched(tmp_path: Path, policy: FlushPolicy, **settings: int) -> Watched:
    return Watched(tmp_path, LogConfig(flush_policy=policy, **settings))  # type: ignore[arg-type] # ints only


def test_policy_ack_shows_and_acknowledges_only_flushed_records(tmp_path: Path) -> None:
    it = watched(tmp_path, "ack")
    append_many(it.log, 3)
    assert (it.visible(), it.told) == ([], [])
    assert it.place.flush() == 1
    assert (it.visible(), it.told) == ([0, 1, 2], [3])


def test_policy_ack_flushes_what_came_during_a_flush_with_the_next_one(tmp_path: Path) -> None:
    it = watched(tmp_path, "ack")
    scheduler = it.place.open_directory.scheduler
    append(it.log, batch_of())
    first = scheduler.plan(0)
    assert first is not None
    append(it.log, batch_of())
    assert scheduler.plan(0) is None, "one flush at a time"
    assert scheduler.next_due_ms(0) is None
    first.execute(it.place.disk)
    scheduler.complete(first, None, 0)
    assert it.visible() == [0]
    assert scheduler.next_due_ms(7) == 7
    assert it.place.flush() == 1
    assert it.visible() == [0, 1]
    assert it.told == [1, 2]


def test_policy_interval_waits_for_its_age(tmp_path: Path) -> None:
    it = watched(tmp_path, "interval")
    append_many(it.log, 3)
    assert it.place.open_directory.scheduler.next_due_ms(0) == 1_000
    it.place.clock.ms = 999
    assert it.place.flush() == 0
    assert it.visible() == []
    it.place.clock.ms = 1_000
    assert it.place.flush() == 1
    assert (it.visible(), it.told) == ([0, 1, 2], [3])


def test_policy_interval_waits_no_longer_than_for_its_count(tmp_path: Path) -> None:
    it = watched(tmp_path, "interval", flush_messages=4)
    append_many(it.log, 3)
    assert it.place.flush() == 0
    append(it.log, batch_of())
    assert it.place.flush() == 1
    assert it.visible() == [0, 1, 2, 3]
    append_many(it.log, 3)
    assert it.place.flush() == 0
    append(it.log, batch_of())
    assert it.place.flush() == 1


def test_policy_interval_has_the_defaults_of_the_paper(tmp_path: Path) -> None:
    it = watched(tmp_path, "interval")
    append(it.log, batch_of(9_999))
    assert it.place.flush() == 0
    append(it.log, batch_of())
    assert it.place.flush() == 1


def test_policy_interval_restarts_the_age_after_each_flush(tmp_path: Path) -> None:
    it = watched(tmp_path, "interval", flush_ms=100)
    append(it.log, batch_of())
    it.place.clock.ms = 100
    assert it.place.flush() == 1
    it.place.clock.ms = 150
    append(it.log, batch_of())
    it.place.clock.ms = 249
    assert it.place.flush() == 0
    it.place.clock.ms = 250
    assert it.place.flush() == 1


def test_policy_os_shows_and_acknowledges_at_once(tmp_path: Path) -> None:
    it = watched(tmp_path, "os")
    append_many(it.log, 2)
    assert (it.visible(), it.told) == ([0, 1], [1, 2])
    assert it.log.flushed_end == 0
    it.place.clock.ms = 10**9
    assert it.place.flush() == 0, "nothing forces a flush"


@pytest.mark.parametrize("settings", [{"flush_messages": 2}, {"flush_ms": 50}])
def test_policy_os_flushes_where_settings_force_it(tmp_path: Path, settings: dict[str, int]) -> None:
    it = watched(tmp_path, "os", **settings)
    append_many(it.log, 2)
    it.place.clock.ms = 50
    assert it.place.flush() == 1
    assert it.log.flushed_end == 2
    assert it.told == [1, 2], "the flush itself shows nothing new"


def test_policy_os_flushes_the_old_segment_when_it_rolls(tmp_path: Path) -> None:
    it = watched(tmp_path, "os", segment_bytes=500)
    append_many(it.log, 4)
    assert len(it.log.segments) == 2
    assert it.place.flush() == 1
    assert it.log.flushed_end == 4


@pytest.mark.parametrize("policy", ["ack", "interval"])
def test_a_roll_makes_the_old_segment_due_and_the_stable_end_may_be_in_it(tmp_path: Path, policy: FlushPolicy) -> None:
    it = watched(tmp_path, policy, segment_bytes=500)
    append_many(it.log, 2)
    scheduler = it.place.open_directory.scheduler
    scheduler.mark_due(it.log)
    plan = scheduler.plan(0)
    assert plan is not None
    append_many(it.log, 3)
    assert len(it.log.segments) > 1
    plan.execute(it.place.disk)
    scheduler.complete(plan, None, 0)
    assert it.visible() == [0, 1]
    assert it.log.segments[-1].base_offset > it.log.stable_end
    assert it.place.flush() == 1
    assert it.visible() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("policy", "settings", "marks_count"),
    [
        ("ack", {}, 1),
        ("interval", {"flush_ms": 50}, 1),
        ("interval", {"flush_ms": 50, "flush_messages": 2}, 2),
        ("os", {}, 0),
        ("os", {"flush_messages": 2}, 1),
    ],
)
def test_flusher_is_notified_once_of_a_log_that_is_due_or_will_be(
    tmp_path: Path, policy: FlushPolicy, settings: dict[str, int], marks_count: int
) -> None:
    it = watched(tmp_path, policy, **settings)
    marks: list[int] = []
    it.place.open_directory.scheduler.watch(lambda: marks.append(it.log.log_end_offset))
    append_many(it.log, 3)
    assert len(marks) == marks_count
    it.log.flush_soon()
    assert len(marks) == marks_count + (policy != "os")


def test_stable_end_never_goes_back_when_the_policy_changes(tmp_path: Path) -> None:
    it = watched(tmp_path, "os")
    append_many(it.log, 2)
    it.log.update_config(LogConfig(flush_policy="ack"))
    assert it.log.stable_end == 2
    append(it.log, batch_of())
    assert it.visible() == [0, 1]
    it.place.flush()
    assert it.visible() == [0, 1, 2]
    append(it.log, batch_of())
    it.log.update_config(LogConfig(flush_policy="os"))
    assert it.visible() == [0, 1, 2, 3]
    assert it.told == [1, 2, 3, 4]
