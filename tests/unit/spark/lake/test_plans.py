from __future__ import annotations

import itertools
import random

from ottla.spark.lake.plans import share_out
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
