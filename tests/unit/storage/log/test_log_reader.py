from __future__ import annotations

from pathlib import Path

import pytest

from ottla.records.builder import BatchBuilder
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec
from ottla.records.header import ATTRIBUTES_AT, CRC, CRC_AT
from ottla.runtime.posix_disk import PosixFile
from ottla.storage.errors import CorruptLog
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.segment.indexes import TimestampOffset
from tests.unit.storage.logs import Place, append, at_greatest_time, at_time, batch_of, records_in, truncate_log

CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=200)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "data", config=CONFIG)


@pytest.fixture
def log(place: Place) -> Log:
    return place.log()


def fill(log: Log) -> None:
    """Offset n has timestamp 1000 + 10 n; two records in each batch."""
    for number in range(0, 60, 2):
        builder = BatchBuilder()
        for offset in (number, number + 1):
            builder.append(1_000 + 10 * offset, None, b"v" * 100)
        append(log, memoryview(builder.build()))


def test_a_time_finds_the_first_record_at_or_after_it(log: Log) -> None:
    fill(log)
    for offset in range(60):
        for timestamp_ms in (1_000 + 10 * offset, 1_000 + 10 * offset - 9):
            found = at_time(log, timestamp_ms, log.log_end_offset)
            assert found == TimestampOffset(1_000 + 10 * offset, offset, 0)


def test_a_time_after_the_last_record_or_the_limit_finds_nothing(log: Log) -> None:
    fill(log)
    assert at_time(log, 1_591, log.log_end_offset) is None
    assert at_time(log, 1_300, 30) is None
    assert at_time(log, 1_290, 30) is not None
    assert at_time(log, 1_000) is None, "nothing is stable yet"


def test_a_time_finds_nothing_below_the_log_start(place: Place, log: Log) -> None:
    fill(log)
    place.flush()
    log.delete_records_before(33)
    found = at_time(log, 0, log.log_end_offset)
    assert found is not None
    assert found.offset == 33


def test_a_time_is_looked_for_inside_compressed_batches(log: Log) -> None:
    builder = BatchBuilder()
    for number in range(100):
        builder.append(1_000 + number, None, b"v" * 50)
    append(log, memoryview(builder.build(codec=Codec.ZSTD)))
    found = at_time(log, 1_050, log.log_end_offset)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (50, 1_050)


def test_a_batch_that_cannot_be_opened_is_found_by_its_first_offset(log: Log) -> None:
    append(log, batch_of(timestamp_ms=500))
    batch = batch_of(3, timestamp_ms=1_000)
    batch[61:] = b"\xff" * (len(batch) - 61)
    CRC.pack_into(batch, CRC_AT, crc32c(batch[ATTRIBUTES_AT:]))
    append(log, batch)
    found = at_time(log, 900, log.log_end_offset)
    assert found is not None
    assert found.offset == 1


def test_the_broker_set_time_of_a_batch_is_that_of_all_its_records(log: Log) -> None:
    builder = BatchBuilder()
    for number in range(3):
        builder.append(number, None, b"")
    append(log, memoryview(builder.build(log_append_time_ms=7_000)))
    assert at_time(log, 6_999, log.log_end_offset) == TimestampOffset(7_000, 0, 0)


def test_records_out_of_time_order_are_found_by_their_first_that_is_late_enough(log: Log) -> None:
    for timestamp_ms in (100, 400, 200, 300, 500):
        append(log, batch_of(timestamp_ms=timestamp_ms, value=b"v" * 300))
    offsets = []
    for timestamp_ms in (100, 150, 300, 401, 500):
        found = at_time(log, timestamp_ms, log.log_end_offset)
        assert found is not None
        offsets.append(found.offset)
    assert offsets == [0, 1, 1, 4, 4]


def test_the_greatest_timestamp_is_found_below_the_limit_only(log: Log) -> None:
    for timestamp_ms in (100, 400, 200, 900, 300):
        append(log, batch_of(timestamp_ms=timestamp_ms))
    assert at_greatest_time(log, log.log_end_offset) == TimestampOffset(900, 3, 0)
    assert at_greatest_time(log, 3) == TimestampOffset(400, 1, 0)
    assert at_greatest_time(log, 0) is None


def test_reads_find_everything_when_indexes_are_dropped_all_the_time(log: Log) -> None:
    fill(log)
    for segment in list(log.segments)[:-1]:
        segment.drop_indexes()
    for offset in range(0, 60, 7):
        run = log.read(offset, log.log_end_offset, 10, whole_first_batch=True)
        assert records_in(run)[0].offset == offset - offset % 2
        for segment in list(log.segments)[:-1]:
            segment.drop_indexes()


@pytest.mark.parametrize("limit", ["the log's end", "an end that other readers have passed"])
def test_a_reader_that_has_everything_continues_without_a_search(
    log: Log, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    append(log, batch_of(3))
    middle = log.log_end_offset
    if limit != "the log's end":
        append(log, batch_of(2))
    first = log.read(0, middle, 1 << 20, whole_first_batch=True)
    append(log, batch_of(4))
    append(log, batch_of(1))
    assert first is not None

    def search(file: PosixFile, position: int, length_bytes: int) -> bytes:
        pytest.fail("the place where the reader continues is known")

    monkeypatch.setattr(PosixFile, "read_at", search)
    second = log.read(middle, log.log_end_offset, 1 << 20, whole_first_batch=True)
    assert second is not None
    assert second.position == first.position + first.length_bytes
    log.check_invariants()


def test_a_place_that_was_read_to_is_forgotten_when_the_log_is_cut_below_it(log: Log) -> None:
    append(log, batch_of(3))
    append(log, batch_of(3))
    log.read(0, log.log_end_offset, 1 << 20, whole_first_batch=True)
    truncate_log(log, 3)
    append(log, batch_of(1))
    append(log, batch_of(2))
    append(log, batch_of(2))
    log.check_invariants()
    found = records_in(log.read(6, log.log_end_offset, 1 << 20, whole_first_batch=True))
    assert [record.offset for record in found] == [6, 7]


@pytest.mark.parametrize("segment_bytes", [100_000, 2_000], ids=["one segment", "many segments"])
def test_read_up_to_a_limit_ends_before_a_damaged_head(tmp_path: Path, segment_bytes: int) -> None:
    """The head of the batch at offset 16 is damaged, and no entry of the index is between it and the limit."""
    place = Place(tmp_path / "few", config=LogConfig(segment_bytes=segment_bytes, index_interval_bytes=1_000_000))
    log = place.log()
    fill(log)
    place.flush()
    damaged = next(each for each in reversed(log.segments) if each.base_offset <= 16)
    found = damaged.find(16)
    assert found is not None
    with Path(damaged.log_path).open("r+b") as file:
        file.seek(found[0] + 16)
        file.write(b"\x07")

    def offsets_from(start_offset: int) -> list[int]:
        read: list[int] = []
        while start_offset < 16:
            run = log.read(start_offset, 18, 1 << 20, whole_first_batch=True)
            read += [record.offset for record in records_in(run)]
            start_offset = read[-1] + 1
        return read

    assert offsets_from(0) == list(range(16))
    assert offsets_from(14) == [14, 15]
    for start_offset in (16, 17):
        with pytest.raises(CorruptLog, match=r"format|magic|batch"):
            log.read(start_offset, 18, 1 << 20, whole_first_batch=True)
    log.check_invariants()
