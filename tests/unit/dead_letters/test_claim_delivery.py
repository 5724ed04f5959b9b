"""Replays that want to complete the same claim: the fenced one waits, and does so for a limited time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from ottla.client.producing.errors import ProducerFenced
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.retrying import Retrying
from ottla.dead_letters.claim_delivery import (
    ATTEMPTS_MAX,
    DELIVERY_TIMEOUT_MS,
    TRANSACTION_TIMEOUT_MS,
    delivered,
)
from ottla.model.errors import OttlaError
from ottla.testing.fake_clock import FakeClock

FENCED = ProducerFenced("replay", OttlaError("a later producer has the id"))
REFUSED = OttlaError("the topic takes no such record")


class Replay:
    """Its attempts end with `outcomes`; another replay completes the claim at `completed_ms`."""

    def __init__(self, outcomes: Sequence[OttlaError | None], completed_ms: float = float("inf")) -> None:
        self.clock = FakeClock()
        self.attempted_ms: list[int] = []
        self._outcomes = list(outcomes)
        self._completed_ms = completed_ms
        self.reads_count = 0

    def deliver(self, is_completed: Callable[[], bool] | None = None) -> OttlaError | None:
        retrying = Retrying(ClientOptions(), self.clock, lambda pause_s: self.clock.advance(int(pause_s * 1000) + 1))
        return delivered(self._attempt, is_completed or self._is_completed, retrying)

    def _attempt(self) -> OttlaError | None:
        self.attempted_ms.append(self.clock.monotonic_ms())
        outcome = self._outcomes[len(self.attempted_ms) - 1]
        if isinstance(outcome, ProducerFenced):
            raise outcome
        return outcome

    def _is_completed(self) -> bool:
        self.reads_count += 1
        return self.clock.monotonic_ms() >= self._completed_ms


@pytest.mark.parametrize("outcome", [None, REFUSED])
def test_attempt_that_is_not_fenced_is_the_only_one(outcome: OttlaError | None) -> None:
    replay = Replay([outcome])
    assert replay.deliver() is outcome
    assert replay.attempted_ms == [0]
    assert not replay.reads_count


def test_fenced_replay_lets_the_other_complete_the_claim_and_does_not_take_it_back() -> None:
    replay = Replay([FENCED], completed_ms=20_000)
    assert replay.deliver() is None
    assert replay.attempted_ms == [0]
    assert 20_000 <= replay.clock.monotonic_ms() < 25_000


def test_fenced_replay_takes_over_when_the_transaction_of_the_other_can_no_longer_be_open() -> None:
    replay = Replay([FENCED, REFUSED])
    assert replay.deliver() is REFUSED
    assert len(replay.attempted_ms) == 2
    assert replay.attempted_ms[1] >= TRANSACTION_TIMEOUT_MS


def test_replay_that_is_fenced_again_and_again_ends_with_the_reason() -> None:
    replay = Replay([FENCED] * ATTEMPTS_MAX)
    with pytest.raises(ProducerFenced):
        replay.deliver()
    assert len(replay.attempted_ms) == ATTEMPTS_MAX


def test_claim_that_the_other_replay_withdraws_ends_the_wait() -> None:
    class Withdrawn(Exception):
        pass

    def read() -> bool:
        raise Withdrawn

    replay = Replay([FENCED])
    with pytest.raises(Withdrawn):
        replay.deliver(read)
    assert replay.attempted_ms == [0]


def test_batch_without_an_answer_ends_its_attempt_before_the_coordinator_ends_the_transaction() -> None:
    assert 2 * DELIVERY_TIMEOUT_MS < TRANSACTION_TIMEOUT_MS
