"""The vectorised decoder against the row decoder of `ottla.records`, on generated and on damaged batches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypeAlias, cast
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.model.errors import WireError
from ottla.records.builder import BatchBuilder
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec
from ottla.records.errors import CorruptBatch
from ottla.records.header import ATTRIBUTES_AT, BATCH_OVERHEAD_BYTES, CRC, CRC_AT, read_header
from ottla.records.record import Headers, Record, decode_batch, split_batches
from ottla.spark.arrow import slices
from ottla.spark.arrow.columns import ALL_COLUMNS, arrow_schema
from ottla.spark.arrow.decoder import Decoder
from ottla.spark.arrow.slices import TIMESTAMP_MS_MAX
from ottla.spark.errors import CorruptRecords
from tests.compiled_decoder import FORMS, decoding_with
from tests.property.property_settings import examples_max

Row: TypeAlias = tuple[int, bytes | None, bytes | None, Headers, int]
Batch: TypeAlias = tuple[list[Row], int, Codec, bool, bool]


@pytest.fixture(params=FORMS, autouse=True, scope="module")
def form(request: pytest.FixtureRequest) -> Iterator[None]:
    with decoding_with(request.param):
        yield


# Sizes around every varint border, and around the 12 bytes that Arrow treats specially elsewhere.
lengths = st.one_of(st.integers(0, 80), st.sampled_from([63, 64, 127, 128, 8191, 8192, 20_000]))
contents = st.one_of(st.none(), st.builds(lambda byte, size: bytes([byte]) * size, st.integers(0, 255), lengths))
headers = st.one_of(
    st.just(()),
    st.lists(st.tuples(st.text(max_size=5), contents), max_size=3).map(tuple),
    st.integers(30, 40).map(lambda count: (("k", b"v"),) * count),
)
# Bounded by the range of 64-bit microseconds.
timestamps = st.one_of(st.integers(0, 2_000_000_000_000), st.sampled_from([-1, 0, 9_000_000_000_000_000]))
gaps = st.one_of(st.just(1), st.sampled_from([2, 64, 8192, 100_000]))
rows = st.tuples(timestamps, contents, contents, headers, gaps)
batches = st.tuples(
    st.lists(rows, min_size=1, max_size=12),
    st.integers(1, 20),
    st.sampled_from(Codec),
    st.booleans(),
    st.integers(0, 9).map(lambda number: number == 0),
)


def build(batch_list: list[Batch]) -> bytes:
    data = bytearray()
    base_offset = 0
    for row_list, repeats, codec, is_append_time, is_control in batch_list:
        builder = BatchBuilder()
        delta = -1
        for timestamp_ms, key, value, header_list, gap in row_list * repeats:
            delta += gap
            builder.append(timestamp_ms, key, value, header_list, offset_delta=delta)
        data += builder.build(
            codec=codec,
            base_offset=base_offset,
            log_append_time_ms=1_234_567 if is_append_time else None,
            is_control=is_control,
        )
        base_offset += delta + 1
    return bytes(data)


def in_a_column(timestamp_ms: int) -> int:
    """A column of microseconds ends in the year 294,247; times near or after it become its last moment."""
    if abs(timestamp_ms) > 0.99 * TIMESTAMP_MS_MAX:
        return TIMESTAMP_MS_MAX if timestamp_ms > 0 else -TIMESTAMP_MS_MAX
    return timestamp_ms


def by_rows(data: bytes, first_offset: int = 0, offset_limit: int = 2**63 - 1) -> list[dict[str, object]]:
    """The rows of the official connector for these batches."""

    def rows_of() -> Iterator[tuple[Record, int]]:
        for batch in split_batches(memoryview(data)):
            head = read_header(batch)
            if not head.is_control:
                for record in decode_batch(batch):
                    yield record, int(head.is_log_append_time)

    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": "orders",
            "partition": 7,
            "offset": record.offset,
            "timestamp": in_a_column(record.timestamp_ms) * 1000,
            "timestampType": timestamp_type,
            "headers": [{"key": name, "value": content} for name, content in record.headers] or None,
        }
        for record, timestamp_type in rows_of()
        if first_offset <= record.offset < offset_limit
    ]


def rows_with_times_that_fit(data: bytes) -> list[dict[str, object]] | None:
    """None where a record's time, its batch's and a delta, fits no int64."""
    try:
        return by_rows(data)
    except CorruptBatch as error:
        if "does not fit its type" not in str(error):
            raise
        return None


def by_columns(data: bytes, first_offset: int = 0, offset_limit: int = 2**63 - 1) -> list[dict[str, object]]:
    decoder = Decoder("orders", 7, ALL_COLUMNS)
    rows: list[dict[str, object]] = []
    for batch in decoder.decode(data, first_offset, offset_limit):
        batch.validate(full=True)
        assert batch.schema == arrow_schema(ALL_COLUMNS)
        index = batch.schema.get_field_index("timestamp")
        # As numbers: Python's datetime ends in the year 9999.
        plain = batch.set_column(index, "timestamp", batch.column("timestamp").cast(pa.int64()))
        rows += plain.to_pylist()
    return rows


@settings(max_examples=examples_max(150))
@given(st.lists(batches, min_size=1, max_size=4))
def test_columns_equal_rows_for_any_batches(batch_list: list[Batch]) -> None:
    data = build(batch_list)
    assert by_columns(data) == by_rows(data)


@settings(max_examples=examples_max(80))
@given(st.lists(batches, min_size=1, max_size=6), st.integers(1, 2000), st.integers(1, 4000))
def test_columns_equal_rows_for_slices_of_any_size(batch_list: list[Batch], slice_bytes: int, room_bytes: int) -> None:
    data = build(batch_list)
    with mock.patch.multiple(slices, SLICE_BYTES=slice_bytes, _ROOM_BYTES_MAX=room_bytes):
        assert by_columns(data) == by_rows(data)


@settings(max_examples=examples_max(50))
@given(st.lists(batches, min_size=1, max_size=3), st.data())
def test_columns_equal_rows_for_any_offset_range(batch_list: list[Batch], draw: st.DataObject) -> None:
    data = build(batch_list)
    end = list(split_batches(memoryview(data)))[-1]
    first_offset = draw.draw(st.integers(0, read_header(end).next_offset))
    offset_limit = draw.draw(st.integers(first_offset, read_header(end).next_offset + 1))
    assert by_columns(data, first_offset, offset_limit) == by_rows(data, first_offset, offset_limit)


@settings(max_examples=examples_max(20))
@given(st.lists(rows, min_size=1, max_size=6), st.integers(256, 400), st.integers(1, 5))
def test_columns_equal_rows_for_many_small_batches(row_list: list[Row], batch_count: int, variety: int) -> None:
    kinds = [row_list[: 1 + index % len(row_list)] for index in range(variety)]
    data = build([(kinds[index % variety], 1, Codec.NONE, False, False) for index in range(batch_count)])
    assert by_columns(data) == by_rows(data)


@settings(max_examples=examples_max(20))
@given(st.integers(100, 20_000), st.sampled_from([0, 20, 100, 9000]), st.sampled_from([0, 1, 50]))
def test_columns_equal_rows_for_long_runs_with_disturbances(count: int, size: int, odd_every: int) -> None:
    builder = BatchBuilder()
    for index in range(min(count, 3_000_000 // (size + 10))):
        extra = 1 if odd_every and index % odd_every == odd_every - 1 else 0
        builder.append(1000 + index // 100, None, b"v" * (size + extra), ())
    data = bytes(builder.build())
    assert by_columns(data) == by_rows(data)


def mutated(data: bytes, changes: list[tuple[int, int]]) -> bytes:
    """One batch with bytes changed in its records, and a checksum that agrees with them."""
    batch = bytearray(data)
    for position, byte in changes:
        batch[BATCH_OVERHEAD_BYTES + position % (len(batch) - BATCH_OVERHEAD_BYTES)] = byte
    CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return bytes(batch)


hostile_bytes = st.one_of(st.integers(0, 255), st.sampled_from([0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF]))


@settings(max_examples=examples_max(400))
@given(
    st.lists(rows, min_size=1, max_size=5),
    st.sampled_from(Codec),
    st.lists(st.tuples(st.integers(0, 400), hostile_bytes), min_size=1, max_size=12),
)
@example([(0, b"k", b"v", (), 1)], Codec.NONE, [(index, 0xFF) for index in range(20)])
@example([(0, b"k", b"v", (), 1)] * 4, Codec.NONE, [(index, 0x80) for index in range(40)])
def test_a_hostile_batch_is_refused_or_read_as_the_row_decoder_reads_it(
    row_list: list[Row],
    codec: Codec,
    changes: list[tuple[int, int]],
) -> None:
    data = mutated(build([(row_list, 1, codec, False, False)]), changes)
    try:
        columns = by_columns(data)
    except CorruptRecords as caught:
        error = caught
    else:
        assert columns == by_rows(data)
        return
    assert (error.topic, error.partition, error.offset) == ("orders", 7, 0)


@settings(max_examples=examples_max(200))
@given(
    st.lists(rows, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, BATCH_OVERHEAD_BYTES - 1), hostile_bytes), min_size=1, max_size=6),
)
@example([(0, None, None, (), 1)], [(BATCH_OVERHEAD_BYTES - 1, 0)])
# The second record's time, the base and its delta, fits no int64.
@example([(0, None, None, (), 1), (9_000_000_000_000_000, None, None, (), 1)], [(27, 127), (28, 225)])
def test_a_hostile_head_is_refused_or_read_as_the_row_decoder_reads_it(
    row_list: list[Row],
    changes: list[tuple[int, int]],
) -> None:
    batch = bytearray(build([(row_list, 1, Codec.NONE, False, False)]))
    for position, byte in changes:
        batch[position] = byte
    CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    try:
        columns = by_columns(bytes(batch))
    except CorruptRecords:
        return
    expected = rows_with_times_that_fit(bytes(batch))
    if expected is None:
        # In a column it is the last moment that it can hold, as all times near that are.
        assert TIMESTAMP_MS_MAX * 1000 in [abs(cast(int, row["timestamp"])) for row in columns]
    else:
        assert columns == expected


@settings(max_examples=examples_max(300))
@given(st.binary(max_size=300))
def test_any_bytes_are_refused_or_hold_nothing(data: bytes) -> None:
    with contextlib.suppress(WireError):
        assert by_columns(data) == []
