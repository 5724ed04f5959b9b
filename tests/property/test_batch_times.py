"""Counts of a batch by window against a full decode: all codecs, any order of times, batches across borders."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.model.errors import WireError
from ottla.model.windows import window_start_ms
from ottla.records.batch_times import window_counts
from ottla.records.builder import BatchBuilder
from ottla.records.checksum import batch_crc
from ottla.records.compression import Codec
from ottla.records.header import BATCH_OVERHEAD_BYTES, CRC, CRC_AT, read_header
from ottla.records.record import decode_batch
from tests.property.property_settings import example_settings

WINDOW_MS = 600_000
T0 = 1_330_604_400_000  # the start of a window

# Around a window's border, around the sizes of varints, and out of order.
deltas = st.one_of(
    st.integers(-70, 70),
    st.integers(-9_000, 9_000),
    st.integers(-(2**22), 2**22),
    st.sampled_from([0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8192, -8193, WINDOW_MS - 1, WINDOW_MS, -WINDOW_MS]),
    st.integers(-(2**40), 2**40),
)
# Runs of equal records, which the column check proves, and others.
runs = st.lists(
    st.tuples(
        st.lists(deltas, min_size=1, max_size=40)
        | st.tuples(deltas, st.integers(1, 80)).map(lambda run: [run[0]] * run[1]),
        st.sampled_from([0, 1, 50, 51, 52, 53, 54, 55, 56, 57, 200, 8_200]),
        st.sampled_from([None, 0, 3]),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


def by_decoding(batch: bytearray, first_offset: int = 0) -> Counter[int]:
    if read_header(batch).is_control:
        return Counter()
    records = decode_batch(memoryview(batch))
    return Counter(window_start_ms(each.timestamp_ms, WINDOW_MS) for each in records if each.offset >= first_offset)


def built(
    run_list: list[tuple[list[int], int, int | None, bool]],
    base_ms: int,
    codec: Codec,
    *,
    is_append_time: bool = False,
    is_control: bool = False,
    is_compacted: bool = False,
) -> bytearray:
    builder = BatchBuilder()
    builder.append(base_ms, None, b"first")
    for run, value_bytes, key_bytes, has_header in run_list:
        for delta in run:
            headers = (("h", b"1"),) if has_header else ()
            key = None if key_bytes is None else bytes(key_bytes)
            # Compaction leaves gaps.
            offset_delta = 3 * builder.records_count if is_compacted else None
            builder.append(base_ms + delta, key, bytes(value_bytes), headers, offset_delta=offset_delta)
    append_ms = base_ms + 7 if is_append_time else None
    return builder.build(codec=codec, base_offset=100, log_append_time_ms=append_ms, is_control=is_control)


@example_settings(400)
@given(
    runs,
    st.sampled_from([T0, T0 + 1, T0 + WINDOW_MS - 1, T0 + WINDOW_MS - 64, T0 + WINDOW_MS // 2, 0, -5]),
    st.sampled_from(Codec),
    st.booleans(),
    st.booleans(),
    st.integers(0, 400),
)
# The head alone would be wrong: the first and the greatest time share a window, the second record does not.
@example([([-1, 5], 1, None, False)], T0, Codec.NONE, False, False, 0)
@example([([-1] * 40 + [5], 1, None, False)], T0, Codec.LZ4, False, False, 0)
@example([([0] * 20 + [-1] + [0] * 20, 1, None, False)], T0, Codec.ZSTD, False, False, 0)
def test_counts_are_those_of_a_full_decode(
    run_list: list[tuple[list[int], int, int | None, bool]],
    base_ms: int,
    codec: Codec,
    is_append_time: bool,
    is_compacted: bool,
    first_offset: int,
) -> None:
    batch = built(run_list, base_ms, codec, is_append_time=is_append_time, is_compacted=is_compacted)
    assert window_counts(memoryview(batch), WINDOW_MS) == by_decoding(batch)
    assert window_counts(memoryview(batch), WINDOW_MS, first_offset=first_offset) == by_decoding(batch, first_offset)


@example_settings(300)
@given(runs, st.data())
def test_damaged_records_are_counted_as_they_are_decoded_or_refused(
    run_list: list[tuple[list[int], int, int | None, bool]], data: st.DataObject
) -> None:
    batch = built(run_list, T0, Codec.NONE)
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(BATCH_OVERHEAD_BYTES, len(batch) - 1))] = data.draw(st.integers(0, 255))
    CRC.pack_into(batch, CRC_AT, batch_crc(batch))
    try:
        expected = by_decoding(batch)
    except WireError:
        with contextlib.suppress(WireError):
            window_counts(memoryview(batch), WINDOW_MS)
        return
    assert window_counts(memoryview(batch), WINDOW_MS) == expected


@pytest.mark.parametrize("codec", Codec)
def test_head_alone_cannot_prove_a_window(codec: Codec) -> None:
    batch = built([([-1, 5], 1, None, False)], T0, codec)
    head = read_header(batch)
    first, greatest = head.base_timestamp_ms, head.max_timestamp_ms
    assert window_start_ms(first, WINDOW_MS) == window_start_ms(greatest, WINDOW_MS)
    assert window_counts(memoryview(batch), WINDOW_MS) == {T0: 2, T0 - WINDOW_MS: 1}


def test_control_batches_have_no_records_of_users() -> None:
    assert window_counts(memoryview(built([], T0, Codec.NONE, is_control=True)), WINDOW_MS) == {}


def test_wrong_checksum_is_refused() -> None:
    batch = built([([1], 1, None, False)], T0, Codec.NONE)
    batch[-1] ^= 1
    with pytest.raises(WireError, match="checksum"):
        window_counts(memoryview(batch), WINDOW_MS)
