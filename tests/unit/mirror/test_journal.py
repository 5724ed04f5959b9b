from __future__ import annotations

from uuid import UUID

import pytest

from ottla.mirror.journal import (
    CopyClaim,
    CopyProgress,
    Counts,
    MirrorJournal,
    SourcePartition,
    UnreadableJournal,
    claim_entry,
    owner_entry,
    progress_entries,
    withdrawal_entry,
)
from ottla.mirror.offset_translation import CHUNK_RUNS, OffsetTranslation, Run

PARTITION = SourcePartition("cluster", UUID(int=7), "clicks", 3)
TARGET_ID = UUID(int=9)


def stored(journal: MirrorJournal, offsets: OffsetTranslation, counts: Counts | None = None) -> int:
    """Bring the journal up to date; the count of entries that took."""
    progress = CopyProgress(offsets.source_end, offsets.target_end, TARGET_ID, counts or Counts(), 5)
    entries = progress_entries(PARTITION, progress, offsets, journal)
    for key, value in entries:
        journal.apply(key, value)
    return len(entries)


def test_offset_translation_comes_back_as_it_was_stored() -> None:
    journal, offsets = MirrorJournal(), OffsetTranslation(0, 0)
    for at in range(3 * CHUNK_RUNS):
        offsets.extend(Run(at * 2, at, 1))
        if at % 400 == 0:
            stored(journal, offsets)
    offsets.skip_to(offsets.source_end + 5)
    stored(journal, offsets, Counts(records=70))
    found = journal.offset_translation(PARTITION)
    assert found is not None
    assert (found.runs, found.source_end, found.target_end) == (offsets.runs, offsets.source_end, offsets.target_end)
    assert journal.progress[PARTITION].counts == Counts(records=70)


def test_only_what_changed_is_stored_again() -> None:
    journal, offsets = MirrorJournal(), OffsetTranslation(0, 0)
    for at in range(2 * CHUNK_RUNS + 1):
        offsets.extend(Run(at * 2, at, 1))
    assert stored(journal, offsets) == 4
    offsets.extend(Run(offsets.source_end, offsets.target_end, 1))
    assert stored(journal, offsets) == 2


def test_forgotten_and_truncated_runs_are_removed() -> None:
    journal, offsets = MirrorJournal(), OffsetTranslation(0, 0)
    for at in range(3 * CHUNK_RUNS):
        offsets.extend(Run(at * 2, at, 1))
    stored(journal, offsets)
    offsets.prune(2 * CHUNK_RUNS)
    offsets.truncate(2 * CHUNK_RUNS)
    stored(journal, offsets)
    found = journal.offset_translation(PARTITION)
    assert found is not None
    assert found.runs == offsets.runs
    assert len(journal.stored_chunks(PARTITION)) == 1


def test_partition_that_was_never_copied_has_no_map() -> None:
    assert MirrorJournal().offset_translation(PARTITION) is None


def test_claim_is_made_and_withdrawn() -> None:
    journal = MirrorJournal()
    claim = CopyClaim("clicks", TARGET_ID, UUID(int=7), ("first", "second"), 5)
    journal.apply(*claim_entry(claim))
    assert journal.claims == {"clicks": claim}
    assert claim.source_cluster_id == "second"
    journal.apply(*withdrawal_entry("clicks"))
    assert journal.claims == {}


def test_owner_is_who_said_so_last() -> None:
    journal = MirrorJournal()
    for owner in ("first", "second"):
        journal.apply(*owner_entry(PARTITION, owner))
    assert journal.owners == {PARTITION: "second"}


@pytest.mark.parametrize("key", [None, b"", b"x", b"{}", b'["other"]', b'["progress","c"]', b'["progress",1,2,3,4]'])
def test_record_of_another_writer_is_refused(key: bytes | None) -> None:
    with pytest.raises(UnreadableJournal):
        MirrorJournal().apply(key, b"{}")


def replayed(entries: list[tuple[bytes, bytes | None]]) -> OffsetTranslation:
    journal = MirrorJournal()
    for key, value in entries:
        journal.apply(key, value)
    found = journal.offset_translation(PARTITION)
    assert found is not None
    return found


def test_write_that_is_cut_anywhere_claims_no_more_than_was_copied() -> None:
    """First what a target had, then what it has after it lost its end and got other records in its place."""
    first, second = OffsetTranslation(0, 0), OffsetTranslation(0, 0)
    for at in range(3 * CHUNK_RUNS):
        first.extend(Run(at * 2, at, 1))
    kept = CHUNK_RUNS + 50
    for at in range(4 * CHUNK_RUNS):
        second.extend(Run(at * 2, at if at < kept else at + 9, 1))
    second.skip_to(second.source_end + 7)
    journal = MirrorJournal()
    written: list[tuple[bytes, bytes | None]] = []
    for offsets in (first, second):
        progress = CopyProgress(offsets.source_end, offsets.target_end, TARGET_ID)
        entries = progress_entries(PARTITION, progress, offsets, journal)
        for at in range(1 if written or offsets is second else len(entries), len(entries) + 1):
            found = replayed(written + entries[:at])
            known = second if offsets is second else first
            assert found.source_end <= known.source_end
            asked = range(found.source_end)
            assert [found.translate(each) for each in asked] == [known.translate(each) for each in asked], at
        for key, value in entries:
            journal.apply(key, value)
        written += entries
    assert replayed(written).runs == second.runs


def test_runs_beyond_the_progress_say_nothing() -> None:
    offsets = OffsetTranslation(0, 0)
    offsets.extend(Run(0, 0, 50))
    journal = MirrorJournal()
    stored(journal, offsets)
    offsets.extend(Run(50, 50, 30))
    entries = progress_entries(PARTITION, CopyProgress(80, 80, TARGET_ID), offsets, journal)
    for key, value in entries[:-1]:
        journal.apply(key, value)
    found = journal.offset_translation(PARTITION)
    assert found is not None
    assert (found.runs, found.source_end, found.target_end) == ([Run(0, 0, 50)], 50, 50)
