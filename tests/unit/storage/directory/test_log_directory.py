from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from ottla.model.identifiers import TopicPartition
from ottla.runtime.offload import run_inline
from ottla.runtime.process import OpenFilesLimit
from ottla.storage.checkpoints import LOG_START_FILE
from ottla.storage.directory import open_files
from ottla.storage.directory.directory_lock import NoLock
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.directory.removals import REMOVAL_RETRY_MS
from ottla.storage.errors import (
    CorruptLog,
    DirectoryLocked,
    FlushedEndUnknown,
    ForeignDirectory,
    LogExists,
    StorageError,
    TooManyOpenFiles,
)
from ottla.storage.log_config import LogConfig
from ottla.storage.log_files import DELETED_DIRECTORY_SUFFIX
from ottla.testing.memory_disk import MemoryDisk, Survival
from tests.unit.storage.logs import CLICKS, NOW_MS, Place, append, append_many, batch_of, read_all, topic_id
from tests.unit.storage.quick_disk import QuickDisk, QuickFile

BATCH_BYTES = len(batch_of())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "data")


def test_a_second_broker_is_kept_out_until_the_first_one_stops(place: Place) -> None:
    place.open()
    with pytest.raises(DirectoryLocked, match="in use by process") as refused:
        Place(place.path).open()
    assert refused.value.hint is not None
    assert "--data-dir" in refused.value.hint
    place.close()
    Place(place.path).open()


def test_directories_above_are_made(tmp_path: Path) -> None:
    Place(tmp_path / "a" / "b" / "c").open()
    assert (tmp_path / "a" / "b" / "c" / "meta.properties").exists()


def test_a_directory_of_apache_kafka_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("#\n#Mon Jan 01\ncluster.id=abc\nversion=1\nnode.id=1\n")
    with pytest.raises(ForeignDirectory, match="Apache Kafka") as refused:
        Place(tmp_path).open()
    assert refused.value.hint is not None


@pytest.mark.parametrize("name", ["partition.metadata", f"{0:020d}.log"])
def test_logs_without_an_owner_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "clicks-0").mkdir()
    (tmp_path / "clicks-0" / name).write_text("")
    with pytest.raises(ForeignDirectory, match="holds logs") as refused:
        Place(tmp_path).open()
    assert "restore meta.properties" in (refused.value.hint or "")


@pytest.mark.parametrize("name", ["passwd", "clicks-0/notes.txt", ".ssh/id"])
def test_directory_of_another_owner_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    with pytest.raises(ForeignDirectory, match=f"not a data directory.*{name.split('/')[0]}") as refused:
        Place(tmp_path).open()
    assert "choose another --data-dir" in (refused.value.hint or "")
    assert not (tmp_path / "meta.properties").exists()


@pytest.mark.parametrize("name", [".lock", "lost+found/", "meta.properties.tmp"])
def test_directory_without_files_of_an_owner_is_accepted(tmp_path: Path, name: str) -> None:
    if name.endswith("/"):
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text("")
    Place(tmp_path).open()
    assert (tmp_path / "meta.properties").exists()


@pytest.mark.parametrize(("node_id", "cluster_id"), [(2, "c"), (1, "other")])
def test_another_nodes_or_clusters_directory_is_refused(place: Place, node_id: int, cluster_id: str) -> None:
    place.open()
    place.close()
    with pytest.raises(ForeignDirectory):
        LogDirectory.open(place.disk, place.path, clock=place.clock, node_id=node_id, cluster_id=cluster_id)


def test_directory_is_not_opened_when_files_run_out_and_no_log_is_called_damaged(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Exhausted(QuickDisk):
        opened: ClassVar[list[QuickFile]] = []

        def open(self, path: str, *, create: bool = False, read_only: bool = False) -> QuickFile:
            if path.endswith(".log") and len(self.opened) == 2:
                raise OSError(errno.EMFILE, "Too many open files", path)
            file = super().open(path, create=create, read_only=read_only)
            if path.endswith(".log"):
                self.opened.append(file)
            return file

    run_inline(place.open().create([(TopicPartition("clicks", number), topic_id(0)) for number in range(3)]))
    place.close()
    monkeypatch.setattr(open_files, "raise_open_files_limit", lambda: OpenFilesLimit(64, 64))
    place.disk = Exhausted()
    with pytest.raises(TooManyOpenFiles, match="64 files may be open; 3 segments of 3 partitions") as refused:
        place.open()
    assert "ulimit" in (refused.value.hint or "")
    for file in Exhausted.opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.size_bytes()


def test_created_logs_are_there_after_a_crash_with_their_topic_ids(place: Place) -> None:
    directory = place.open()
    wanted = [(TopicPartition("views", number), topic_id(4)) for number in range(20)]
    assert [log.topic_partition for log in run_inline(directory.create(wanted))] == [name for name, _ in wanted]
    place.crash()
    logs = place.open().logs
    assert {name: log.topic_id for name, log in logs.items()} == dict(wanted)


def test_a_log_is_not_created_twice(place: Place) -> None:
    directory = place.open()
    run_inline(directory.create([(CLICKS, topic_id(0))]))
    with pytest.raises(LogExists):
        run_inline(directory.create([(TopicPartition("views", 0), topic_id(1)), (CLICKS, topic_id(0))]))
    assert list(directory.logs) == [CLICKS]


def test_a_deleted_log_is_gone_at_once_and_its_files_after_the_delay(place: Place) -> None:
    log = place.log()
    append_many(log, 3)
    run = log.read(0, 3, 10_000, whole_first_batch=True)
    directory = place.open_directory
    directory.delete(CLICKS)
    place.flush()
    assert CLICKS not in directory.logs
    assert run is not None
    directory.housekeep(place.clock.now_ms())
    assert run.file.read_at(run.position, run.length_bytes), "readers of the old files are served"
    place.clock.ms += LogConfig().file_delete_delay_ms
    directory.housekeep(place.clock.now_ms())
    assert not any("clicks" in path.name for path in Path(place.path).iterdir())


def test_a_topic_of_the_same_name_starts_empty(tmp_path: Path) -> None:
    place = Place(tmp_path / "data", config=LogConfig(segment_bytes=3 * BATCH_BYTES))
    log = place.log()
    append_many(log, 9)
    place.flush()
    log.delete_records_before(7)
    place.open_directory.checkpoint()
    place.open_directory.delete(CLICKS)
    run_inline(place.open_directory.create([(CLICKS, topic_id(1))]))
    place.crash()
    log = place.reopen_log()
    assert (log.topic_id, log.log_start_offset, log.log_end_offset) == (topic_id(1), 0, 0)


def test_a_deleted_log_stays_deleted_after_a_crash(place: Place) -> None:
    append_many(place.log(), 3)
    place.open_directory.delete(CLICKS)
    place.crash()
    directory = place.open()
    assert not directory.logs
    assert not directory.failed
    directory.housekeep(place.clock.now_ms())
    assert not any("clicks" in path.name for path in Path(place.path).iterdir())


def test_a_flush_in_flight_syncs_a_log_that_is_deleted_meanwhile(tmp_path: Path) -> None:
    place = Place(tmp_path / "data", config=LogConfig(file_delete_delay_ms=0))
    append_many(place.log(), 3)
    directory = place.open_directory
    plan = directory.scheduler.plan(0)
    assert plan is not None
    directory.delete(CLICKS)
    directory.housekeep(place.clock.now_ms())
    plan.execute(place.disk)
    directory.scheduler.complete(plan, None, 0)
    assert directory.offline is None
    directory.housekeep(place.clock.now_ms())
    assert not any("clicks" in path.name for path in Path(place.path).iterdir())


def test_a_flush_of_a_rolled_log_that_is_deleted_meanwhile_does_no_harm(tmp_path: Path) -> None:
    place = Place(tmp_path / "data", config=LogConfig(segment_bytes=2 * BATCH_BYTES))
    append_many(place.log(), 3)
    directory = place.open_directory
    plan = directory.scheduler.plan(0)
    assert plan is not None
    assert not plan.syncs_file_system or plan.flushes
    directory.delete(CLICKS)
    plan.syncs_file_system = False
    plan.execute(place.disk)
    directory.scheduler.complete(plan, None, 0)
    assert directory.offline is None


def test_delete_records_moves_the_start_for_good(tmp_path: Path) -> None:
    place = Place(tmp_path / "data", config=LogConfig(segment_bytes=3 * BATCH_BYTES))
    log = place.log()
    append_many(log, 10)
    place.flush()
    log.delete_records_before(7)
    assert read_all(log) == [7, 8, 9]
    place.open_directory.checkpoint()
    place.crash()
    log = place.reopen_log()
    assert log.log_start_offset == 7
    assert read_all(log) == [7, 8, 9]
    assert log.segments[0].base_offset == 6, "files wholly below the start went with the opening"
    place.close()
    assert read_all(place.reopen_log()) == [7, 8, 9]


def test_a_lost_checkpoint_of_starts_costs_no_log(tmp_path: Path) -> None:
    place = Place(tmp_path / "data", config=LogConfig(segment_bytes=3 * BATCH_BYTES))
    log = place.log()
    append_many(log, 10)
    place.flush()
    log.delete_records_before(7)
    log.delete_old_segments(place.clock.now_ms())
    place.open_directory.housekeep(place.clock.now_ms())
    place.crash()
    (Path(place.path) / "log-start-offset-checkpoint").unlink()
    log = place.reopen_log()
    assert log.log_start_offset == 6, "what is there is what the log has"


def test_appends_after_a_reopening_continue_in_the_same_file(place: Place) -> None:
    append_many(place.log(), 2)
    place.close()
    log = place.reopen_log()
    append(log, batch_of())
    assert len(log.segments) == 1
    assert read_all(log) == [0, 1, 2]


class ListingsCounted(QuickDisk):
    def __init__(self) -> None:
        super().__init__()
        self.listed: list[str] = []

    def list_directory(self, path: str) -> Sequence[str]:
        self.listed.append(path)
        return super().list_directory(path)


@pytest.mark.parametrize("was_clean", [True, False])
def test_each_log_is_listed_and_configured_once_when_a_directory_is_opened(place: Place, was_clean: bool) -> None:
    append_many(place.log(), 5)
    run_inline(place.open_directory.create([(TopicPartition("views", number), topic_id(4)) for number in range(3)]))
    place.flush()
    if was_clean:
        place.close()
    else:
        place.crash()
    disk = ListingsCounted()
    configured: list[TopicPartition] = []

    def config_of(topic_partition: TopicPartition) -> LogConfig:
        configured.append(topic_partition)
        return LogConfig()

    directory = LogDirectory.open(
        disk, place.path, clock=place.clock, config_of=config_of, node_id=1, cluster_id="c", lock=NoLock()
    )
    assert directory.was_clean == was_clean
    assert sorted(configured) == sorted(directory.logs)
    paths = [f"{place.path}/{topic_partition}" for topic_partition in directory.logs]
    assert sorted(path for path in disk.listed if path != place.path) == sorted(paths)
    directory.abandon()


RECORD = "/data/flushed-ends"


def memory_place(disk: MemoryDisk) -> Place:
    return Place("/data", disk)


def written_and_killed(batches: int = 4) -> MemoryDisk:
    """A log with flushed batches, as its broker's death leaves it."""
    place = memory_place(MemoryDisk())
    append_many(place.log(), batches)
    place.flush()
    assert isinstance(place.disk, MemoryDisk)
    return place.disk.kill()


@pytest.mark.parametrize("count", [1, 2, 10])
def test_record_of_a_created_log_survives_a_power_loss_at_every_moment_after_its_creation(count: int) -> None:
    disk = MemoryDisk()
    place = memory_place(disk)
    ids = [(CLICKS._replace(partition=number), topic_id(number)) for number in range(count)]
    logs = run_inline(place.open().create(ids))
    for log in logs:
        log.start_epoch(0)
        append_many(log, 3)
    disks = [disk]
    disk.on_operation = lambda _: disks.append(disk.crash(random.Random(len(disks)), Survival.NOTHING))
    place.flush()
    for after in (*disks[1:], disk.crash(random.Random(0), Survival.NOTHING)):
        again = memory_place(after)
        assert not again.open().failed
        assert len(again.open_directory.logs) == count
    assert [read_all(again.open_directory.logs[each]) for each, _ in ids] == [[0, 1, 2]] * count


def test_creation_of_many_logs_syncs_once() -> None:
    disk = MemoryDisk()
    directory = memory_place(disk).open()
    before = len(disk.operations)
    run_inline(directory.create([(CLICKS._replace(partition=number), topic_id(number)) for number in range(50)]))
    syncs = [each.kind for each in disk.operations[before:] if each.kind.startswith("sync")]
    assert syncs == ["sync_file_system"]


def test_log_is_refused_when_its_record_is_gone_after_a_kill() -> None:
    disk = written_and_killed()
    disk.remove(RECORD)
    segment = f"/data/clicks-0/{0:020}.log"
    disk.open(segment).truncate(3 * BATCH_BYTES)
    for _ in range(2):
        place = memory_place(disk)
        refused = place.open().failed[CLICKS]
        assert isinstance(refused, FlushedEndUnknown)
        assert (
            str(refused)
            == "/data/clicks-0 holds records, and /data/flushed-ends does not say how far they were flushed"
        )
        assert "`ottla log repair DIR`" in (refused.hint or "")
        assert disk.file_size_bytes(segment) == 3 * BATCH_BYTES, "its files stay as they are"
        # The refused log keeps the directory from being marked clean.
        place.close()


def test_empty_log_needs_no_record() -> None:
    disk = written_and_killed(batches=0)
    disk.remove(RECORD)
    place = memory_place(disk)
    assert read_all(place.reopen_log()) == []
    append_many(place.log(), 2)
    place.flush()
    after = memory_place(disk.crash(random.Random(1), Survival.NOTHING))
    assert read_all(after.reopen_log()) == [0, 1]


def test_records_that_are_gone_after_a_clean_stop_are_made_from_the_recovery_points() -> None:
    disk = MemoryDisk()
    place = memory_place(disk)
    append_many(place.log(), 4)
    place.close()
    disk.remove(RECORD)
    disk.open(f"/data/clicks-0/{0:020}.log").truncate(3 * BATCH_BYTES)
    refused = memory_place(disk).open().failed[CLICKS]
    assert isinstance(refused, CorruptLog), "the recovery point proves that a batch is missing"
    assert "flushed up to offset 4" in str(refused)


def test_clean_stop_proves_that_a_log_was_whole_when_record_and_recovery_points_are_gone() -> None:
    disk = MemoryDisk()
    place = memory_place(disk)
    append_many(place.log(), 4)
    place.close()
    disk.remove(RECORD)
    disk.remove("/data/recovery-point-offset-checkpoint")
    whole = memory_place(disk.kill())
    assert read_all(whole.reopen_log()) == [0, 1, 2, 3]
    disk.open(f"/data/clicks-0/{0:020}.log").truncate(4 * BATCH_BYTES - 1)
    refused = memory_place(disk).open().failed[CLICKS]
    assert isinstance(refused, CorruptLog)
    assert "the stop was clean, so the log was whole" in str(refused)


def test_directory_of_a_version_that_did_not_sync_records_is_opened_after_a_kill_and_made_durable() -> None:
    disk = written_and_killed()
    memory_place(disk).open().abandon()
    after = memory_place(disk.crash(random.Random(1), Survival.NOTHING))
    assert read_all(after.reopen_log()) == [0, 1, 2, 3]


def test_record_goes_after_the_deleted_log_and_a_crash_between_leaves_neither() -> None:
    disk = written_and_killed()
    place = memory_place(disk)
    directory = place.open()
    found: list[MemoryDisk] = []
    disk.on_operation = lambda _: found.append(disk.crash(random.Random(len(found)), Survival.NOTHING))
    directory.delete(CLICKS)
    disk.on_operation = None
    assert len(found) > 2
    for after in (*found, disk):
        again = memory_place(after).open()
        assert not again.failed
        if CLICKS not in again.logs:
            assert again.refuse_lost(CLICKS, topic_id(0)) is None, "the record went with the log"


def test_deleted_topic_of_a_refused_log_leaves_no_record() -> None:
    disk = written_and_killed()
    disk.open(f"/data/clicks-0/{0:020}.log").truncate(BATCH_BYTES)
    directory = memory_place(disk).open()
    assert isinstance(directory.failed[CLICKS], CorruptLog)
    directory.delete(CLICKS)
    assert directory.refuse_lost(CLICKS, topic_id(0)) is None


def test_log_is_not_created_where_flushed_records_are_known_to_be_lost() -> None:
    disk = written_and_killed()
    for name in disk.list_directory("/data/clicks-0"):
        disk.remove(f"/data/clicks-0/{name}")
    disk.remove_directory("/data/clicks-0")
    directory = memory_place(disk).open()
    with pytest.raises(StorageError, match="clicks-0 is gone; it was flushed up to offset 4"):
        run_inline(directory.create([(CLICKS, topic_id(0))]))
    assert not disk.exists("/data/clicks-0")


def test_creation_fails_when_the_record_cannot_be_written_and_leaves_nothing_behind() -> None:
    disk = MemoryDisk()
    directory = memory_place(disk).open()
    disk.faults.fail("write", error=errno.ENOSPC, path_contains="flushed-ends")
    with pytest.raises(StorageError):
        run_inline(directory.create([(CLICKS, topic_id(0))]))
    assert not disk.exists("/data/clicks-0")
    run_inline(directory.create([(CLICKS, topic_id(0))]))
    assert CLICKS in directory.logs


def test_log_whose_lost_directory_is_restored_is_opened_although_files_below_its_start_are_missing() -> None:
    disk = MemoryDisk()
    place = Place("/data", disk, LogConfig(segment_bytes=3 * len(batch_of())))
    log = place.log()
    append_many(log, 7)
    place.flush()
    log.delete_records_before(6)
    assert log.delete_old_segments(NOW_MS) == 2
    place.open_directory.checkpoint()
    place.close()
    disk.rename("/data/clicks-0", "/backup")
    assert place.open().refuse_lost(CLICKS, topic_id(0)) is not None
    place.close()
    disk.rename("/backup", "/data/clicks-0")
    assert read_all(place.reopen_log()) == [6]


@pytest.mark.parametrize("damage", ["missing", "damaged"])
@pytest.mark.parametrize("other_starts_move", [False, True])
def test_log_that_was_away_when_the_starts_were_lost_is_opened_where_its_first_file_starts(
    damage: str, other_starts_move: bool
) -> None:
    disk = MemoryDisk()
    place = Place("/data", disk, LogConfig(segment_bytes=3 * len(batch_of())))
    log = place.log()
    other = TopicPartition("other", 0)
    run_inline(place.open_directory.create([(other, topic_id(1))]))
    for each in (log, place.open_directory.logs[other]):
        append_many(each, 8)
    place.flush()
    log.delete_records_before(6)
    assert log.delete_old_segments(NOW_MS) == 2
    place.open_directory.checkpoint()
    place.close()
    disk.remove(f"/data/{LOG_START_FILE}")
    if damage == "damaged":
        disk.open(f"/data/{LOG_START_FILE}", create=True).write_at(0, b"0\n1\nclicks")
    disk.rename("/data/clicks-0", "/backup")
    # Twice: the second start finds what the first one wrote.
    for _ in range(2):
        directory = place.open()
        assert directory.refuse_lost(CLICKS, topic_id(0)) is not None
        if other_starts_move:
            directory.logs[other].delete_records_before(1)
            directory.checkpoint()
        place.close()
    disk.rename("/backup", "/data/clicks-0")
    assert read_all(place.reopen_log()) == [6, 7]
    # Now that all are there, a missing file is damage again.
    place.close()
    for name in disk.list_directory("/data/other-0"):
        if name.startswith(f"{0:020d}"):
            disk.remove(f"/data/other-0/{name}")
    place.open()
    assert isinstance(place.open_directory.failed[other], CorruptLog)


def test_log_made_while_another_one_is_away_starts_at_0() -> None:
    disk = MemoryDisk()
    place = Place("/data", disk)
    append_many(place.log(), 3)
    place.flush()
    place.close()
    disk.remove(f"/data/{LOG_START_FILE}")
    disk.rename("/data/clicks-0", "/backup")
    directory = place.open()
    other = TopicPartition("other", 0)
    run_inline(directory.create([(other, topic_id(1))]))
    append_many(directory.logs[other], 3)
    place.flush()
    place.close()
    disk.remove(f"/data/other-0/{0:020d}.log")
    assert isinstance(place.open().failed[other], CorruptLog)


def test_recreated_log_starts_at_0_when_a_crash_kept_the_start_of_a_deleted_one_of_its_name() -> None:
    disk = MemoryDisk()
    place = Place("/data", disk)
    append_many(place.log(), 3)
    place.flush()
    place.log().delete_records_before(2)
    place.open_directory.checkpoint()
    disk.faults.fail("write", error=errno.ENOSPC, path_contains=LOG_START_FILE)
    with pytest.raises(OSError):
        place.open_directory.delete(CLICKS)
    disk = disk.kill()
    place = Place("/data", disk)
    directory = place.open()
    assert not directory.holds(CLICKS)
    run_inline(directory.create([(CLICKS, topic_id(1))]))
    append_many(directory.logs[CLICKS], 1)
    place.flush()
    after = Place("/data", disk.kill())
    assert read_all(after.reopen_log()) == [0]


def test_removal_that_failed_is_tried_again_and_does_not_hold_up_others() -> None:
    disk = MemoryDisk()
    place = Place("/data", disk)
    directory = place.open()
    other = CLICKS._replace(partition=1)
    run_inline(directory.create([(CLICKS, topic_id(0)), (other, topic_id(0))]))
    directory.delete(CLICKS, other)
    place.clock.ms += 60_000
    disk.faults.fail("remove", path_contains="clicks-0")
    for _ in range(2):
        directory.housekeep(place.clock.now_ms())
    assert [name[:8] for name in disk.list_directory("/data") if name.endswith(DELETED_DIRECTORY_SUFFIX)] == [
        "clicks-0"
    ]
    place.clock.ms += REMOVAL_RETRY_MS
    directory.housekeep(place.clock.now_ms())
    assert not [name for name in disk.list_directory("/data") if name.endswith(DELETED_DIRECTORY_SUFFIX)]


HALF_CREATED = {"unflushed": b"", f"{0:020d}.log": b"", "partition.metadata": b""}


def started_beside(tmp_path: Path, content: dict[str, bytes]) -> tuple[Place, Path]:
    """A broker's directory, opened again with another directory in it that has these files."""
    place = Place(tmp_path / "data")
    place.log()
    place.close()
    beside = tmp_path / "data" / "backup-1"
    beside.mkdir()
    for path, data in content.items():
        (beside / path).parent.mkdir(exist_ok=True)
        (beside / path).write_bytes(data)
    place.open()
    return place, beside


def files_below(directory: Path) -> dict[str, bytes]:
    found = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


FOREIGN = [
    pytest.param({"notes.txt": b"mine"}, id="a file of another name"),
    pytest.param({"app.log": b"started\n"}, id="a program's log"),
    pytest.param({**HALF_CREATED, "notes.txt": b"mine"}, id="a file of another name beside those of a log"),
    pytest.param({"a.txt": b"mine", "data/notes.txt": b"mine"}, id="a directory and a file"),
    pytest.param({f"{0:020d}.log": b"", "unflushed/notes.txt": b"mine"}, id="a directory of a file's name"),
    pytest.param({f"{7:020d}.log": b""}, id="a segment that is not the first one"),
]


@pytest.mark.parametrize("content", FOREIGN)
def test_a_directory_that_is_only_named_like_a_partition_is_left_as_it_is_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: dict[str, bytes]
) -> None:
    place, beside = started_beside(tmp_path, content)
    assert files_below(beside) == content
    assert list(place.open_directory.logs) == [CLICKS]
    assert not place.open_directory.failed
    events = [each.getMessage() for each in caplog.records]
    assert events.count("directory.foreign_one_is_kept") == 1
    assert "log.half_created_removed" not in events


@pytest.mark.parametrize("content", FOREIGN)
def test_no_log_is_created_in_a_foreign_directory_until_it_is_moved_away(
    tmp_path: Path, content: dict[str, bytes]
) -> None:
    place, beside = started_beside(tmp_path, content)
    wanted = [(TopicPartition("backup", partition), topic_id(1)) for partition in range(2)]
    with pytest.raises(StorageError, match="backup-1 is no log") as refused:
        run_inline(place.open_directory.create(wanted))
    assert "move it out" in (refused.value.hint or "")
    assert files_below(beside) == content
    assert not beside.with_name("backup-0").exists()
    beside.rename(tmp_path / "backup")
    assert len(run_inline(place.open_directory.create(wanted))) == 2


@pytest.mark.parametrize("files_count", range(len(HALF_CREATED) + 1))
def test_what_a_crash_left_of_a_creation_is_removed_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, files_count: int
) -> None:
    place, beside = started_beside(tmp_path, dict(list(HALF_CREATED.items())[:files_count]))
    assert not beside.exists()
    assert not place.open_directory.failed
    assert [each.getMessage() for each in caplog.records].count("log.half_created_removed") == 1


def test_a_log_without_batches_that_lost_its_topic_id_is_removed(tmp_path: Path) -> None:
    place, beside = started_beside(
        tmp_path,
        {
            **HALF_CREATED,
            "partition.metadata": b"damaged",
            "leader-epoch-checkpoint": b"0\n0\n",
            f"{0:020d}.index": b"",
            f"{0:020d}.timeindex": b"",
        },
    )
    assert not place.open_directory.failed
    assert not beside.exists()


def test_a_removal_that_fails_is_not_reported_as_done(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    place = Place("/data", disk)
    place.log()
    place.close()
    disk.make_directory("/data/backup-1")
    disk.open(f"/data/backup-1/{0:020d}.log", create=True).close()
    disk.faults.fail("remove", path_contains="backup-1")
    assert list(place.open().failed) == [TopicPartition("backup", 1)]
    assert "log.half_created_removed" not in [each.getMessage() for each in caplog.records]


def test_log_that_was_refused_when_all_records_were_lost_is_opened_where_its_first_file_starts() -> None:
    disk = MemoryDisk()
    place = Place("/data", disk, LogConfig(segment_bytes=3 * len(batch_of())))
    log = place.log()
    append_many(log, 8)
    place.flush()
    log.delete_records_before(6)
    assert log.delete_old_segments(NOW_MS) == 2
    place.open_directory.checkpoint()
    place.crash()
    ends = disk.files()["/data/flushed-ends"]
    for name in (LOG_START_FILE, "flushed-ends"):
        disk.remove(f"/data/{name}")
    assert isinstance(place.open().failed[CLICKS], FlushedEndUnknown)
    place.crash()
    disk.open("/data/flushed-ends").write_at(0, ends)
    assert read_all(place.reopen_log()) == [6, 7]
