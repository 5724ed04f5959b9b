"""The connection in bad company: large answers that wait, memory after the end, its lines in the log."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import struct
from collections.abc import Callable, Iterator, Sequence

import pytest

from ottla.broker.net.client_quotas import ClientQuotas
from ottla.broker.net.connection import Answer, Connection
from ottla.broker.net.limits import PIPELINED_ANSWER_BYTES_MAX, RECEIVE_BUFFER_BYTES
from ottla.broker.net.outbox import Piece
from ottla.broker.net.ready_connections import ReadyConnections
from ottla.broker.net.receive_buffer import ReceiveBudget
from ottla.broker.router import Router
from ottla.model.errors import WireError
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import RequestHeader
from ottla.runtime.disk import FileRun
from ottla.runtime.posix_disk import PosixDisk
from tests.unit.broker.turned_loop import TurnedLoop, connected_pair

PRODUCE_HEAD = struct.pack(">hhih", int(ApiKey.PRODUCE), 7, 1, -1)
FETCH_HEAD = struct.pack(">hhih", int(ApiKey.FETCH), 7, 1, -1)


def frame(head: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">i", len(head) + len(body)) + head + body


class Handler:
    """Both hot handlers at once: does what the test says for each request."""

    def __init__(self) -> None:
        self.script: Callable[[Connection], None] = lambda connection: connection.answer_now(b"now")
        self.requests_count = 0

    def handle(
        self,
        connection: Connection,
        view: memoryview,
        position: int,
        end: int,
        version: int,
        correlation_id: int,
        quotas: ClientQuotas | None = None,
    ) -> None:
        self.requests_count += 1
        self.script(connection)


class Peer:
    """A client, its connection and the real router in front of a scripted handler."""

    def __init__(self, budget: ReceiveBudget | None = None) -> None:
        self.loop = TurnedLoop()
        self.handler = Handler()
        self.budget = budget or ReceiveBudget(1 << 20)
        self.ready = ReadyConnections(self.loop)  # type: ignore[arg-type]  # the part of a loop that it uses
        self.client, server = connected_pair()
        self.connection = Connection(
            server,
            self.loop,
            Router(self.handler, self.handler, NoGroupCalls(), (), _no_cold_calls, self.ready),
            self.budget,
            1 << 20,
            lambda _: None,
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
        try:
            return self.client.recv(1 << 20)
        except BlockingIOError:
            return b""


class NoGroupCalls:
    def handle(self, header: RequestHeader, body: bytes, connection: Connection) -> None:
        raise AssertionError("nothing of groups is sent here")

    async def handle_large(
        self, header: RequestHeader, body: memoryview, connection: Connection, answer: Answer
    ) -> None:
        raise AssertionError("nothing of groups is sent here")


async def _no_cold_calls(header: RequestHeader, body: bytes | memoryview, connection: Connection) -> Sequence[Piece]:
    raise AssertionError("not asked for")


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.connection.close("the test ended")
    made.client.close()


@pytest.mark.parametrize("bug", [KeyError("bug"), OSError(5, "Input/output error"), AssertionError("bug")])
def test_connection_is_closed_with_its_story_when_a_handler_fails(
    peer: Peer, bug: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(connection: Connection) -> None:
        raise bug

    peer.handler.script = fail
    peer.send(frame(PRODUCE_HEAD) * 2)
    assert peer.connection.is_closed
    assert peer.handler.requests_count == 1
    assert [record.getMessage() for record in caplog.records] == ["request.failed"]
    assert caplog.records[0].exc_info is not None


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_connection_is_closed_with_one_line_when_a_handler_finds_no_more_files(
    peer: Peer, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(connection: Connection) -> None:
        raise OSError(number, "Too many open files", "handlers/find_coordinator.py")

    peer.handler.script = fail
    peer.send(frame(PRODUCE_HEAD))
    assert peer.connection.closed_reason == "no more files may be open"
    assert [record.getMessage() for record in caplog.records] == ["request.without_files"]
    assert caplog.records[0].exc_info is None


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "1195725856 bytes"),
        (struct.pack(">i", -1), "-1 bytes"),
        (struct.pack(">ih", 100, 3), "within a request"),
        (frame(struct.pack(">hhih", 1, 7, 1, 500)), "500 bytes"),
    ],
)
def test_connection_tells_in_one_line_why_it_refused_bytes(
    peer: Peer, sent: bytes, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    peer.send(sent)
    peer.client.close()
    peer.loop.turn()
    assert peer.connection.is_closed
    assert [record.getMessage() for record in caplog.records] == ["request.refused"]
    assert fault in str(vars(caplog.records[0]))
    assert "User:ANONYMOUS" in str(vars(caplog.records[0]))


def test_connection_says_nothing_when_its_client_leaves_between_requests(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    peer.send(frame(PRODUCE_HEAD))
    peer.client.close()
    peer.loop.turn()
    assert peer.connection.is_closed
    assert not caplog.records


def test_nothing_starts_behind_a_large_answer_that_waits(peer: Peer) -> None:
    parked: list[Answer] = []
    peer.handler.script = lambda connection: parked.append(connection.park(exclusive=False))
    peer.send(frame(PRODUCE_HEAD))
    large = bytes(PIPELINED_ANSWER_BYTES_MAX + 1)
    peer.handler.script = lambda connection: connection.answer_now(large)
    peer.send(frame(PRODUCE_HEAD) * 100)
    assert peer.handler.requests_count == 2
    parked[0].complete((b"first",))
    peer.ready.add(peer.connection)
    got = b""
    while len(got) < 5 + 100 * len(large):
        part = peer.received()
        assert part
        got += part
    assert got[:5] == b"first"
    assert peer.handler.requests_count == 101


def test_small_answers_behind_a_waiting_one_hold_nothing_back(peer: Peer) -> None:
    parked: list[Answer] = []
    peer.handler.script = lambda connection: parked.append(connection.park(exclusive=False))
    peer.send(frame(PRODUCE_HEAD))
    peer.handler.script = lambda connection: connection.answer_now(b"small")
    peer.send(frame(PRODUCE_HEAD) * 100)
    assert peer.handler.requests_count == 101


def test_closed_connection_keeps_no_buffer_for_whoever_still_knows_it(peer: Peer) -> None:
    parked: list[Answer] = []
    peer.handler.script = lambda connection: parked.append(connection.park(exclusive=False))
    peer.send(frame(PRODUCE_HEAD) + frame(PRODUCE_HEAD, bytes(3 * RECEIVE_BUFFER_BYTES))[:-1])
    assert peer.budget.taken_bytes > 0
    peer.client.close()
    peer.loop.turn()
    assert peer.budget.taken_bytes == 0
    assert not peer.connection._buffer.data
    parked[0].complete((b"late",))
    peer.ready.add(peer.connection)
    peer.loop.turn()


def test_connection_that_waits_for_memory_is_forgotten_when_it_closes() -> None:
    budget = ReceiveBudget(RECEIVE_BUFFER_BYTES)
    holder, waiting = Peer(budget), Peer(budget)
    large = frame(PRODUCE_HEAD, bytes(2 * RECEIVE_BUFFER_BYTES))
    holder.send(large[:-1])
    waiting.send(large[:-1])
    contended = [budget.is_contended]
    waiting.connection.close("as a stalled peer")
    contended.append(budget.is_contended)
    assert contended == [True, False]
    holder.send(large[-1:])
    assert holder.received() == b"now"
    for peer in (holder, waiting):
        peer.connection.close("done")
        peer.client.close()


def test_two_large_requests_that_do_not_fit_together_are_both_served_in_the_end() -> None:
    budget = ReceiveBudget(4 * RECEIVE_BUFFER_BYTES)
    peers = [Peer(budget), Peer(budget)]
    large = frame(PRODUCE_HEAD, bytes(6 * RECEIVE_BUFFER_BYTES))
    sent = [0, 0]
    for _ in range(200):
        # Both grow step by step, so that each holds what the other waits for.
        for number, peer in enumerate(peers):
            with contextlib.suppress(BlockingIOError):
                sent[number] += peer.client.send(large[sent[number] : sent[number] + 16_384])
            peer.loop.turn()
    assert sent == [len(large)] * 2
    assert [peer.received() for peer in peers] == [b"now", b"now"]
    for peer in peers:
        peer.connection.close("done")
        peer.client.close()
    assert budget.taken_bytes == 0


def test_file_that_is_closed_while_it_is_sent_ends_the_connection_and_nothing_else(
    peer: Peer, tmp_path: object
) -> None:
    path = f"{tmp_path}/segment"
    with open(path, "wb") as made:
        made.truncate(64 << 20)
    file = PosixDisk().open(path, read_only=True)
    peer.handler.script = lambda connection: connection.answer_pieces([b"head", FileRun(file, 0, 64 << 20)])
    peer.send(frame(FETCH_HEAD))
    assert peer.connection.has_unanswered
    file.close()
    # Its number goes to another file at once: nothing of that one may reach the client.
    other = os.open(os.devnull, os.O_RDONLY)
    try:
        for _ in range(200):
            if peer.connection.is_closed:
                break
            peer.received()
        assert peer.connection.is_closed
        assert "send failed" in peer.connection.closed_reason
    finally:
        os.close(other)


def test_refusal_by_the_router_closes_before_later_requests_start(peer: Peer) -> None:
    def refuse(connection: Connection) -> None:
        raise WireError("not a request")

    peer.handler.script = refuse
    peer.send(frame(PRODUCE_HEAD) * 3)
    assert peer.connection.is_closed
    assert peer.handler.requests_count == 1
