"""The imports of a worker leave the garbage collector after its first tasks, and those of no other process; a worker
that writes keeps its freed memory."""

from __future__ import annotations

import gc
import platform
import subprocess
import sys

import pytest
from pyspark import TaskContext

from ottla.spark.worker_heap import SETTLING_TASKS, WorkerHeap


def frozen_by(heap: WorkerHeap) -> int:
    """How many objects more are frozen after the start of a task; fewer where other tests' objects were freed since."""
    gc.collect()
    before = gc.get_freeze_count()
    heap.settle()
    return gc.get_freeze_count() - before


def test_heap_is_settled_at_the_first_tasks_and_then_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: object())
    heap = WorkerHeap()
    imported = []
    for _ in range(SETTLING_TASKS):
        imported.append([[index] for index in range(1000)])
        assert frozen_by(heap) >= 1000
    imported.append([[index] for index in range(1000)])
    assert frozen_by(heap) <= 0
    assert len(imported) == SETTLING_TASKS + 1


def test_heap_of_a_process_that_runs_no_task_is_left_alone() -> None:
    assert frozen_by(WorkerHeap()) <= 0


# Six blocks at a time, as Arrow batches and record batches are held together and freed one after another.
_FREED_TOGETHER = """
import resource
from ottla.spark.worker_heap import reuse_freed_memory
assert reuse_freed_memory()
def faults_of_blocks(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        blocks = [bytearray(2 << 20) for _ in range(6)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults_of_blocks(2)
print(faults_of_blocks(20))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc gives memory back at once")
def test_large_blocks_that_were_freed_are_used_again_without_page_faults() -> None:
    done = subprocess.run([sys.executable, "-c", _FREED_TOGETHER], capture_output=True, text=True, check=True)
    pages = 20 * 6 * (2 << 20) // 4096
    assert int(done.stdout) < pages // 10
