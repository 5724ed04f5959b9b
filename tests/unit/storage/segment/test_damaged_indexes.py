"""Index files have no checksum and are not looked through when they are loaded: a wrong entry shows when it is used."""

from __future__ import annotations

import struct

import pytest

from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from ottla.testing.memory_disk import MemoryDisk
from tests.unit.storage.logs import NOW_MS, Place, append, at_time, batch_of, records_in, truncate_log

CONFIG = LogConfig(segment_bytes=4_000, index_interval_bytes=200, retention_ms=-1, flush_policy="os")
BATCHES = 60


@pytest.fixture
def place() -> Place:
    """The batch at offset n has the timestamp NOW_MS + 10 n."""
    place = Place("/data", MemoryDisk(), CONFIG)
    log = place.log()
    for number in range(BATCHES):
        append(log, batch_of(timestamp_ms=NOW_MS + 10 * number))
    place.close()
    place.reopen_log()
    return place


def content_of(place: Place, path: str) -> bytes:
    file = place.disk.open(path)
    try:
        return file.read_at(0, file.size_bytes())
    finally:
        file.close()


def replace_content(place: Place, path: str, content: bytes) -> None:
    file = place.disk.open(path)
    try:
        file.truncate(0)
        file.write_at(0, content)
    finally:
        file.close()


def assert_finds_all(log: Log) -> None:
    segment = log.segments[0]
    for offset in range(log.segments[1].base_offset):
        run = log.read(offset, log.log_end_offset, 1, whole_first_batch=True)
        assert [record.offset for record in records_in(run)] == [offset]
        found = at_time(log, NOW_MS + 10 * offset - 5)
        assert found is not None
        assert found.offset == offset
    assert segment.greatest_timestamp()[0] == NOW_MS + 10 * (log.segments[1].base_offset - 1)
    log.check_invariants()


@pytest.mark.parametrize("field", ["offset", "position"])
@pytest.mark.parametrize("value", [-7, 0, 1, 5, 333, 2_000, 3_999, 2**31 - 1])
def test_reads_find_their_batches_with_any_entry_of_the_offset_index(place: Place, field: str, value: int) -> None:
    log = place.log()
    path = log.segments[0].path + ".index"
    whole = content_of(place, path)
    assert len(whole) > 10 * 8
    for at in range(0 if field == "offset" else 4, len(whole), 8):
        damaged = bytearray(whole)
        struct.pack_into(">i", damaged, at, value)
        replace_content(place, path, bytes(damaged))
        if log.segments[0].max_timestamp_ms is not None:
            log.segments[0].drop_indexes()
        assert_finds_all(log)


@pytest.mark.parametrize("value", [-7, 0, NOW_MS - 1, NOW_MS + 31, NOW_MS + 10**9, 2**63 - 1])
def test_searches_find_their_records_with_any_timestamp_in_the_time_index(place: Place, value: int) -> None:
    log = place.log()
    path = log.segments[0].path + ".timeindex"
    whole = content_of(place, path)
    for at in range(0, len(whole), 12):
        damaged = bytearray(whole)
        struct.pack_into(">q", damaged, at, value)
        replace_content(place, path, bytes(damaged))
        if log.segments[0].max_timestamp_ms is not None:
            log.segments[0].drop_indexes()
        assert_finds_all(log)


def test_wrong_entry_that_lets_a_search_start_too_early_rebuilds_the_index(place: Place) -> None:
    log = place.log()
    path = log.segments[0].path + ".index"
    whole = content_of(place, path)
    damaged = bytearray(whole)
    middle = len(whole) // 8 // 2
    struct.pack_into(">i", damaged, 8 * middle, 2**31 - 1)
    replace_content(place, path, bytes(damaged))
    last_offset = log.segments[1].base_offset - 1
    run = log.read(last_offset, log.log_end_offset, 1, whole_first_batch=True)
    assert [record.offset for record in records_in(run)] == [last_offset]
    assert content_of(place, path) == whole


def test_follower_cuts_a_closed_segment_whose_index_is_damaged(place: Place) -> None:
    log = place.log()
    path = log.segments[0].path + ".index"
    whole = content_of(place, path)
    for at in range(0, len(whole) - 8, 8):
        damaged = bytearray(whole)
        struct.pack_into(">i", damaged, at + 4, 3)
        replace_content(place, path, bytes(damaged))
        if log.segments[0].max_timestamp_ms is not None:
            log.segments[0].drop_indexes()
        # The last entry that the cut leaves is the damaged one, and the batch that it cuts has an entry, too.
        cut_offset: int = struct.unpack_from(">i", whole, at + 8)[0]
        truncate_log(log, cut_offset)
        assert log.log_end_offset == cut_offset
        log.check_invariants()
        for number in range(cut_offset, BATCHES):
            append(log, batch_of(timestamp_ms=NOW_MS + 10 * number))
        assert content_of(place, path) == whole
        assert_finds_all(log)
