"""The encoder of columns: both forms write the same bytes, and the row decoder reads back what was encoded."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.compression import Codec
from ottla.records.header import read_header
from ottla.records.record import Record, check_batch, decode_batch
from ottla.spark.arrow.columns import HEADERS_TYPE
from ottla.spark.arrow.compiled_rows import load_row_library
from ottla.spark.arrow.encoder import RecordRows, split_rows
from ottla.spark.arrow.record_columns import RecordColumns, as_binary, as_headers
from ottla.spark.errors import UnencodableColumn
from tests.compiled_decoder import COMPILED, FORMS, NUMPY, compile_library
from tests.compiled_encoder import SOURCE, encoding_with, row_library
from tests.property.property_settings import examples_max, exhaustive

lengths = st.one_of(st.integers(0, 80), st.sampled_from([63, 64, 127, 128, 8191, 8192, 20_000]))
contents = st.one_of(st.none(), st.builds(lambda byte, size: bytes([byte]) * size, st.integers(0, 127), lengths))
headers = st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=5), contents), max_size=3))
timestamps = st.one_of(
    st.integers(0, 2_000_000_000_000), st.sampled_from([-1, -9_000_000_000_000_000, 9_000_000_000_000_000])
)
rows = st.lists(st.tuples(timestamps, contents, contents, headers), min_size=1, max_size=20)
Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]

TYPES: Final = (pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.binary_view(), pa.string_view())
PAD: Final[Row] = (5, b"before", b"behind", [("pad", b"pad")])

# Cells at the very end of readable memory: a read of one byte too many kills this process.
GUARDED: Final = """
import ctypes, mmap, random, sys
from pathlib import Path
import numpy as np
import pyarrow as pa
from ottla.spark.arrow.columns import HEADERS_TYPE
from ottla.spark.arrow.compiled_rows import load_row_library
from ottla.spark.arrow.record_columns import RecordColumns

library = load_row_library(Path(sys.argv[1]))
libc = ctypes.CDLL(None, use_errno=True)
page, source, kept, refused = mmap.PAGESIZE, random.Random(7), [], 0

class Place:
    # What is copied here ends where the next page cannot be read.
    def __init__(self):
        self.memory = mmap.mmap(-1, 2 * page)
        self.bytes = np.frombuffer(self.memory, np.uint8)
        assert libc.mprotect(ctypes.c_void_p(self.bytes.ctypes.data + page), ctypes.c_size_t(page), 0) == 0

    def copy(self, buffer):
        if buffer is None:
            return None
        here = self.bytes[page - buffer.size : page]
        here[:] = np.frombuffer(buffer, np.uint8)
        return pa.py_buffer(here)

places = [Place() for _ in range(3)]

def guarded(count, damage):
    cells = [source.choice((None, b"", b"x", b"y" * 130)) for _ in range(count)]
    kind = source.choice((pa.binary(), pa.large_binary()))
    whole = pa.array([b"first", *cells], kind)
    width = np.int32 if kind == pa.binary() else np.int64
    offsets = np.frombuffer(whole.buffers()[1], width)[: count + 2].copy()
    data = pa.py_buffer(b"first" + b"".join(cell or b"" for cell in cells))
    validity = whole.buffers()[0]
    validity = None if validity is None else pa.py_buffer(bytes(validity)[: (count + 8) // 8])
    buffers = [place.copy(each) for place, each in zip(places, (validity, pa.py_buffer(offsets.tobytes()), data))]
    column = pa.Array.from_buffers(kind, count + 1, buffers)[1:]
    if damage:  # afterwards: pyarrow looks at the first and the last offset
        np.frombuffer(buffers[1], width)[source.randrange(count + 2)] += source.choice((-200, -6, -1, 1, 7, 200))
    return column

for turn in range(int(sys.argv[2])):
    count = source.randrange(1, 20)
    column = guarded(count, turn % 2)
    headers = None
    if turn % 3 == 0:
        lists = pa.array(sorted(source.randrange(count + 1) for _ in range(count)) + [count], pa.int32())
        names = pa.array(["n"] * count)
        values = column.cast(pa.binary()) if turn % 2 == 0 else pa.nulls(count, pa.binary())
        headers = pa.ListArray.from_arrays(lists, pa.StructArray.from_arrays([names, values], ["key", "value"]))
    rows = library.rows([RecordColumns(column, column, headers, np.zeros(count, np.int64))])
    try:
        sizes = rows.sizes_max()
        rows.key_hashes(), rows.records(np.arange(count), int(sizes.sum()))
    except pa.ArrowInvalid:
        refused += 1
print("refused", refused)
"""


def as_columns(row_list: list[Row], kinds: tuple[pa.DataType, pa.DataType], *, with_headers: bool) -> RecordColumns:
    """As a slice of longer columns, as Arrow has them anywhere."""
    padded = [PAD, *row_list, PAD]
    header_column = pa.array(
        [None if row[3] is None else [{"key": k, "value": v} for k, v in row[3]] for row in padded], HEADERS_TYPE
    )[1:-1]
    key, value = (
        as_binary(pa.array([row[index] for row in padded], pa.binary()).cast(kind), "any")[1:-1]
        for index, kind in zip((1, 2), kinds, strict=True)
    )
    stamps = np.array([row[0] for row in row_list], np.int64)
    return RecordColumns(key, value, as_headers(header_column) if with_headers else None, stamps)


def in_parts(row_list: list[Row], cuts: list[int]) -> RecordRows:
    """Parts that end at `cuts`; each second one has its headers in a separate column, or none."""
    bounds = sorted({0, len(row_list), *(cut % (len(row_list) + 1) for cut in cuts)})
    return RecordRows(
        [
            as_columns(
                row_list[start:end],
                (TYPES[start % len(TYPES)], TYPES[end % len(TYPES)]),
                with_headers=any(row[3] for row in row_list[start:end]),
            )
            for start, end in itertools.pairwise(bounds)
        ]
    )


def expected(row_list: list[Row]) -> list[Record]:
    return [
        Record(index, timestamp_ms, key, value, tuple(header_list or ()))
        for index, (timestamp_ms, key, value, header_list) in enumerate(row_list)
    ]


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=examples_max(100))
@given(rows, st.sampled_from(Codec), st.lists(st.integers(0, 600), max_size=3), st.integers(1, 30))
def test_the_row_decoder_reads_the_encoded_rows(
    form: str, row_list: list[Row], codec: Codec, cuts: list[int], repeats: int
) -> None:
    row_list = row_list * repeats
    with encoding_with(form):
        batch = in_parts(row_list, cuts).encode_batch(np.arange(len(row_list)), codec)
    check_batch(memoryview(batch))
    assert decode_batch(memoryview(batch)) == expected(row_list)
    assert read_header(batch).max_timestamp_ms == max(row[0] for row in row_list)


@settings(max_examples=examples_max(200))
@given(rows, st.lists(st.integers(0, 20), max_size=3), st.data())
def test_both_forms_write_the_same_bytes_for_any_rows_of_any_parts(
    row_list: list[Row], cuts: list[int], draw: st.DataObject
) -> None:
    numbers = np.array(draw.draw(st.lists(st.integers(0, len(row_list) - 1), min_size=1, max_size=30)), np.int64)
    found = []
    for form in (NUMPY, COMPILED):
        with encoding_with(form):
            columns = in_parts(row_list, cuts)
            batch = bytes(columns.encode_batch(numbers))
            found.append((batch, columns.sizes_max.tolist(), columns.key_hashes().tolist()))
    assert found[0] == found[1]
    assert decode_batch(memoryview(found[0][0])) == expected([row_list[number] for number in numbers])


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=examples_max(60))
@given(rows, st.integers(100, 30_000))
def test_split_rows_cover_all_rows_in_batches_below_the_limit(
    form: str, row_list: list[Row], size_bytes_max: int
) -> None:
    with encoding_with(form):
        columns = in_parts(row_list, [])
        parts = list(split_rows(columns.sizes_max, size_bytes_max))
        covered = [index for part in parts for index in range(part.start, part.stop)]
        assert covered == list(range(len(row_list)))
        for part in parts:
            size = len(columns.encode_batch(np.arange(part.start, part.stop)))
            assert size <= size_bytes_max or part.stop - part.start == 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("entry", [{"key": None, "value": b"v"}, None], ids=["null key", "null header"])
def test_header_without_a_key_is_refused(form: str, entry: dict[str, object] | None) -> None:
    values = pa.array([b"v", b"w"])
    column = pa.array([[{"key": "k", "value": b"v"}], [entry]], HEADERS_TYPE)
    with encoding_with(form), pytest.raises(UnencodableColumn, match="header's key is null"):
        RecordRows([RecordColumns(values, values, column, np.zeros(2, np.int64))])


@pytest.mark.parametrize("form", FORMS)
def test_cell_of_a_null_list_or_a_null_cell_is_not_written(form: str) -> None:
    """Arrow allows any bytes where a column says null."""
    data = pa.py_buffer(b"abcdef")
    cells = pa.Array.from_buffers(
        pa.binary(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([0, 3, 6], np.int32)), data]
    )
    names = pa.array(["a", "b"])
    elements = pa.StructArray.from_arrays([names, cells], ["key", "value"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), elements)
    hidden = pa.ListArray.from_buffers(
        HEADERS_TYPE, 2, [pa.py_buffer(b"\x02"), lists.buffers()[1]], children=[elements.cast(HEADERS_TYPE.value_type)]
    )
    with encoding_with(form):
        batch = RecordRows([RecordColumns(cells, cells, hidden, np.zeros(2, np.int64))]).encode_batch(np.arange(2))
    assert decode_batch(memoryview(batch)) == [
        Record(0, 0, None, None, ()),
        Record(1, 0, b"def", b"def", (("b", b"def"),)),
    ]


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_2_gib_are_refused_before_they_are_written(form: str) -> None:
    half = pa.py_buffer(np.zeros((1 << 30) + 1, np.uint8))  # untouched memory takes no space
    cells = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(np.array([0, half.size], np.int32)), half])
    with encoding_with(form):
        columns = RecordRows([RecordColumns(cells, cells, None, np.zeros(1, np.int64))])
        with pytest.raises(UnencodableColumn, match="2 GiB"):
            columns.encode_batch(np.arange(1))


@exhaustive
def test_compiled_form_reads_nothing_beyond_a_column_and_refuses_unsound_offsets(tmp_path: Path) -> None:
    library = compile_library(SOURCE.read_text(), tmp_path)
    count = examples_max(20_000)
    command = [sys.executable, "-c", GUARDED, str(library), str(count)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout.split()[-1]) > count // 20, "many of the damaged offsets are unsound"


def test_compiled_form_writes_nothing_beyond_its_buffer() -> None:
    column = pa.array([b"abc"] * 5, pa.binary())
    compiled = row_library().rows([RecordColumns(column, column, None, np.zeros(5, np.int64))])
    whole = bytes(compiled.records(np.arange(5), int(compiled.sizes_max().sum())))
    for room in range(len(whole)):
        memory = np.full(len(whole) + 100, 7, np.uint8)
        with pytest.raises(AssertionError, match="room"):
            compiled.write(np.arange(5), memory[:room])
        assert (memory[room:] == 7).all(), room
    memory = np.full(len(whole) + 100, 7, np.uint8)
    assert compiled.write(np.arange(5), memory) == len(whole)
    assert bytes(memory) == whole + b"\7" * 100


def test_missing_row_is_refused() -> None:
    column = pa.array([b"abc"] * 5, pa.binary())
    compiled = row_library().rows([RecordColumns(column, column, None, np.zeros(5, np.int64))])
    for number in (-1, 5, 1 << 40):
        with pytest.raises(pa.ArrowInvalid):
            compiled.records(np.array([0, number]), 1000)


@pytest.mark.parametrize("other", ["int32_t ottla_record_rows_interface(void) { return 0; }", "int nothing;"])
def test_library_of_another_source_is_not_used(other: str, tmp_path: Path) -> None:
    assert load_row_library(compile_library(f"#include <stdint.h>\n{other}", tmp_path)) is None


def test_missing_library_is_not_used(tmp_path: Path) -> None:
    assert load_row_library(tmp_path / "missing.so") is None
