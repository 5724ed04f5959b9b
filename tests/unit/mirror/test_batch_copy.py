from __future__ import annotations

import pytest

from ottla.client.fetching.fetch_requests import AbortedTransaction, FetchedPartition
from ottla.mirror.batch_copy import CopiedBatch, copied_batch, copyable_batches
from ottla.mirror.offset_translation import Run
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import BatchBuilder, build_batch, stamp_producer
from ottla.records.compression import Codec
from ottla.records.header import BATCH_OVERHEAD_BYTES, read_header
from ottla.records.record import Record, decode_batch

RECORDS = [Record(0, 1000 + at, b"k%d" % at, b"v%d" % at * 20, (("h", b"1"),)) for at in range(4)]


def copied(batch: bytearray, first_offset: int = 0) -> CopiedBatch | None:
    return copied_batch(read_header(batch), memoryview(batch), first_offset)


def contents(batch: bytearray) -> list[tuple[object, ...]]:
    return [tuple(record)[1:] for record in decode_batch(memoryview(batch), check_crc=False)]


@pytest.mark.parametrize("codec", list(Codec))
def test_dense_batch_keeps_its_bytes(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec, base_offset=70, leader_epoch=3)
    copy = copied(batch)
    assert copy is not None
    assert not copy.is_rebuilt
    assert copy.batch[BATCH_OVERHEAD_BYTES:] == batch[BATCH_OVERHEAD_BYTES:]
    assert read_header(copy.batch).base_offset == 0
    assert copy.runs == (Run(70, 0, 4),)


def test_batch_of_a_transaction_is_none_of_one_on_the_target() -> None:
    batch = build_batch(RECORDS, producer_id=9, producer_epoch=1, base_sequence=0, is_transactional=True)
    copy = copied(batch)
    assert copy is not None
    assert not read_header(copy.batch).is_transactional
    stamp_producer(copy.batch, 1, 0, 0)
    assert [tuple(record)[1:] for record in decode_batch(memoryview(copy.batch))] == contents(batch)


def test_batch_with_gaps_is_rebuilt_and_its_offsets_are_reported() -> None:
    builder = BatchBuilder()
    for delta in (0, 1, 5, 9):
        builder.append(1000 + delta, b"k", b"%d" % delta, offset_delta=delta)
    batch = builder.build(base_offset=100, codec=Codec.LZ4)
    copy = copied(batch)
    assert copy is not None
    assert copy.is_rebuilt
    assert contents(copy.batch) == contents(batch)
    header = read_header(copy.batch)
    assert (header.codec, header.records_count, header.last_offset_delta) == (Codec.LZ4, 4, 3)
    assert list(copy.runs) == [Run(100, 0, 2), Run(105, 2, 1), Run(109, 3, 1)]


def test_time_that_the_source_gave_becomes_the_records_own() -> None:
    batch = build_batch(RECORDS, log_append_time_ms=5_000)
    copy = copied(batch)
    assert copy is not None
    assert copy.is_rebuilt
    assert not read_header(copy.batch).is_log_append_time
    assert [record.timestamp_ms for record in decode_batch(memoryview(copy.batch))] == [5_000] * 4


def test_part_of_a_batch_is_copied() -> None:
    batch = build_batch(RECORDS, base_offset=10)
    copy = copied(batch, first_offset=12)
    assert copy is not None
    assert contents(copy.batch) == contents(batch)[2:]
    assert list(copy.runs) == [Run(12, 0, 2)]
    assert copied(batch, first_offset=14) is None


def test_markers_and_aborted_records_are_left_out() -> None:
    def transactional(base_offset: int, producer_id: int, *, is_control: bool = False, key: bytes = b"k") -> bytes:
        rows = [Record(0, 0, key, b"v")]
        return bytes(
            build_batch(
                rows,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                base_offset=base_offset,
                is_transactional=True,
                is_control=is_control,
            )
        )

    abort = b"\x00\x00\x00\x00"
    commit = b"\x00\x00\x00\x01"
    log = [
        transactional(0, 7),
        transactional(1, 8),
        transactional(2, 7, is_control=True, key=abort),
        transactional(3, 8, is_control=True, key=commit),
        transactional(4, 7),
        transactional(5, 7, is_control=True, key=commit),
    ]
    fetched = FetchedPartition(
        TopicPartition("t", 0), 0, 6, 6, 6, 0, memoryview(b"".join(log)), [AbortedTransaction(7, 0)]
    )
    assert [header.base_offset for header, _ in copyable_batches(fetched)] == [1, 4]
