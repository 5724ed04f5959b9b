from __future__ import annotations

from uuid import UUID

import pytest

from ottla.audit.commits import commit_counts, load_counts
from ottla.audit.snapshot import AuditSnapshot

SIZE_MS = 600_000


def test_commit_that_is_published_again_counts_once_and_another_one_counts_beside_it() -> None:
    first = commit_counts("lake", "t 1", "clicks", {0: 5, SIZE_MS: 2}, 7)
    snapshot = AuditSnapshot([*first, *first, *commit_counts("lake", "t 2", "clicks", {0: 1}, 7)])
    assert sorted((count.key.window.start_ms, count.records) for count in snapshot.counts) == [
        (0, 1),
        (0, 5),
        (SIZE_MS, 2),
    ]


def test_tables_tiers_and_recreated_topics_are_different_counters() -> None:
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


FACTS = {
    "ottla.window_ms": "600000",
    "ottla.topic_ids": '{"clicks": "AAAAAAAAAAAAAAAAAAAABw"}',
    "ottla.first_offsets": '{"clicks": {"0": 0}}',
    "ottla.offsets": '{"clicks": {"0": 7}}',
    "ottla.window_counts": '{"clicks": {"0": 5, "600000": 2}}',
}


def test_counts_of_a_load_are_taken_from_what_it_keeps_beside_its_commit() -> None:
    counts = load_counts("/lake/clicks", FACTS, 7)
    assert [(each.key.tier, each.key.topic_id, each.key.window.start_ms, each.records) for each in counts] == [
        ("lake", UUID(int=7), 0, 5),
        ("lake", UUID(int=7), SIZE_MS, 2),
    ]
    assert load_counts("/lake/clicks", FACTS, 9)[0].key == counts[0].key
    assert load_counts("/lake/clicks", FACTS | {"ottla.offsets": '{"clicks": {"0": 8}}'}, 7)[0].key != counts[0].key
    assert load_counts("/lake/clicks", {"delta.other": "x"}, 7) == []


def test_facts_of_another_writer_are_refused() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        load_counts("/lake/clicks", FACTS | {"ottla.window_ms": "x"}, 7)
