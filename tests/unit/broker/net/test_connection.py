"""The connection: framing, order of answers, back-pressure, bounded memory."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from ottla.broker.net.connection import Answer, Connection, SlowReports
from ottla.broker.net.limits import RECEIVE_BUFFER_BYTES
from ottla.broker.net.receive_buffer import ReceiveBudget
from ottla.protocol.primitives import RequestBytes
from ottla.runtime.disk import FileRun
from ottla.runtime.posix_disk import PosixDisk
from tests.unit.broker.turned_loop import TurnedLoop, connected_pair

PRODUCE, OTHER = 0, 3
Script = Callable[[Connection, bytes], None]


class ScriptedRouter:
    """Gives each frame to a function of the test and remembers the frames."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.script: Script = lambda connection, frame: connection.answer_now(frame)

    def route(self, connection: Connection, buffer: RequestBytes, view: memoryview, position: int, end: int) -> None:
        frame = bytes(view[position:end])
        self.frames.append(frame)
        self.script(connection, frame)


class Peer:
    """A connection under test and the client's end of it."""

    def __init__(
        self, request_bytes_max: int = 10_000_000, budget_bytes: int = 64_000_000, slow: SlowReports | None = None
    ) -> None:
        self.loop = TurnedLoop()
        self.router = ScriptedRouter()
        self.client, server = connected_pair()
        self.budget = ReceiveBudget(budget_bytes)
        self.closed: list[Connection] = []
        self.connection = Connection(
            server,
            self.loop,
            self.router,
            self.budget,
            request_bytes_max,
            self.closed.append,
            slow,
        )

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self.client.send(view) :]
            except BlockingIOError:
                self.loop.turn()
        self.loop.turn()

    def received(self) -> bytes:
        self.loop.turn()
        parts = []
        while True:
            try:
                part = self.client.recv(1 << 20)
            except BlockingIOError:
                break
            if not part:
                break
            parts.append(part)
            self.loop.turn()
        return b"".join(parts)


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.connection.close("the test ended")
    made.client.close()


def frame(api_key: int, payload: bytes = b"") -> bytes:
    body = struct.pack(">hhi", api_key, 7, 1) + payload
    return struct.pack(">i", len(body)) + body


def test_connection_answers_each_of_several_requests_that_came_in_one_piece(peer: Peer) -> None:
    peer.send(frame(OTHER, b"a") + frame(OTHER, b"b") + frame(PRODUCE, b"c"))
    assert [f[8:] for f in peer.router.frames] == [b"a", b"b", b"c"]
    assert peer.received() == b"".join(f[4:] for f in (frame(OTHER, b"a"), frame(OTHER, b"b"), frame(PRODUCE, b"c")))


def test_connection_waits_for_the_rest_when_a_request_comes_byte_by_byte(peer: Peer) -> None:
    for byte in frame(OTHER, b"slow"):
        assert peer.router.frames == []
        peer.send(bytes([byte]))
    assert [f[8:] for f in peer.router.frames] == [b"slow"]


@pytest.mark.parametrize("size_bytes", [RECEIVE_BUFFER_BYTES - 12, RECEIVE_BUFFER_BYTES, 840_000, 5_000_000])
def test_connection_takes_requests_larger_than_its_buffer_one_after_another(peer: Peer, size_bytes: int) -> None:
    payloads = [bytes([n]) * size_bytes for n in (1, 2, 3)]
    peer.router.script = lambda connection, frame: connection.answer_now(frame[8:9])
    peer.send(b"".join(frame(PRODUCE, payload) for payload in payloads))
    assert [f[8:] for f in peer.router.frames] == payloads
    assert peer.received() == b"\x01\x02\x03"


def test_connection_gives_its_memory_back_after_a_very_large_request(peer: Peer) -> None:
    peer.send(frame(PRODUCE, b"x" * 5_000_000))
    assert peer.budget.taken_bytes == 0


@pytest.mark.parametrize("length", [-1, 0, 7, 10_000_001, 2**31 - 1, -(2**31)])
def test_connection_closes_without_taking_memory_when_the_length_is_impossible(peer: Peer, length: int) -> None:
    peer.send(struct.pack(">i", length) + b"x" * 100)
    assert peer.closed == [peer.connection]
    assert "socket.request.max.bytes" in peer.connection.closed_reason
    assert peer.budget.taken_bytes == 0


def test_connection_takes_memory_only_as_bytes_arrive_when_a_large_length_is_claimed(peer: Peer) -> None:
    peer.send(struct.pack(">i", 9_999_999) + b"x" * 100_000)
    assert 0 < peer.budget.taken_bytes < 400_000


def test_produces_start_while_earlier_ones_wait_and_their_answers_keep_the_order(peer: Peer) -> None:
    parked: list[Answer] = []
    peer.router.script = lambda connection, frame: parked.append(connection.park(exclusive=False))
    peer.send(frame(PRODUCE, b"a") + frame(PRODUCE, b"b") + frame(PRODUCE, b"c"))
    assert len(parked) == 3
    parked[1].complete((b"B",))
    parked[2].complete((b"C",))
    peer.connection.send_ready()
    assert peer.received() == b""
    parked[0].complete((b"A",))
    peer.connection.send_ready()
    assert peer.received() == b"ABC"


def test_another_request_starts_only_when_the_produces_before_it_are_answered(peer: Peer) -> None:
    parked: list[Answer] = []

    def script(connection: Connection, request: bytes) -> None:
        if request[8:] == b"p":
            parked.append(connection.park(exclusive=False))
        else:
            connection.answer_now(b"M")

    peer.router.script = script
    peer.send(frame(PRODUCE, b"p") + frame(OTHER, b"m") + frame(PRODUCE, b"p"))
    assert [f[8:] for f in peer.router.frames] == [b"p"]
    parked[0].complete((b"1",))
    peer.connection.send_ready()
    assert peer.received() == b"1M"
    assert [f[8:] for f in peer.router.frames] == [b"p", b"m", b"p"]


def test_nothing_starts_behind_an_exclusive_request_until_it_is_answered(peer: Peer) -> None:
    parked: list[Answer] = []
    peer.router.script = lambda connection, frame: parked.append(connection.park(exclusive=True))
    peer.send(frame(OTHER, b"a") + frame(PRODUCE, b"b"))
    peer.send(frame(PRODUCE, b"c"))
    assert len(parked) == 1
    parked[0].complete((b"A",))
    peer.connection.send_ready()
    peer.loop.turn()
    assert [f[8:] for f in peer.router.frames] == [b"a", b"b"]
    assert peer.received() == b"A"


def test_connection_stops_reading_when_the_peer_does_not_take_its_answers(peer: Peer) -> None:
    answer = b"z" * 200_000
    peer.router.script = lambda connection, frame: connection.answer_now(answer)
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while sent < 5_000_000:
            sent += peer.client.send(frame(OTHER, b"q" * 1_000) * 10)
            peer.loop.turn()
    assert sent < 5_000_000, "requests were read although no answer was taken"
    # What is kept for the peer is the answers of one turn.
    served = len(peer.router.frames)
    assert 0 < served <= 10
    assert peer.received()[: len(answer)] == answer
    assert len(peer.router.frames) > served


def test_connection_sends_bytes_and_file_runs_in_their_order(peer: Peer, tmp_path: object) -> None:
    disk = PosixDisk()
    file = disk.open(f"{tmp_path}/run", create=True)
    content = bytes(range(256)) * 20_000
    assert file.write_at(0, content) == len(content)
    pieces = (b"head", FileRun(file, 256, len(content) - 256), b"tail")
    peer.router.script = lambda connection, frame: connection.answer_pieces(pieces)
    peer.send(frame(OTHER) + frame(OTHER))
    assert peer.received() == (b"head" + content[256:] + b"tail") * 2
    file.close()


def test_connection_closes_when_a_file_is_shorter_than_was_promised(peer: Peer, tmp_path: object) -> None:
    file = PosixDisk().open(f"{tmp_path}/run", create=True)
    file.write_at(0, b"abc")
    peer.router.script = lambda connection, frame: connection.answer_pieces((b"h", FileRun(file, 0, 10)))
    peer.send(frame(OTHER))
    assert peer.connection.is_closed
    assert "ends before" in peer.connection.closed_reason
    file.close()


def test_connection_undoes_what_waits_when_the_peer_goes_away(peer: Peer) -> None:
    undone: list[str] = []

    def script(connection: Connection, _: bytes) -> None:
        connection.park(exclusive=True)
        connection.watch_close(lambda: undone.append("undone"))

    peer.router.script = script
    peer.send(frame(OTHER))
    peer.client.close()
    peer.loop.turn()
    assert undone == ["undone"]
    assert peer.closed == [peer.connection]
    assert peer.loop.readers == {}


def test_draining_connection_answers_what_is_under_way_and_starts_nothing_new(peer: Peer) -> None:
    parked: list[Answer] = []
    peer.router.script = lambda connection, frame: parked.append(connection.park(exclusive=False))
    peer.send(frame(PRODUCE, b"a"))
    peer.connection.drain()
    peer.send(frame(PRODUCE, b"b"))
    assert len(parked) == 1
    assert peer.closed == []
    parked[0].complete((b"A",))
    peer.connection.send_ready()
    assert peer.connection.is_closed
    peer.client.setblocking(True)
    assert peer.client.recv(10) == b"A"


def test_released_connection_answers_what_was_received_before_it_closes(peer: Peer) -> None:
    parked: list[Answer] = []
    peer.router.script = lambda connection, frame: parked.append(connection.park(exclusive=True))
    peer.send(frame(OTHER, b"a") + frame(OTHER, b"b"))
    peer.connection.release("another broker serves you")
    assert len(parked) == 1
    parked[0].complete((b"A",))
    peer.connection.send_ready()
    assert len(parked) == 2
    assert not peer.connection.is_closed
    parked[1].complete((b"B",))
    peer.connection.send_ready()
    assert peer.connection.closed_reason == "another broker serves you"
    peer.client.setblocking(True)
    assert peer.client.recv(10) == b"AB"


def test_idle_connection_closes_at_once_when_drained(peer: Peer) -> None:
    peer.connection.drain()
    assert peer.connection.is_closed


def test_second_connection_waits_for_memory_until_the_first_gives_it_back() -> None:
    first = Peer(budget_bytes=1_000_000)
    second_client, second_server = connected_pair()
    router = ScriptedRouter()
    router.script = lambda connection, frame: connection.answer_now(b"2")
    second = Connection(
        second_server,
        first.loop,
        router,
        first.budget,
        10_000_000,
        lambda _: None,
    )
    first.send(frame(PRODUCE, b"x" * 900_000)[:-1])
    second_client.setblocking(True)
    request = frame(PRODUCE, b"y" * 500_000)
    second_client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1_000_000)
    second_client.sendall(request[:200_000])
    first.loop.turn()
    assert router.frames == []
    first.send(b"x")
    assert first.received()[:1] == b"\x00"
    rest = memoryview(request)[200_000:]
    second_client.setblocking(False)
    while rest:
        rest = rest[second_client.send(rest) :]
        first.loop.turn()
    first.loop.turn()
    assert [f[8:] for f in router.frames] == [b"y" * 500_000]
    second.close("the test ended")
    first.connection.close("the test ended")
    second_client.close()
    first.client.close()


def test_held_request_keeps_its_bytes_and_lets_nothing_follow(peer: Peer) -> None:
    held: list[tuple[Answer, memoryview]] = []

    def hold_first(connection: Connection, frame: bytes) -> None:
        if held:
            connection.answer_now(frame[-1:])
        else:
            held.append((connection.hold(), memoryview(frame)))

    peer.router.script = hold_first
    peer.send(frame(OTHER, b"a" * 100_000) + frame(OTHER, b"b"))
    peer.send(frame(PRODUCE, b"c"))
    assert len(peer.router.frames) == 1
    ((answer, _),) = held
    peer.connection.shrink()
    assert not peer.connection.is_stalled
    peer.connection.let_go()
    peer.loop.turn()
    assert len(peer.router.frames) == 1, "its answer comes first"
    answer.complete((b"A",))
    peer.connection.send_ready()
    assert peer.received() == b"Abc"


def test_connection_that_was_closed_while_its_request_was_held_is_let_go_without_harm(peer: Peer) -> None:
    def hold(connection: Connection, frame: bytes) -> None:
        connection.hold()

    peer.router.script = hold
    peer.send(frame(OTHER, b"a" * 100_000))
    peer.connection.close("its time is over")
    peer.connection.let_go()
    assert peer.budget.taken_bytes == 0


class EveryTurnIsSlow:
    limit_s = -1.0

    def __init__(self) -> None:
        self.noted: list[tuple[int, int, list[str]]] = []

    def note(self, connection: Connection, api_key: int, version: int, **parts_s: float) -> None:
        self.noted.append((api_key, version, list(parts_s)))


def test_turn_that_was_long_is_reported_with_the_last_request_of_it() -> None:
    slow = EveryTurnIsSlow()
    peer = Peer(slow=slow)
    peer.send(frame(PRODUCE, b"a") + frame(OTHER, b"b")[:6])
    assert slow.noted == [(PRODUCE, 7, ["turn"])]
    peer.send(frame(OTHER, b"b")[6:])
    assert slow.noted[1:] == [(OTHER, 7, ["turn"])]
    peer.connection.close("the test ended")
    peer.client.close()
