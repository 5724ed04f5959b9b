"""What a worker has imported is out of the garbage collector after its first task's start, and nobody else's is."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from pyspark import TaskContext

from ottla.spark.worker_heap import settle_heap


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_heap_is_settled_once_in_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: object())
    settle_heap()
    settled_count = gc.get_freeze_count()
    assert settled_count > 1000
    later = [[index] for index in range(100)]
    settle_heap()
    assert gc.get_freeze_count() <= settled_count
    assert len(later) == 100


def test_heap_of_a_process_that_runs_no_task_is_left_alone() -> None:
    settle_heap()
    assert gc.get_freeze_count() == 0
