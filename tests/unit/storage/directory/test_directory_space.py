"""A log directory on a disk that fills: what is refused, what uses the reserve, and how it recovers."""

from __future__ import annotations

import errno
import logging
import random
from typing import TYPE_CHECKING, Final

import pytest

from ottla.model.identifiers import OFFSETS_TOPIC, TopicPartition
from ottla.runtime.offload import INLINE, run_inline
from ottla.storage.directory import directory_identity
from ottla.storage.directory.directory_space import RESERVE_FILE, DirectorySpace
from ottla.storage.directory.disk_space import SpaceRules
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.errors import DiskFull
from ottla.storage.log_config import LogConfig
from ottla.testing.memory_disk import MemoryDisk
from tests.unit.storage.logs import CLICKS, NOW_MS, HandClock, append, append_many, batch_of, read_all, topic_id

if TYPE_CHECKING:
    from ottla.storage.log.log import Log

OFFSETS: Final = TopicPartition(OFFSETS_TOPIC, 0)
RESERVE_BYTES: Final = 40_000
RULES: Final = SpaceRules(RESERVE_BYTES, low_bytes=200_000, refuse_below_bytes=100_000)
# What is there before the first record: the flushed ends alone are 128 KiB.
ROOM_BYTES: Final = 800_000
RESERVE: Final = f"/data/{RESERVE_FILE}"


class Filled:
    """A directory with a log of clicks and one of committed offsets, whose space is watched."""

    def __init__(self, disk: MemoryDisk | None = None, config: LogConfig | None = None) -> None:
        self.disk = MemoryDisk() if disk is None else disk
        self.clock = HandClock()
        self.config = LogConfig() if config is None else config
        if disk is None:
            self.disk.room_bytes = ROOM_BYTES
            self.disk.make_directory("/data")
            directory_identity.check_or_write(self.disk, "/data", 0, None)
        self.open()

    def open(self) -> None:
        space = DirectorySpace(self.disk, "/data", RULES)
        space.look()
        self.directory = LogDirectory.open(
            self.disk, "/data", clock=self.clock, config_of=lambda _: self.config, space=space
        )
        self.directory.look_at_space()
        if not self.directory.logs:
            run_inline(self.directory.create([(CLICKS, topic_id(0)), (OFFSETS, topic_id(1))]))
            for log in self.directory.logs.values():
                log.start_epoch(0)

    @property
    def log(self) -> Log:
        return self.directory.logs[CLICKS]

    @property
    def free_bytes(self) -> int:
        return self.disk.free_bytes("/data")

    def flush(self) -> None:
        while (plan := self.directory.scheduler.plan(self.clock.monotonic_ms())) is not None:
            plan.execute(self.disk)
            self.directory.scheduler.complete(plan, None, self.clock.monotonic_ms())

    def produce_until_refused(self, *, looks: bool = True) -> int:
        """How many batches of a kilobyte were taken."""
        count = 0
        while True:
            try:
                append(self.log, batch_of(value=b"v" * 1_000))
            except DiskFull:
                self.flush()
                return count
            count += 1
            if looks:
                self.directory.look_at_space()

    def foreign_file(self) -> None:
        """Another program takes all that is left."""
        file = self.disk.open("/foreign", create=True)
        file.write_at(0, bytes(self.free_bytes))
        file.close()
        assert self.free_bytes == 0

    def housekeep(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.ms += 1_000
            self.directory.look_at_space()
            while self.directory.housekeep(self.clock.now_ms()):
                pass

    def events(self, caplog: pytest.LogCaptureFixture) -> list[str]:
        return [
            record.getMessage() for record in caplog.records if record.getMessage().startswith(("disk.", "append."))
        ]


def test_produces_are_refused_while_there_is_room_and_all_else_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    place = Filled()
    assert place.disk.file_size_bytes(RESERVE) == RESERVE_BYTES
    taken_count = place.produce_until_refused()
    assert RULES.refuse_below_bytes - 2_000 < place.free_bytes < RULES.refuse_below_bytes
    assert place.disk.file_size_bytes(RESERVE) == RESERVE_BYTES
    assert read_all(place.log) == list(range(taken_count))
    for _ in range(10):
        append(place.directory.logs[OFFSETS], batch_of())
    for _ in range(5):
        with pytest.raises(DiskFull):
            append(place.log, batch_of())
    place.log.delete_records_before(3)
    place.directory.checkpoint()
    place.directory.look_at_space()
    assert place.events(caplog) == ["disk.low", "disk.full", "append.refused"]


def test_write_that_fails_between_two_looks_takes_nothing_of_the_reserve(caplog: pytest.LogCaptureFixture) -> None:
    place = Filled()
    taken_count = place.produce_until_refused(looks=False)
    # Released, and not used yet.
    assert not place.disk.exists(RESERVE)
    assert place.free_bytes >= RESERVE_BYTES
    with pytest.raises(DiskFull):
        append(place.log, batch_of())
    assert place.free_bytes >= RESERVE_BYTES
    assert read_all(place.log) == list(range(taken_count))
    assert place.events(caplog) == ["disk.full", "append.refused"]


def test_duplicate_of_a_stored_batch_is_acknowledged_on_a_full_disk() -> None:
    place = Filled()
    batch = bytes(batch_of(producer_id=7, producer_epoch=0, base_sequence=0))
    offset = append(place.log, memoryview(bytearray(batch)))
    place.produce_until_refused()
    assert append(place.log, memoryview(bytearray(batch))) == offset


def test_pipeline_of_an_idempotent_producer_is_refused_as_a_whole_and_stored_in_order_later() -> None:
    place = Filled()
    first, *pipeline = (batch_of(producer_id=7, producer_epoch=0, base_sequence=number) for number in range(4))
    append(place.log, first)
    place.produce_until_refused()
    for _ in range(2):
        for batch in pipeline:
            with pytest.raises(DiskFull):
                append(place.log, batch)
    place.disk.room_bytes = 2 * ROOM_BYTES
    place.directory.look_at_space()
    end = place.log.log_end_offset
    assert [append(place.log, batch) for batch in pipeline] == [end, end + 1, end + 2]


def test_followers_log_refuses_what_its_leader_sends() -> None:
    leader, follower = Filled(), Filled()
    follower.produce_until_refused()
    end = follower.log.log_end_offset
    append_many(leader.log, 1)
    run = memoryview(bytearray(leader.disk.files()["/data/clicks-0/00000000000000000000.log"]))
    with pytest.raises(DiskFull):
        follower.log.append_run(run, NOW_MS)
    assert follower.log.log_end_offset == end


def test_new_logs_are_refused_but_for_the_brokers_own() -> None:
    place = Filled()
    place.produce_until_refused()
    with pytest.raises(DiskFull):
        run_inline(place.directory.create([(TopicPartition("new", 0), topic_id(2))]))
    assert not place.disk.exists("/data/new-0")
    run_inline(place.directory.create([(TopicPartition(OFFSETS_TOPIC, 1), topic_id(1))]))


def test_retention_that_is_shortened_on_a_full_disk_makes_room_and_produces_continue(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    place = Filled(config=LogConfig(segment_bytes=50_000, file_delete_delay_ms=60_000))
    place.produce_until_refused()
    place.foreign_file()
    place.log.update_config(LogConfig(segment_bytes=50_000, retention_bytes=100_000, file_delete_delay_ms=60_000))
    # The interval of retention is five minutes.
    place.housekeep(7)
    assert place.log.log_start_offset > 0
    place.housekeep(61)
    append(place.log, batch_of())
    assert place.disk.file_size_bytes(RESERVE) == RESERVE_BYTES
    assert place.events(caplog)[-1] == "disk.room_returned"
    assert place.events(caplog).count("disk.full") == 1


def test_topic_is_deleted_on_a_full_disk_and_produces_continue() -> None:
    place = Filled()
    other = TopicPartition("other", 0)
    run_inline(place.directory.create([(other, topic_id(2))]))
    append_many(place.directory.logs[other], 300, value=b"v" * 1_000)
    place.flush()
    place.directory.logs[other].delete_records_before(1)
    place.directory.checkpoint()
    place.produce_until_refused()
    place.foreign_file()
    place.directory.look_at_space()
    place.directory.delete(other)
    place.housekeep(62)
    append(place.log, batch_of())


def test_committed_offsets_leave_the_last_quarter_of_the_reserve() -> None:
    place = Filled()
    place.produce_until_refused()
    place.foreign_file()
    place.directory.look_at_space()
    while not place.directory.space.own.is_closed:
        append(place.directory.logs[OFFSETS], batch_of())
        place.directory.look_at_space()
    with pytest.raises(DiskFull):
        append(place.directory.logs[OFFSETS], batch_of())
    assert RESERVE_BYTES / 4 - 1_000 < place.free_bytes < RESERVE_BYTES / 4
    place.log.delete_records_before(1)
    place.directory.checkpoint()


def test_directory_is_closed_cleanly_and_opened_on_a_full_disk_with_all_records() -> None:
    place = Filled()
    taken_count = place.produce_until_refused()
    place.foreign_file()
    place.directory.close()
    place.open()
    assert place.directory.was_clean
    assert read_all(place.log) == list(range(taken_count))
    with pytest.raises(DiskFull):
        append(place.log, batch_of())
    place.disk.remove("/foreign")
    place.log.delete_records_before(taken_count)
    place.disk.room_bytes = 2 * ROOM_BYTES
    place.directory.look_at_space()
    append(place.log, batch_of())


@pytest.mark.parametrize("seed", range(5))
def test_directory_is_opened_after_a_crash_on_a_full_disk_with_all_records(seed: int) -> None:
    place = Filled()
    taken_count = place.produce_until_refused(looks=seed % 2 == 0)
    place.foreign_file()
    after = place.disk.kill() if seed == 0 else place.disk.crash(random.Random(seed))
    after.room_bytes = sum(len(content) for content in after.files().values())
    opened = Filled(after)
    assert not opened.directory.failed
    assert read_all(opened.log)[:taken_count] == list(range(taken_count))
    with pytest.raises(DiskFull):
        append(opened.log, batch_of())


@pytest.mark.parametrize("file", [".snapshot", ".timeindex"])
def test_recovery_that_finds_no_room_for_a_cache_takes_the_reserve(file: str) -> None:
    place = Filled(config=LogConfig(index_interval_bytes=0))
    append_many(place.log, 3)
    place.log.roll(NOW_MS)
    append_many(place.log, 2)
    after = place.disk.kill()
    after.room_bytes = ROOM_BYTES
    after.faults.fail("write", error=errno.ENOSPC, path_contains=file)
    opened = Filled(after)
    assert not opened.directory.failed
    assert read_all(opened.log) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("in_steps", [False, True])
def test_checkpoint_that_meets_a_full_disk_before_a_look_does_takes_the_reserve(*, in_steps: bool) -> None:
    place = Filled()
    append_many(place.log, 3)
    place.flush()
    place.foreign_file()
    place.log.delete_records_before(2)
    if in_steps:
        run_inline(place.directory.checkpoint_in_steps(INLINE))
    else:
        place.directory.checkpoint()
    with pytest.raises(DiskFull):
        append(place.log, batch_of())
    assert place.directory.space.reserve_bytes == 0


def test_reserve_with_holes_is_allocated_again() -> None:
    disk = MemoryDisk()
    disk.make_directory("/data")
    disk.open(RESERVE, create=True).close()
    disk.operations.clear()
    DirectorySpace(disk, "/data", RULES).look()
    assert ("allocate", RESERVE, 0, RESERVE_BYTES) in disk.operations


def test_reserve_that_cannot_be_made_is_reported_once_and_the_directory_serves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk()
    disk.make_directory("/data")
    disk.faults.fail("allocate", path_contains=RESERVE_FILE, times=None)
    space = DirectorySpace(disk, "/data", RULES)
    for _ in range(3):
        space.look()
    assert [record.getMessage() for record in caplog.records] == ["disk.reserve_not_made"]
    assert not disk.exists(RESERVE)
    assert not space.is_full


def test_no_append_is_refused_after_a_failed_write_when_the_space_is_not_watched() -> None:
    disk = MemoryDisk()
    disk.make_directory("/data")
    space = DirectorySpace(disk, "/data", RULES)
    space.on_no_room()
    assert not space.records.is_closed
    assert not space.relieve()


def test_records_are_not_refused_for_ever_when_the_free_space_cannot_be_seen(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryDisk()
    disk.make_directory("/data")
    space = DirectorySpace(disk, "/data", RULES)
    space.look()

    def blind(path: str) -> int:
        raise OSError(errno.EIO, "nothing is known", path)

    monkeypatch.setattr(disk, "free_bytes", blind)
    assert space.relieve()
    are_closed = [space.records.is_closed]
    for _ in range(2):
        space.look()
        are_closed.append(space.records.is_closed)
    assert are_closed == [True, False, False]
    assert [record.getMessage() for record in caplog.records] == ["disk.not_seen"]
