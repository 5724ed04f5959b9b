"""What of one batch stays after a clean."""

from __future__ import annotations

import struct

import pytest

from ottla.records.builder import BatchBuilder
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec
from ottla.records.header import (
    ATTRIBUTES_AT,
    BATCH_OVERHEAD_BYTES,
    CRC,
    CRC_AT,
    DELETE_HORIZON_BIT,
    HEADER,
    read_header,
)
from ottla.records.record import Record, decode_batch
from ottla.storage.compaction.batch_filter import BatchFilter, FilterRules
from ottla.storage.compaction.transactions import Transactions
from ottla.storage.producers.aborted_transactions import AbortedTransaction

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
COMMIT, ABORT = struct.pack(">hh", 0, 1), struct.pack(">hh", 0, 0)


def batch_of(*records: tuple[bytes | None, bytes | None], base_offset: int = 10, **options: object) -> memoryview:
    builder = BatchBuilder()
    for number, (key, value) in enumerate(records):
        builder.append(NOW_MS - 1_000 + number, key, value, (("h", b"1"),))
    return memoryview(builder.build(base_offset=base_offset, leader_epoch=3, **options))  # type: ignore[arg-type]


def marker(kind: bytes, producer_id: int, base_offset: int) -> memoryview:
    return batch_of(
        (kind, b"\0" * 6), base_offset=base_offset, producer_id=producer_id, is_transactional=True, is_control=True
    )


def filter_with(
    newest: dict[bytes, int] | None = None,
    *,
    mapped_end: int = 1_000,
    limit_offset: int = 1_000,
    kept: frozenset[int] = frozenset(),
    now_ms: int = NOW_MS,
    aborted: tuple[AbortedTransaction, ...] = (),
) -> BatchFilter:
    known = newest or {}
    rules = FilterRules(lambda key: known.get(key, -1), mapped_end, limit_offset, kept, now_ms, DAY_MS)
    return BatchFilter(rules, Transactions(aborted, 0))


def filtered(batch_filter: BatchFilter, batch: memoryview) -> memoryview | None:
    kept = batch_filter.filtered(batch, HEADER.unpack_from(batch))
    return None if kept is None else memoryview(kept)


def records_in(batch: memoryview | None) -> list[Record]:
    assert batch is not None
    return decode_batch(batch)


def test_batch_whose_records_are_all_the_newest_stays_as_it_is() -> None:
    batch = batch_of((b"a", b"1"), (b"b", b"2"))
    assert filter_with({b"a": 10, b"b": 11}).filtered(batch, HEADER.unpack_from(batch)) is batch


@pytest.mark.parametrize("codec", list(Codec))
def test_batch_that_loses_records_keeps_offsets_producer_codec_and_the_records_bytes(codec: Codec) -> None:
    batch = batch_of(
        (b"a", b"1"), (b"b", b"2"), (b"c", b"3"), codec=codec, producer_id=7, producer_epoch=1, base_sequence=5
    )
    kept = filtered(filter_with({b"a": 99, b"b": 11, b"c": 99}), batch)
    assert records_in(kept) == [decode_batch(batch)[1]]
    assert kept is not None
    before, after = read_header(batch), read_header(kept)
    same = ("base_offset", "last_offset_delta", "leader_epoch", "producer_id", "producer_epoch", "base_sequence")
    assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]
    assert after.codec == codec
    assert after.max_timestamp_ms == NOW_MS - 999


def test_batch_without_newest_records_goes() -> None:
    assert filtered(filter_with({b"a": 99}), batch_of((b"a", b"1"))) is None


def test_head_stays_of_a_batch_that_a_producer_goes_by() -> None:
    batch = batch_of((b"a", b"1"), (b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=3, codec=Codec.ZSTD)
    kept = filtered(filter_with({b"a": 99}, kept=frozenset({11})), batch)
    assert records_in(kept) == []
    assert kept is not None
    assert len(kept) == BATCH_OVERHEAD_BYTES
    head = read_header(kept)
    assert (head.base_offset, head.last_offset, head.base_sequence, head.attributes) == (10, 11, 3, 0)
    # A clean that passes it again keeps it again.
    assert filtered(filter_with({b"a": 99}, kept=frozenset({11})), kept) == kept


def test_head_stays_of_the_batch_that_ends_at_the_limit() -> None:
    assert records_in(filtered(filter_with({b"a": 99}, limit_offset=11), batch_of((b"a", b"1")))) == []


def test_record_without_a_key_goes() -> None:
    batch_filter = filter_with({b"a": 11})
    assert [record.key for record in records_in(filtered(batch_filter, batch_of((None, b"x"), (b"a", b"1"))))] == [b"a"]
    assert batch_filter.counts.keyless_count == 1


def test_records_behind_the_map_stay() -> None:
    batch = batch_of((b"a", b"1"), (None, b"2"), (b"a", b"3"))
    kept = filtered(filter_with({b"a": 99}, mapped_end=11), batch)
    assert [record.offset for record in records_in(kept)] == [11, 12]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_tombstone_gets_its_time_when_first_cleaned_and_goes_when_that_has_passed(codec: Codec) -> None:
    batch = batch_of((b"a", None), (b"b", b"2"), codec=codec)
    newest = {b"a": 10, b"b": 11}
    stamped = filtered(filter_with(newest), batch)
    assert records_in(stamped) == decode_batch(batch)
    assert stamped is not None
    head = read_header(stamped)
    assert head.attributes & DELETE_HORIZON_BIT
    assert head.base_timestamp_ms == NOW_MS + DAY_MS
    assert head.max_timestamp_ms == NOW_MS - 999
    assert filtered(filter_with(newest, now_ms=NOW_MS + DAY_MS - 1), stamped) == stamped
    later = filtered(filter_with(newest, now_ms=NOW_MS + DAY_MS), stamped)
    assert [record.key for record in records_in(later)] == [b"b"]


def test_tombstone_behind_the_map_gets_no_time_yet() -> None:
    batch = batch_of((b"a", b"1"), (b"b", None))
    kept = filtered(filter_with({b"a": 10}, mapped_end=11), batch)
    assert kept == batch


def test_batch_that_cannot_be_opened_stays() -> None:
    batch = bytearray(batch_of((b"a", b"1")))
    batch[ATTRIBUTES_AT + 1] |= Codec.GZIP
    CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    batch_filter = filter_with({b"a": 99})
    assert filtered(batch_filter, memoryview(batch)) == memoryview(batch)
    assert batch_filter.counts.unreadable_batches_count == 1


def test_timestamps_that_do_not_fit_leave_the_batch_as_it_is() -> None:
    builder = BatchBuilder()
    builder.append(-(2**63) + 5, b"a", None)
    batch = memoryview(builder.build(base_offset=10))
    assert filtered(filter_with({b"a": 10}), batch) == batch


def test_aborted_records_go_and_their_marker_after_its_time() -> None:
    aborted = (AbortedTransaction(10, 12, 7, 12),)
    data = batch_of((b"a", b"1"), (b"b", b"2"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    end = marker(ABORT, 7, 12)
    first = filter_with({b"a": 10, b"b": 11}, aborted=aborted)
    assert filtered(first, data) is None
    # The marker still belongs to data that was passed in this clean.
    assert filtered(first, end) == end
    second = filter_with(aborted=aborted)
    stamped = filtered(second, end)
    assert stamped is not None
    assert read_header(stamped).attributes & DELETE_HORIZON_BIT
    assert filtered(filter_with(now_ms=NOW_MS + DAY_MS), stamped) is None


def test_marker_of_a_committed_transaction_stays_while_its_data_does() -> None:
    data = batch_of((b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    end = marker(COMMIT, 7, 11)
    batch_filter = filter_with({b"a": 10})
    assert filtered(batch_filter, data) == data
    assert filtered(batch_filter, end) == end


def test_later_transaction_of_a_producer_that_aborted_one_is_kept() -> None:
    aborted = (AbortedTransaction(10, 11, 7, 11),)
    first = batch_of((b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    second = batch_of(
        (b"a", b"2"), base_offset=12, producer_id=7, producer_epoch=0, base_sequence=1, is_transactional=True
    )
    batch_filter = filter_with({b"a": 12}, aborted=aborted)
    assert filtered(batch_filter, first) is None
    assert filtered(batch_filter, marker(ABORT, 7, 11)) is not None
    assert filtered(batch_filter, second) == second
