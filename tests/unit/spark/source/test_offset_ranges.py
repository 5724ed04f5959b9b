from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from ottla.model.identifiers import TopicPartition
from ottla.spark.options.read_options import TaskSizes
from ottla.spark.source.offset_ranges import ROWS_PER_TASK_MIN, OffsetRange, limit_offsets, plan_tasks, ranges_between

offsets = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 5)),
    st.tuples(st.integers(0, 1000), st.integers(0, 3000)),
    min_size=1,
)


@given(offsets, st.integers(1, 20_000))
def test_limited_offsets_take_exactly_what_the_limit_allows(
    waiting: dict[TopicPartition, tuple[int, int]], rows_max: int
) -> None:
    first = {place: start for place, (start, _) in waiting.items()}
    latest = {place: start + count for place, (start, count) in waiting.items()}
    ends = limit_offsets(first, latest, rows_max)
    assert ends.keys() == latest.keys()
    assert all(first[place] <= ends[place] <= latest[place] for place in ends)
    taken = sum(ends[place] - first[place] for place in ends)
    assert taken == min(rows_max, sum(count for _, count in waiting.values()))


def test_limited_offsets_never_go_back_when_a_topic_shrank() -> None:
    place = TopicPartition("a", 0)
    assert limit_offsets({place: 100}, {place: 5}, 10) == {place: 100}


ranges = st.lists(
    st.builds(lambda first, count: (first, count), st.integers(0, 100), st.integers(1, 200_000)), min_size=1, max_size=8
).map(lambda parts: [OffsetRange("t", index, first, first + count) for index, (first, count) in enumerate(parts)])


def covered(tasks: list[tuple[OffsetRange, ...]]) -> dict[tuple[str, int], list[tuple[int, int]]]:
    pieces: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for task in tasks:
        for part in task:
            pieces.setdefault((part.topic, part.partition), []).append((part.first_offset, part.end_offset))
    return pieces


sizes = st.builds(TaskSizes, st.none() | st.integers(1, 50), st.none() | st.integers(10_000, 300_000))


@given(ranges, sizes)
def test_tasks_cover_every_offset_once(parts: list[OffsetRange], sizes: TaskSizes) -> None:
    pieces = covered(plan_tasks(parts, sizes))
    for part in parts:
        mine = sorted(pieces.pop((part.topic, part.partition)))
        assert mine[0][0] == part.first_offset
        assert mine[-1][1] == part.end_offset
        assert all(left[1] == right[0] for left, right in itertools.pairwise(mine))
        assert all(first < end for first, end in mine)
    assert pieces == {}


@given(ranges, sizes)
def test_tasks_are_as_many_and_as_small_as_requested(parts: list[OffsetRange], sizes: TaskSizes) -> None:
    total = sum(part.offsets_count for part in parts)
    tasks = plan_tasks(parts, sizes)
    assert len(tasks) >= min(sizes.tasks_min or 1, total)
    if sizes.rows_max is not None:
        assert max(sum(part.offsets_count for part in task) for task in tasks) <= sizes.rows_max


def test_small_ranges_share_a_task_and_large_ones_do_not() -> None:
    small = [OffsetRange("s", index, 0, 10) for index in range(20)]
    large = [OffsetRange("l", index, 0, ROWS_PER_TASK_MIN) for index in range(3)]
    tasks = plan_tasks([*large, *small], TaskSizes())
    assert [len(task) for task in tasks] == [1, 1, 1, 20]


def test_empty_partitions_make_no_ranges() -> None:
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    assert ranges_between({a: 5, b: 5}, {a: 5, b: 7}) == [OffsetRange("t", 1, 5, 7)]
