"""What Spark's Python workers need not look at after each task."""

from __future__ import annotations

import gc

from pyspark import TaskContext


def settle_heap() -> None:
    """At the first task of a worker: keep what is imported out of the garbage collector from now on.

    Spark's workers collect after every task, and look at each object of pyspark, numpy and pyarrow then: 14 to 18 ms of
    processor time, which is much of a small micro-batch.  Outside of a task nothing is done.
    """
    if TaskContext.get() is not None and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
