from __future__ import annotations

import struct

from ottla.storage.segment.indexes import OffsetIndex


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


def test_offset_index_finds_the_entry_at_or_below_a_position() -> None:
    index = index_of((9, 4_200), (24, 8_600))
    assert [index.slot_at(position) for position in (4_199, 4_200, 8_599, 8_600, 10_000)] == [-1, 0, 0, 1, 1]


def test_search_in_a_damaged_offset_index_ends_between_entries_that_fit_the_target() -> None:
    for damaged in range(7):
        entries = [(10 * slot, 100 * slot) for slot in range(7)]
        for value in (-5, 0, 33, 2**31 - 1):
            entries[damaged] = (value, 100 * damaged)
            content = b"".join(struct.pack(">ii", *entry) for entry in entries)
            index = OffsetIndex.from_bytes(content, 10_000)
            for target in range(-1, 70):
                slot = -1 if index is None else index.slot_for(target)
                assert index is None or slot < 0 or index.relative_offset(slot) <= target
                assert index is None or slot + 1 == len(index) or index.relative_offset(slot + 1) > target


def test_offset_index_bytes_are_pairs_of_big_endian_int32() -> None:
    assert index_of((9, 4_200), (24, 8_600)).to_bytes() == struct.pack(">iiii", 9, 4_200, 24, 8_600)


def test_offset_index_reads_back_what_it_wrote() -> None:
    index = index_of((9, 4_200), (24, 8_600))
    again = OffsetIndex.from_bytes(index.to_bytes(), log_size_bytes=10_000)
    assert again is not None
    assert (again.relative_offsets, again.positions) == (index.relative_offsets, index.positions)
    assert again.is_increasing()


def test_offset_index_is_refused_when_its_file_cannot_be_one() -> None:
    good = index_of((9, 4_200), (24, 8_600)).to_bytes()
    assert OffsetIndex.from_bytes(good[:-1], 10_000) is None
    assert OffsetIndex.from_bytes(good + good[:8], 10_000) is None, "offsets must rise"
    assert OffsetIndex.from_bytes(good + bytes(8), 10_000) is None, "zeros behind the entries of a crashed writer"
    swapped = OffsetIndex.from_bytes(good[:8] + struct.pack(">ii", 30, 12_900) + good[8:], 20_000)
    assert swapped is not None
    assert not swapped.is_increasing(), "what only a look at all entries shows"
    assert OffsetIndex.from_bytes(good, 8_600) is None, "a position at the log's end"
    assert OffsetIndex.from_bytes(struct.pack(">ii", -1, 3), 10_000) is None


def test_offset_index_drops_entries_at_and_above_an_offset_when_truncated() -> None:
    index = index_of((9, 4_200), (24, 8_600), (30, 12_900))
    index.truncate_to(24)
    assert list(index.relative_offsets) == [9]
    assert list(index.positions) == [4_200]
