"""The compiled reader of records against numpy's: the same fields, the same refusals, and no byte beyond a batch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.builder import build_batch
from ottla.records.header import BATCH_OVERHEAD_BYTES
from ottla.records.record import Record
from ottla.spark.arrow.compiled_fields import load_library
from ottla.spark.arrow.record_fields import ByteSpans, ChainWalker, RecordArea, RecordFields, read_fields
from ottla.spark.errors import UnreadableElement
from tests.compiled_decoder import SOURCE, compile_library, compiled_reader
from tests.property.property_settings import examples_max, exhaustive

contents = st.one_of(st.none(), st.binary(max_size=5), st.sampled_from([60, 64, 130, 9000]).map(bytes))
headers = st.lists(st.tuples(st.text(max_size=3), contents), max_size=3).map(tuple)
records = st.builds(Record, st.just(0), st.integers(-(2**40), 2**40), contents, contents, headers)
damages = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=3)

# Whole records by hand: length, attributes, two deltas, key, value, headers; then records that must be refused.
SOUND: Final = (
    b"\x0c\0\0\0\1\1\0",
    b"\x12\0\2\2\1\6abc\0",
    b"\x10\0\0\0\1\1\2\0\1",
    b"\x1e\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\0\1\1\0",
)
UNSOUND: Final = (
    b"\x0d\0\0\0\1\1\0",  # an odd length is a negative one
    b"\x0e\0\0\0\1\1\0\0",  # a byte follows the fields
    b"\x0c\0\0\0\3\1\0",  # a key of length -2
    b"\x0c\0\0\0\1\3\0",  # a value of length -2
    b"\x0c\0\0\0\1\4\0",  # a value that reaches into the next record
    b"\x0c\0\0\0\6\1\0",  # a key that reaches into the next record
    b"\x10\0\0\0\1\1\4\0\1",  # two headers in two bytes
    b"\x10\0\0\0\1\1\1\0\1",  # -1 headers
    b"\x16\0\0\x80\x80\x80\x80\x80\0\1\1\0",  # six bytes of an offset
    b"\x8c\x80\x80\x80\x80\0\0\0\0\1\1\0",  # six bytes of a length
    b"\x20\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\0\1\1\0",  # eleven bytes of a timestamp
)

# Reads damaged records that end at an unreadable page: a read of one byte too many kills this process.
GUARDED = """
import ctypes, mmap, random, sys
from pathlib import Path
import numpy as np
from ottla.spark.arrow.compiled_fields import load_library
from ottla.spark.arrow.record_fields import RecordArea

read = load_library(Path(sys.argv[1]))
page = mmap.PAGESIZE
memory = mmap.mmap(-1, 2 * page)
whole = np.frombuffer(memory, np.uint8)
libc = ctypes.CDLL(None, use_errno=True)
assert libc.mprotect(ctypes.c_void_p(whole.ctypes.data + page), ctypes.c_size_t(page), 0) == 0
source = random.Random(7)
accepted = 0
sound = (bytes((12, 0, 0, 0, 1, 1, 0)), bytes((18, 0, 2, 2, 1, 6, 97, 98, 99, 0)), bytes((16, 0, 0, 0, 1, 1, 2, 0, 1)))
for _ in range(int(sys.argv[2])):
    count = source.randrange(1, 4)
    body = bytearray(b"".join(source.choice(sound) for _ in range(count)))
    for _ in range(source.randrange(3)):
        body[source.randrange(len(body))] = source.choice((0, 1, 2, 4, 12, 14, 127, 128, 255))
    del body[source.choice((0, 0, source.randrange(len(body)))) or len(body) :]
    area = whole[page - len(body) : page]
    area[:] = np.frombuffer(body, np.uint8)
    accepted += read(area, [RecordArea(0, len(body), count)]) is not None
print("accepted", accepted)
"""


def by_numpy(data: np.ndarray[tuple[int], np.dtype[np.uint8]], areas: list[RecordArea]) -> RecordFields | None:
    try:
        starts = ChainWalker().starts(data.data, data, areas)
        ends = np.append(starts[1:], 0)
        ends[np.cumsum([area.records_count for area in areas]) - 1] = [area.end for area in areas]
        return read_fields(data, starts, ends)
    except UnreadableElement:
        return None


def as_lists(read: RecordFields | None) -> dict[str, object] | None:
    if read is None:
        return None
    values = {each.name: getattr(read, each.name) for each in fields(read)}
    return {
        name: (value.positions.tolist(), value.lengths.tolist()) if isinstance(value, ByteSpans) else value.tolist()
        for name, value in values.items()
    }


@settings(max_examples=examples_max(300))
@given(st.lists(st.lists(records, min_size=1, max_size=5), min_size=1, max_size=3), damages)
def test_compiled_form_reads_and_refuses_the_same_as_numpy(
    batches: list[list[Record]], damage: list[tuple[int, int]]
) -> None:
    bodies = [bytes(build_batch(each))[BATCH_OVERHEAD_BYTES:] for each in batches]
    data = np.frombuffer(bytearray(b"".join(bodies)), np.uint8)
    for place, byte in damage:
        data[place % len(data)] = byte
    bounds = np.cumsum([0, *map(len, bodies)]).tolist()
    areas = [RecordArea(bounds[index], bounds[index + 1], len(each)) for index, each in enumerate(batches)]
    assert as_lists(compiled_reader()(data, areas)) == as_lists(by_numpy(data, areas))


@settings(max_examples=examples_max(300))
@given(st.lists(st.sampled_from(SOUND + UNSOUND), min_size=1, max_size=3), st.binary(max_size=1), st.integers(0, 1))
def test_compiled_form_refuses_the_same_damage_as_numpy(pieces: list[bytes], tail: bytes, more: int) -> None:
    data = np.frombuffer(b"".join(pieces) + tail, np.uint8)
    areas = [RecordArea(0, len(data), len(pieces) + more)]
    assert as_lists(compiled_reader()(data, areas)) == as_lists(by_numpy(data, areas))


@pytest.mark.parametrize("record", SOUND)
def test_sound_record_is_read_by_both_forms(record: bytes) -> None:
    data = np.frombuffer(record * 2, np.uint8)
    areas = [RecordArea(0, len(data), 2)]
    expected = as_lists(by_numpy(data, areas))
    assert expected is not None
    assert as_lists(compiled_reader()(data, areas)) == expected


@pytest.mark.parametrize("record", UNSOUND)
def test_unsound_record_is_refused_by_both_forms(record: bytes) -> None:
    data = np.frombuffer(SOUND[0] + record + SOUND[0], np.uint8)
    areas = [RecordArea(0, len(data), 3)]
    assert compiled_reader()(data, areas) is None
    assert by_numpy(data, areas) is None


@exhaustive
def test_compiled_form_reads_no_byte_beyond_a_batch(tmp_path: Path) -> None:
    library = compile_library(SOURCE.read_text(), tmp_path)
    command = [sys.executable, "-c", GUARDED, str(library), str(examples_max(100_000))]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout.split()[-1]) > 100, "some of the records are sound"


@pytest.mark.parametrize("other", ["int32_t ottla_record_fields_interface(void) { return 0; }", "int nothing;"])
def test_library_of_another_source_is_not_used(other: str, tmp_path: Path) -> None:
    assert load_library(compile_library(f"#include <stdint.h>\n{other}", tmp_path)) is None


def test_file_that_is_missing_or_no_library_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("not a library")
    assert load_library(tmp_path / "text.so") is None
    assert load_library(tmp_path / "missing.so") is None
