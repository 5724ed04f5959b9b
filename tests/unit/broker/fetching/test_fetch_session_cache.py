"""Who gets a fetch session, and who must go for it."""

from __future__ import annotations

import itertools

import pytest

from ottla.broker.fetching import fetch_session_cache
from ottla.broker.fetching.fetch_session import FetchSession
from ottla.broker.fetching.fetch_session_cache import EVICTION_MS, FetchSessionCache
from ottla.protocol.fetch import FetchPartition

LATER = EVICTION_MS + 1


class Cache(FetchSessionCache):
    """Ids count from 1."""

    def __init__(self, slots: int) -> None:
        ids = itertools.count(1)
        super().__init__(slots, lambda: next(ids))

    def fill(self, size: int, now_ms: int, *, is_privileged: bool = False) -> int:
        """Open a session with so many partitions; its id, 0 when there is no room."""
        session = self.open(size, now_ms, is_privileged=is_privileged)
        if session is None:
            return 0
        session.update([(b"t", [wanted(index) for index in range(size)])], [])
        assert self.touch(session, now_ms)
        return session.id

    def use(self, session_id: int, now_ms: int) -> None:
        session = self.get(session_id)
        assert session is not None
        assert self.touch(session, now_ms)

    def ids(self) -> set[int]:
        return {session_id for session_id in range(1, 100) if self.get(session_id)}


def wanted(index: int) -> FetchPartition:
    return (index, -1, 0, -1, -1, 1)


def test_session_counts_from_its_opening_until_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is filled in steps, between which others are opened."""
    monkeypatch.setattr(fetch_session_cache, "SESSION_PARTITIONS_MAX", 100)
    cache = Cache(5)
    first = cache.open(60, 0)
    assert first is not None
    assert cache.open(60, 0) is None
    cache.remove(first.id)
    # What is filled later is no client's session any more.
    assert not cache.touch(first, 0)
    assert cache.partitions_count == 0
    assert cache.open(60, 0) is not None


def test_cache_without_slots_opens_none() -> None:
    assert Cache(0).fill(1, 0) == 0


def test_young_session_goes_for_no_other_however_large() -> None:
    cache = Cache(2)
    assert [cache.fill(1, 0), cache.fill(1, 0), cache.fill(1_000, EVICTION_MS)] == [1, 2, 0]


def test_session_unused_for_long_goes_first_even_for_a_smaller_one() -> None:
    cache = Cache(2)
    cache.fill(50, 0)
    cache.fill(50, 0)
    cache.use(1, 10)
    assert cache.fill(1, LATER) == 3
    assert cache.ids() == {1, 3}


def test_old_session_in_use_goes_only_for_a_larger_one() -> None:
    cache = Cache(2)
    for size in (5, 9):
        cache.fill(size, 0)
    for session_id in (1, 2):
        cache.use(session_id, LATER)
    assert cache.fill(5, LATER + 1) == 0
    assert cache.fill(6, LATER + 1) == 3
    assert cache.ids() == {2, 3}
    # The new one is young, the larger old one worth more than this one.
    assert cache.fill(8, LATER + 2) == 0


def test_privileged_session_takes_the_place_of_any_that_is_not_and_gives_its_own_to_none_of_them() -> None:
    cache = Cache(1)
    cache.fill(900, 0)
    assert cache.fill(1, 1, is_privileged=True) == 2
    assert cache.ids() == {2}
    cache.use(2, LATER + 1)
    assert cache.fill(900, LATER + 2) == 0
    assert cache.fill(2, LATER + 2, is_privileged=True) == 3


def test_session_that_grew_is_valued_by_its_present_size() -> None:
    cache = Cache(1)
    cache.fill(1, 0)
    session = cache.get(1)
    assert session is not None
    session.update([(b"u", [wanted(index) for index in range(9)])], [])
    cache.use(1, LATER)
    assert cache.fill(10, LATER) == 0
    session.update([], [(b"u", list(range(9)))])
    cache.use(1, LATER)
    assert cache.fill(10, LATER) == 2


def test_ids_that_are_taken_or_mean_no_session_are_not_given() -> None:
    drawn = iter([0, 7, 7, 0, 8])
    cache = FetchSessionCache(5, lambda: next(drawn))
    first, second = cache.open(0, 0), cache.open(0, 0)
    assert first is not None
    assert second is not None
    assert (first.id, second.id) == (7, 8)


def test_partitions_of_all_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session_cache, "SESSION_PARTITIONS_MAX", 10)
    cache = Cache(5)
    assert [cache.fill(4, 0), cache.fill(6, 0), cache.fill(1, 0)] == [1, 2, 0]
    cache.remove(1)
    assert cache.fill(3, 0) == 3
    grown = cache.get(3)
    assert isinstance(grown, FetchSession)
    grown.update([(b"u", [wanted(0), wanted(1)])], [])
    assert not cache.touch(grown, 1)
    assert cache.ids() == {2}
    assert cache.partitions_count == 6
    cache.remove(2)
    assert (len(cache), cache.partitions_count) == (0, 0)
