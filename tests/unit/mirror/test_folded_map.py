"""Offset maps of very many runs: they stay small, and a reader never continues after a record that it has not read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from unittest.mock import patch
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.mirror import offset_translation
from ottla.mirror.journal import CopyProgress, Entry, MirrorJournal, SourcePartition, progress_entries
from ottla.mirror.offset_translation import CHUNK_RUNS, EXACT_RUNS_MAX, LANDMARKS_MAX, OffsetTranslation, Run

PARTITION = SourcePartition("cluster", UUID(int=7), "clicks", 3)
TARGET_ID = UUID(int=9)
SURVIVORS = 200_000


class Step(NamedTuple):
    kind: str
    number: int
    gap: int


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["copy"] * 5 + ["write"] * 3 + ["target", "source", "retention", "restart"]),
        st.integers(0, 12),
        st.integers(0, 2),
    ),
    max_size=40,
)


@contextmanager
def small_maps() -> Iterator[None]:
    with patch.multiple(offset_translation, CHUNK_RUNS=2, EXACT_RUNS_MAX=4, LANDMARKS_MAX=3):
        yield


class Copied:
    """A map, what is true (`table`: the copied source offsets with those of the target), and the journal's entries."""

    def __init__(self) -> None:
        self.offsets = OffsetTranslation(0, 0)
        self.table: dict[int, int] = {}
        self.start = 0
        self.entries: list[Entry] = []

    def take(self, step: Step) -> None:
        offsets = self.offsets
        if step.kind == "copy":
            for at in range(step.number):
                run = Run(offsets.source_end + 1 + at % 2, offsets.target_end + step.gap, 1 + at % 3)
                offsets.extend(run)
                self.table |= {run.source_first + each: run.target_first + each for each in range(run.length)}
            offsets.skip_to(offsets.source_end + step.gap)
        elif step.kind == "write":
            offsets.prune(self.start)
            self.write()
        elif step.kind == "target":
            end = max(0, offsets.target_end - step.number)
            self.table = {here: there for here, there in self.table.items() if there < end}
            offsets.truncate(end)
            # What is behind a landmark is found again, by comparison.
            for here, there in sorted(self.table.items()):
                if here >= offsets.source_end:
                    offsets.extend(Run(here, there, 1))
            offsets.target_end = max(offsets.target_end, end)
            self.write()
        elif step.kind == "source":
            end = max(self.start, offsets.source_end - step.number)
            self.table = {here: there for here, there in self.table.items() if here < end}
            offsets.truncate_source(end)
            self.write()
        elif step.kind == "retention":
            self.start = min(self.start + step.number, offsets.source_end)
        elif self.entries:
            self.offsets = replayed(self.entries)
            # What came after the last write is found again, by comparison.
            for here, there in sorted(self.table.items()):
                if here >= self.offsets.source_end:
                    self.offsets.extend(Run(here, there, 1))
            self.offsets.target_end = max(self.offsets.target_end, offsets.target_end)

    def write(self) -> None:
        """Each entry of it may be the last one."""
        journal = MirrorJournal()
        for key, value in self.entries:
            journal.apply(key, value)
        progress = CopyProgress(self.offsets.source_end, self.offsets.target_end, TARGET_ID)
        for entry in progress_entries(PARTITION, progress, self.offsets, journal):
            self.entries.append(entry)
            self.check(replayed(self.entries))

    def check(self, found: OffsetTranslation) -> None:
        for asked in range(self.start, found.source_end):
            next_copy = min((there for here, there in self.table.items() if here >= asked), default=None)
            answer = found.translate(asked)
            assert next_copy is None or answer <= next_copy, (asked, answer, next_copy, found.runs)


def replayed(entries: list[Entry]) -> OffsetTranslation:
    journal = MirrorJournal()
    for key, value in entries:
        journal.apply(key, value)
    found = journal.offset_translation(PARTITION)
    assert found is not None or not any(b"progress" in key for key, _ in entries)
    return found or OffsetTranslation(0, 0)


@given(STEPS)
def test_no_reader_ever_continues_after_a_record_that_is_not_read(steps: list[Step]) -> None:
    with small_maps():
        copied = Copied()
        for step in steps:
            copied.take(step)
            copied.check(copied.offsets)
        copied.take(Step("write", 0, 0))
        assert replayed(copied.entries).runs == copied.offsets.runs


def test_map_and_journal_of_very_many_survivors_stay_small_and_the_newest_are_exact() -> None:
    """As a compacted topic's: a gap after each record."""
    offsets, journal = OffsetTranslation(0, 0), MirrorJournal()
    largest_write_bytes = 0
    for at in range(SURVIVORS):
        offsets.extend(Run(3 * at, at, 1))
        if at % 7_000 == 0:
            progress = CopyProgress(offsets.source_end, offsets.target_end, TARGET_ID)
            written_bytes = 0
            for key, value in progress_entries(PARTITION, progress, offsets, journal):
                journal.apply(key, value)
                written_bytes += len(key) + len(value or b"")
            largest_write_bytes = max(largest_write_bytes, written_bytes)
    found = journal.offset_translation(PARTITION)
    assert found is not None
    assert len(found) <= EXACT_RUNS_MAX + LANDMARKS_MAX
    assert largest_write_bytes < 500_000
    newest = found.source_end // 3
    assert [found.translate(3 * at) for at in range(newest - EXACT_RUNS_MAX + CHUNK_RUNS, newest)] == [
        *range(newest - EXACT_RUNS_MAX + CHUNK_RUNS, newest)
    ]
    again = [at - found.translate(3 * at) for at in range(newest)]
    assert min(again) == 0, "nothing is passed over"
    assert max(again) < 2 * SURVIVORS // LANDMARKS_MAX + CHUNK_RUNS
