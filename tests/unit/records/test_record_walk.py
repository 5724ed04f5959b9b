"""A walk over the records of a batch against what the decoder finds in them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records.builder import build_batch
from ottla.records.errors import CorruptBatch
from ottla.records.header import BATCH_OVERHEAD_BYTES
from ottla.records.record import Record
from ottla.records.record_walk import FaultKind, RecordFault, WalkRules, walk_records, walk_records_in_python

RECORD = st.builds(
    Record,
    st.just(0),
    st.one_of(st.just(-1), st.integers(0, 2**42)),
    st.one_of(st.none(), st.binary(max_size=200)),
    st.one_of(st.none(), st.binary(max_size=200)),
    st.lists(st.tuples(st.text(max_size=3), st.none()), max_size=2).map(tuple),
)


def body_of(records: list[Record]) -> bytes:
    return bytes(build_batch(records)[BATCH_OVERHEAD_BYTES:])


@given(records=st.lists(RECORD, min_size=1, max_size=20), lowest_ms=st.integers(0, 2**42), requires_keys=st.booleans())
def test_walk_finds_what_breaks_the_rules(records: list[Record], lowest_ms: int, requires_keys: bool) -> None:
    rules = WalkRules(requires_keys, lowest_ms, lowest_ms + 2**40)
    expected = []
    for number, record in enumerate(records):
        if requires_keys and record.key is None:
            expected.append(RecordFault(number, FaultKind.NO_KEY, record.timestamp_ms))
        elif record.timestamp_ms != -1 and not lowest_ms <= record.timestamp_ms <= lowest_ms + 2**40:
            expected.append(RecordFault(number, FaultKind.TIMESTAMP, record.timestamp_ms))
    walked = walk_records(body_of(records), len(records), records[0].timestamp_ms, rules)
    assert walked.faults == expected
    assert walked.faults_count == len(expected)
    assert walked.timestamp_faults_count == sum(fault.kind is FaultKind.TIMESTAMP for fault in expected)
    assert walked == walk_records_in_python(body_of(records), len(records), records[0].timestamp_ms, rules)
    assert walked.max_timestamp_ms == max(record.timestamp_ms for record in records)


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_walk_refuses_another_count_of_records_than_there_are(count: int) -> None:
    body = body_of([Record(0, 5, b"k", b"v"), Record(0, 5, b"k", b"v")])
    with pytest.raises(CorruptBatch):
        walk_records(body, count, 5, WalkRules())


@given(data=st.data())
def test_damaged_records_are_walked_or_refused_and_nothing_else_happens(data: st.DataObject) -> None:
    records = [Record(0, 5, b"key", b"v" * 90), Record(0, 7, None, b"v")]
    body = bytearray(body_of(records))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptBatch):
        walk_records(bytes(body[: data.draw(st.integers(0, len(body)))]), 2, 5, WalkRules(requires_keys=True))
