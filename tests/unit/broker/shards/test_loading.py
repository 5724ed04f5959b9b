"""Slices of loading: how long, how often, and for whom they make room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

from ottla.broker.shards.loading import BUSY_FOR_S, BUSY_TURN_S, PAUSE_S, SLICE_S, Loader, ShardLoading
from ottla.model.errors import OttlaError

# What the next few records of a shard take.
LOOK_S = SLICE_S / 5


class Turns:
    """A loop that keeps what it is to call, a clock that only work moves, and a flusher."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.is_flushing = False
        self.next: tuple[float, Callable[[], None]] | None = None
        loop = SimpleNamespace(call_soon=lambda call: self.call_later(0.0, call), call_later=self.call_later)
        self.loader = Loader(
            "groups.loaded", cast(asyncio.AbstractEventLoop, loop), lambda: self.is_flushing, lambda: self.now_s
        )

    def call_later(self, delay_s: float, call: Callable[[], None]) -> SimpleNamespace:
        self.next = (delay_s, call)
        return SimpleNamespace(cancel=lambda: setattr(self, "next", None))

    def run(self, served_s: float = 0.0) -> float:
        """One slice, after others were served for so long; returns what it took."""
        assert self.next is not None
        delay_s, call = self.next
        self.next = None
        self.now_s += delay_s + served_s
        started_s = self.now_s
        call()
        return self.now_s - started_s

    @property
    def delay_s(self) -> float | None:
        """Until the next slice; None when there is none."""
        return None if self.next is None else self.next[0]


class Shard:
    """So many looks' worth of records; damaged ones at the end of it, perhaps."""

    def __init__(self, turns: Turns, looks: int, error: OttlaError | None = None) -> None:
        self._turns = turns
        self._looks = looks
        self._error = error
        self.records_count = 0
        self.ended: list[OttlaError | OSError | None] = []
        turns.loader.add(cast(ShardLoading, self), self.ended.append)

    def load_some(self) -> bool:
        self._turns.now_s += LOOK_S
        self.records_count += 1
        self._looks -= 1
        if self._looks == 0 and self._error is not None:
            raise self._error
        return self._looks > 0


def test_slice_ends_after_its_time_and_the_next_follows_at_once_when_nobody_else_is_there() -> None:
    turns = Turns()
    shard = Shard(turns, looks=14)
    assert turns.delay_s == 0
    assert SLICE_S <= turns.run() < SLICE_S + 2 * LOOK_S
    assert turns.delay_s == 0
    turns.run()
    assert shard.ended == []
    turns.run()
    assert shard.ended == [None]
    assert turns.delay_s is None


def test_each_slice_is_followed_by_a_pause_while_others_are_served() -> None:
    turns = Turns()
    Shard(turns, looks=1_000)
    turns.run()
    turns.run(served_s=2 * BUSY_TURN_S)
    assert turns.delay_s == PAUSE_S
    # The pause itself is no sign of others; those who were served lately are.
    turns.run()
    assert turns.delay_s == PAUSE_S
    busy_until_s = turns.now_s + BUSY_FOR_S
    while turns.now_s < busy_until_s:
        turns.run()
    assert turns.delay_s == 0


def test_flush_under_way_goes_first_and_a_slice_follows_even_if_there_is_always_one() -> None:
    turns = Turns()
    Shard(turns, looks=1_000)
    turns.is_flushing = True
    for _ in range(3):
        assert turns.run() == 0
        assert turns.delay_s == PAUSE_S
        assert turns.run() >= SLICE_S
        assert turns.delay_s == PAUSE_S


def test_shards_are_loaded_one_after_another_and_a_damaged_one_stops_none() -> None:
    turns = Turns()
    damaged = OttlaError("no batch")
    shards = [Shard(turns, 1), Shard(turns, 2, damaged), Shard(turns, 1)]
    turns.run()
    assert [shard.ended for shard in shards] == [[None], [damaged], [None]]
    assert turns.delay_s is None


def test_stop_leaves_the_rest() -> None:
    turns = Turns()
    shard = Shard(turns, looks=1_000)
    turns.run()
    turns.loader.stop()
    assert turns.delay_s is None
    assert shard.ended == []
