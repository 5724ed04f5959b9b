from __future__ import annotations

import struct

from ottla.storage.segment.indexes import TimeIndex


def index_of(*entries: tuple[int, int]) -> TimeIndex:
    index = TimeIndex()
    for timestamp_ms, offset in entries:
        index.append(timestamp_ms, offset)
    return index


def test_time_index_keeps_only_rising_timestamps() -> None:
    index = index_of((100, 5), (100, 9), (90, 12), (101, 15))
    assert list(index.timestamps_ms) == [100, 101]
    assert list(index.relative_offsets) == [5, 15]


def test_time_index_stays_empty_when_no_record_has_a_timestamp() -> None:
    assert len(index_of((-1, 0))) == 0


def test_time_index_finds_the_last_entry_that_is_older_than_the_target() -> None:
    index = index_of((100, 5), (110, 9))
    assert index.slot_for(100) == -1
    assert index.slot_for(101) == 0
    assert index.slot_for(110) == 0
    assert index.slot_for(111) == 1


def test_time_index_bytes_are_int64_and_int32_and_read_back() -> None:
    index = index_of((100, 5), (110, 9))
    assert index.to_bytes() == struct.pack(">qiqi", 100, 5, 110, 9)
    again = TimeIndex.from_bytes(index.to_bytes())
    assert again is not None
    assert list(again.timestamps_ms) == [100, 110]
    assert list(again.relative_offsets) == [5, 9]


def test_time_index_is_refused_when_its_file_cannot_be_one() -> None:
    good = index_of((100, 5), (110, 9)).to_bytes()
    assert TimeIndex.from_bytes(good[:-1]) is None
    assert TimeIndex.from_bytes(good + bytes(12)) is None
    assert TimeIndex.from_bytes(struct.pack(">qi", -1, 5)) is None


def test_time_index_whose_entries_do_not_rise_is_seen_by_a_look_at_all_of_them() -> None:
    good = index_of((100, 5), (110, 9)).to_bytes()
    for last in ((110, 12), (120, 9)):
        index = TimeIndex.from_bytes(good + struct.pack(">qi", *last))
        assert index is not None
        assert not index.is_increasing()


def test_time_index_drops_entries_at_and_above_an_offset_when_truncated() -> None:
    index = index_of((100, 5), (110, 9))
    index.truncate_to(9)
    assert list(index.timestamps_ms) == [100]


def test_times_and_offsets_of_any_size_come_back_from_the_file() -> None:
    index = TimeIndex()
    for timestamp_ms, offset in ((0, 0), (1, 7), (2**31 + 5, 8), (2**40, 2**24), (2**62, 2**31 - 1)):
        index.append(timestamp_ms, offset)
    content = index.to_bytes()
    assert content[:24] == bytes(12) + (1).to_bytes(8, "big") + (7).to_bytes(4, "big")
    read = TimeIndex.from_bytes(content)
    assert read is not None
    assert list(read.timestamps_ms) == [0, 1, 2**31 + 5, 2**40, 2**62]
    assert list(read.relative_offsets) == [0, 7, 8, 2**24, 2**31 - 1]
    assert read.is_increasing()
