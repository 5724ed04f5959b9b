"""Backups of logs that grow meanwhile, restored and compared; crashes at every operation of both."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

import pytest

from ottla.maintenance.backup import Backup, restore
from ottla.maintenance.inspect import verify_log
from ottla.maintenance.manifest import ROOM_LEFT_BYTES, BackupDamaged, Manifest, damages, read_manifest
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import BatchBuilder
from ottla.runtime.disk import write_fully
from ottla.runtime.offload import run_inline
from ottla.storage.compaction.cleaner import clean
from ottla.storage.directory.directory_identity import RESTORING_FILE
from ottla.storage.directory.directory_lock import FileLock, NoLock
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.errors import DiskFull, FlushedEndUnknown, ForeignDirectory, StorageError
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from ottla.testing.disk_faults import Operation
from ottla.testing.memory_disk import MemoryDisk, MemoryFile
from tests.cleaning import run_clean
from tests.property.property_settings import exhaustive, is_tried
from tests.unit.storage.logs import (
    CLICKS,
    NOW_MS,
    HandClock,
    Place,
    append,
    batch_of,
    read_all,
    records_in,
    topic_id,
)
from tests.unit.storage.quick_disk import QuickDisk

SMALL = LogConfig(segment_bytes=1_000, index_interval_bytes=1, retention_ms=-1)
COMPACTED = LogConfig(
    cleanup_policy="compact", segment_bytes=1_000, index_interval_bytes=1, min_cleanable_dirty_ratio=0, retention_ms=-1
)
TREE = b"the tree"
OTHER = CLICKS._replace(topic="other")


class LookedAtDisk(MemoryDisk):
    """Something may happen before each look at it, too."""

    on_look: Callable[[], None] = staticmethod(lambda: None)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        self.on_look()
        return super().open(path, create=create, read_only=read_only)

    def list_directory(self, path: str) -> Sequence[str]:
        self.on_look()
        return super().list_directory(path)

    def exists(self, path: str) -> bool:
        self.on_look()
        return super().exists(path)


class PowerLost(BaseException):
    """Not an error that a program could handle."""


def place_of(config: LogConfig = SMALL, batches: int = 20) -> Place:
    place = Place("/data", LookedAtDisk(), config)
    log = place.log()
    for number in range(batches):
        put(log, number)
    place.flush()
    return place


def put(log: Log, number: int) -> None:
    """Each record says where it stands; three keys."""
    builder = BatchBuilder()
    builder.append(NOW_MS, b"k%d" % (number % 3), b"%d " % log.log_end_offset + b"v" * 80)
    append(log, memoryview(builder.build()))


def back_up(
    place: Place, target: str = "/backup", *, links: bool = False, topics: dict[str, UUID] | None = None
) -> Manifest:
    backup = Backup(place.disk, "/data", target, NoLock(), links=links)
    backup.begin()
    try:
        for partition in backup.partitions():
            backup.copy_log(partition)
        file = place.disk.open(backup.tree_path, create=True)
        write_fully(file, 0, TREE)
        file.close()
        return backup.finish({"clicks": topic_id(0)} if topics is None else topics, 1, 2)
    except Exception:
        backup.abandon()
        raise


def restored(disk: MemoryDisk, path: str = "/again", config: LogConfig = SMALL) -> LogDirectory:
    restore(disk, "/backup", path, NoLock())
    return opened(disk, path, config)


def opened(disk: MemoryDisk, path: str = "/again", config: LogConfig = SMALL) -> LogDirectory:
    return LogDirectory.open(disk, path, clock=HandClock(), config_of=lambda _: config, node_id=1, cluster_id="c")


def values_of(log: Log) -> dict[int, bytes | None]:
    """All records by offset, each of which says its own."""
    found: dict[int, bytes | None] = {}
    next_offset = log.log_start_offset
    while next_offset < log.log_end_offset:
        records = records_in(log.read(next_offset, log.log_end_offset, 10_000, whole_first_batch=True))
        if not records:
            break
        for record in records:
            assert (record.value or b"").startswith(b"%d " % record.offset)
            found[record.offset] = record.key
        next_offset = records[-1].offset + 1
    return found


class CompactionAtLook:
    """Compacts the log of a place before the n-th look at its disk."""

    def __init__(self, place: Place, number: int) -> None:
        self.is_done = False
        self._place = place
        self._left_count = number

    def look(self) -> None:
        self._left_count -= 1
        if self._left_count != -1:
            return
        self.is_done = True
        compactor = self._place.open_directory.compactor
        job = compactor.next_job(NOW_MS)
        assert job is not None
        run_clean(compactor, job, lambda job: clean(self._place.disk, job, lambda _: None))
        self._place.clock.ms += 70_000
        self._place.open_directory.housekeep(NOW_MS)


def disk_of(place: Place) -> LookedAtDisk:
    assert isinstance(place.disk, LookedAtDisk)
    return place.disk


@pytest.mark.parametrize("links", [False, True], ids=["copies", "links"])
@pytest.mark.parametrize("is_closed", [False, True], ids=["running", "stopped"])
def test_restored_directory_has_every_record_offset_and_epoch(links: bool, is_closed: bool) -> None:
    place = place_of()
    place.log().delete_records_before(5)
    place.open_directory.checkpoint()
    expected = values_of(place.log())
    if is_closed:
        place.close()
    manifest = back_up(place, links=links)
    assert list(damages(place.disk, "/backup", deep=True)) == []
    assert [(log.partition, log.start, log.end, log.problem) for log in manifest.logs] == [("clicks-0", 5, 20, None)]
    again = restored(disk_of(place))
    log = again.logs[CLICKS]
    assert again.was_clean
    assert not again.failed
    assert (log.log_start_offset, log.log_end_offset, log.last_epoch()) == (5, 20, 0)
    assert values_of(log) == expected
    assert disk_of(place).files()["/again/tree.sqlite"] == TREE
    put(log, 0)
    assert list(damages(place.disk, "/backup", deep=True)) == [], "the restored log does not write to the backup"


def test_what_a_broker_that_was_killed_had_not_recorded_as_flushed_is_in_the_backup() -> None:
    place = place_of(batches=3)
    for number in range(4):
        put(place.log(), number)
    place.crash()
    [log] = back_up(place).logs
    assert log.end == 7


def test_torn_write_at_the_end_is_left_out() -> None:
    place = place_of(batches=3)
    place.crash()
    path = "/data/clicks-0/00000000000000000000.log"
    file = place.disk.open(path)
    content = file.read_at(0, 200)
    file.write_at(file.size_bytes(), content[:100])
    [log] = back_up(place).logs
    assert (log.end, log.problem) == (3, None)
    assert read_all(restored(disk_of(place)).logs[CLICKS]) == [0, 1, 2]


@pytest.mark.parametrize("links", [False, True], ids=["copies", "links"])
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("config", [SMALL, COMPACTED], ids=["delete", "compact"])
def test_backup_beside_a_broker_that_appends_rolls_deletes_and_compacts(
    config: LogConfig, seed: int, links: bool
) -> None:
    place = place_of(config, batches=60)
    rng = random.Random(seed)
    disk = disk_of(place)
    log = place.log()
    compactor = place.open_directory.compactor
    acknowledged = log.log_end_offset
    is_busy, left_count = False, 60

    def delete() -> None:
        log.delete_records_before(rng.randrange(log.log_start_offset, acknowledged + 1))
        place.clock.ms += 70_000
        place.open_directory.housekeep(place.clock.now_ms())
        place.clock.ms += 70_000
        place.open_directory.housekeep(place.clock.now_ms())

    def compact() -> None:
        job = compactor.next_job(place.clock.now_ms()) if config is COMPACTED else None
        if job is not None:
            run_clean(compactor, job, lambda job: clean(disk, job, lambda _: None))
        place.clock.ms += 70_000
        place.open_directory.housekeep(place.clock.now_ms())

    def act() -> None:
        nonlocal is_busy, left_count
        if is_busy or not left_count or rng.random() > 0.3:
            return
        is_busy, left_count = True, left_count - 1
        rng.choice([delete, compact, lambda: put(log, rng.randrange(3)), lambda: log.roll(NOW_MS), place.flush])()
        is_busy = False

    disk.on_look = act
    disk.on_operation = lambda _: act()
    back_up(place, links=links)
    disk.on_look = lambda: None
    disk.on_operation = None
    place.flush()
    now = values_of(log)
    assert list(verify_log(disk, "/backup/clicks-0", deep=True)) == []
    again = restored(disk, config=config)
    assert not again.failed
    found = values_of(again.logs[CLICKS])
    end = again.logs[CLICKS].log_end_offset
    assert end >= acknowledged
    # What was acknowledged before, and was not removed since, is there; with keys, at least the last one of each.
    assert {offset: key for offset, key in now.items() if offset < acknowledged}.items() <= found.items()
    if config is SMALL:
        start = again.logs[CLICKS].log_start_offset
        assert list(found) == list(range(start, end))


@exhaustive
@pytest.mark.parametrize("links", [False, True], ids=["copies", "links"])
def test_backup_is_of_one_state_wherever_a_compaction_comes_in_between(links: bool) -> None:
    for moment in filter(is_tried, range(400)):
        place = place_of(COMPACTED, batches=24)
        compaction = CompactionAtLook(place, moment)
        disk_of(place).on_look = compaction.look
        back_up(place, links=links)
        disk_of(place).on_look = lambda: None
        assert list(verify_log(place.disk, "/backup/clicks-0", deep=True)) == [], f"compacted at look {moment}"
        if not compaction.is_done:
            return
    pytest.fail("it never ends")


def test_log_of_a_topic_that_was_deleted_or_recreated_meanwhile_is_left_out() -> None:
    place = place_of(batches=3)
    run_inline(place.open_directory.create([(OTHER, topic_id(5))]))
    assert [log.partition for log in back_up(place, topics={"clicks": topic_id(0)}).logs] == ["clicks-0"]
    assert not [path for path in disk_of(place).files() if path.startswith("/backup/other")]
    both = {"clicks": topic_id(0), "other": topic_id(6)}
    assert [log.partition for log in back_up(place, "/second", topics=both).logs] == ["clicks-0"]


def test_directory_that_vanishes_while_it_is_copied_is_left_out() -> None:
    place = place_of(batches=3)
    disk = disk_of(place)
    run_inline(place.open_directory.create([(OTHER, topic_id(5))]))

    deleted: list[TopicPartition] = []

    def delete(operation: Operation) -> None:
        if operation.kind == "make_directory" and operation.path.endswith(f"/{OTHER}"):
            deleted.append(OTHER)
            place.open_directory.delete(OTHER)

    disk.on_operation = delete
    manifest = back_up(place, topics={"clicks": topic_id(0), "other": topic_id(5)})
    assert deleted == [OTHER]
    assert [log.partition for log in manifest.logs] == ["clicks-0"]


def test_damage_below_the_flushed_end_is_copied_and_named() -> None:
    place = place_of(LogConfig(), batches=10)
    place.close()
    path = "/data/clicks-0/00000000000000000000.log"
    file = place.disk.open(path)
    file.write_at(700, b"?")
    [log] = back_up(place).logs
    assert log.problem is not None
    assert "it was flushed up to offset 10" in log.problem
    assert disk_of(place).files()["/backup/clicks-0/00000000000000000000.log"] == disk_of(place).files()[path]
    again = restored(disk_of(place), config=LogConfig())
    assert CLICKS in again.failed, "as the broker that was backed up would refuse it"


def test_backup_goes_to_a_new_directory_outside_of_the_data_and_with_room() -> None:
    place = place_of(batches=3)
    back_up(place)
    for target, told in (("/backup", "is there already"), ("/data/backup", "is inside"), ("/no/b", "does not exist")):
        with pytest.raises(StorageError, match=told):
            back_up(place, target)
    disk_of(place).room_bytes = sum(map(len, disk_of(place).files().values())) + 1_000
    with pytest.raises(DiskFull):
        back_up(place, "/second")


def test_directory_of_a_cluster_or_without_an_owner_is_not_backed_up() -> None:
    place = place_of(batches=3)
    place.close()
    properties = disk_of(place).open("/data/meta.properties")
    properties.write_at(properties.size_bytes(), b"ottla.tree=zookeeper\n")
    with pytest.raises(ForeignDirectory, match="in ZooKeeper"):
        back_up(place)
    place.disk.remove("/data/meta.properties")
    with pytest.raises(ForeignDirectory, match="is not a data directory"):
        back_up(place)


def test_directory_of_several_processes_is_not_backed_up_and_the_way_to_a_backup_is_named() -> None:
    place = place_of(batches=3)
    place.close()
    properties = disk_of(place).open("/data/meta.properties")
    properties.write_at(properties.size_bytes(), b"ottla.tree=processes\n")
    place.disk.make_directory("/data/processes")
    with pytest.raises(ForeignDirectory, match="one of the brokers of `ottla serve --processes`") as caught:
        back_up(place)
    assert "`ottla serve --data-dir /data --processes 1`" in (caught.value.hint or "")
    assert not place.disk.exists("/backup")


def test_no_broker_takes_a_backup_for_its_data_directory() -> None:
    place = place_of(batches=3)
    back_up(place)
    with pytest.raises(ForeignDirectory, match="is a backup"):
        opened(disk_of(place), "/backup")


def crashes(begin: Callable[[], Place], run: Callable[[Place], object], check: Callable[[MemoryDisk], None]) -> int:
    """Run again, and lose the power at each operation in turn; returns how many there were."""
    count = seen = 0  # of the operations before the loss, and of those that have begun

    def lose_power(operation: Operation) -> None:
        nonlocal seen
        seen += 1
        if seen > count:
            raise PowerLost

    for count in filter(is_tried, itertools.count()):
        place = begin()
        disk, seen = disk_of(place), 0
        disk.on_operation = lose_power
        try:
            run(place)
        except PowerLost:
            disk.on_operation = None
            check(disk.crash(random.Random(count)))
            check(disk.kill())
        else:
            break
    return seen


@exhaustive
def test_backup_that_a_crash_cuts_short_is_never_taken_for_a_whole_one() -> None:
    def check(disk: MemoryDisk) -> None:
        if disk.exists("/backup"):
            assert read_manifest(disk, "/backup").logs[0].end == 12
            assert list(damages(disk, "/backup", deep=True)) == []
            return
        place = Place("/data", disk, SMALL)
        assert back_up(place).logs[0].end == 12, "the next one starts over"
        assert "/backup.unfinished" not in {path.rpartition("/")[0] for path in disk.files()}

    def begin() -> Place:
        place = place_of(batches=12)
        place.close()
        return place

    assert crashes(begin, back_up, check) > 40


@exhaustive
def test_restore_that_a_crash_cuts_short_is_refused_by_brokers_and_can_be_repeated() -> None:
    def check(disk: MemoryDisk) -> None:
        expected = list(range(12))
        if disk.exists("/again/meta.properties") and not disk.exists(f"/again/{RESTORING_FILE}"):
            assert read_all(opened(disk).logs[CLICKS]) == expected
            return
        if disk.exists(f"/again/{RESTORING_FILE}"):
            with pytest.raises(ForeignDirectory, match="a restore into /again was interrupted"):
                opened(disk)
        assert read_all(restored(disk).logs[CLICKS]) == expected

    def begin() -> Place:
        place = place_of(batches=12)
        place.close()
        back_up(place)
        disk_of(place).sync_file_system("/")
        return place

    def run(place: Place) -> None:
        restore(place.disk, "/backup", "/again", NoLock())

    assert crashes(begin, run, check) > 30


@pytest.mark.parametrize(
    ("path", "position", "told"),
    [
        ("clicks-0/00000000000000000000.log", 100, "has other bytes than were backed up"),
        ("flushed-ends", 3, "has other bytes"),
        ("tree.sqlite", 1, "has other bytes"),
        ("tree.sqlite", 20, "bytes, 8 were backed up"),
        ("backup.json", 40, "backup.json"),
    ],
)
def test_damaged_backup_is_not_restored(path: str, position: int, told: str) -> None:
    place = place_of(batches=12)
    back_up(place)
    file = place.disk.open(f"/backup/{path}")
    file.write_at(position, b"\xff")
    with pytest.raises(BackupDamaged, match=told):
        restore(place.disk, "/backup", "/again", NoLock())
    if path == "backup.json":
        with pytest.raises(BackupDamaged):
            list(damages(place.disk, "/backup", deep=True))
    else:
        assert [found for found, _ in damages(place.disk, "/backup", deep=True)] == [f"/backup/{path}"]
    if place.disk.exists("/again"):
        with pytest.raises(ForeignDirectory):
            opened(disk_of(place))


def test_restore_refuses_a_directory_that_is_not_empty_or_the_backups_and_changes_nothing() -> None:
    place = place_of(batches=3)
    back_up(place)
    before = disk_of(place).files()
    with pytest.raises(StorageError, match="/data is not empty"):
        restore(place.disk, "/backup", "/data", NoLock())
    with pytest.raises(StorageError, match="is inside the backup"):
        restore(place.disk, "/backup", "/backup/again", NoLock())
    assert disk_of(place).files() == before


@pytest.mark.parametrize("path", ["../x", "a/../b", "/etc/x", "a/b/c", ".", ""])
def test_manifest_that_leads_out_of_the_backup_is_refused(path: str) -> None:
    from ottla.maintenance.manifest import BackupFile, decode_manifest, encode_manifest

    manifest = Manifest({}, 1, 2, [BackupFile(path, 1, 1)], [])
    with pytest.raises(BackupDamaged, match="no path of a backup"):
        decode_manifest(encode_manifest(manifest), "backup.json")


def test_remains_of_an_interrupted_backup_or_restore_take_no_room_from_the_next_one() -> None:
    place = place_of(batches=12)
    disk = disk_of(place)
    disk.room_bytes = sum(map(len, disk.files().values())) + ROOM_LEFT_BYTES + 20_000
    interrupted = Backup(disk, "/data", "/backup", NoLock())
    interrupted.begin()
    file = disk.open(interrupted.tree_path, create=True)
    write_fully(file, 0, b"?" * (1 << 20))
    file.close()
    back_up(place)
    disk.room_bytes = sum(map(len, disk.files().values())) + ROOM_LEFT_BYTES + 200_000
    disk.make_directory("/again")
    disk.open(f"/again/{RESTORING_FILE}", create=True).close()
    write_fully(disk.open("/again/tree.sqlite", create=True), 0, b"?" * (1 << 20))
    assert read_all(restored(disk).logs[CLICKS]) == list(range(12))


@pytest.mark.parametrize("links", [False, True], ids=["copies", "links"])
def test_room_for_indexes_and_for_a_running_broker_is_required(links: bool) -> None:
    place = place_of(batches=60)
    disk = disk_of(place)
    logs_bytes = sum(segment.size_bytes for segment in place.log().segments[-1 if links else 0 :])
    disk.room_bytes = sum(map(len, disk.files().values())) + logs_bytes + ROOM_LEFT_BYTES
    with pytest.raises(DiskFull):
        back_up(place, links=links)
    assert not any(path.startswith("/backup") for path in disk.files())
    disk.room_bytes += logs_bytes
    assert back_up(place, links=links).logs[0].end == 60


@pytest.mark.parametrize("name", ["photo.jpg", "photos-0/photo.jpg"])
def test_directory_of_the_unfinished_name_that_is_no_backup_is_left_as_it_is(name: str) -> None:
    place = place_of(batches=3)
    disk = disk_of(place)
    disk.make_directory("/backup.unfinished")
    if "/" in name:
        disk.make_directory("/backup.unfinished/photos-0")
    disk.open(f"/backup.unfinished/{name}", create=True).close()
    before = disk.files()
    with pytest.raises(StorageError, match="is not what an interrupted backup left"):
        back_up(place)
    assert disk.files() == before


def test_second_backup_of_a_name_is_refused_until_the_first_one_has_it(tmp_path: Path) -> None:
    class LookedAtRename(QuickDisk):
        def rename(self, source: str, target: str) -> None:
            if source.endswith(".unfinished"):
                seen.append(target)
                with pytest.raises(StorageError, match="another backup writes to"):
                    Backup(disk, data_dir, target, FileLock()).begin()
            super().rename(source, target)

    seen: list[str] = []
    disk = LookedAtRename()
    place = Place(tmp_path / "data", disk, SMALL)
    append(place.log(), batch_of())
    place.close()
    data_dir, target = place.path, str(tmp_path / "backup")
    backup = Backup(disk, data_dir, target, FileLock())
    backup.begin()
    backup.copy_log(CLICKS)
    (tmp_path / "backup.unfinished" / "tree.sqlite").write_bytes(TREE)
    backup.finish({"clicks": topic_id(0)}, 1, 2)
    assert seen == [target]
    assert list(damages(disk, target, deep=True)) == []
    assert not {".lock", ".backing-up"} & set(disk.list_directory(target))


def test_restore_that_ended_meanwhile_is_not_repeated() -> None:
    """Another process ends its own just before this one has the lock."""
    place = place_of(batches=3)
    disk = disk_of(place)
    back_up(place)
    disk.make_directory("/again")
    disk.open(f"/again/{RESTORING_FILE}", create=True).close()
    whole: dict[str, bytes] = {}

    class LateLock(NoLock):
        def acquire(self, directory: str) -> None:
            restore(disk, "/backup", directory, NoLock())
            whole.update(disk.files())

    with pytest.raises(StorageError, match="is not empty"):
        restore(disk, "/backup", "/again", LateLock())
    assert disk.files() == whole


def damaged(disk: LookedAtDisk, name: str, position: int = 0, content: bytes | None = None) -> None:
    """Remove a file of the log, or write to it."""
    if content is None:
        disk.remove(f"/data/clicks-0/{name}")
        return
    file = disk.open(f"/data/clicks-0/{name}")
    file.write_at(position, content)
    file.close()


SECOND = "00000000000000000006.log"


@pytest.mark.parametrize("links", [False, True], ids=["copies", "links"])
@pytest.mark.parametrize(
    ("name", "position", "content", "told"),
    [
        (SECOND, 300, b"?", "is damaged at position"),
        (SECOND, 0, None, "ends at offset 6, the next segment is 12"),
        ("00000000000000000000.log", 0, None, "no file holds its offsets 0 to 5"),
        ("partition.metadata", 0, b"?", "nothing says how far it was flushed"),
    ],
    ids=["byte", "segment", "first segment", "id"],
)
def test_damage_in_closed_segments_is_named_and_all_else_is_copied(
    name: str, position: int, content: bytes | None, told: str, links: bool
) -> None:
    place = place_of()
    assert [segment.base_offset for segment in place.log().segments] == [0, 6, 12, 18]
    place.close()
    disk = disk_of(place)
    damaged(disk, name, position, content)
    [log] = back_up(place, links=links).logs
    assert told in (log.problem or "")
    logs = {path: content for path, content in disk.files().items() if path.endswith(".log")}
    for path, bytes_there in logs.items():
        if path.startswith("/data/"):
            assert logs[path.replace("/data/", "/backup/")] == bytes_there
    is_refused = CLICKS in opened(disk, "/data").failed
    assert (CLICKS in restored(disk).failed) == is_refused == (content != b"?" or name != SECOND)


@pytest.mark.parametrize("base", [6, 18], ids=["closed", "active"])
def test_bytes_that_the_disk_cannot_read_are_zeros_in_the_backup_and_named(base: int) -> None:
    place = place_of()
    disk = disk_of(place)
    path = f"/data/clicks-0/{base:020d}.log"
    before = disk.files()

    disk.faults.fail("read", times=None, path_contains=path)
    [log] = back_up(place).logs
    size_bytes = len(before[path])
    assert log.problem == f"{path}: {size_bytes} bytes cannot be read: zeros replace them"
    backed_up = disk.files()
    assert backed_up[path.replace("/data/", "/backup/")] == bytes(size_bytes)
    for other in (0, 12):
        name = f"clicks-0/{other:020d}.log"
        assert backed_up[f"/backup/{name}"] == before[f"/data/{name}"]


def test_gap_before_a_segment_that_is_not_wholly_flushed_is_named() -> None:
    place = place_of(batches=8)
    for number in range(10):
        put(place.log(), number)
    place.crash()
    disk = disk_of(place)
    damaged(disk, SECOND)
    [log] = back_up(place).logs
    assert "ends at offset 6, the next segment is 12" in (log.problem or "")
    assert log.end == 8
    assert "/backup/clicks-0/00000000000000000012.log" in disk.files()


def test_restore_without_room_says_how_much_it_needs() -> None:
    place = place_of(batches=3)
    disk = disk_of(place)
    manifest = back_up(place)
    disk.room_bytes = sum(map(len, disk.files().values())) + manifest.size_bytes + 1_000
    with pytest.raises(DiskFull) as caught:
        restore(disk, "/backup", "/again", NoLock())
    assert str(caught.value) == (
        f"the backup has {manifest.size_bytes} bytes, a broker needs {ROOM_LEFT_BYTES} beside them, "
        f"and {manifest.size_bytes + 1_000} are free in /"
    )
    assert caught.value.hint == "make room, or name a --data-dir on another disk"


def test_partition_whose_directory_is_gone_is_named_and_refused_after_a_restore() -> None:
    place = place_of(batches=3)
    run_inline(place.open_directory.create([(OTHER, topic_id(5))]))
    put(place.open_directory.logs[OTHER], 0)
    place.flush()
    place.close()
    disk = disk_of(place)
    for path in [path for path in disk.files() if path.startswith("/data/other")]:
        disk.remove(path)
    disk.remove_directory(f"/data/{OTHER}")
    manifest = back_up(place, topics={"clicks": topic_id(0), "other": topic_id(5)})
    assert [(log.partition, log.end, log.problem) for log in manifest.logs] == [
        ("clicks-0", 3, None),
        (str(OTHER), 1, "its directory is gone; it was flushed up to offset 1"),
    ]
    assert restored(disk).refuse_lost(OTHER, topic_id(5)) is not None


def test_log_without_a_record_of_its_flushed_end_is_copied_as_it_is_and_refused_as_before() -> None:
    place = place_of()
    place.crash()
    disk = disk_of(place)
    disk.remove("/data/flushed-ends")
    damaged(disk, SECOND, 300, b"?")
    [log] = back_up(place).logs
    assert log.problem == "nothing says how far it was flushed"
    assert "/backup/clicks-0/00000000000000000018.log" in disk.files()
    assert isinstance(restored(disk).failed[CLICKS], FlushedEndUnknown)


def test_lost_records_of_flushed_ends_are_those_of_the_recovery_points_after_a_clean_stop() -> None:
    place = place_of()
    place.close()
    disk = disk_of(place)
    disk.remove("/data/flushed-ends")
    [log] = back_up(place).logs
    assert (log.end, log.problem) == (20, None)
    assert read_all(restored(disk).logs[CLICKS]) == list(range(20))
