from __future__ import annotations

import errno
import logging
import random
from uuid import UUID

import pytest

from ottla.runtime.disk import read_file
from ottla.storage.directory.flushed_ends import SLOT_BYTES, SLOTS_COUNT_MIN, FlushedEnds
from ottla.storage.log_files import FLUSHED_ENDS_FILE
from ottla.testing.memory_disk import MemoryDisk, Survival

PATH = f"/data/{FLUSHED_ENDS_FILE}"
TOPIC = UUID(int=2**100 + 7)
OTHER = UUID(int=2**101 + 7)


@pytest.fixture
def disk() -> MemoryDisk:
    made = MemoryDisk()
    made.make_directory("/data")
    made.sync_directory("/")
    return made


def reopened(disk: MemoryDisk) -> FlushedEnds:
    return FlushedEnds.open(disk, "/data")


def test_recorded_ends_are_there_after_a_kill(disk: MemoryDisk) -> None:
    ends = reopened(disk)
    assert ends.end_of(TOPIC, 0) is None
    ends.record([(TOPIC, 0, 10), (TOPIC, 1, 20), (OTHER, 0, 30)])
    ends.record([(TOPIC, 0, 11)])
    for again in (ends, reopened(disk.kill())):
        assert [again.end_of(TOPIC, 0), again.end_of(TOPIC, 1), again.end_of(OTHER, 0)] == [11, 20, 30]
        assert again.end_of(OTHER, 1) is None


def test_file_is_preallocated_and_recording_never_makes_it_longer(disk: MemoryDisk) -> None:
    ends = reopened(disk)
    assert disk.file_size_bytes(PATH) == SLOTS_COUNT_MIN * SLOT_BYTES
    ends.record((TOPIC, partition, 5) for partition in range(SLOTS_COUNT_MIN))
    assert disk.file_size_bytes(PATH) == SLOTS_COUNT_MIN * SLOT_BYTES
    ends.record([(OTHER, 0, 6)])
    assert disk.file_size_bytes(PATH) == 2 * SLOTS_COUNT_MIN * SLOT_BYTES
    again = reopened(disk.kill())
    assert len(again) == SLOTS_COUNT_MIN + 1
    assert again.end_of(TOPIC, SLOTS_COUNT_MIN - 1) == 5
    assert again.end_of(OTHER, 0) == 6


def test_recording_does_not_sync(disk: MemoryDisk) -> None:
    ends = reopened(disk)
    count = len(disk.operations)
    ends.record([(TOPIC, 0, 10)])
    ends.record([(TOPIC, partition, 11) for partition in range(100)])
    assert {operation.kind for operation in disk.operations[count:]} == {"write"}
    assert len(disk.operations) - count == 2


def test_power_loss_leaves_an_end_that_was_recorded_once(disk: MemoryDisk) -> None:
    ends = reopened(disk)
    ends.record([(TOPIC, 0, 10), (OTHER, 3, 100)])
    ends.sync()
    for end in (20, 30, 40):
        ends.record([(TOPIC, 0, end), (OTHER, 3, 10 * end)])
    seen = set()
    for seed in range(200):
        after = reopened(disk.crash(random.Random(seed)))
        seen.add(after.end_of(TOPIC, 0))
        assert after.end_of(OTHER, 3) in {100, 200, 300, 400}
    assert seen == {10, 20, 30, 40}


def test_flip_of_any_byte_makes_the_end_absent(disk: MemoryDisk) -> None:
    ends = reopened(disk)
    ends.record([(TOPIC, 0, 10), (OTHER, 0, 20)])
    content = read_file(disk, PATH)
    for position in range(SLOT_BYTES):
        damaged = bytearray(content)
        damaged[position] ^= 0x20
        copy = disk.kill()
        copy.open(PATH).write_at(0, damaged)
        after = reopened(copy)
        assert after.end_of(TOPIC, 0) is None
        assert after.end_of(OTHER, 0) == 20
        # The torn slot is taken again.
        after.record([(TOPIC, 0, 12)])
        assert reopened(copy).end_of(TOPIC, 0) == 12


@pytest.mark.parametrize("length_bytes", [0, 1, SLOT_BYTES - 1, SLOT_BYTES, SLOT_BYTES + 5])
def test_cut_file_is_read_as_far_as_it_goes_and_filled_up(disk: MemoryDisk, length_bytes: int) -> None:
    reopened(disk).record([(TOPIC, 0, 10), (OTHER, 0, 20)])
    disk.open(PATH).truncate(length_bytes)
    after = reopened(disk)
    assert after.end_of(TOPIC, 0) == (10 if length_bytes >= SLOT_BYTES else None)
    assert after.end_of(OTHER, 0) is None
    after.record([(OTHER, 0, 21)])
    assert reopened(disk).end_of(OTHER, 0) == 21


def test_lowered_end_is_durable_when_the_call_returns(disk: MemoryDisk) -> None:
    ends = reopened(disk)
    ends.record([(TOPIC, 0, 100)])
    ends.sync()
    ends.lower(TOPIC, 0, 40)
    assert all(reopened(disk.crash(random.Random(seed))).end_of(TOPIC, 0) == 40 for seed in range(20))


def test_lowering_to_more_than_the_recorded_end_does_nothing(disk: MemoryDisk) -> None:
    ends = reopened(disk)
    ends.record([(TOPIC, 0, 100)])
    count = len(disk.operations)
    ends.lower(TOPIC, 0, 100)
    ends.lower(OTHER, 0, 5)
    assert len(disk.operations) == count
    assert ends.end_of(TOPIC, 0) == 100


def test_forgotten_logs_are_forgotten_durably_and_their_slots_are_reused(disk: MemoryDisk) -> None:
    ends = reopened(disk)
    ends.record([(TOPIC, 0, 100), (TOPIC, 1, 100), (OTHER, 0, 7)])
    ends.sync()
    ends.forget([(TOPIC, 0), (TOPIC, 1), (OTHER, 5)])
    after = reopened(disk.crash(random.Random(1), Survival.NOTHING))
    assert [after.end_of(TOPIC, 0), after.end_of(TOPIC, 1), after.end_of(OTHER, 0)] == [None, None, 7]
    ends.record([(OTHER, 1, 8)])
    assert read_file(disk, PATH)[:SLOT_BYTES].startswith(OTHER.bytes)


def test_slot_that_a_deleted_topic_left_behind_fits_no_topic_of_the_same_name(disk: MemoryDisk) -> None:
    reopened(disk).record([(TOPIC, 0, 100)])
    recreated = UUID(int=TOPIC.int + 1)
    assert reopened(disk).end_of(recreated, 0) is None


def test_of_two_slots_of_one_log_the_lower_counts(disk: MemoryDisk) -> None:
    ends = reopened(disk)
    for low, high in ((10, 20), (20, 10)):
        ends.record([(TOPIC, 0, low)])
        first = read_file(disk, PATH)[:SLOT_BYTES]
        ends.record([(TOPIC, 0, high)])
        copy = disk.kill()
        copy.open(PATH).write_at(SLOT_BYTES, first)
        after = reopened(copy)
        assert after.end_of(TOPIC, 0) == 10
        after.record([(OTHER, 0, 1), (OTHER, 1, 1)])
        assert reopened(copy).end_of(TOPIC, 0) == 10


def test_disk_that_takes_no_bytes_is_reported_once_and_the_record_stays_older(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    ends = reopened(disk)
    ends.record([(TOPIC, 0, 10)])
    disk.faults.fail("write", times=3)
    with caplog.at_level(logging.WARNING):
        for end in (20, 30, 40):
            ends.record([(TOPIC, 0, end)])
    assert [record.getMessage() for record in caplog.records] == ["flushed_ends.write_failed"]
    assert reopened(disk.kill()).end_of(TOPIC, 0) == 10
    ends.record([(TOPIC, 0, 50)])
    assert reopened(disk.kill()).end_of(TOPIC, 0) == 50


def test_failed_lowering_is_an_error(disk: MemoryDisk) -> None:
    ends = reopened(disk)
    ends.record([(TOPIC, 0, 10)])
    disk.faults.fail("sync")
    with pytest.raises(OSError):
        ends.lower(TOPIC, 0, 5)


def test_lowering_writes_the_record_when_an_earlier_attempt_failed(disk: MemoryDisk) -> None:
    ends = reopened(disk)
    ends.record([(TOPIC, 0, 10)])
    disk.faults.fail("write", error=errno.ENOSPC)
    with pytest.raises(OSError):
        ends.lower(TOPIC, 0, 4)
    assert ends.end_of(TOPIC, 0) == 10
    ends.lower(TOPIC, 0, 4)
    assert reopened(disk.kill()).end_of(TOPIC, 0) == 4
