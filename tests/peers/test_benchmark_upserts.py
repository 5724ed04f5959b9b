"""The study of upserts: its changes, and its comparison with the table that plain Python computes."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from collections import Counter
from pathlib import Path

import pyarrow as pa
from bench.client.contenders.names import OTTLA
from bench.study import ROUND, Observed
from bench.upserts.changes import REPEATED_AFTER_MAX, Changes, folded, problems, records_of, text_of
from bench.upserts.study import KILLS, upserts_table
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog

from tests.loads.tables import TableSpec, iceberg_batches

CHANGES = Changes(120_000, 2_000)


def computed_table() -> pa.Table:
    """By a sort instead of a loop: the last of the greatest sequences."""
    rows = []
    by_key = sorted(enumerate(CHANGES.events()), key=lambda each: (each[1][1], each[1][2], each[0]))
    for key, found in itertools.groupby(by_key, key=lambda each: each[1][1]):
        *_, (_, (origin, _, sequence, is_deleted)) = found
        text = None if is_deleted else text_of(origin)
        rows.append({"id": key, "source_lsn": sequence, "deleted": is_deleted, "text": text})
    return pa.Table.from_pylist(rows)


def test_late_repeated_and_deleting_events_are_among_the_changes() -> None:
    events = list(CHANGES.events())
    greatest: Counter[int] = Counter()
    late_count = 0
    for _, key, sequence, _ in events:
        late_count += sequence < greatest[key]
        greatest[key] = max(greatest[key], sequence)
    assert late_count > 5_000
    assert 3_000 < len(events) - len({origin for origin, *_ in events}) < 4_200
    assert all(0 <= number - event[0] < REPEATED_AFTER_MAX for number, event in enumerate(events))
    assert 11_000 < sum(is_deleted for *_, is_deleted in events) < 13_000
    # A repeated event is as its origin was, also where that is in the block before.
    first = {event[0]: event for event in reversed(events)}
    assert all(event == first[event[0]] for event in events)
    # The same again: several processes produce them.
    assert events == list(CHANGES.events())
    assert len({text_of(number) for number in range(5_000)}) == 5_000


def test_a_deletion_is_an_event_and_a_tombstone() -> None:
    (key, value), (again, tombstone) = records_of(3, 7, 12, True)
    assert (key, again, tombstone) == (b'{"id":7}', b'{"id":7}', None)
    assert json.loads(value or b"") == {"op": "d", "before": {"id": 7}, "after": None, "source": {"lsn": 12}}
    [(_, value)] = records_of(3, 7, 12, False)
    assert json.loads(value or b"")["after"] == {"id": 7, "text": text_of(3)}
    assert folded(CHANGES).records_count == sum(len(list(records_of(*event))) for event in CHANGES.events())


def test_the_table_of_a_sort_is_that_of_the_fold_and_each_difference_is_found() -> None:
    table, expected = computed_table(), folded(CHANGES)

    def found(rows: pa.Table) -> list[str]:
        return problems(rows.to_batches(max_chunksize=300), expected)

    assert found(table) == []
    assert found(table.slice(1)) == ["1,999 rows, 2,000 are right"]
    assert found(pa.concat_tables([table.slice(1), table.slice(5, 1)])) == [
        "key 5 has one row where plain Python computes them"
    ]
    (problem,) = found(table.set_column(0, "id", pa.array([2_000, *range(1, 2_000)])))
    assert problem == "key 2000 has no row where plain Python computes them"
    for name, other in (("source_lsn", 1), ("deleted", None), ("text", "x")):
        changed = table.to_pylist()
        changed[9][name] = other
        (problem,) = found(pa.Table.from_pylist(changed, table.schema))
        assert f"key {changed[9]['id']}: " in problem


def test_a_snapshot_has_one_event_of_each_key() -> None:
    snapshot = Changes(70_000, 70_000, is_snapshot=True)
    assert [*snapshot.events()] == [(number, number, number, False) for number in range(70_000)]
    assert folded(snapshot).rows_count == 70_000


def test_memory_of_the_fold_grows_with_the_keys_and_not_with_the_changes() -> None:
    def peak_bytes(count: int) -> int:
        tracemalloc.start()
        try:
            folded(Changes(count, 1_000))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak_bytes(300_000) < 1.3 * peak_bytes(100_000)


def test_tables_of_both_formats_are_compared_batch_by_batch(tmp_path: Path) -> None:
    table, expected = computed_table(), folded(CHANGES)
    delta = TableSpec("delta", str(tmp_path / "delta"), {})
    catalog = tmp_path / "catalog.db"
    iceberg = TableSpec("iceberg", str(tmp_path / "iceberg"), {}, str(catalog))
    theirs = load_catalog("default", type="sql", uri=f"sqlite:///{catalog}", warehouse=f"file://{tmp_path}")
    theirs.create_namespace("lake")
    created = theirs.create_table("lake.clicks", table.schema, location=f"file://{iceberg.url}")
    for part in (table.slice(0, 700), table.slice(700)):
        write_deltalake(delta.url, part, mode="append")
        created.append(part)
    for spec in (delta, iceberg):
        assert problems(spec.batches(), expected) == []
        assert pa.Table.from_batches(spec.batches()).num_rows == spec.rows().num_rows == 2_000
    assert max(batch.num_rows for batch in iceberg_batches(created)) <= 1_300


def test_the_text_has_a_line_for_each_table() -> None:
    observed = Observed({})
    observed.add(KILLS, f"{OTTLA}-delta", {ROUND: 0, "seconds": 7.0, "records": 11_000_000, "kills": 10})
    assert f"| {KILLS} | {OTTLA}-delta | 11,000,000 | 7 | - | - | - | 10 | - | - |" in upserts_table(observed)
