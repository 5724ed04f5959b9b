from __future__ import annotations

import struct

from ottla.storage.segment.offset_index import OffsetIndex


def index_of(*entries: tuple[int, int]) -> OffsetIndex:
    index = OffsetIndex()
    for offset, position in entries:
        index.append(offset, position)
    return index


def test_offset_index_finds_the_greatest_entry_not_above_the_target() -> None:
    index = index_of((9, 4_200), (24, 8_600))
    assert index.slot_for(8) == -1
    assert index.slot_for(9) == 0
    assert index.slot_for(23) == 0
    assert index.slot_for(1_000) == 1


def test_offset_index_bytes_are_pairs_of_big_endian_int32() -> None:
    assert index_of((9, 4_200), (24, 8_600)).to_bytes() == struct.pack(">iiii", 9, 4_200, 24, 8_600)


def test_offset_index_reads_back_what_it_wrote() -> None:
    index = index_of((9, 4_200), (24, 8_600))
    again = OffsetIndex.from_bytes(index.to_bytes(), log_size_bytes=10_000)
    assert again is not None
    assert (again.relative_offsets, again.positions) == (index.relative_offsets, index.positions)


def test_offset_index_is_refused_when_its_file_cannot_be_one() -> None:
    good = index_of((9, 4_200), (24, 8_600)).to_bytes()
    assert OffsetIndex.from_bytes(good[:-1], 10_000) is None
    assert OffsetIndex.from_bytes(good + good[:8], 10_000) is None, "offsets must rise"
    assert OffsetIndex.from_bytes(good + bytes(8), 10_000) is None, "zeros behind the entries of a crashed writer"
    assert OffsetIndex.from_bytes(good, 8_600) is None, "a position at the log's end"
    assert OffsetIndex.from_bytes(struct.pack(">ii", -1, 3), 10_000) is None


def test_offset_index_drops_entries_at_and_above_an_offset_when_truncated() -> None:
    index = index_of((9, 4_200), (24, 8_600), (30, 12_900))
    index.truncate_to(24)
    assert list(index.relative_offsets) == [9]
    assert list(index.positions) == [4_200]
