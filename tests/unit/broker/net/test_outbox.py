"""What a connection sends: short runs of files travel with the bytes around them, long ones straight from the file."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from ottla.broker.net.outbox import Outbox
from ottla.runtime.disk import File, FileRun
from ottla.testing.memory_disk import MemoryDisk


class RecordingSocket:
    """A peer that takes `accepts_bytes` in all."""

    def __init__(self, accepts_bytes: int = 1 << 30) -> None:
        self.accepts_bytes = accepts_bytes
        self.sends: list[bytes] = []

    def send(self, data: bytes | bytearray | memoryview, flags: int = 0) -> int:
        if self.accepts_bytes == 0:
            raise BlockingIOError
        taken = bytes(data[: self.accepts_bytes])
        self.accepts_bytes -= len(taken)
        self.sends.append(taken)
        return len(taken)

    def fileno(self) -> int:
        return 7


class Writers:
    """The part of an event loop that a box needs."""

    def __init__(self) -> None:
        self.on_writable: dict[int, Callable[[], None]] = {}

    def add_writer(self, fd: int, callback: Callable[[], None]) -> None:
        self.on_writable[fd] = callback

    def remove_writer(self, fd: int) -> None:
        del self.on_writable[fd]


class CountingFile:
    """A file that knows how many of its bytes were read into memory, and how many were sent from where they are."""

    def __init__(self, file: File) -> None:
        self.path = file.path
        self.read_bytes = self.sent_bytes = 0
        self._file = file

    def read_at(self, position: int, length_bytes: int) -> bytes:
        self.read_bytes += length_bytes
        return self._file.read_at(position, length_bytes)

    def send_to(self, peer: socket.socket, position: int, length_bytes: int) -> int:
        sent = self._file.send_to(peer, position, length_bytes)
        self.sent_bytes += sent
        return sent


@pytest.fixture
def file() -> Iterator[File]:
    opened = MemoryDisk().open("log", create=True)
    opened.write_at(0, bytes(range(256)) * 1024)
    yield opened
    opened.close()


def box(peer: RecordingSocket, failures: list[str] | None = None, writers: Writers | None = None) -> Outbox:
    told = [] if failures is None else failures
    loop = cast(asyncio.AbstractEventLoop, writers or Writers())
    return Outbox(cast(socket.socket, peer), loop, lambda: None, told.append)


def test_answer_with_a_short_run_is_one_send(file: File) -> None:
    peer = RecordingSocket()
    outbox = box(peer)
    outbox.add_pieces([bytearray(b"head"), FileRun(file, 256, 300), bytearray(b"tail")])
    outbox.send()
    assert peer.sends == [b"head" + (bytes(range(256)) * 2)[:300] + b"tail"]
    assert outbox.is_empty


def test_long_run_is_sent_from_its_file_in_its_place(file: File) -> None:
    peer = RecordingSocket()
    outbox = box(peer)
    outbox.add_pieces([bytearray(b"head"), FileRun(file, 0, 64 * 1024), bytearray(b"tail")])
    outbox.send()
    assert peer.sends == [b"head", bytes(range(256)) * 256, b"tail"]


def test_answers_of_one_turn_stay_in_their_order(file: File) -> None:
    peer = RecordingSocket()
    outbox = box(peer)
    outbox.add(b"first")
    outbox.add_pieces([bytearray(b"second"), FileRun(file, 0, 3), bytearray(b"end")])
    outbox.add(b"third")
    outbox.send()
    assert b"".join(peer.sends) == b"firstsecond\x00\x01\x02endthird"


def test_answer_of_many_short_runs_copies_64_kib_of_them_at_most(file: File) -> None:
    peer, counting, writers = RecordingSocket(accepts_bytes=0), CountingFile(file), Writers()
    outbox = box(peer, writers=writers)
    outbox.add_pieces([bytearray(b"head"), *(FileRun(cast(File, counting), at * 16384, 16384) for at in range(8))])
    outbox.send()
    assert counting.read_bytes == 4 * 16384, "a peer that does not receive holds no more memory"
    peer.accepts_bytes = 1 << 30
    writers.on_writable[peer.fileno()]()
    assert b"".join(peer.sends) == b"head" + bytes(range(256)) * 512
    assert (counting.read_bytes, counting.sent_bytes) == (4 * 16384, 4 * 16384)


def test_answer_of_very_many_pieces_is_sent_in_turns() -> None:
    peer, writers = RecordingSocket(), Writers()
    outbox = box(peer, writers=writers)
    pieces = [b"%05d" % number for number in range(1_000)]
    outbox.add(b"first")
    outbox.add_pieces(pieces)
    turns = 0
    outbox.send()
    while writers.on_writable:
        turns += 1
        assert len(peer.sends) <= 256 * turns
        writers.on_writable[7]()
    assert turns >= 3
    assert b"".join(peer.sends) == b"first" + b"".join(pieces)


def test_run_behind_bytes_that_wait_is_not_read_before_its_turn(file: File) -> None:
    peer, counting = RecordingSocket(accepts_bytes=2), CountingFile(file)
    outbox = box(peer)
    outbox.add(b"waits")
    outbox.send()
    outbox.add_pieces([bytearray(b"head"), FileRun(cast(File, counting), 0, 3)])
    outbox.send()
    assert outbox.unsent
    assert counting.read_bytes == 0


def test_run_that_ends_before_its_length_fails_the_connection(file: File) -> None:
    failures: list[str] = []
    outbox = box(RecordingSocket(), failures)
    outbox.add_pieces([bytearray(b"head"), FileRun(file, file.size_bytes(), 100)])
    outbox.send()
    assert len(failures) == 1
    assert "ends before the 100 bytes promised" in failures[0]
