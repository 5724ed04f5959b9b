"""The imports of a worker leave the garbage collector after its first tasks, and those of no other process."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from pyspark import TaskContext

from ottla.spark.worker_heap import SETTLING_TASKS, WorkerHeap


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def frozen_by(heap: WorkerHeap) -> int:
    """How many objects more are frozen after the start of a task."""
    before = gc.get_freeze_count()
    heap.settle()
    return gc.get_freeze_count() - before


def test_heap_is_settled_at_the_first_tasks_and_then_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: object())
    heap = WorkerHeap()
    assert frozen_by(heap) > 1000
    imported = []
    for _ in range(SETTLING_TASKS - 1):
        imported.append([[index] for index in range(1000)])
        assert frozen_by(heap) >= 1000
    imported.append([[index] for index in range(1000)])
    assert frozen_by(heap) <= 0
    assert len(imported) == SETTLING_TASKS


def test_heap_of_a_process_that_runs_no_task_is_left_alone() -> None:
    assert frozen_by(WorkerHeap()) == 0
