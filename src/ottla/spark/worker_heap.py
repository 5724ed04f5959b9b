"""What Spark's Python workers need not look at after each task."""

from __future__ import annotations

import gc
from typing import Final

from pyspark import TaskContext

# A task imports much on its way (a client, a decoder, parts of numpy and pyarrow), and one that writes imports other
# things than one that reads: the next one's start settles that, too.
SETTLING_TASKS: Final = 4


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
