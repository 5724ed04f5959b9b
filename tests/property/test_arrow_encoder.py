"""The vectorised encoder: what it writes is what the row decoder reads."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.compression import Codec
from ottla.records.header import read_header
from ottla.records.record import Record, check_batch, decode_batch
from ottla.spark.arrow.columns import HEADERS_TYPE
from ottla.spark.arrow.encoder import RecordColumns, encode_batch, row_sizes_max, split_rows

lengths = st.one_of(st.integers(0, 80), st.sampled_from([63, 64, 127, 128, 8191, 8192, 20_000]))
contents = st.one_of(st.none(), st.builds(lambda byte, size: bytes([byte]) * size, st.integers(0, 255), lengths))
headers = st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=5), contents), max_size=3))
timestamps = st.one_of(
    st.integers(0, 2_000_000_000_000), st.sampled_from([-1, -9_000_000_000_000_000, 9_000_000_000_000_000])
)
rows = st.lists(st.tuples(timestamps, contents, contents, headers), min_size=1, max_size=20)
Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]


def as_columns(row_list: list[Row], *, with_headers: bool) -> RecordColumns:
    header_column = pa.array(
        [None if row[3] is None else [{"key": k, "value": v} for k, v in row[3]] for row in row_list], HEADERS_TYPE
    )
    return RecordColumns(
        pa.array([row[1] for row in row_list], pa.binary()),
        pa.array([row[2] for row in row_list], pa.binary()),
        header_column if with_headers else None,
        np.array([row[0] for row in row_list], np.int64),
    )


def expected(row_list: list[Row], *, with_headers: bool) -> list[Record]:
    return [
        Record(index, timestamp_ms, key, value, tuple(header_list or ()) if with_headers else ())
        for index, (timestamp_ms, key, value, header_list) in enumerate(row_list)
    ]


@settings(max_examples=150)
@given(rows, st.sampled_from(Codec), st.booleans(), st.integers(1, 30))
def test_the_row_decoder_reads_back_what_was_encoded(
    row_list: list[Row], codec: Codec, with_headers: bool, repeats: int
) -> None:
    row_list = row_list * repeats
    batch = encode_batch(as_columns(row_list, with_headers=with_headers), codec)
    check_batch(memoryview(batch))
    assert decode_batch(memoryview(batch)) == expected(row_list, with_headers=with_headers)
    assert read_header(batch).max_timestamp_ms == max(row[0] for row in row_list)


@settings(max_examples=60)
@given(rows, st.data())
def test_sliced_and_taken_columns_encode_only_their_rows(row_list: list[Row], draw: st.DataObject) -> None:
    start = draw.draw(st.integers(0, len(row_list) - 1))
    end = draw.draw(st.integers(start + 1, len(row_list)))
    columns = as_columns(row_list, with_headers=True)
    picked = draw.draw(st.permutations(range(len(row_list))))
    sliced = encode_batch(columns[start:end])
    taken = encode_batch(columns.take(np.array(picked, np.int64)))
    assert decode_batch(memoryview(sliced)) == expected(row_list[start:end], with_headers=True)
    assert decode_batch(memoryview(taken)) == expected([row_list[index] for index in picked], with_headers=True)


@settings(max_examples=60)
@given(rows, st.integers(100, 30_000))
def test_split_rows_cover_all_rows_in_batches_below_the_limit(row_list: list[Row], size_bytes_max: int) -> None:
    columns = as_columns(row_list, with_headers=True)
    parts = list(split_rows(row_sizes_max(columns), size_bytes_max))
    covered = [index for part in parts for index in range(part.start, part.stop)]
    assert covered == list(range(len(row_list)))
    for part in parts:
        size = len(encode_batch(columns[part]))
        assert size <= size_bytes_max or part.stop - part.start == 1
