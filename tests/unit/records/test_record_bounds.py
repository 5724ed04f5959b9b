"""The bounds of records: every shape that no client can read, found by both forms of the check alike."""

from __future__ import annotations

import random
import shutil
import subprocess
import sysconfig
import tempfile
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from time import process_time
from typing import Final, NamedTuple

import pytest

from ottla.records import record_bounds
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.errors import CorruptBatch
from ottla.records.header import BATCH_OVERHEAD_BYTES, HEADER
from ottla.records.record import Headers, Record, decode_batch
from ottla.records.record_bounds import IN_PYTHON, SOUND, FirstFault, RecordCheck
from ottla.records.record_walk import CompiledWalk, Walked, WalkRules, walk_records_in_python
from ottla.records.varint import append_varint
from tests.property.property_settings import examples_max, exhaustive

BASE_MS: Final = 1_767_225_600_000
SOURCE: Final = Path(record_bounds.__file__).with_name("compiled_bounds.c")
SANITIZED: Final = ("-fsanitize=undefined", "-fno-sanitize-recover=all")


class Compiled(NamedTuple):
    check: RecordCheck
    walk_records: CompiledWalk


@cache
def compiled_module() -> Compiled:
    """The compiled form, whether or not the package was built with it."""
    compiler, include = shutil.which("cc"), sysconfig.get_path("include")
    if compiler is None or not Path(include, "Python.h").exists():
        pytest.skip("no C compiler, or no headers of Python")
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory, "compiled_bounds.abi3.so")
        flags = ["-O1", "-std=c11", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-I", include]
        command = [compiler, *flags, "-o", str(library), str(SOURCE)]
        # Overflows and the like end the process, where the compiler has its library.
        if subprocess.run([*command, *SANITIZED], capture_output=True, check=False).returncode != 0:
            subprocess.run(command, check=True)
        loader = ExtensionFileLoader("compiled_bounds", str(library))
        spec = spec_from_file_location("compiled_bounds", library, loader=loader)
        assert spec is not None
        module = module_from_spec(spec)
        loader.exec_module(module)
    return Compiled(RecordCheck(module.first_fault, module.batch_fault), module.walk_records)


def compiled() -> RecordCheck:
    return compiled_module().check


@pytest.fixture(params=["python", "compiled"])
def check(request: pytest.FixtureRequest) -> RecordCheck:
    return IN_PYTHON if request.param == "python" else compiled()


@pytest.fixture
def first_fault(check: RecordCheck) -> FirstFault:
    return check.first_fault


def varint(number: int) -> bytes:
    out = bytearray()
    append_varint(out, number)
    return bytes(out)


def record(
    number: int = 0,
    *,
    key: bytes = b"\x01",
    value: bytes = b"\x02v",
    headers: bytes = b"\x00",
    time: bytes = b"\x00",
    length: int | None = None,
) -> bytes:
    """A record of which each field is given as its bytes, lengths included."""
    body = b"\x00" + time + varint(number) + key + value + headers
    return varint(len(body) if length is None else length) + body


def records(count: int) -> bytes:
    return b"".join(map(record, range(count)))


SOUND_ONES = {
    "one": ([record()], 1),
    "null value": ([record(value=b"\x01")], 1),
    "empty key": ([record(key=b"\x00")], 1),
    "longest short numbers": ([record(value=varint(8191) + bytes(8191))], 1),
    "a value of a megabyte": ([record(value=varint(1 << 20) + bytes(1 << 20))], 1),
    "a key of hundreds of bytes": ([record(key=varint(300) + bytes(300), value=varint(300) + bytes(300))], 1),
    "two headers, one null": ([record(headers=b"\x04\x02a\x02b\x02c\x01")], 1),
    "a number in more bytes than it needs": ([record(value=b"\x82\x00v")], 1),
    "a time before the base": ([record(time=varint(-5))], 1),
}
MALFORMED = {
    "no records": ([], 1, 0),
    "fewer records than the head says": ([records(3)], 4, 3),
    "more records than the head says": ([records(4)], 3, 3),
    "bytes behind the last record": ([records(2), b"\x00"], 2, 2),
    "length one too small": ([records(1), record(1, length=6), record(2)], 3, 1),
    "length one too large": ([records(1), record(1, length=8), record(2)], 3, 1),
    "length beyond the batch": ([records(1), record(1, length=5_000)], 2, 1),
    "negative length": ([records(1), record(1, length=-1)], 2, 1),
    "no length": ([records(1), b"\x00"], 2, 1),
    "length cut off": ([records(1), b"\x80"], 2, 1),
    "length that never ends": ([records(1), b"\x80" * 6 + bytes(200)], 2, 1),
    "length beyond 32 bits": ([records(1), b"\xfe\xff\xff\xff\x7f" + bytes(200)], 2, 1),
    "time that never ends": ([record(time=b"\x80" * 11)], 1, 0),
    "time beyond 64 bits": ([record(time=b"\xfe" + b"\xff" * 8 + b"\x02")], 1, 0),
    "time that overflows": ([record(time=varint((1 << 63) - 1))], 1, 0),
    "offset delta twice": ([record(0), record(0)], 2, 1),
    "offset delta with a gap": ([record(0), record(2)], 2, 1),
    "negative offset delta": ([record(-1)], 1, 0),
    "key beyond the record": ([record(key=varint(100) + b"k")], 1, 0),
    "key that leaves no room": ([record(key=varint(2) + b"k", value=b"", headers=b"")], 1, 0),
    "key length below null": ([record(key=b"\x03")], 1, 0),
    "value beyond the record": ([record(value=varint(100) + b"v"), bytes(200)], 1, 0),
    "value length below null": ([record(value=b"\x03")], 1, 0),
    "value length of the smallest int": ([record(value=b"\xff\xff\xff\xff\x0f")], 1, 0),
    "no count of headers": ([record(headers=b"")], 1, 0),
    "negative count of headers": ([record(headers=b"\x01")], 1, 0),
    "more headers than there are": ([record(headers=b"\x04\x02a\x01")], 1, 0),
    "fewer headers than there are": ([record(headers=b"\x02\x02a\x01\x02a\x01")], 1, 0),
    "millions of headers": ([record(headers=varint(1 << 30))], 1, 0),
    "header without a key": ([record(headers=b"\x02\x01\x01")], 1, 0),
    "header without a key, in two bytes": ([record(headers=b"\x02\x81\x00\x01")], 1, 0),
    "header key beyond the record": ([record(headers=b"\x02\x20a\x01")], 1, 0),
    "header value beyond the record": ([record(headers=b"\x02\x02a\x20")], 1, 0),
}


@pytest.mark.parametrize("padding", [0, 300], ids=["at the end", "followed by records"])
@pytest.mark.parametrize(("parts", "count"), SOUND_ONES.values(), ids=SOUND_ONES)
def test_records_of_every_sound_shape_are_taken(
    first_fault: FirstFault, parts: list[bytes], count: int, padding: int
) -> None:
    area = b"".join([*parts, *map(record, range(count, count + padding))])
    assert first_fault(bytearray(b"head" + area), 4, count + padding, BASE_MS) == SOUND


@pytest.mark.parametrize(("parts", "count", "number"), MALFORMED.values(), ids=MALFORMED)
def test_fault_is_found_where_it_is(first_fault: FirstFault, parts: list[bytes], count: int, number: int) -> None:
    assert first_fault(b"".join(parts), 0, count, BASE_MS) == number


@pytest.mark.parametrize(("parts", "count", "_number"), MALFORMED.values(), ids=MALFORMED)
def test_fault_is_found_far_from_the_end_of_the_batch(
    first_fault: FirstFault, parts: list[bytes], count: int, _number: int
) -> None:
    """Where a compiled check may look ahead."""
    rest = b"".join(record(each, value=varint(200) + bytes(200)) for each in range(count, count + 5))
    assert first_fault(b"".join(parts) + rest, 0, count + 5, BASE_MS) != SOUND


@pytest.mark.parametrize("count", [-1, -2, -(1 << 31), -(1 << 62)])
@pytest.mark.parametrize("area", [b"", b"\x00", record(), bytes(300)], ids=["empty", "a byte", "a record", "zeros"])
def test_negative_count_of_records_is_a_fault(first_fault: FirstFault, area: bytes, count: int) -> None:
    assert first_fault(area, 0, count, BASE_MS) == 0


def test_batch_that_says_minus_one_record_is_a_fault(check: RecordCheck) -> None:
    batch = bytearray(build_batch([Record(0, BASE_MS, b"k", b"v")]))
    for count in (-1, -(1 << 31)):
        HEADER.pack_into(batch, 0, *HEADER.unpack_from(batch)[:12], count)
        assert check.batch_fault(memoryview(batch)) == 0


def test_no_records_are_sound_only_in_no_bytes(first_fault: FirstFault) -> None:
    assert first_fault(b"", 0, 0, BASE_MS) == SOUND
    assert first_fault(b"\x00", 0, 0, BASE_MS) == 0


@pytest.mark.parametrize("records_count", [1, 63, 64, 65, 8_191, 8_192, 8_193, 20_000])
def test_batches_of_any_length_are_taken(first_fault: FirstFault, records_count: int) -> None:
    batch = build_batch([Record(number, BASE_MS, None, b"v") for number in range(records_count)])
    assert first_fault(batch, BATCH_OVERHEAD_BYTES, records_count, BASE_MS) == SOUND


def test_time_of_a_check_goes_by_the_records_not_by_their_bytes(first_fault: FirstFault) -> None:
    def took_s(value_bytes: int) -> float:
        area = b"".join(record(each, value=varint(value_bytes) + bytes(value_bytes)) for each in range(2_000))
        times_s = []
        for _ in range(3):
            began_s = process_time()
            assert first_fault(area, 0, 2_000, BASE_MS) == SOUND
            times_s.append(process_time() - began_s)
        return min(times_s)

    # What is copied once is a millisecond.
    assert took_s(1_000) < 4 * took_s(10) + 0.02


def test_times_at_the_ends_of_their_type_are_taken(first_fault: FirstFault) -> None:
    assert first_fault(record(), 0, 1, (1 << 63) - 1) == SOUND
    assert first_fault(record(time=varint(-1)), 0, 1, -(1 << 63)) == 0


def some_batch(source: random.Random) -> bytearray:
    if source.random() < 0.5:
        return alike_batch(source)

    def some_bytes() -> bytes | None:
        return source.choice([None, b"", source.randbytes(source.choice([1, 60, 70, 400]))])

    headers: Headers = tuple((f"h{number}", some_bytes()) for number in range(source.choice([0, 0, 0, 1, 3])))
    made = [
        Record(number, BASE_MS + source.randrange(100_000), some_bytes(), some_bytes(), headers)
        for number in range(source.choice([1, 2, 70]))
    ]
    return bytearray(build_batch(made, Codec.NONE))


def can_be_read(batch: bytes) -> bool:
    try:
        found = decode_batch(memoryview(batch), check_crc=False)
    except CorruptBatch:
        return False
    return [each.offset for each in found] == list(range(len(found)))


def alike_batch(source: random.Random) -> bytearray:
    """Records of one size, which a compiled check may prove to be alike."""
    key_bytes, value_bytes = source.choice([None, 0, 1, 5, 9]), source.choice([None, 0, 10, 60, 200, 300])
    spread_ms = source.choice([1, 50, 10_000])
    made = [
        Record(
            number,
            BASE_MS + (source.randrange(spread_ms) if number else 0),
            None if key_bytes is None else source.randbytes(key_bytes),
            None if value_bytes is None else source.randbytes(value_bytes),
        )
        for number in range(source.choice([3, 70, 200]))
    ]
    return bytearray(build_batch(made, Codec.NONE))


@exhaustive
@pytest.mark.parametrize("seed", range(5))
def test_accepted_batches_are_those_that_a_client_can_read(seed: int) -> None:
    """Random damage: both forms of the check and our own decoder agree."""
    source = random.Random(seed)
    forms = [IN_PYTHON, compiled()]
    for _ in range(examples_max(300)):
        batch = some_batch(source)
        for _ in range(source.choice([0, 1, 1, 2])):
            at = source.randrange(BATCH_OVERHEAD_BYTES, len(batch))
            batch[at] = source.choice([0, 1, 2, 127, 128, 255, batch[at] ^ 1, batch[at] ^ 2])
        header = HEADER.unpack_from(batch)
        for count in (-1, 0, header[12] - 1, header[12] + 1, (1 << 31) - 1):
            found = {form.first_fault(batch, BATCH_OVERHEAD_BYTES, count, header[7]) for form in forms}
            assert len(found) == 1, (count, batch.hex())
            assert found != {SOUND}, (count, batch.hex())
        verdicts = [form.batch_fault(memoryview(batch)) for form in forms]
        parts = [form.first_fault(batch, BATCH_OVERHEAD_BYTES, header[12], header[7]) for form in forms]
        assert {*verdicts, *parts} == {verdicts[0]}, batch.hex()
        assert (verdicts[0] == SOUND) == can_be_read(bytes(batch)), batch.hex()


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_records_of_a_batch_are_not_looked_at(check: RecordCheck, codec: Codec) -> None:
    batch = build_batch([Record(0, BASE_MS, b"k", b"value", ())], codec)
    batch[-1] ^= 1
    assert (check.batch_fault(memoryview(batch)) == SOUND) == (codec is not Codec.NONE)


def test_compiled_check_refuses_a_batch_without_a_whole_head() -> None:
    with pytest.raises(ValueError, match="no whole head"):
        compiled().batch_fault(memoryview(bytes(BATCH_OVERHEAD_BYTES - 1)))


def test_compiled_check_refuses_a_place_outside_of_its_data() -> None:
    for position in (-1, 5):
        with pytest.raises(ValueError, match="not in the data"):
            compiled().first_fault(b"data", position, 1, 0)


def walked_in_python(data: bytes, count: int, rules: WalkRules, base_ms: int) -> Walked | None:
    try:
        return walk_records_in_python(data, count, base_ms, rules)
    except CorruptBatch:
        return None


def walked_compiled(data: bytes, count: int, rules: WalkRules, base_ms: int) -> Walked | None:
    found = compiled_module().walk_records(data, count, base_ms, *rules, 1_000)
    return None if found is None else Walked(*found)  # type: ignore[arg-type]  # rows are equal to the named ones


@pytest.mark.parametrize("seed", range(5))
def test_both_forms_of_the_walk_agree_on_damaged_batches(seed: int) -> None:
    source = random.Random(seed)
    refused_count = 0
    for _ in range(300):
        batch = some_batch(source)
        for _ in range(source.choice([0, 1, 1, 2])):
            at = source.randrange(BATCH_OVERHEAD_BYTES, len(batch))
            batch[at] = source.choice([0, 1, 2, 127, 128, 255, batch[at] ^ 1, batch[at] ^ 2])
        header = HEADER.unpack_from(batch)
        count = header[12] + source.choice([0, 0, 0, 0, 1, -1, -header[12] - 1])
        base_ms = source.choice([header[7], header[7], (1 << 63) - 1, -(1 << 63)])
        rules = WalkRules(source.random() < 0.5, BASE_MS + source.choice([-5, 5]), BASE_MS + 60_000)
        data = bytes(batch[BATCH_OVERHEAD_BYTES:])
        found = walked_compiled(data, count, rules, base_ms)
        assert found == walked_in_python(data, count, rules, base_ms), (batch.hex(), count, base_ms, rules)
        refused_count += found is None
    assert 0 < refused_count < 300


def test_compiled_walk_names_no_more_faults_than_it_is_to_name() -> None:
    data = records(20)
    for named_max in (-1, 0, 3, 20, 1 << 62):
        found = compiled_module().walk_records(data, 20, BASE_MS, False, BASE_MS + 1, BASE_MS + 2, named_max)
        assert found is not None
        latest_ms, faults_count, timestamp_faults_count, rows = found
        assert (latest_ms, faults_count, timestamp_faults_count) == (BASE_MS, 20, 20)
        assert rows == [(number, 2, BASE_MS) for number in range(min(20, max(0, named_max)))]
