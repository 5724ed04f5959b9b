from __future__ import annotations

import socket
from contextlib import suppress

import pytest

from ottla.client.wire.address import Address
from ottla.client.wire.errors import BrokerRefused, BrokerUnreachable, CallTimedOut, ConnectionLost
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.waiting import OVER_AFTER_MS, PATIENCE_MS, Waiting
from ottla.model.error_code import ErrorCode
from ottla.runtime.clock import SystemClock
from ottla.testing.fake_clock import FakeClock

FULL = BrokerRefused(ErrorCode.KAFKA_STORAGE_ERROR, "t-0")
FULL_TOO = BrokerRefused(ErrorCode.KAFKA_STORAGE_ERROR, "t-1")


@pytest.fixture
def told() -> list[str]:
    return []


def test_reason_is_told_once_and_another_when_it_changes(told: list[str]) -> None:
    clock = FakeClock()
    waiting = Waiting(told.append, clock)
    for _ in range(10):
        waiting.on_wait(FULL)
        waiting.on_wait(FULL_TOO)
        clock.advance(PATIENCE_MS // 2)
    waiting.on_wait(ConnectionLost("a:1: \x1b[2J", hint="look"))
    waiting.on_wait(FULL)
    assert told == [f"waiting: {FULL}: {FULL.hint}", "waiting: a:1: \\x1b[2J: look"]


def test_reason_that_lasts_is_told_again_where_that_is_wanted(told: list[str]) -> None:
    clock = FakeClock()
    waiting = Waiting(told.append, clock, again_after_ms=60_000)
    for _ in range(150):
        waiting.on_wait(FULL)
        clock.advance(1_000)
    assert told == [f"waiting: {FULL}: {FULL.hint}"] * 3


def test_what_passes_soon_is_not_told(told: list[str]) -> None:
    clock = FakeClock()
    waiting = Waiting(told.append, clock)
    for _ in range(5):
        waiting.on_wait(FULL)
        clock.advance(OVER_AFTER_MS)
    assert told == []


def test_attempts_that_take_long_are_one_wait(told: list[str]) -> None:
    clock = FakeClock()
    waiting = Waiting(told.append, clock)
    for _ in range(5):
        clock.advance(ClientOptions().connect_timeout_ms)
        waiting.on_wait(FULL)
        clock.advance(ClientOptions().retry_backoff_max_ms)
    assert told == [f"waiting: {FULL}: {FULL.hint}"]


def test_peer_that_takes_connections_and_does_not_answer_is_told_before_the_time_is_over(
    told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.client.wire.transport.SLOW_AFTER_MS", 0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address, minute = Address(*server.getsockname()), Deadline(SystemClock(), 60_000)

        def tell(line: str) -> None:
            told.append(line)
            peer.send(b"late")

        transport = Waiting(tell).dial(address)
        peer, _ = server.accept()
        transport.connect(minute)  # the kernel has made the connection
        assert transport.receive_into(memoryview(bytearray(10)), minute) == 4
        transport.close()
        peer.close()
    assert told == [f"waiting: {address} has not answered yet"]


def test_address_that_does_not_say_no_either_is_reported_once_and_may_accept_later(
    told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.client.wire.transport.SLOW_AFTER_MS", 0)
    ours, theirs = filled_pair()
    monkeypatch.setattr("ottla.client.wire.transport._Hosts.start", lambda _: ours)
    transport = Waiting(told.append).dial(Address("127.0.0.1", 1))
    for timeout_ms in (20, 0, 0):
        with pytest.raises(CallTimedOut) as late:
            transport.connect(Deadline(SystemClock(), timeout_ms))
        assert late.value.hint == BrokerUnreachable.hint
        assert transport.waits_to_write
    assert told == [f"waiting: no connection to 127.0.0.1:1 yet: {BrokerUnreachable.hint}"]
    theirs.close()
    transport.close()


def filled_pair() -> tuple[socket.socket, socket.socket]:
    """The first one cannot be written, as a socket whose connection no peer has accepted."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            ours.send(bytes(1 << 16))
    return ours, theirs


def test_silence_is_told_when_there_is_no_reason(told: list[str]) -> None:
    clock = FakeClock()
    waiting = Waiting(told.append, clock)
    for _ in range(9):
        waiting.on_silence()
        clock.advance(PATIENCE_MS // 2)
    assert told == ["waiting: the broker has not acknowledged anything yet"]
