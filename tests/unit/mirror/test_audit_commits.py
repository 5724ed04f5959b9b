from __future__ import annotations

from uuid import UUID

from ottla.mirror.audit_commits import AuditCommit, AuditState, CopyCounts
from ottla.mirror.journal import CopyProgress, Counts, MirrorJournal, SourcePartition, progress_entries
from ottla.mirror.offset_translation import OffsetTranslation


def test_commit_has_what_was_copied_since_the_one_before() -> None:
    counts = CopyCounts(AuditState(10))
    counts.add({0: 2, 600_000: 1})
    counts.add({0: 3})
    assert counts.close(16, now_ms=7)
    assert counts.unpublished == AuditCommit(10, 16, {0: 5, 600_000: 1}, 7)
    assert counts.state.windows == {}


def test_next_commit_waits_until_the_last_one_was_published() -> None:
    counts = CopyCounts(AuditState(0))
    counts.add({0: 1})
    counts.close(1, now_ms=7)
    counts.add({0: 2})
    assert not counts.close(3, now_ms=8)
    counts.on_published()
    assert counts.close(3, now_ms=9)
    assert counts.unpublished == AuditCommit(1, 3, {0: 2}, 9)


def test_nothing_copied_is_no_commit() -> None:
    counts = CopyCounts(AuditState(0))
    assert not counts.close(5, now_ms=7)
    assert counts.unpublished is None


def test_state_comes_back_from_the_journal() -> None:
    counts = CopyCounts(AuditState(0))
    counts.add({0: 1, 600_000: 4})
    counts.close(5, now_ms=7)
    counts.add({600_000: 2})
    partition = SourcePartition("c", UUID(int=1), "t", 0)
    journal = MirrorJournal()
    progress = CopyProgress(7, 7, UUID(int=2), Counts(), 9, counts.state)
    for key, value in progress_entries(partition, progress, OffsetTranslation(7, 7), journal):
        journal.apply(key, value)
    assert journal.progress[partition].audit == counts.state
