"""The study of upserts: its changes, and its comparison with the table that plain Python computes."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import pyarrow as pa
from bench.client.contenders.names import OTTLA
from bench.study import ROUND, Observed
from bench.upserts.changes import Changes, folded, problems, records_count, records_of, text_of
from bench.upserts.study import KILLS, upserts_table

CHANGES = Changes(20_000, 2_000)


def computed_table() -> pa.Table:
    """By a sort instead of a loop: the last of the greatest sequences."""
    events = CHANGES.events()
    rows = []
    by_key = sorted(enumerate(events), key=lambda each: (each[1][1], each[1][2], each[0]))
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
    assert late_count > 1_000
    assert len(events) - len({origin for origin, *_ in events}) > 400
    assert 1_600 < sum(is_deleted for *_, is_deleted in events) < 2_400
    # The same again: several processes produce them.
    assert events == list(CHANGES.events())
    assert len({text_of(number) for number in range(5_000)}) == 5_000


def test_a_deletion_is_an_event_and_a_tombstone() -> None:
    (key, value), (again, tombstone) = records_of(3, 7, 12, True)
    assert (key, again, tombstone) == (b'{"id":7}', b'{"id":7}', None)
    assert json.loads(value or b"") == {"op": "d", "before": {"id": 7}, "after": None, "source": {"lsn": 12}}
    [(_, value)] = records_of(3, 7, 12, False)
    assert json.loads(value or b"")["after"] == {"id": 7, "text": text_of(3)}
    events = CHANGES.events()
    assert records_count(events) == sum(len(list(records_of(*event))) for event in events)


def test_the_table_of_a_sort_is_that_of_the_fold_and_each_difference_is_found() -> None:
    events, table = CHANGES.events(), computed_table()
    expected = folded(events)
    assert problems(table, expected, events) == []
    assert problems(table.slice(1), expected, events) == ["1,999 rows, 2,000 are right"]
    twice = pa.concat_tables([table.slice(1), table.slice(5, 1)])
    assert len(problems(twice, expected, events)) == 1
    for name, other in (("source_lsn", 1), ("deleted", None), ("text", "x")):
        changed = table.to_pylist()
        changed[9][name] = other
        (problem,) = problems(pa.Table.from_pylist(changed, table.schema), expected, events)
        assert f"key {changed[9]['id']}: " in problem


def test_the_text_has_a_line_for_each_table() -> None:
    observed = Observed({})
    observed.add(KILLS, f"{OTTLA}-delta", {ROUND: 0, "seconds": 7.0, "records": 11_000_000, "kills": 10})
    assert f"| {KILLS} | {OTTLA}-delta | 11,000,000 | 7 | - | - | - | 10 | - | - |" in upserts_table(observed)
