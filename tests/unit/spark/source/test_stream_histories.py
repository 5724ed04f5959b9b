"""A stream over a topic that lives: what is appended, deleted, recreated and extended, with kills at every point."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from ottla.model.identifiers import TopicPartition
from ottla.spark.source.offset_ranges import OffsetRange
from tests.unit.spark.source.small_cluster import Engine, Logs, reader

# A record is (id of its topic, partition, offset).
Record = tuple[int, int, int]


@dataclass
class World:
    """The topic `a`, which a patient query reads; it is killed and started again as the history says."""

    monkeypatch: pytest.MonkeyPatch
    logs: Logs = field(default_factory=lambda: Logs(a0=(0, 0)))
    topic_id: int = 1000
    engine: Engine = field(default_factory=Engine)
    read: Counter[Record] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.logs.topic_ids["a"] = UUID(int=self.topic_id)

    def do(self, step: str, number: int) -> None:
        places = sorted(self.logs.logs)
        place = places[number % len(places)]
        start, end = self.logs.logs[place]
        if step == "append":
            self.logs.logs[place] = (start, end + 1 + number)
        elif step == "delete":
            self.logs.logs[place] = (min(end, start + number), end)
        elif step == "add":
            self.logs.logs[TopicPartition("a", len(places))] = (0, number)
        elif step == "recreate":
            self.topic_id += 1
            self.logs.topic_ids["a"] = UUID(int=self.topic_id)
            self.logs.logs = {TopicPartition("a", index): (0, number) for index in range(1 + number % 3)}
        else:
            self.batch(is_killed=step == "killed batch", rows_max=None if number == 0 else number)

    def batch(self, *, is_killed: bool, rows_max: int | None = None) -> bool:
        """One batch of a query that has just started, or continues: the reader keeps nothing that matters."""
        stream = reader(self.monkeypatch, self.logs, startingOffsets="earliest", failOnDataLoss="false")
        ranges = self.engine.plan(stream, ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max))
        if ranges is None:
            return False
        if not is_killed:
            for part in ranges:
                self.read.update(self.records(part))
            self.engine.commit(stream)
        return True

    def records(self, part: OffsetRange) -> list[Record]:
        """As the tasks do: by id, and what the log still has."""
        log = self.logs.logs.get(TopicPartition("a", part.partition))
        if log is None or part.topic_id != UUID(int=self.topic_id):
            return []
        offsets = range(max(part.first_offset, log[0]), min(part.end_offset, log[1]))
        return [(self.topic_id, part.partition, offset) for offset in offsets]

    def stored(self) -> set[Record]:
        return {
            (self.topic_id, place.partition, offset)
            for place, (start, end) in self.logs.logs.items()
            for offset in range(start, end)
        }


steps = st.sampled_from(["append", "append", "delete", "add", "recreate", "batch", "batch", "killed batch"])


@given(st.lists(st.tuples(steps, st.integers(0, 9)), max_size=30))
def test_every_record_that_is_there_is_read_exactly_once(history: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        world = World(monkeypatch)
        for step, number in history:
            world.do(step, number)
        batches = 0
        while world.batch(is_killed=False):
            batches += 1
            assert batches < 20, "a query without news comes to rest"
        assert world.stored() <= set(world.read)
        assert not [record for record, times in world.read.items() if times > 1]
