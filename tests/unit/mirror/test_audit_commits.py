from __future__ import annotations

from uuid import UUID

from ottla.mirror.audit_commits import AuditCommit, AuditLedger, AuditState
from ottla.mirror.journal import Counts, Journal, Progress, SourcePartition, progress_entries
from ottla.mirror.offset_map import OffsetMap


def test_commit_has_what_was_copied_since_the_one_before() -> None:
    ledger = AuditLedger(AuditState(10))
    ledger.add({0: 2, 600_000: 1})
    ledger.add({0: 3})
    assert ledger.close(16, now_ms=7)
    assert ledger.untold == AuditCommit(10, 16, {0: 5, 600_000: 1}, 7)
    assert ledger.state.windows == {}


def test_next_commit_waits_until_the_last_one_was_told() -> None:
    ledger = AuditLedger(AuditState(0))
    ledger.add({0: 1})
    ledger.close(1, now_ms=7)
    ledger.add({0: 2})
    assert not ledger.close(3, now_ms=8)
    ledger.on_told()
    assert ledger.close(3, now_ms=9)
    assert ledger.untold == AuditCommit(1, 3, {0: 2}, 9)


def test_nothing_copied_is_no_commit() -> None:
    ledger = AuditLedger(AuditState(0))
    assert not ledger.close(5, now_ms=7)
    assert ledger.untold is None


def test_state_comes_back_from_the_journal() -> None:
    ledger = AuditLedger(AuditState(0))
    ledger.add({0: 1, 600_000: 4})
    ledger.close(5, now_ms=7)
    ledger.add({600_000: 2})
    partition = SourcePartition("c", UUID(int=1), "t", 0)
    journal = Journal()
    progress = Progress(7, 7, UUID(int=2), Counts(), 9, ledger.state)
    for key, value in progress_entries(partition, progress, OffsetMap(7, 7), journal):
        journal.apply(key, value)
    assert journal.progress[partition].audit == ledger.state
