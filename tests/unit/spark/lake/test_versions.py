"""The versions of rows, against a fold in plain Python."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.errors import LakeError
from ottla.spark.lake.changes import UpsertRule
from ottla.spark.lake.versions import KeyVersions, closed
from tests.property.property_settings import example_settings
from tests.unit.spark.lake.test_changes import table

RULE = UpsertRule(("id",), "at", keeps_history=True)
# Key, sequence, whether it deletes.
Change = tuple[str, int, bool]
# By key the newest version: its sequence, its offset, and whether it is a deletion.
Present = dict[str, tuple[int, int, bool]]
# Of the versions that ended: key, from, to, offset.
Past = list[tuple[str, int, int, int]]


def folded(commits: list[list[Change]]) -> tuple[Present, Past]:
    """One change after the other."""
    present: Present = {}
    past: Past = []
    for offset, (key, at, deletes) in enumerate(itertools.chain.from_iterable(commits)):
        if key in present:
            known, known_offset, was_deleted = present[key]
            if at < known:
                continue
            if at > known and not was_deleted:
                past.append((key, known, at, known_offset))
        present[key] = at, offset, deletes
    return present, past


def applied(commits: list[list[Change]]) -> tuple[Present, Past]:
    """The same by columns: the table's rows of changed keys go, and those that end are kept with their end."""
    rows: pa.Table | None = None
    past: Past = []
    offset = 0
    for commit in commits:
        versions = KeyVersions.of(table(list(commit), offset), RULE)
        offset += len(commit)
        keys = [key.decode() for key in versions.keys.to_pylist()]
        known = {} if rows is None else {row["id"]: row for row in rows.to_pylist()}
        stored = pa.array([known[key]["at"] if key in known else None for key in keys], pa.int64())
        decision = versions.decide(stored)
        assert decision.past is not None
        assert decision.ends is not None
        ended = decision.past.to_pylist()
        if rows is not None:
            index = {key: at for at, key in enumerate(keys)}
            goes = [decision.is_changed[index[key]] if key in index else False for key in rows["id"].to_pylist()]
            gone = rows.filter(pa.array(goes, pa.bool_()))
            ends = decision.ends.take(pa.array([index[key] for key in gone["id"].to_pylist()], pa.int64()))
            ended += closed(gone, ends).to_pylist()
            rows = rows.filter(pa.array([not each for each in goes], pa.bool_()))
        past += [(row["id"], row["valid_from"], row["valid_to"], row["offset"]) for row in ended]
        rows = decision.rows if rows is None else pa.concat_tables([rows, decision.rows])
    present = {}
    for row in [] if rows is None else rows.to_pylist():
        assert row["id"] not in present
        assert row["valid_from"] == row["at"]
        assert row["valid_to"] == (row["at"] if row["deleted"] else None)
        present[row["id"]] = row["at"], row["offset"], row["deleted"]
    return present, past


changes = st.tuples(st.sampled_from("abc"), st.integers(0, 6), st.booleans())


@example_settings(400)
@given(st.lists(st.lists(changes, min_size=1, max_size=8), max_size=5))
def test_commits_of_any_size_give_the_versions_that_one_change_after_the_other_gives(
    commits: list[list[Change]],
) -> None:
    present, past = applied(commits)
    expected_present, expected_past = folded(commits)
    assert present == expected_present
    assert sorted(past) == sorted(expected_past)


@example_settings(300)
@given(st.lists(changes, min_size=1, max_size=12), st.lists(st.integers(1, 11), max_size=3))
def test_what_is_needed_of_parts_gives_the_versions_of_all_changes(all_changes: list[Change], cuts: list[int]) -> None:
    rows = table(list(all_changes))
    bounds = sorted({0, len(all_changes), *(cut for cut in cuts if cut < len(all_changes))})
    parts = [KeyVersions.of(rows.slice(first, end - first), RULE).needed() for first, end in itertools.pairwise(bounds)]
    found = KeyVersions.of(pa.concat_tables(parts[::-1]), RULE).decide(None)
    expected = KeyVersions.of(rows, RULE).decide(None)
    assert found.rows.sort_by("offset") == expected.rows.sort_by("offset")
    assert found.past is not None
    assert expected.past is not None
    assert found.past.sort_by("offset") == expected.past.sort_by("offset")


def test_a_history_needs_a_sequence_in_every_change() -> None:
    with pytest.raises(LakeError, match="a history needs sequence_by"):
        UpsertRule(("id",), keeps_history=True)
    rows = table([("a", 1, False), ("b", None, False)])
    with pytest.raises(LakeError, match="offset 1 of t partition 0 has no 'at', a history needs it"):
        RULE.check(rows)
