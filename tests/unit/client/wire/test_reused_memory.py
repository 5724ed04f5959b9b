"""Buffers are lent again only when no view of them exists, and only so many bytes are kept."""

from __future__ import annotations

import gc
import struct
from collections.abc import Callable

import numpy as np
import pytest

from ottla.client.wire.connection import FrameReader
from ottla.client.wire.errors import ConnectionLost
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.reused_memory import ReusedMemory
from ottla.model.limits import MIB
from ottla.testing.fake_clock import FakeClock
from tests.unit.client.wire.test_connection import PEAK_RESET, ScriptedTransport, peak_memory_kib


def address(view: memoryview | None) -> int:
    assert view is not None
    return int(np.frombuffer(view, np.uint8).__array_interface__["data"][0])


def test_buffer_is_lent_again_when_no_view_of_it_is_left() -> None:
    memory = ReusedMemory(8 * MIB)
    lent = memory.lend(3_000_000)
    first = address(lent)
    del lent
    again = memory.lend(2_500_000)
    assert address(again) == first
    assert again is not None
    assert len(again) == 2_500_000
    assert memory.kept_bytes == 3 * MIB


def sliced(lent: memoryview) -> memoryview:
    return lent[10:20]


def as_array(lent: memoryview) -> memoryview:
    return np.frombuffer(lent, np.uint8).data


def cast_to_long(lent: memoryview) -> memoryview:
    return lent.cast("q")


@pytest.mark.parametrize("view_of", [sliced, as_array, cast_to_long])
def test_buffer_with_any_view_left_is_not_lent_again(view_of: Callable[[memoryview], memoryview]) -> None:
    memory = ReusedMemory(8 * MIB)
    lent = memory.lend(MIB)
    assert lent is not None
    lent[:] = bytes([7]) * MIB
    where, left = address(lent), view_of(lent)
    del lent
    other = memory.lend(MIB)
    assert address(other) != where
    assert other is not None
    other[:] = bytes(MIB)
    assert set(left.tobytes()) == {7}


def test_no_more_than_the_limit_is_kept() -> None:
    memory = ReusedMemory(4 * MIB)
    held = [memory.lend(2 * MIB), memory.lend(2 * MIB)]
    assert memory.lend(2 * MIB) is None
    assert memory.lend(5 * MIB) is None
    assert memory.kept_bytes == 4 * MIB
    assert None not in held


def test_small_buffer_gives_way_to_a_larger_one() -> None:
    memory = ReusedMemory(4 * MIB)
    for size_bytes in (MIB, 2 * MIB, 4 * MIB):
        assert memory.lend(size_bytes) is not None
    assert memory.kept_bytes == 4 * MIB


def test_nothing_is_allocated_where_that_is_forbidden() -> None:
    memory = ReusedMemory(4 * MIB)
    assert memory.lend(MIB, may_grow=False) is None
    assert memory.lend(MIB) is not None
    assert memory.lend(MIB, may_grow=False) is not None
    assert memory.lend(2 * MIB, may_grow=False) is None


def test_frame_reader_uses_the_memory_of_frames_that_are_gone() -> None:
    frames = [bytes([number]) * 600_000 for number in range(4)]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    transport = ScriptedTransport(stream, 65_536)
    memory = ReusedMemory(2 * MIB)
    reader = FrameReader(1 << 24, memory)

    def read() -> memoryview:
        return reader.read(lambda into: transport.receive_into(into, Deadline(FakeClock(), 1000)))

    first, second = read(), read()
    places = {address(first), address(second)}
    assert (bytes(first), bytes(second)) == (frames[0], frames[1])
    del first
    gc.collect()
    third = read()
    assert address(third) in places
    assert (bytes(second), bytes(third)) == (frames[1], frames[2])
    fourth = read()
    assert [bytes(frame) for frame in (second, third, fourth)] == frames[1:]
    assert memory.kept_bytes == 2 * MIB


@pytest.mark.skipif(not PEAK_RESET.exists(), reason="resets the process's peak memory by Linux's /proc")
def test_reused_memory_does_not_grow_for_a_length_alone() -> None:
    transport = ScriptedTransport(struct.pack(">i", 200 << 20) + bytes(1000))
    memory = ReusedMemory(400 * MIB)
    reader = FrameReader(1 << 30, memory)
    PEAK_RESET.write_text("5")
    before = peak_memory_kib()
    with pytest.raises(ConnectionLost):
        reader.read(lambda into: transport.receive_into(into, Deadline(FakeClock(), 1000)))
    assert peak_memory_kib() - before < 4 * 1024
    assert memory.kept_bytes == 0
