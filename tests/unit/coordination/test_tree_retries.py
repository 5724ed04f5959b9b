"""Work that is begun again when the tree does not answer."""

from __future__ import annotations

import pytest

from ottla.coordination.tree import ConnectionLoss, NoNode, SessionLost
from ottla.coordination.tree_retries import TreeRetries
from ottla.testing.fake_clock import FakeClock


class Work:
    """Fails with each of `failures` in turn, then is done."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)
        self.begun_count = 0

    async def __call__(self) -> str:
        self.begun_count += 1
        if self._failures:
            raise self._failures.pop(0)
        return "done"


def tree_retries_of(clock: FakeClock) -> TreeRetries:
    async def sleep(seconds: float) -> None:
        clock.advance(round(seconds * 1000))

    return TreeRetries(clock, 1_000, sleep)


async def test_work_is_repeated_when_an_answer_or_the_session_is_lost() -> None:
    work = Work(ConnectionLoss("/changes"), SessionLost("/changes"), ConnectionLoss("/changes"))
    assert await tree_retries_of(FakeClock()).until_done(work) == "done"
    assert work.begun_count == 4


async def test_other_errors_are_raised_at_once() -> None:
    work = Work(NoNode("/changes"))
    with pytest.raises(NoNode):
        await tree_retries_of(FakeClock()).until_done(work)
    assert work.begun_count == 1


async def test_last_error_is_raised_when_the_time_since_the_first_one_is_over() -> None:
    clock = FakeClock()
    began_ms = clock.monotonic_ms()
    with pytest.raises(ConnectionLoss):
        await tree_retries_of(clock).until_done(Work(*[ConnectionLoss("/changes")] * 1_000))
    assert clock.monotonic_ms() - began_ms == 1_000


async def test_each_work_has_its_own_time() -> None:
    clock = FakeClock()
    retries = tree_retries_of(clock)
    for _ in range(3):
        assert await retries.until_done(Work(*[ConnectionLoss("/changes")] * 10)) == "done"
