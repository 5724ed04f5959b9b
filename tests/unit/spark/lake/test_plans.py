from __future__ import annotations

import itertools
import random
from uuid import UUID

from ottla.model.identifiers import TopicPartition
from ottla.spark.lake.plans import LoadPlan, share_out
from ottla.spark.lake.progress import TopicKeys, progress_of
from ottla.spark.source.offset_ranges import ROWS_PER_TASK_MIN, OffsetRange


def test_every_offset_is_in_one_task_and_tasks_are_alike() -> None:
    random_ = random.Random(7)
    for _ in range(200):
        ranges = [
            OffsetRange("t", partition, first, first + random_.randrange(1, 5 * ROWS_PER_TASK_MIN))
            for partition, first in enumerate(random_.sample(range(1000), random_.randrange(1, 9)))
        ]
        tasks_max = random_.randrange(1, 9)
        tasks = share_out(ranges, tasks_max)
        assert 1 <= len(tasks) <= tasks_max
        found = sorted((part.partition, part.first_offset, part.end_offset) for task in tasks for part in task)
        for part in ranges:
            mine = [(first, end) for partition, first, end in found if partition == part.partition]
            assert mine[0][0] == part.first_offset
            assert mine[-1][1] == part.end_offset
            assert all(one[1] == other[0] for one, other in itertools.pairwise(mine))
        sizes = [sum(part.offsets_count for part in task) for task in tasks]
        assert max(sizes) - min(sizes) <= 1
        assert all(len({part.partition for part in task}) == len(task) for task in tasks)


def test_few_records_are_one_task() -> None:
    ranges = [OffsetRange("t", partition, 0, 10) for partition in range(50)]
    assert share_out(ranges, 8) == [tuple(ranges)]


def test_the_rest_of_a_load_is_planned_on_its_own_commits() -> None:
    place, keys = TopicPartition("clicks", 0), TopicKeys("cluster", {"clicks": UUID(int=1)})
    whole = LoadPlan(keys, progress_of([place], keys, Numbers().number_of), {place: 0}, {place: 30})
    assert set(whole.expected.values()) == {None}
    part = whole.at_most(10)
    rest = whole.rest(part)
    assert (rest.first, rest.end) == ({place: 10}, {place: 30})
    # What another load has moved since is not what this one expects, so its next commit is refused.
    assert rest.expected == {app_id: part.numbers[app_id] for app_id in rest.numbers}
    assert rest.rest(rest).is_empty
