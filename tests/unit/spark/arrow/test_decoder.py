from __future__ import annotations

import pickle
import time
import tracemalloc

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ottla.client.wire.reused_memory import ReusedMemory
from ottla.model.limits import MIB
from ottla.records.builder import BatchBuilder, build_batch
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec, compress
from ottla.records.header import ATTRIBUTES_AT, BATCH_OVERHEAD_BYTES, CRC, CRC_AT, HEADER
from ottla.records.record import Record
from ottla.records.varint import append_varint
from ottla.spark.arrow.columns import arrow_schema
from ottla.spark.arrow.decoder import Decoder
from ottla.spark.errors import CorruptRecords


def plain_batch(count: int, base_offset: int = 0, codec: Codec = Codec.NONE, **marks: object) -> bytes:
    records = [Record(0, 1000 + index, b"k%d" % index, b"v%d" % index) for index in range(count)]
    return bytes(build_batch(records, codec, base_offset=base_offset, **marks))  # type: ignore[arg-type]  # flags of the builder


def raw_batch(body: bytes, records_count: int, attributes: int = 0, last_offset_delta: int | None = None) -> bytes:
    """A batch with any body and count, and a right checksum."""
    batch = bytearray(BATCH_OVERHEAD_BYTES + len(body))
    last = records_count - 1 if last_offset_delta is None else last_offset_delta
    HEADER.pack_into(batch, 0, 0, len(batch) - 12, 0, 2, 0, attributes, last, 0, 0, -1, -1, -1, records_count)
    batch[BATCH_OVERHEAD_BYTES:] = body
    CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return bytes(batch)


def record_with(headers_count: int, tail: bytes) -> bytes:
    inner = bytearray(b"\0\0\0\1\1")
    append_varint(inner, headers_count)
    inner += tail
    record = bytearray()
    append_varint(record, len(inner))
    return bytes(record + inner)


def offsets(data: bytes, first_offset: int = 0, offset_limit: int = 2**63 - 1) -> list[int]:
    batches = list(Decoder("t", 0, ["offset"]).decode(data, first_offset, offset_limit))
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def refusal(data: bytes, columns: tuple[str, ...] = ("value", "headers")) -> CorruptRecords:
    with pytest.raises(CorruptRecords) as caught:
        list(Decoder("orders", 7, columns).decode(data))
    return caught.value


def test_columns_come_as_wanted_and_in_the_wanted_order() -> None:
    wanted = ("timestampType", "value", "partition")
    (batch,) = Decoder("t", 3, wanted).decode(plain_batch(2))
    assert batch.schema == arrow_schema(wanted)
    assert batch.to_pylist() == [
        {"timestampType": 0, "value": b"v0", "partition": 3},
        {"timestampType": 0, "value": b"v1", "partition": 3},
    ]


def test_rows_have_a_count_even_without_columns() -> None:
    (batch,) = Decoder("t", 3, ["topic"]).decode(plain_batch(5))
    assert batch.num_rows == 5


def test_control_batches_are_skipped() -> None:
    data = plain_batch(2) + plain_batch(1, 2, is_control=True) + plain_batch(2, 3)
    assert offsets(data) == [0, 1, 3, 4]


def test_records_outside_the_range_are_left_out_and_their_batches_not_even_checked() -> None:
    damaged = bytearray(plain_batch(3, 6))
    damaged[-1] ^= 1
    assert offsets(plain_batch(3) + plain_batch(3, 3) + bytes(damaged), 1, 5) == [1, 2, 3, 4]


def test_nothing_refers_to_the_fetched_buffer_afterwards() -> None:
    data = bytearray(plain_batch(3))
    (batch,) = Decoder("t", 0).decode(data)
    before = batch.to_pylist()
    data[:] = bytes(len(data))
    assert batch.to_pylist() == before
    del batch
    data.clear()  # would raise BufferError if the decoder kept a view


def test_log_append_time_is_the_batchs_and_named_so() -> None:
    (batch,) = Decoder("t", 0, ["timestamp", "timestampType"]).decode(plain_batch(2, log_append_time_ms=77))
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [77_000, 77_000]
    assert batch.column("timestampType").to_pylist() == [1, 1]


@pytest.mark.parametrize("first_ms", [1000, 1_700_000_000_000_000_000, 2**62])
def test_a_timestamp_that_no_column_can_hold_stops_nothing(first_ms: int) -> None:
    """A producer's mistake (nanoseconds), which the broker has stored: no option could read past it."""
    far = 1_700_000_000_000_000_000
    data = bytes(build_batch([Record(0, time_ms, None, b"x") for time_ms in (first_ms, far, -far, 2000)]))
    (batch,) = Decoder("t", 0, ["offset", "timestamp"]).decode(data)
    assert batch.column("offset").to_pylist() == [0, 1, 2, 3]
    end_us = (2**63 - 1) // 1000 * 1000
    expected = [1_000_000 if first_ms == 1000 else end_us, end_us, -end_us, 2_000_000]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == expected


def test_large_input_comes_in_slices() -> None:
    records = [Record(0, 0, None, b"x" * 1_000_000)] * 3
    data = b"".join(bytes(build_batch(records, base_offset=3 * index)) for index in range(6))
    rows = [batch.num_rows for batch in Decoder("t", 0).decode(data)]
    assert sum(rows) == 18
    assert len(rows) > 1


def test_rows_stay_when_the_memory_of_their_batches_is_used_again() -> None:
    memory = ReusedMemory(32 * MIB)
    first = list(Decoder("t", 0, memory=memory).decode(plain_batch(2000, codec=Codec.ZSTD)))
    kept = [batch.to_pylist() for batch in first]
    assert list(Decoder("t", 0, memory=memory).decode(plain_batch(5000, 7, codec=Codec.LZ4)))
    assert [batch.to_pylist() for batch in first] == kept
    assert memory.kept_bytes > 0


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.SNAPPY])
def test_batch_that_is_far_larger_than_its_neighbours_is_read_in_its_place(codec: Codec) -> None:
    large = build_batch([Record(0, 0, None, bytes(20 * MIB))], codec, base_offset=3)
    data = plain_batch(3, codec=Codec.ZSTD) + bytes(large) + plain_batch(3, 4, codec=Codec.ZSTD)
    batches = list(Decoder("t", 0).decode(data))
    lengths = [length for batch in batches for length in pc.binary_length(batch.column("value")).to_pylist()]
    assert lengths == [2, 2, 2, 20 * MIB, 2, 2, 2]
    assert offsets(data) == list(range(7))


def test_memory_that_is_lent_out_does_not_stop_a_decoder() -> None:
    memory = ReusedMemory(MIB)
    lent = memory.lend(MIB)
    (batch,) = Decoder("t", 0, ["offset"], memory).decode(plain_batch(3, codec=Codec.GZIP))
    assert batch.column("offset").to_pylist() == [0, 1, 2]
    assert lent is not None


def test_a_wrong_checksum_is_refused() -> None:
    data = bytearray(plain_batch(3, 40))
    data[-2] ^= 0x10
    error = refusal(bytes(data))
    assert (error.topic, error.partition, error.offset) == ("orders", 7, 40)
    assert "checksum" in str(error)


def test_the_error_survives_pickling() -> None:
    error = refusal(raw_batch(b"\xff" * 30, 2))
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert (copy.topic, copy.partition, copy.offset) == ("orders", 7, 0)


def test_offsets_that_do_not_rise_are_refused() -> None:
    assert "do not follow" in str(refusal(plain_batch(3, 5) + plain_batch(3, 6)))


def test_a_cut_batch_is_refused() -> None:
    assert "left" in str(refusal(plain_batch(3)[:-1]))
    assert "follow the last whole batch" in str(refusal(plain_batch(3) + b"\0" * 20))


def test_an_old_format_is_named() -> None:
    data = bytearray(plain_batch(1))
    data[16] = 1
    assert "format 1" in str(refusal(bytes(data)))


@pytest.mark.parametrize("count", [2**31 - 1, 1_000_000, 100])
def test_more_records_than_bytes_are_refused_before_memory_is_taken(count: int) -> None:
    tracemalloc.start()
    try:
        error = refusal(raw_batch(b"\x0c\0\0\0\1\1\0" * 3, count))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert "records" in str(error)


def test_a_decompression_bomb_is_refused() -> None:
    bomb = compress(Codec.ZSTD, bytes(200 << 20))
    error = refusal(raw_batch(bomb, 3, attributes=4))
    assert "decompress" in str(error)


@pytest.mark.parametrize(
    ("inner", "problem"),
    [
        (b"\0\0\0\x01\x01\0junk", "headers count"),
        (b"\0\0\0\x14\x01\0", "length of a key"),
        (b"\0\0\0\x01\x14\0", "length of a value"),
        (b"\0\0\0\x03\x01\0", "length of a key"),
        (b"\0\0\0\x01\x03\0", "length of a value"),
        (b"\0\0\0\xfe\xff\xff\xff\x0f\x01\0", "length of a key"),
        (b"\0\0\x02\x01\x01\0", "outside its batch"),
        (b"\0\0\x01\x01\x01\0", "outside its batch"),
        (b"\0\0\0\x04kk\x02", "fit"),
        (b"\0" + b"\x80" * 10 + b"\0\0\x01\x01\0", "more than 10 bytes"),
    ],
)
def test_a_record_whose_fields_do_not_fill_it_is_refused(inner: bytes, problem: str) -> None:
    body = bytearray()
    append_varint(body, len(inner))
    error = refusal(raw_batch(bytes(body) + inner, 1), ("value",))
    assert problem in error.problem


def test_a_record_that_ends_before_its_neighbour_begins_is_refused() -> None:
    whole = b"\x0c\0\0\0\x01\x01\0"
    assert "next record" in refusal(raw_batch(whole + b"\0" * 7, 1)).problem
    assert "next record" in refusal(raw_batch(whole + b"\x0b\0\0\x02\x01\x01\0", 2)).problem


@pytest.mark.parametrize("count", [2**31 - 1, -1, 5])
def test_a_headers_count_that_cannot_be_is_refused(count: int) -> None:
    body = record_with(count, b"\2k\2v" * 2)
    assert "headers" in str(refusal(raw_batch(body, 1)))
    if count != 5:  # without the headers column they are not counted
        refusal(raw_batch(body, 1), ("value",))


@pytest.mark.parametrize("tail", [b"\1\1" * 2, b"\2k\3", b"\2k\2vX", b"\x7ek\2v", b"\xff\xff\xff\xff\xff\1"])
def test_headers_that_do_not_fit_are_refused(tail: bytes) -> None:
    error = refusal(raw_batch(record_with(2 if len(tail) > 3 else 1, tail), 1))
    assert "header" in error.problem or "variable-length number" in error.problem


def test_a_record_of_very_many_headers_is_read_in_good_time() -> None:
    count = 100_000
    data = raw_batch(record_with(count, b"\0\1" * count), 1)
    # Of this thread only: on a loaded machine others run meanwhile.
    began = time.thread_time()
    (batch,) = Decoder("t", 0, ["headers"]).decode(data)
    # Stepping the whole column for each header takes far longer than this.
    assert time.thread_time() - began < 2
    assert len(batch.column("headers")[0]) == count


def test_a_header_key_that_is_not_utf8_is_repaired() -> None:
    (batch,) = Decoder("t", 0, ["headers"]).decode(raw_batch(record_with(1, b"\4k\xff\2v"), 1))
    assert batch.column("headers").to_pylist() == [[{"key": "k\ufffd", "value": b"v"}]]


def test_gaps_left_by_compaction_keep_their_offsets() -> None:
    builder = BatchBuilder()
    for delta in (0, 3, 9):
        builder.append(0, None, b"", offset_delta=delta)
    assert offsets(bytes(builder.build(base_offset=100))) == [100, 103, 109]
