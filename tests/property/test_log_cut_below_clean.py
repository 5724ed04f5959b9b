"""A cleaned log is truncated at any offset below the clean's end, and is used further."""

from __future__ import annotations

import random

import pytest

from ottla.storage.directory import flushed_ends
from ottla.testing.memory_disk import MemoryDisk
from tests.cleaning import run_clean
from tests.unit.storage.logs import truncate_log

from .compaction_model import CompactedModel, KeyedBatch, check_cut, newest_values, shown
from .log_place import LogPlace
from .property_settings import examples, exhaustive, is_tried, timeout_s
from .test_log_compaction import COMPACTED, results_on

SEEDS_COUNT = 60
KEYS = (b"a", b"b", b"c", b"d", b"e")
pytestmark = pytest.mark.timeout(timeout_s(SEEDS_COUNT))


class CutLife:
    """One log on a memory disk, and everything that was appended to it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.place = LogPlace(MemoryDisk(), COMPACTED)
        self.place.create(1)
        self.model = CompactedModel()

    def append(self, batches_count: int) -> None:
        now_ms = self.place.clock.now_ms()
        for _ in range(batches_count):
            values = [None if self.rng.random() < 0.2 else self.rng.randbytes(40) for _ in range(3)]
            records = tuple((self.rng.choice(KEYS), value, now_ms) for value in values)
            self.model.append(self.place.log(), KeyedBatch(records), now_ms)

    def clean(self) -> None:
        now_ms = self.place.clock.now_ms()
        self.place.log().roll(now_ms)
        self.place.flush()
        compactor = self.place.directory.compactor
        job = compactor.next_job(now_ms)
        if job is not None:
            run_clean(compactor, job, lambda job: results_on(self.place.disk, job))

    def cut(self) -> int:
        log = self.place.log()
        truncate_log(log, self.rng.randrange(1, log.log_end_offset))
        self.model.truncate_to(log.log_end_offset)
        self.place.flush()
        return log.log_end_offset

    def lacks_values(self) -> bool:
        """Whether a key is gone that was overwritten only after the cut."""
        log = self.place.log()
        present = [record for batch in shown(log) for record in batch.records]
        return newest_values(present, 0) != newest_values(self.model.records(log.log_end_offset), 0)


@pytest.fixture(autouse=True)
def _few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushed_ends, "SLOTS_COUNT_MIN", 16)


@exhaustive
def test_no_old_value_comes_back_and_appends_after_the_cut_stay() -> None:
    seeds = list(filter(is_tried, range(examples(SEEDS_COUNT))))
    lacking_count = 0
    for seed in seeds:
        life = CutLife(seed)
        for _ in range(life.rng.randint(1, 2)):
            life.append(life.rng.randint(5, 15))
            life.clean()
        cut_at = life.cut()
        check_cut(life.place.log(), life.model, cut_at)
        lacking_count += life.lacks_values()
        life.append(life.rng.randint(1, 10))
        check_cut(life.place.log(), life.model, cut_at)
        life.clean()
        check_cut(life.place.log(), life.model, cut_at)
        life.place.reopen_on(life.place.disk.kill())
        assert not life.place.directory.failed
        check_cut(life.place.log(), life.model, cut_at)
    # Otherwise the test has checked nothing.
    assert lacking_count > len(seeds) // 4
