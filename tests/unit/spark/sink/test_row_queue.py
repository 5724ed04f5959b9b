"""Rows that are received in one thread and written in another."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from ottla.spark.sink.row_queue import RowQueue, write_beside

# Far beyond what a busy machine needs.
WAIT_S = 60.0


def batch_of(number: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([str(number).encode()])})


def numbers_in(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [int(batch.column("value")[0].as_py()) for batch in batches]


def test_rows_reach_the_writer_in_their_order() -> None:
    assert write_beside(map(batch_of, range(100)), numbers_in) == list(range(100))


def test_no_rows_are_no_batches() -> None:
    assert write_beside(iter(()), numbers_in) == []


def test_rows_are_received_while_earlier_ones_are_written() -> None:
    has_received_two = threading.Event()

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch_of(0)
        yield batch_of(1)
        has_received_two.set()

    def write(batches: Iterator[pa.RecordBatch]) -> bool:
        next(batches)
        return has_received_two.wait(WAIT_S)

    assert write_beside(rows(), write)


def test_no_more_rows_are_received_than_may_wait() -> None:
    received, taken = 0, 0
    leads: list[int] = []
    changed = threading.Condition()

    def is_ahead() -> bool:
        return received == 100 or received - taken >= 2

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal received
        for number in range(100):
            with changed:
                received += 1
                leads.append(received - taken)
                changed.notify_all()
            yield batch_of(number)

    def write(batches: Iterator[pa.RecordBatch]) -> None:
        nonlocal taken
        for _ in batches:
            with changed:
                taken += 1
                assert changed.wait_for(is_ahead, WAIT_S)

    write_beside(rows(), write, size_bytes_max=1)
    assert max(leads) <= 3, "one that waits, one that is put, one that is taken"


def test_a_write_that_fails_ends_an_endless_stream_of_rows() -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        while True:
            yield batch_of(0)

    def write(batches: Iterator[pa.RecordBatch]) -> None:
        next(batches)
        raise RuntimeError("not acknowledged")

    with pytest.raises(RuntimeError, match="not acknowledged"):
        write_beside(rows(), write, size_bytes_max=1)


def test_rows_that_fail_do_not_look_like_the_end_of_the_rows() -> None:
    written: list[int] = []
    has_ended = False

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch_of(7)
        raise EOFError("the JVM has gone")

    def write(batches: Iterator[pa.RecordBatch]) -> None:
        nonlocal has_ended
        for batch in batches:
            written.extend(numbers_in(iter([batch])))
        has_ended = True

    with pytest.raises(EOFError, match="the JVM has gone"):
        write_beside(rows(), write)
    assert (written, has_ended) == ([7], False)


def test_a_closed_queue_takes_no_rows() -> None:
    queue = RowQueue(size_bytes_max=1)
    assert queue.put(batch_of(0))
    queue.close()
    assert not queue.put(batch_of(1))
