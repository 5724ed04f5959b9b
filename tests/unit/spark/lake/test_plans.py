from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping
from uuid import UUID

import pytest

from ottla.model.identifiers import TopicPartition
from ottla.spark.errors import DataLoss
from ottla.spark.lake import plans
from ottla.spark.lake.plans import LoadPlan, Start, TopicKeys, plan_load, progress_of, share_out
from ottla.spark.options.read_options import ReadOptions, parse_read_options
from ottla.spark.source.cluster_view import ClusterView
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


OPTIONS = parse_read_options({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "clicks"}, is_stream=False)
FIRST, SECOND = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


class Logs(ClusterView):
    """A cluster with these logs, `[start, end)`."""

    def __init__(self, logs: Mapping[TopicPartition, tuple[int, int]], topic_id: int) -> None:
        self._options, self._logs, self._id = OPTIONS, logs, UUID(int=topic_id)

    def close(self) -> None:
        """Nothing is open."""

    @property
    def cluster_id(self) -> str:
        return "cluster"

    def partitions(self, *, missing_ok: bool = False) -> list[TopicPartition]:
        return sorted(self._logs)

    def topic_ids(self, topics: Iterable[str], *, missing_ok: bool = False) -> dict[str, UUID]:
        return dict.fromkeys(topics, self._id)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self._logs[place][0] for place in partitions}

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self._logs[place][1] for place in partitions}

    def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self.latest(partitions)


class Numbers:
    """Of a table, those alone."""

    def __init__(self) -> None:
        self.kept: dict[str, int] = {}

    def number_of(self, app_id: str) -> int | None:
        return self.kept.get(app_id)


class Loads:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self._table = Numbers()

    def load(
        self, logs: Mapping[TopicPartition, tuple[int, int]], start: Start = "earliest", topic_id: int = 1
    ) -> dict[TopicPartition, tuple[int, int]]:
        """What is loaded, and the numbers are kept."""

        def view(_options: ReadOptions) -> ClusterView:
            return Logs(logs, topic_id)

        self._patch.setattr(plans, "ClusterView", view)
        plan = plan_load(self._table, OPTIONS, start)  # type: ignore[arg-type]  # needs the numbers alone
        self._table.kept |= plan.numbers
        return {place: (plan.first[place], plan.end[place]) for place in plan.end}


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    return Loads(monkeypatch)


def test_a_partition_that_was_empty_at_first_misses_what_retention_deletes(loads: Loads) -> None:
    loads.load({FIRST: (0, 5), SECOND: (0, 0)})
    with pytest.raises(DataLoss, match="names offset 0 of clicks-1, which has 400 to 500"):
        loads.load({FIRST: (0, 5), SECOND: (400, 500)})


def test_a_partition_that_is_added_is_loaded_from_its_beginning_or_missed(loads: Loads) -> None:
    assert loads.load({FIRST: (3, 5)}, "latest") == {FIRST: (5, 5)}
    assert loads.load({FIRST: (3, 6), SECOND: (0, 4)}, "latest") == {FIRST: (5, 6), SECOND: (0, 4)}
    with pytest.raises(DataLoss, match="names offset 0 of clicks-2"):
        loads.load({FIRST: (3, 6), SECOND: (0, 4), TopicPartition("clicks", 2): (1, 2)}, "latest")


def test_a_recreated_topic_is_loaded_from_its_start_independent_of_the_tables_start(loads: Loads) -> None:
    loads.load({FIRST: (0, 5)}, "latest")
    assert loads.load({FIRST: (0, 3)}, "latest", topic_id=2) == {FIRST: (0, 3)}


def test_a_table_may_begin_where_retention_has_deleted_records(loads: Loads) -> None:
    assert loads.load({FIRST: (400, 500)}) == {FIRST: (400, 500)}
    assert loads.load({FIRST: (400, 500)}) == {FIRST: (500, 500)}
