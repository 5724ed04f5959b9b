"""Batches read by column, beside what the plain reader makes of the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.model.errors import WireError
from ottla.records import record_run
from ottla.records.builder import BatchBuilder, build_batch
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec
from ottla.records.errors import CorruptBatch, DecompressedTooLarge
from ottla.records.header import ATTRIBUTES_AT, BATCH_OVERHEAD_BYTES, CRC, CRC_AT, HEADER, BatchHeader
from ottla.records.record import Record, decode_batch, read_record
from ottla.records.record_run import RUN_BYTES, RUN_RECORDS_MAX, RecordRun, read_runs
from ottla.records.varint import VARINTS
from tests.property.property_settings import examples_max, exhaustive, is_tried
from tests.unit.records.test_message_set import columns_of_records

SIZE_BYTES_MAX = 1 << 24


def records_in(runs: Iterator[RecordRun]) -> list[Record]:
    return [Record(*row) for run in runs for row in zip(*run, strict=True)]


def outcome(read: Callable[[], list[Record]]) -> list[Record] | str:
    try:
        return read()
    except WireError as error:
        return f"{type(error).__name__}: {error}"


def assert_read_alike(batch: memoryview) -> list[Record] | str:
    plain = outcome(lambda: decode_batch(batch, size_bytes_max=SIZE_BYTES_MAX))
    assert outcome(lambda: records_in(read_runs(batch, size_bytes_max=SIZE_BYTES_MAX))) == plain
    return plain


def sealed(batch: bytearray) -> memoryview:
    """The batch with a right length and checksum: a hostile sender computes them too."""
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return memoryview(batch)


def batch_around(body: bytes, count: int, *, base_timestamp_ms: int = 0, attributes: int = 0) -> memoryview:
    batch = bytearray(BATCH_OVERHEAD_BYTES) + body
    HEADER.pack_into(batch, 0, 7, 0, -1, 2, 0, attributes, count - 1, base_timestamp_ms, 99, -1, -1, -1, count)
    return sealed(batch)


def even_batch(count: int = 100, *, codec: Codec = Codec.NONE, step_ms: int = 0) -> bytearray:
    """Records of one size up to the 64th, and of another one after it."""
    return build_batch(
        [Record(0, 1000 + step_ms * number, b"key%3d" % number, b"value %4d" % number) for number in range(count)],
        codec,
        base_offset=40,
    )


@settings(max_examples=examples_max(200))
@given(columns_of_records(), st.sampled_from(list(Codec)), st.none() | st.just(5))
def test_runs_hold_the_records_of_the_plain_reader(
    records: list[Record], codec: Codec, log_append_time_ms: int | None
) -> None:
    batch = build_batch(records, codec, base_offset=1 << 40, log_append_time_ms=log_append_time_ms)
    assert isinstance(assert_read_alike(memoryview(batch)), list)


def walked_batch() -> bytearray:
    """Records that differ in the lengths of their values."""
    return build_batch([Record(0, number, b"k", bytes(number % 3)) for number in range(60)])


@exhaustive
@pytest.mark.parametrize("whole", [even_batch(70, step_ms=1), even_batch(70, codec=Codec.ZSTD), walked_batch()])
def test_every_cut_and_every_turned_byte_is_read_as_the_plain_reader_does(whole: bytearray) -> None:
    for cut in filter(is_tried, range(BATCH_OVERHEAD_BYTES, len(whole))):
        assert_read_alike(sealed(whole[:cut]))
    for at in filter(is_tried, range(BATCH_OVERHEAD_BYTES, len(whole))):
        for turned in (0x01, 0x02, 0x80, 0xFF):
            damaged = bytearray(whole)
            damaged[at] ^= turned
            assert_read_alike(sealed(damaged))


@settings(max_examples=examples_max(300))
@given(columns_of_records(), st.data())
def test_any_damage_is_met_as_by_the_plain_reader(records: list[Record], data: st.DataObject) -> None:
    batch = build_batch(records)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(ATTRIBUTES_AT, len(batch) - 1))] = data.draw(st.integers(0, 255))
    assert_read_alike(sealed(batch))


@given(st.binary(max_size=400), st.integers(0, 60))
def test_any_bytes_are_met_as_by_the_plain_reader(body: bytes, count: int) -> None:
    assert_read_alike(batch_around(body, count))


def longer(encoded: bytes) -> bytes:
    """The same number in one byte more than it needs, which a reader accepts."""
    return encoded[:-1] + bytes([encoded[-1] | 0x80, 0])


@pytest.mark.parametrize("number", range(6))
def test_varint_that_is_longer_than_needed_is_read_as_the_plain_reader_does(number: int) -> None:
    """In each of a record's six numbers but its attributes, in one record and in all of them."""

    def record(delta: int, *, is_longer: bool) -> bytes:
        fields = [VARINTS[3], VARINTS[delta], VARINTS[2] + b"ke", VARINTS[5] + b"value", VARINTS[0]]
        if is_longer and number < 5:
            size = 1 if number in (2, 3) else len(fields[number])
            fields[number] = longer(fields[number][:size]) + fields[number][size:]
        body = b"\x00" + b"".join(fields)
        length = VARINTS[len(body)]
        return (longer(length) if is_longer and number == 5 else length) + body

    one = b"".join(record(delta, is_longer=delta == 20) for delta in range(48))
    every = b"".join(record(delta, is_longer=True) for delta in range(48))
    for body in (one, every):
        read = assert_read_alike(batch_around(body, 48))
        assert isinstance(read, list)
        assert {record.value for record in read} == {b"value"}


@pytest.mark.parametrize("base_timestamp_ms", [-(1 << 63), -(1 << 63) + 63, (1 << 63) - 1, (1 << 63) - 64, -1])
@pytest.mark.parametrize("attributes", [0, 8])
def test_timestamps_at_the_ends_of_their_type_are_met_as_by_the_plain_reader(
    base_timestamp_ms: int, attributes: int
) -> None:
    for steps in ([0], [0, 1], [0, -1], [64, 65], [-65, 64], [0, 70]):
        body = b""
        for delta in range(32):
            record = b"\x00" + VARINTS[steps[delta % len(steps)]] + VARINTS[delta] + b"\x01\x02v\x00"
            body += VARINTS[len(record)] + record
        assert_read_alike(batch_around(body, 32, base_timestamp_ms=base_timestamp_ms, attributes=attributes))


@pytest.mark.parametrize("count", [100, 8300, 17_000])
@pytest.mark.parametrize("step_ms", [0, 1, 70, -3])
def test_long_batches_of_one_size_are_read_as_the_plain_reader_does(count: int, step_ms: int) -> None:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(10**12 + step_ms * (number % 50), None, b"value %6d" % number)
    assert isinstance(assert_read_alike(memoryview(builder.build(base_offset=5))), list)


def refuse_to_read(*_: object) -> RecordRun:
    raise AssertionError("this way was not to be taken")


@pytest.mark.parametrize("step_ms", [0, 1])
def test_records_of_one_size_are_cut_out_together(monkeypatch: pytest.MonkeyPatch, step_ms: int) -> None:
    monkeypatch.setattr(record_run, "_uneven_run", refuse_to_read)
    batch = memoryview(even_batch(64, step_ms=step_ms))
    assert records_in(read_runs(batch)) == decode_batch(batch)


@pytest.mark.parametrize("length", [20, 100])
@pytest.mark.parametrize("key", [None, b"", b"key"])
def test_records_with_values_of_several_lengths_are_proved_together(
    monkeypatch: pytest.MonkeyPatch, length: int, key: bytes | None
) -> None:
    records = [Record(0, number // 9, key, bytes(length + number % 7)) for number in range(2000)]
    batch = memoryview(build_batch(records))
    plain = decode_batch(batch)
    monkeypatch.setattr(record_run, "_uneven_run", refuse_to_read)
    found: list[Record] = []
    for run in read_runs(batch):
        found += [Record(*row) for row in zip(*run, strict=True)]
        if len(found) == 64 + 3 * 512:
            break
    assert found == plain[: len(found)]


def test_common_records_of_several_sizes_are_read_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [Record(0, 70 * number, b"k" * number, b"v" * (2 * number), (("h", b"x"),)) for number in range(100)]
    batch = memoryview(build_batch([*records, *(record._replace(key=None, value=None) for record in records)]))
    plain = decode_batch(batch)

    def read_record_near_the_end(data: bytes, position: int, header: BatchHeader) -> tuple[Record, int]:
        assert len(data) - position < 20, "only the last records, where varints could reach beyond the batch"
        return read_record(data, position, header)

    monkeypatch.setattr(record_run, "read_record", read_record_near_the_end)
    assert records_in(read_runs(batch)) == plain


def test_runs_are_bounded_by_count_and_bytes() -> None:
    many = list(read_runs(memoryview(even_batch(5000))))
    assert max(len(run.values) for run in many) == RUN_RECORDS_MAX
    large = build_batch([Record(0, 0, None, bytes(100_000 + number % 2)) for number in range(40)])
    for run in read_runs(memoryview(large)):
        assert sum(len(value or b"") for value in run.values) < RUN_BYTES + 100_001
    even = build_batch([Record(0, 0, None, bytes(30_000)) for number in range(64)])
    assert max(len(run.values) for run in read_runs(memoryview(even))) * 30_000 <= RUN_BYTES + 30_000


def test_records_before_a_fault_are_given_out_before_the_error() -> None:
    batch = even_batch(600)
    batch[-1] = 2
    runs = read_runs(sealed(batch))
    assert next(runs).offsets[0] == 40
    with pytest.raises(CorruptBatch, match="headers cannot be"):
        list(runs)


def test_checks_of_the_whole_batch_come_before_its_records() -> None:
    batch = even_batch()
    batch[-2] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        next(read_runs(memoryview(batch)))
    assert next(read_runs(memoryview(batch), check_crc=False)).values[0] == b"value    0"
    with pytest.raises(DecompressedTooLarge):
        next(read_runs(memoryview(build_batch([Record(0, 0, None, bytes(1 << 20))], Codec.ZSTD)), size_bytes_max=1000))


def test_run_starts_at_the_requested_offset() -> None:
    for run in (*read_runs(memoryview(even_batch(64))), *read_runs(memoryview(even_batch(3)))):
        first, last = run.offsets[0], run.offsets[-1]
        assert run.from_offset(first) is run
        cut = run.from_offset(last)
        assert [list(column) for column in cut] == [[column[-1]] for column in run]
        assert [list(column) for column in run.from_offset(last + 1)] == [[]] * 5


def test_columns_have_one_length() -> None:
    lengths = chain.from_iterable(map(len, run) for run in read_runs(memoryview(even_batch(77))))
    assert set(lengths) == {64, 13}
