"""Sets of messages into batches, beside records that are encoded one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.builder import BatchBuilder, build_batch, record_size_bytes_max
from ottla.records.compression import Codec
from ottla.records.header import BATCH_OVERHEAD_BYTES, read_header
from ottla.records.record import Headers, Record, decode_batch
from tests.property.property_settings import examples_max
from tests.unit.records.plain_encoder import plain_records

# Lengths and deltas on both sides of the places where a varint becomes longer.
LENGTHS = st.sampled_from([0, 1, 5, 63, 64, 65, 100, 8191, 8192])
COUNTS = st.sampled_from([1, 2, 3, 4, 5, 63, 64, 65, 66, 130, 300])
HEADERS: st.SearchStrategy[Headers] = st.lists(
    st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=2
).map(tuple)


@st.composite
def columns_of_records(draw: st.DrawFn) -> list[Record]:
    """Records whose fields are each one for all, of one length for all, or of any length and null."""
    count = draw(COUNTS)

    def contents() -> list[bytes | None]:
        kind = draw(st.sampled_from(["null", "one", "one length", "any"]))
        if kind == "null":
            return [None] * count
        length = draw(LENGTHS)
        if kind == "one":
            return [b"=" * length] * count
        if kind == "one length":
            return [(b"%d" % number).rjust(length, b"-")[:length] for number in range(count)]
        lengths = st.none() | st.integers(0, 70) if count > 70 else st.none() | LENGTHS
        sizes = draw(st.lists(lengths, min_size=1, max_size=8))
        return [None if (size := sizes[number % len(sizes)]) is None else b"%" * size for number in range(count)]

    steps_ms = draw(st.lists(st.sampled_from([0, 0, 1, -1, 40, 70, -9000, 1 << 40]), min_size=1, max_size=5))
    some_headers = draw(st.lists(HEADERS, min_size=1, max_size=3))
    timestamp_ms = draw(st.sampled_from([-1, 0, 1_700_000_000_000]))
    records: list[Record] = []
    for number, (key, value) in enumerate(zip(contents(), contents(), strict=True)):
        records.append(Record(number, timestamp_ms, key, value, some_headers[number % len(some_headers)]))
        timestamp_ms += steps_ms[number % len(steps_ms)]
    return records


@settings(max_examples=examples_max(200))
@given(columns_of_records())
def test_batch_holds_the_bytes_of_its_records_encoded_one_by_one(records: list[Record]) -> None:
    batch = build_batch(records)
    assert bytes(batch[BATCH_OVERHEAD_BYTES:]) == plain_records(records)
    assert decode_batch(memoryview(batch)) == records
    header = read_header(batch)
    assert header.base_timestamp_ms == records[0].timestamp_ms
    assert header.max_timestamp_ms == max(record.timestamp_ms for record in records)


@settings(max_examples=examples_max(50))
@given(columns_of_records(), st.integers(1, 1000))
def test_batch_with_gaps_holds_the_bytes_of_its_records_too(records: list[Record], gap: int) -> None:
    builder = BatchBuilder()
    deltas = [number if number < len(records) // 2 else number + gap for number in range(len(records))]
    for delta, record in zip(deltas, records, strict=True):
        builder.append(record.timestamp_ms, record.key, record.value, record.headers, offset_delta=delta)
    batch = builder.build()
    assert bytes(batch[BATCH_OVERHEAD_BYTES:]) == plain_records(records, deltas)
    assert read_header(batch).last_offset_delta == deltas[-1]


def test_set_after_a_gap_continues_after_it() -> None:
    builder = BatchBuilder()
    builder.append(0, None, b"a", offset_delta=7)
    builder.extend(0, [b"b", b"c"])
    builder.append(0, None, b"d")
    records = decode_batch(memoryview(builder.build()))
    assert [(record.offset, record.value) for record in records] == [(7, b"a"), (8, b"b"), (9, b"c"), (10, b"d")]


@pytest.mark.parametrize("count", [8191, 8192, 8193, 66_000])
def test_long_batch_is_encoded_beyond_the_deltas_that_are_kept(count: int) -> None:
    builder = BatchBuilder()
    assert builder.extend(5, [b"v"] * (count - 1)) == count - 1
    builder.append(5, None, b"last")
    records = [Record(0, 5, None, b"v")] * (count - 1) + [Record(0, 5, None, b"last")]
    assert bytes(builder.build()[BATCH_OVERHEAD_BYTES:]) == plain_records(records)


@settings(max_examples=examples_max(100))
@given(
    st.lists(st.none() | st.binary(max_size=200), min_size=1, max_size=600),
    st.none() | st.binary(max_size=9),
    HEADERS,
    st.integers(300, 20_000),
    st.booleans(),
)
def test_set_is_split_into_batches_within_the_limit_each_as_full_as_can_be(
    values: list[bytes | None], key: bytes | None, headers: Headers, limit_bytes: int, each_has_a_key: bool
) -> None:
    keys = [key] * len(values)
    found: list[Record] = []
    while len(found) < len(values):
        builder = BatchBuilder()
        done = len(found)
        if each_has_a_key:
            count = builder.extend(9, values, keys=keys, headers=headers, start=done, size_bytes_max=limit_bytes)
        else:
            count = builder.extend(9, values, key=key, headers=headers, start=done, size_bytes_max=limit_bytes)
        batch = builder.build()
        assert len(batch) <= builder.size_bytes <= limit_bytes
        if done + count < len(values):
            more_bytes = record_size_bytes_max(key, values[done + count], headers)
            assert builder.size_bytes + more_bytes > limit_bytes
        found += decode_batch(memoryview(batch))
    assert [record.value for record in found] == values
    assert {(record.key, record.headers, record.timestamp_ms) for record in found} == {(key, headers, 9)}


def test_message_that_does_not_fit_is_left_out_and_the_batch_is_as_before() -> None:
    builder = BatchBuilder()
    assert builder.extend(0, [b"a", b"b" * 1000, b"c"], size_bytes_max=300) == 1
    assert builder.extend(0, [b"b" * 1000], size_bytes_max=300) == 0
    assert builder.records_count == 1
    assert [record.value for record in decode_batch(memoryview(builder.build()))] == [b"a"]


@pytest.mark.parametrize("codec", Codec)
def test_set_is_the_same_as_its_messages_one_by_one(codec: Codec) -> None:
    values = [b"value %d" % number for number in range(500)]
    keys = [None if number % 3 else b"key %d" % number for number in range(500)]
    together, single = BatchBuilder(), BatchBuilder()
    together.extend(77, values, keys=keys, headers=(("h", b"x"),))
    for key, value in zip(keys, values, strict=True):
        single.append(77, key, value, (("h", b"x"),))
    assert together.build(codec=codec) == single.build(codec=codec)
    assert together.size_bytes == single.size_bytes
    assert together.records_count == single.records_count == 500


def test_buffer_that_changes_after_it_was_added_is_sent_as_it_was() -> None:
    builder = BatchBuilder()
    one, two, key = bytearray(b"one"), bytearray(b"two"), bytearray(b"key")
    builder.append(0, key, one)  # type: ignore[arg-type]
    builder.extend(0, [two, memoryview(two)], key=key)  # type: ignore[list-item,arg-type]
    for buffer in (one, two, key):
        buffer += b" and more"
    expected = [(b"key", b"one"), (b"key", b"two"), (b"key", b"two")]
    assert [(record.key, record.value) for record in decode_batch(memoryview(builder.build()))] == expected


@pytest.mark.parametrize("wrong", ["text", 7, ["list"]])
def test_value_that_is_not_bytes_is_refused_before_a_record_is_added(wrong: object) -> None:
    builder = BatchBuilder()
    with pytest.raises(TypeError, match=f"this one is {type(wrong).__name__}"):
        builder.append(0, None, wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=f"this one is {type(wrong).__name__}"):
        builder.append(0, wrong, b"value")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=f"this one is {type(wrong).__name__}"):
        builder.extend(0, [b"fine"] * 300 + [wrong])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=f"this one is {type(wrong).__name__}"):
        builder.extend(0, [b"fine"] * 2, keys=[b"key", wrong])  # type: ignore[list-item]
    assert (builder.records_count, builder.size_bytes) == (0, BATCH_OVERHEAD_BYTES)
