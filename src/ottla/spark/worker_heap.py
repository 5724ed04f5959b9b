"""What Spark's Python workers need not look at after each task, and memory that they need not give back in it."""

from __future__ import annotations

import ctypes
import gc
from functools import cache
from typing import Final

from pyspark import TaskContext

from ottla.model.limits import MIB

# A task imports much on its way (a client, a decoder, parts of numpy and pyarrow), and one that writes imports other
# things than one that reads: the next one's start settles that, too.
SETTLING_TASKS: Final = 4


# Of glibc's mallopt(3).
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
# The most that glibc accepts for one allocation.
REUSED_BYTES_MAX: Final = 32 * MIB
KEPT_BYTES_MAX: Final = 64 * MIB


@cache
def reuse_freed_memory() -> bool:
    """Have the C library use freed memory again, large blocks too, of which up to `KEPT_BYTES_MAX` stay.

    Without it glibc returns each Arrow batch and each record batch to the kernel when it is freed: the next one costs a
    page fault for every 4 KiB, which was a tenth of a write's processor time.  One arena, since a batch is received in
    one thread and freed in another.  False where there is no glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    limits = ((_M_ARENA_MAX, 1), (_M_MMAP_THRESHOLD, REUSED_BYTES_MAX), (_M_TRIM_THRESHOLD, KEPT_BYTES_MAX))
    return all(mallopt(name, limit) == 1 for name, limit in limits)


class WorkerHeap:
    """The heap of this process."""

    def __init__(self) -> None:
        self._tasks_left = SETTLING_TASKS

    def settle(self) -> None:
        """At the start of a worker's first tasks: keep what is there out of the garbage collector from now on.

        Spark's workers collect after every task, and look at each object of pyspark, numpy and pyarrow then: 25 to 40
        ms of processor time, or 13 ms where only the first task's start was settled, which is much of a small
        micro-batch.  So is the question how many objects are frozen (5 ms), hence the count of tasks.
        Outside of a task nothing is done.
        """
        if self._tasks_left and TaskContext.get() is not None:
            self._tasks_left -= 1
            gc.collect()
            gc.freeze()


settle_heap: Final = WorkerHeap().settle
