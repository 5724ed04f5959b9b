from __future__ import annotations

from ottla.storage.segment.indexes import IndexCache


class FakeSegment:
    def __init__(self) -> None:
        self.is_dropped = False

    def drop_indexes(self) -> None:
        self.is_dropped = True


def test_the_least_recently_used_is_dropped_when_the_bound_is_passed() -> None:
    cache = IndexCache(bytes_max=100)
    first, second, third = FakeSegment(), FakeSegment(), FakeSegment()
    cache.add(first, 50)
    cache.add(second, 50)
    cache.touch(first)
    cache.add(third, 50)
    assert [segment.is_dropped for segment in (first, second, third)] == [False, True, False]
    assert (len(cache), cache.size_bytes) == (2, 100)


def test_one_that_is_larger_than_the_bound_is_kept_alone() -> None:
    cache = IndexCache(bytes_max=100)
    small, large = FakeSegment(), FakeSegment()
    cache.add(small, 50)
    cache.add(large, 500)
    assert (small.is_dropped, large.is_dropped) == (True, False)


def test_segment_that_is_forgotten_or_added_again_counts_once() -> None:
    cache = IndexCache(bytes_max=100)
    segment = FakeSegment()
    cache.add(segment, 50)
    cache.add(segment, 60)
    assert cache.size_bytes == 60
    cache.forget(segment)
    cache.forget(segment)
    cache.touch(segment)
    assert (len(cache), cache.size_bytes) == (0, 0)
