"""Rows on their way from the thread that receives them from Spark to the one that writes them.

A socket holds some 200 kB between Spark's JVM and its Python worker.  A worker that wrote each batch before it received
the next one would let the JVM wait meanwhile, and would then wait for the JVM: only one of the two would run at a time,
and on a busy host each change between them is a wait for a processor.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import pyarrow as pa

from ottla.model.limits import MIB

T = TypeVar("T")

WAITING_BYTES_MAX: Final = 8 * MIB


class RowQueue:
    """Batches in their order, for one thread that puts and one that takes.

    One batch is always accepted; another one only while those that wait have less than `size_bytes_max`.
    """

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self._batches: deque[pa.RecordBatch] = deque()
        self._bytes = 0
        self._has_ended = False
        self._error: BaseException | None = None
        self._is_closed = False
        self._changed = threading.Condition()

    def put(self, batch: pa.RecordBatch) -> bool:
        """Blocks while the queue is full.  False when it is closed: its rows are not taken."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._bytes < self._size_bytes_max)
            if self._is_closed:
                return False
            self._batches.append(batch)
            self._bytes += batch.nbytes
            self._changed.notify_all()
            return True

    def end(self, error: BaseException | None = None) -> None:
        """There are no more rows, or `error` is why the others do not come."""
        with self._changed:
            self._has_ended, self._error = True, error
            self._changed.notify_all()

    def close(self) -> None:
        """Refuse further rows: those that wait are dropped, and `put` returns False."""
        with self._changed:
            self._is_closed = True
            self._batches.clear()
            self._changed.notify_all()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The batches until the end.  Raises the error that ended them, after the batches before it."""
        while (batch := self._take()) is not None:
            yield batch

    def _take(self) -> pa.RecordBatch | None:
        with self._changed:
            self._changed.wait_for(lambda: self._batches or self._has_ended)
            if self._batches:
                batch = self._batches.popleft()
                self._bytes -= batch.nbytes
                self._changed.notify_all()
                return batch
            if self._error is not None:
                raise self._error
            return None


def write_beside(
    rows: Iterator[pa.RecordBatch],
    write: Callable[[Iterator[pa.RecordBatch]], T],
    size_bytes_max: int = WAITING_BYTES_MAX,
) -> T:
    """What `write(rows)` returns or raises; it runs in a thread, while this one receives the rows.

    Only this thread takes from `rows`: another one that still read from Spark's socket after a failed write would take
    the bytes of the worker's next task.
    """
    queue = RowQueue(size_bytes_max)
    with ThreadPoolExecutor(1, "ottla-sink") as threads:
        written = threads.submit(write, iter(queue))
        # A write that fails does not take the rest.
        written.add_done_callback(lambda _: queue.close())
        try:
            for batch in rows:
                if not queue.put(batch):
                    break
            queue.end()
        except BaseException as error:
            queue.end(error)
            raise
    return written.result()
