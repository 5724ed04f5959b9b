from __future__ import annotations

from typing import Any

import pytest

from ottla.model.identifiers import TopicPartition
from ottla.storage.directory.log_directory import LOGS_CUT_PER_SLICE, RetentionPass

INTERVAL_MS = 1_000


class AgedLog:
    """Has something to delete whenever it is asked."""

    is_deleted = False

    def __init__(self) -> None:
        self.asked_ms: list[int] = []

    def expire_producers(self, now_ms: int) -> None: ...

    def delete_old_segments(self, now_ms: int) -> bool:
        self.asked_ms.append(now_ms)
        return True


@pytest.fixture
def logs() -> list[AgedLog]:
    return [AgedLog() for _ in range(LOGS_CUT_PER_SLICE + 1)]


@pytest.fixture
def retention(logs: list[AgedLog]) -> RetentionPass:
    by_name: dict[TopicPartition, Any] = {TopicPartition("t", index): log for index, log in enumerate(logs)}
    return RetentionPass(by_name, INTERVAL_MS)


def test_round_starts_when_its_interval_is_over(retention: RetentionPass, logs: list[AgedLog]) -> None:
    while retention.run_slice(1, 0):
        pass
    assert not retention.run_slice(2, INTERVAL_MS - 1)
    while retention.run_slice(3, INTERVAL_MS):
        pass
    assert [log.asked_ms for log in logs] == [[1, 3]] * len(logs)


def test_requested_round_starts_before_its_interval_is_over(retention: RetentionPass, logs: list[AgedLog]) -> None:
    while retention.run_slice(1, 0):
        pass
    retention.begin()
    while retention.run_slice(2, 1):
        pass
    assert [log.asked_ms for log in logs] == [[1, 2]] * len(logs)


def test_requested_round_visits_all_logs_although_another_was_under_way(
    retention: RetentionPass, logs: list[AgedLog]
) -> None:
    assert retention.run_slice(1, 0)
    retention.begin()
    while retention.run_slice(2, 0):
        pass
    assert all(log.asked_ms[-1] == 2 for log in logs)


@pytest.mark.parametrize(("delay_ms", "first_ms"), [(400, 400), (10 * INTERVAL_MS, INTERVAL_MS)])
def test_first_round_is_postponed_by_an_interval_at_most(
    retention: RetentionPass, logs: list[AgedLog], delay_ms: int, first_ms: int
) -> None:
    retention.postpone(delay_ms, 7)
    assert not retention.run_slice(1, 7 + first_ms - 1)
    assert not any(log.asked_ms for log in logs)
    assert retention.run_slice(2, 7 + first_ms)


def test_round_of_a_full_disk_is_not_postponed(retention: RetentionPass) -> None:
    retention.set_urgent(True)
    retention.postpone(INTERVAL_MS, 0)
    assert retention.run_slice(1, 0)
