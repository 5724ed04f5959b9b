from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from ottla.model.identifiers import TopicPartition
from ottla.runtime.limits_of_process import OpenFilesLimit
from ottla.runtime.offload import run_inline
from ottla.storage.directory import open_files
from ottla.storage.directory.directory_lock import NoLock
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.errors import DirectoryLocked, ForeignDirectory, LogExists, TooManyOpenFiles
from ottla.storage.log_config import LogConfig
from tests.unit.storage.logs import CLICKS, Place, append, append_many, batch_of, read_all, topic_id
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
def test_logs_that_nobody_claims_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "clicks-0").mkdir()
    (tmp_path / "clicks-0" / name).write_text("")
    with pytest.raises(ForeignDirectory, match="holds logs") as refused:
        Place(tmp_path).open()
    assert "restore meta.properties" in (refused.value.hint or "")


@pytest.mark.parametrize("name", ["passwd", "clicks-0/notes.txt", ".ssh/id"])
def test_directory_of_somebody_else_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    with pytest.raises(ForeignDirectory, match=f"not a data directory.*{name.split('/')[0]}") as refused:
        Place(tmp_path).open()
    assert "choose another --data-dir" in (refused.value.hint or "")
    assert not (tmp_path / "meta.properties").exists()


@pytest.mark.parametrize("name", [".lock", "lost+found/", "meta.properties.tmp"])
def test_directory_is_taken_when_nothing_of_anybody_is_in_it(tmp_path: Path, name: str) -> None:
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


def test_a_topic_of_the_same_name_starts_anew(tmp_path: Path) -> None:
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


def test_files_wait_for_a_flush_that_holds_them(tmp_path: Path) -> None:
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
