"""The reduction of changes, against a fold in plain Python."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.errors import LakeError
from ottla.spark.lake.changes import KeyChanges, UpsertRule, key_column
from ottla.spark.lake.load import check_rule
from ottla.spark.lake.rows import RowShape
from tests.property.property_settings import example_settings

# Key, sequence, whether it deletes.
Change = tuple[str, int | None, bool]
# By key: the sequence, and the offset of the change that counts.
State = dict[str, tuple[int | None, int]]

BY_LOG = UpsertRule(("id",))
BY_SEQUENCE = UpsertRule(("id",), "at")


def table(changes: list[Change], first_offset: int = 0) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([key for key, _, _ in changes], pa.string()),
            "at": pa.array([at for _, at, _ in changes], pa.int64()),
            "deleted": pa.array([deleted for _, _, deleted in changes], pa.bool_()),
            "topic": ["t"] * len(changes),
            "partition": pa.array([0] * len(changes), pa.int32()),
            "offset": pa.array(range(first_offset, first_offset + len(changes)), pa.int64()),
        }
    )


def folded(state: State, changes: list[Change], first_offset: int = 0) -> State:
    """One change after the other."""
    state = dict(state)
    for offset, (key, at, _) in enumerate(changes, first_offset):
        known = state[key][0] if key in state else None
        if at is None:
            state[key] = known, offset
        elif known is None or at >= known:
            state[key] = at, offset
    return state


def applied(state: State, rows: pa.Table, rule: UpsertRule) -> State:
    """The same by columns."""
    changes = KeyChanges.of(rows, rule)
    keys = [key.decode() for key in changes.keys.to_pylist()]
    decision = changes.decide(pa.array([state.get(key, (None, 0))[0] for key in keys], pa.int64()))
    found = {row["id"]: (row["at"], row["offset"]) for row in decision.rows.to_pylist()}
    assert found.keys() == {key for key, is_changed in zip(keys, decision.is_changed, strict=True) if is_changed}
    assert len(found) == decision.rows.num_rows
    return {**state, **found}


changes = st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 5), st.booleans())


@example_settings(300)
@given(st.lists(st.lists(changes, min_size=1, max_size=8), max_size=5), st.sampled_from([BY_SEQUENCE, BY_LOG]))
def test_changes_in_commits_of_any_size_give_the_rows_that_one_after_the_other_gives(
    commits: list[list[Change]], rule: UpsertRule
) -> None:
    expected: State = {}
    found: State = {}
    offset = 0
    for each in commits:
        each = each if rule is BY_SEQUENCE else [(key, None, deleted) for key, _, deleted in each]
        expected = folded(expected, each, offset)
        found = applied(found, table(each, offset), rule)
        offset += len(each)
    assert found == expected


@example_settings(300)
@given(
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 5)),
    st.lists(changes, min_size=1, max_size=12),
    st.lists(st.integers(0, 12), max_size=3),
)
def test_what_is_needed_of_parts_decides_as_all_changes_do(
    stored: dict[str, int], all_changes: list[Change], cuts: list[int]
) -> None:
    state: State = {key: (at, -1) for key, at in stored.items()}
    rows = table(all_changes)
    bounds = sorted({0, len(all_changes), *(cut for cut in cuts if cut < len(all_changes))})
    parts = [
        KeyChanges.of(rows.slice(first, end - first), BY_SEQUENCE).needed() for first, end in itertools.pairwise(bounds)
    ]
    # Tasks end in any order.
    needed = pa.concat_tables(parts[::-1])
    assert needed.num_rows <= 2 * 3 * len(parts)
    assert applied(state, needed, BY_SEQUENCE) == folded(state, all_changes)


def test_of_equal_sequences_the_later_change_counts() -> None:
    assert applied({}, table([("a", 3, False), ("a", 3, True)]), BY_SEQUENCE) == {"a": (3, 1)}


def test_partitions_do_not_mix_the_order_of_their_logs() -> None:
    rows = pa.concat_tables([table([("a", None, False)], 7), table([("a", None, False)], 3)])
    rows = rows.set_column(4, "partition", pa.array([0, 1], pa.int32()))
    assert applied({}, rows, BY_LOG) == {"a": (None, 3)}


@given(st.lists(st.tuples(st.binary(max_size=3), st.text(max_size=3), st.integers(-3, 3)), max_size=30))
def test_keys_of_several_columns_are_equal_only_where_all_columns_are(found: list[tuple[bytes, str, int]]) -> None:
    names = ("a", "b", "c")
    rows = pa.table(
        {
            "a": pa.array([a for a, _, _ in found], pa.binary()),
            "b": pa.array([b for _, b, _ in found], pa.string()),
            "c": pa.array([c for _, _, c in found], pa.int64()),
        }
    )
    keys = key_column(rows, names).to_pylist()
    assert len({*zip(keys, found, strict=True)}) == len({*keys}) == len({*found})


def test_buckets_do_not_depend_on_the_type_in_which_whole_numbers_are_read() -> None:
    rule = UpsertRule(("id",), buckets=7)
    buckets = [
        rule.with_buckets(pa.table({"id": pa.array(range(50), kind)}))["bucket"].to_pylist()
        for kind in (pa.int32(), pa.int64())
    ]
    assert buckets[0] == buckets[1]
    assert set(buckets[0]) == set(range(7))


def test_a_record_without_a_key_is_refused_by_its_place() -> None:
    rows = table([("a", 1, False), ("b", 1, False)]).set_column(0, "id", pa.array(["a", None]))
    with pytest.raises(LakeError, match="offset 1 of t partition 0 has no 'id'"):
        BY_LOG.check(rows)


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (UpsertRule(("x",)), "no column 'x'"),
        (UpsertRule(("id",), "x"), "no column 'x'"),
        (UpsertRule(("id",), "deleted"), "does not order changes"),
        (UpsertRule(("share",)), "no type of a key"),
    ],
)
def test_columns_that_cannot_serve_are_refused(rule: UpsertRule, problem: str) -> None:
    rows = table([("a", 1, False)]).append_column("share", pa.array([0.5]))
    with pytest.raises(LakeError, match=problem):
        rule.check(rows)


def test_a_refused_order_names_the_columns_that_would_serve() -> None:
    rows = table([("a", 1, False)]).append_column("share", pa.array([0.5]))
    for name in ("updated", "share"):
        with pytest.raises(LakeError) as refused:
            UpsertRule(("id",), name).check_schema(rows.schema)
        assert "id, at, topic, partition, offset" in (refused.value.hint or "")
        assert "share" not in (refused.value.hint or "")


def test_an_order_is_refused_before_a_record_is_read_where_the_columns_are_known() -> None:
    by_update = UpsertRule(("key",), "updated")
    with pytest.raises(LakeError, match="no column 'updated', which orders the changes"):
        check_rule(by_update, RowShape())

    def decode(records: pa.RecordBatch) -> pa.Table:
        return pa.table({"updated": pa.nulls(records.num_rows, pa.float64())})

    # Its columns are known when the first records were decoded.
    check_rule(by_update, RowShape(decode=decode))
    decode.row_schema = pa.schema([("updated", pa.float64())])  # type: ignore[attr-defined]  # of a function
    with pytest.raises(LakeError, match="'updated' is double, which does not order changes"):
        check_rule(by_update, RowShape(decode=decode))
    decode.row_schema = pa.schema([("updated", pa.int8())])  # type: ignore[attr-defined]  # of a function
    check_rule(by_update, RowShape(decode=decode))


@pytest.mark.parametrize(("keys", "buckets"), [((), 1), (("id",), 0), (("id",), 10_001)])
def test_rules_that_cannot_be_are_refused(keys: tuple[str, ...], buckets: int) -> None:
    with pytest.raises(LakeError, match=r"an upsert needs keys|buckets is"):
        UpsertRule(keys, buckets=buckets)


def test_a_deleted_row_keeps_its_key_its_sequence_and_its_place() -> None:
    rows = BY_SEQUENCE.marked(
        table([("a", 1, False), ("b", 2, True), ("c", None, False)]).append_column("name", pa.array(["x", "y", "z"])),
        pa.array([b"1", b"2", None]),
    )
    assert [(row["id"], row["at"], row["name"], row["deleted"]) for row in BY_SEQUENCE.blanked(rows).to_pylist()] == [
        ("a", 1, "x", False),
        ("b", 2, None, True),
        ("c", None, None, True),
    ]


def test_times_are_the_same_key_in_any_unit() -> None:
    """Spark's OPTIMIZE may rewrite a table's microseconds as INT96, which are read as nanoseconds."""
    micros = pa.array([0, 1_700_000_000_123_456, -5], pa.timestamp("us", "UTC"))
    expected = key_column(pa.table({"at": micros}), ("at",))
    assert key_column(pa.table({"at": micros.cast(pa.timestamp("ns", "UTC"))}), ("at",)).equals(expected)
