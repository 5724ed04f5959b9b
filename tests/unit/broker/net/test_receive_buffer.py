"""A receive buffer is small until a client sends more, and small again when the client is idle."""

from __future__ import annotations

import errno
import struct

import pytest

from ottla.broker.net.limits import FIRST_BUFFER_BYTES, RECEIVE_BUFFER_BYTES
from ottla.broker.net.receive_buffer import ReceiveBudget, ReceiveBuffer

BUDGET_BYTES = 1 << 20


def receive(buffer: ReceiveBuffer, data: bytes) -> None:
    """As a connection does: into the window, then room is made."""
    while data:
        window = buffer.window()
        size_bytes = min(len(window), len(data))
        window[:size_bytes] = data[:size_bytes]
        buffer.end += size_bytes
        data = data[size_bytes:]
        assert buffer.make_room()


def test_first_buffer_is_small_and_grows_with_the_bytes_that_came() -> None:
    budget = ReceiveBudget(BUDGET_BYTES)
    buffer = ReceiveBuffer(budget, lambda: None)
    assert len(buffer.data) == FIRST_BUFFER_BYTES
    frame = struct.pack(">i", 50_000) + bytes(range(250)) * 200
    receive(buffer, frame[:100])
    assert len(buffer.data) == FIRST_BUFFER_BYTES, "a length that is claimed takes no memory"
    receive(buffer, frame[100:])
    assert len(buffer.data) == RECEIVE_BUFFER_BYTES
    assert bytes(buffer.view[buffer.start : buffer.end]) == frame
    assert budget.taken_bytes == 0


def test_buffer_grows_for_requests_that_fill_it_without_a_rest() -> None:
    buffer = ReceiveBuffer(ReceiveBudget(BUDGET_BYTES), lambda: None)
    buffer.start = buffer.end = FIRST_BUFFER_BYTES
    assert buffer.make_room()
    assert len(buffer.window()) == RECEIVE_BUFFER_BYTES


def test_idle_buffer_returns_to_its_first_size_and_releases_the_budget() -> None:
    budget = ReceiveBudget(BUDGET_BYTES)
    buffer = ReceiveBuffer(budget, lambda: None)
    for size_bytes in (10_000, 4 * RECEIVE_BUFFER_BYTES):
        receive(buffer, struct.pack(">i", size_bytes) + bytes(size_bytes))
        buffer.shrink()
        assert len(buffer.data) > FIRST_BUFFER_BYTES, "a request in it is not read yet"
        buffer.start = buffer.end
        buffer.shrink()
        assert len(buffer.data) == FIRST_BUFFER_BYTES
        assert budget.taken_bytes == 0


def test_buffer_grows_when_the_system_gives_no_map(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_map(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "too many maps")

    monkeypatch.setattr("ottla.broker.net.receive_buffer.mmap", no_map)
    buffer = ReceiveBuffer(ReceiveBudget(BUDGET_BYTES), lambda: None)
    frame = struct.pack(">i", 10_000) + bytes(range(250)) * 40
    receive(buffer, frame)
    assert bytes(buffer.view[buffer.start : buffer.end]) == frame
