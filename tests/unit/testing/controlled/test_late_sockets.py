from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.testing.controlled.process import LateSockets

LATE_MS = 250
FD = 7


class Timer:
    def __init__(self, due_ms: int, callback: Callable[[], object]) -> None:
        self.due_ms = due_ms
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """Sockets that are readable when the test says so."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], object]] = {}
        self.writers: dict[int, Callable[[], object]] = {}
        self.timers: list[Timer] = []

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> None:
        self.readers[fd] = callback

    def remove_reader(self, fd: int, /) -> bool:
        return self.readers.pop(fd, None) is not None

    def add_writer(self, fd: int, callback: Callable[[], object], /) -> None:
        self.writers[fd] = callback

    def remove_writer(self, fd: int, /) -> bool:
        return self.writers.pop(fd, None) is not None

    def call_soon(self, callback: Callable[[], object], /) -> None:
        callback()

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer:
        timer = Timer(round(delay * 1000), callback)
        self.timers.append(timer)
        return timer

    def readable(self, fd: int = FD) -> None:
        """Level-triggered: nothing happens without a reader."""
        if fd in self.readers:
            self.readers[fd]()

    def run_timers(self) -> None:
        timers, self.timers = self.timers, []
        for timer in timers:
            if not timer.is_cancelled:
                timer.callback()


class Reader:
    def __init__(self) -> None:
        self.calls_count = 0

    def __call__(self) -> None:
        self.calls_count += 1


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def reader() -> Reader:
    return Reader()


def test_nothing_stands_between_while_nothing_is_late(loop: Loop, reader: Reader) -> None:
    LateSockets(loop).add_reader(FD, reader)
    assert loop.readers == {FD: reader}


def test_bytes_are_read_late_and_once(loop: Loop, reader: Reader) -> None:
    LateSockets(loop, LATE_MS).add_reader(FD, reader)
    loop.readable()
    loop.readable()
    assert reader.calls_count == 0
    assert [timer.due_ms for timer in loop.timers] == [LATE_MS]
    loop.run_timers()
    assert reader.calls_count == 1


def test_next_bytes_are_late_too(loop: Loop, reader: Reader) -> None:
    LateSockets(loop, LATE_MS).add_reader(FD, reader)
    for count in (1, 2):
        loop.readable()
        loop.run_timers()
        assert reader.calls_count == count


def test_reader_that_was_removed_is_not_called(loop: Loop, reader: Reader) -> None:
    sockets = LateSockets(loop, LATE_MS)
    sockets.add_reader(FD, reader)
    loop.readable()
    assert sockets.remove_reader(FD)
    assert not sockets.remove_reader(FD)
    loop.run_timers()
    assert reader.calls_count == 0
    assert not loop.readers


def test_reader_may_remove_itself(loop: Loop) -> None:
    sockets = LateSockets(loop, LATE_MS)
    sockets.add_reader(FD, lambda: sockets.remove_reader(FD))
    loop.readable()
    loop.run_timers()
    assert not loop.readers


def test_descriptor_that_is_used_again_is_not_read_by_its_former_timer(loop: Loop, reader: Reader) -> None:
    sockets = LateSockets(loop, LATE_MS)
    sockets.add_reader(FD, reader)
    loop.readable()
    sockets.remove_reader(FD)
    following = Reader()
    sockets.add_reader(FD, following)
    loop.run_timers()
    assert (reader.calls_count, following.calls_count) == (0, 0)
    loop.readable()
    loop.run_timers()
    assert (reader.calls_count, following.calls_count) == (0, 1)


def test_connections_that_there_are_become_late_and_in_time_again(loop: Loop, reader: Reader) -> None:
    sockets = LateSockets(loop)
    sockets.add_reader(FD, reader)
    sockets.set_late_ms(LATE_MS)
    loop.readable()
    assert reader.calls_count == 0
    sockets.set_late_ms(0)
    assert not loop.readers, "what waits is read when it was due"
    loop.run_timers()
    assert reader.calls_count == 1
    assert loop.readers == {FD: reader}


def test_answers_are_written_at_once(loop: Loop, reader: Reader) -> None:
    sockets = LateSockets(loop, LATE_MS)
    sockets.add_writer(FD, reader)
    assert loop.writers == {FD: reader}
    assert sockets.remove_writer(FD)
