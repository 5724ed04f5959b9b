from __future__ import annotations

import pytest

from ottla.client.errors import BrokerRefused, ConnectionLost
from ottla.client.waiting import OVER_AFTER_MS, PATIENCE_MS, Waiting
from ottla.model.error_code import ErrorCode
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


def test_what_passes_soon_is_not_told(told: list[str]) -> None:
    clock = FakeClock()
    waiting = Waiting(told.append, clock)
    for _ in range(5):
        waiting.on_wait(FULL)
        clock.advance(OVER_AFTER_MS)
    assert told == []


def test_silence_is_told_when_there_is_no_reason(told: list[str]) -> None:
    clock = FakeClock()
    waiting = Waiting(told.append, clock)
    for _ in range(9):
        waiting.on_silence()
        clock.advance(PATIENCE_MS // 2)
    assert told == ["waiting: the broker has not acknowledged anything yet"]
