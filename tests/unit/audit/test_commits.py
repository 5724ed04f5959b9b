from __future__ import annotations

from uuid import UUID

from ottla.audit.book import AuditBook
from ottla.audit.commits import commit_counts

SIZE_MS = 600_000


def test_commit_that_is_told_again_counts_once_and_another_one_counts_beside_it() -> None:
    first = commit_counts("lake", "t 1", "clicks", {0: 5, SIZE_MS: 2}, 7)
    book = AuditBook([*first, *first, *commit_counts("lake", "t 2", "clicks", {0: 1}, 7)])
    assert sorted((count.key.window.start_ms, count.records) for count in book.counts) == [(0, 1), (0, 5), (SIZE_MS, 2)]


def test_tables_tiers_and_topics_made_anew_are_different_counters() -> None:
    told = [
        commit_counts("lake", "t 1", "clicks", {0: 1}, 0),
        commit_counts("lake", "u 1", "clicks", {0: 1}, 0),
        commit_counts("mirror", "t 1", "clicks", {0: 1}, 0),
        commit_counts("lake", "t 1", "clicks", {0: 1}, 0, topic_id=UUID(int=7)),
    ]
    assert len({each.key.instance for messages in told for each in messages}) == 4


def test_what_is_committed_after_its_windows_end_is_late() -> None:
    counts = commit_counts("lake", "t 1", "clicks", {0: 5, SIZE_MS: 2}, SIZE_MS)
    assert [count.late_records for count in counts] == [5, 0]
