"""What a directory remembers for its replicas: high watermarks, its id, the boot, and logs that were set aside."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from ottla.model.identifiers import TopicPartition, uuid_from_text
from ottla.runtime.offload import run_inline
from ottla.storage.checkpoints import DamagedCheckpoint, read_meta_properties, write_meta_properties
from ottla.storage.directory.directory_identity import BOOT_NOTE_FILE
from ottla.storage.directory.log_completeness import record_complete_from
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.errors import CorruptLog, StorageError
from ottla.storage.log_config import FlushPolicy, LogConfig
from ottla.testing.fake_clock import FakeClock
from ottla.testing.memory_disk import MemoryDisk
from tests.unit.storage.failing_disk import FailingDisk
from tests.unit.storage.logs import CLICKS, NOW_MS, Place, append_many, read_all, topic_id, truncate_log

ORDERS = TopicPartition("orders", 3)
BOOT = "/boot-id-of-the-kernel"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "data")


@pytest.mark.parametrize("is_clean", [False, True])
def test_high_watermarks_come_back_after_a_stop_in_kafkas_format(place: Place, is_clean: bool) -> None:
    directory = place.open()
    assert directory.high_watermarks() == {}
    directory.record_high_watermarks({CLICKS: 17, ORDERS: 0})
    lines = (Path(place.path) / "replication-offset-checkpoint").read_text().splitlines()
    assert lines[0] == "0"
    assert lines[2:4] == ["clicks 0 17", "orders 3 0"]
    if is_clean:
        place.close()
    else:
        place.crash()
    assert place.open().high_watermarks() == {CLICKS: 17, ORDERS: 0}


def test_high_watermarks_that_did_not_change_are_not_written(place: Place) -> None:
    directory = place.open()
    directory.record_high_watermarks({CLICKS: 17})
    path = Path(place.path) / "replication-offset-checkpoint"
    path.unlink()
    directory.record_high_watermarks({CLICKS: 17})
    assert not path.exists()
    directory.record_high_watermarks({CLICKS: 18})
    assert path.exists()


def test_damaged_high_watermarks_are_none(place: Place) -> None:
    place.open().record_high_watermarks({CLICKS: 17})
    place.close()
    path = Path(place.path) / "replication-offset-checkpoint"
    path.write_bytes(path.read_bytes().replace(b"17", b"71"))
    assert place.open().high_watermarks() == {}


def test_log_that_is_deleted_leaves_no_high_watermark_to_the_next_of_its_name(place: Place) -> None:
    place.log()
    place.open_directory.record_high_watermarks({CLICKS: 17, ORDERS: 4})
    place.open_directory.delete(CLICKS)
    place.crash()
    assert place.open().high_watermarks() == {ORDERS: 4}
    place.open_directory.record_high_watermarks({CLICKS: 17, ORDERS: 4})
    place.log()
    assert place.open_directory.high_watermarks() == {ORDERS: 4}


def test_cut_lowers_the_recorded_high_watermark(place: Place) -> None:
    append_many(place.log(), 10)
    place.flush()
    place.open_directory.record_high_watermarks({CLICKS: 8})
    truncate_log(place.log(), 9)
    assert place.open_directory.high_watermarks() == {CLICKS: 8}
    truncate_log(place.log(), 5)
    place.crash()
    assert place.open().high_watermarks() == {CLICKS: 5}


def test_high_watermarks_that_could_not_be_written_are_written_by_the_next_call(tmp_path: Path) -> None:
    disk = FailingDisk()
    place = Place(tmp_path / "data", disk)
    directory = place.open()
    disk.fail("write", "replication-offset-checkpoint.tmp", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        directory.record_high_watermarks({CLICKS: 17})
    disk.heal()
    directory.record_high_watermarks({CLICKS: 17})
    place.crash()
    assert place.open().high_watermarks() == {CLICKS: 17}


def test_directory_keeps_the_id_that_it_was_made_with(place: Place, tmp_path: Path) -> None:
    disk_id = place.open().disk_id
    text = (read_meta_properties(place.disk, place.path) or {})["directory.id"]
    assert uuid_from_text(text) == disk_id
    assert not text.startswith("-")
    place.close()
    assert place.open().disk_id == disk_id
    assert Place(tmp_path / "other").open().disk_id != disk_id


def test_directory_of_a_former_version_gets_an_id_and_keeps_the_rest(place: Place) -> None:
    place.open()
    place.close()
    found = read_meta_properties(place.disk, place.path) or {}
    former = {name: value for name, value in found.items() if name != "directory.id"}
    write_meta_properties(place.disk, place.path, former)
    disk_id = place.open().disk_id
    place.close()
    assert place.open().disk_id == disk_id
    now = read_meta_properties(place.disk, place.path) or {}
    assert {name: value for name, value in now.items() if name != "directory.id"} == former


def test_invalid_id_is_reported_and_not_replaced(place: Place) -> None:
    place.open()
    place.close()
    found = read_meta_properties(place.disk, place.path) or {}
    write_meta_properties(place.disk, place.path, {**found, "directory.id": "nonsense"})
    with pytest.raises(DamagedCheckpoint, match=r"directory\.id is no id"):
        place.open()
    assert (read_meta_properties(place.disk, place.path) or {})["directory.id"] == "nonsense"


def _open(
    disk: MemoryDisk, boot_id: bytes | None, policy: FlushPolicy = "os", *, is_only_replica: bool = False
) -> LogDirectory:
    """The directory with its log, on a machine of this boot."""
    if disk.exists(BOOT):
        disk.remove(BOOT)
    if boot_id is not None:
        disk.open(BOOT, create=True).write_at(0, boot_id)
    config = LogConfig(flush_policy=policy)
    directory = LogDirectory.open(
        disk,
        "/data",
        clock=FakeClock(NOW_MS),
        config_of=lambda _: config,
        boot_id_path=BOOT,
        is_only_replica=lambda _: is_only_replica,
    )
    if CLICKS not in directory.logs:
        run_inline(directory.create([(CLICKS, topic_id(0))]))
    return directory


def _registered(disk: MemoryDisk, boot_id: bytes | None, policy: FlushPolicy = "os", broker_epoch: int = 10) -> None:
    """A broker that was registered once and then killed."""
    directory = _open(disk, boot_id, policy)
    directory.set_complete_from(broker_epoch)
    directory.abandon()


def test_new_directory_keeps_nothing_of_before_its_first_registration() -> None:
    directory = _open(MemoryDisk(), b"a")
    assert directory.complete_from is None
    assert not directory.is_complete(CLICKS, 10**6)
    directory.set_complete_from(40)
    assert not directory.is_complete(CLICKS, 39)
    assert directory.is_complete(CLICKS, 40)
    assert not directory.is_complete(ORDERS, 40), "there is no such log"


def test_later_registrations_keep_the_first_complete_epoch() -> None:
    disk = MemoryDisk()
    _registered(disk, b"a", broker_epoch=10)
    _registered(disk, b"a", broker_epoch=20)
    directory = _open(disk, b"a")
    assert directory.complete_from == 10
    assert directory.is_complete(CLICKS, 15)


def test_directory_of_a_version_that_recorded_nothing_has_kept_its_logs(place: Place) -> None:
    append_many(place.log(), 3)
    place.close()
    found = read_meta_properties(place.disk, place.path) or {}
    del found["ottla.kept.from"]
    write_meta_properties(place.disk, place.path, found)
    assert place.open().is_complete(CLICKS, 0)


def test_directory_that_is_taken_over_keeps_all_from_the_first_epoch_of_its_new_tree(place: Place) -> None:
    append_many(place.log(), 3)
    place.close()
    record_complete_from(place.disk, place.path, 0)
    assert place.open().is_complete(CLICKS, 1)


@pytest.mark.parametrize(
    ("first", "second", "is_complete"),
    [
        (b"a\n", b"a\n", True),
        (b"a\n", b"b\n", False),
        (b"a\n", None, False),
        (None, b"a\n", False),
        (None, None, False),
    ],
)
def test_unflushed_log_is_kept_when_only_the_process_ended(
    first: bytes | None, second: bytes | None, is_complete: bool
) -> None:
    disk = MemoryDisk()
    _registered(disk, first)
    directory = _open(disk, second)
    assert not directory.was_clean
    assert directory.is_complete(CLICKS, 10) is is_complete
    directory.set_complete_from(20)
    assert directory.is_complete(CLICKS, 20)
    assert directory.is_complete(CLICKS, 10) is is_complete


@pytest.mark.parametrize("policy", ["ack", "interval"])
def test_log_that_is_flushed_before_it_is_reported_is_kept_on_another_boot(policy: FlushPolicy) -> None:
    disk = MemoryDisk()
    _registered(disk, b"a", policy)
    assert _open(disk, b"b", policy).is_complete(CLICKS, 10)


@pytest.mark.parametrize("policy", ["ack", "interval"])
def test_policy_of_the_life_that_the_power_cut_ended_decides(policy: FlushPolicy) -> None:
    disk = MemoryDisk()
    _registered(disk, b"a", "os")
    assert not _open(disk, b"b", policy).is_complete(CLICKS, 10)


def test_policy_that_was_changed_while_the_broker_ran_counts() -> None:
    disk = MemoryDisk()
    directory = _open(disk, b"a", "ack")
    directory.set_complete_from(10)
    directory.logs[CLICKS].update_config(LogConfig(flush_policy="os"))
    directory.abandon()
    assert not _open(disk.crash(random.Random(1)), b"b", "ack").is_complete(CLICKS, 10)


def test_log_that_was_flushed_since_policy_os_ended_is_kept() -> None:
    disk = MemoryDisk()
    _registered(disk, b"a", "os")
    _open(disk, b"a", "ack").abandon()
    assert _open(disk, b"b", "ack").is_complete(CLICKS, 10)


def test_end_of_policy_os_counts_only_when_records_acknowledged_under_it_are_flushed() -> None:
    disk = MemoryDisk()
    directory = _open(disk, b"a", "os")
    directory.set_complete_from(10)
    directory.logs[CLICKS].start_epoch(0)
    append_many(directory.logs[CLICKS], 3)
    directory.abandon()
    moments: list[MemoryDisk] = []
    disk.on_operation = lambda _: moments.append(disk.crash(random.Random(len(moments))))
    _open(disk, b"a", "ack")
    disk.on_operation = None
    after = [_open(moment, b"b", "ack") for moment in (*moments, disk)]
    kept = [each.logs[CLICKS].log_end_offset for each in after if each.is_complete(CLICKS, 10)]
    assert len(after) > len(kept) > 0
    assert set(kept) == {3}


def test_only_replica_continues_after_a_power_cut_and_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    _registered(disk, b"a")
    assert _open(disk, b"b", is_only_replica=True).is_complete(CLICKS, 10)
    (line,) = [each for each in caplog.records if each.getMessage() == "log.unflushed_lost"]
    assert "flush.policy=ack" in str(vars(line))


def test_only_replica_of_a_new_disk_is_not_complete() -> None:
    assert not _open(MemoryDisk(), b"b", is_only_replica=True).is_complete(CLICKS, 10)


def test_second_start_knows_what_the_first_one_after_a_power_loss_knew() -> None:
    disk = MemoryDisk()
    _registered(disk, b"a")
    _open(disk, b"b").abandon()
    assert not _open(disk, b"b").is_complete(CLICKS, 10)


def test_loss_is_recorded_before_the_note_that_shows_it_is_replaced() -> None:
    disk = MemoryDisk()
    _registered(disk, b"a")
    moments: list[MemoryDisk] = []
    disk.on_operation = lambda _: moments.append(disk.crash(random.Random(len(moments))))
    _open(disk, b"b")
    disk.on_operation = None
    assert len(moments) > 10
    assert not any(_open(moment, b"b").is_complete(CLICKS, 10) for moment in moments)


def test_after_a_clean_stop_everything_is_kept_also_on_another_boot() -> None:
    disk = MemoryDisk()
    directory = _open(disk, b"a")
    directory.set_complete_from(10)
    directory.close()
    assert _open(disk, b"b").is_complete(CLICKS, 10)


def test_failed_sync_means_that_nothing_unflushed_is_kept() -> None:
    disk = MemoryDisk()
    directory = _open(disk, b"a")
    directory.set_complete_from(10)
    assert disk.exists(f"/data/{BOOT_NOTE_FILE}")
    directory.directory_failed(OSError(errno.EIO, "lost"))
    assert not directory.is_complete(CLICKS, 10)
    directory.abandon()
    assert not _open(disk, b"a").is_complete(CLICKS, 10)


def test_log_that_takes_no_more_has_kept_what_it_reported_unless_it_is_damaged(place: Place) -> None:
    append_many(place.log(), 3)
    directory = place.open_directory
    directory.set_complete_from(10)
    directory.logs[CLICKS].take_offline(StorageError("the disk"))
    assert not directory.is_complete(CLICKS, 10)
    assert directory.is_complete(CLICKS, 10, though_failed=True)
    assert not directory.is_complete(CLICKS, 9, though_failed=True)
    assert not directory.is_complete(ORDERS, 10, though_failed=True), "there is no such log"
    directory.logs[CLICKS].distrust()
    assert not directory.is_complete(CLICKS, 10, though_failed=True)


def test_kernels_boot_is_read(tmp_path: Path) -> None:
    place = Place(tmp_path / "data", config=LogConfig(flush_policy="os"))
    append_many(place.log(), 3)
    place.open_directory.set_complete_from(10)
    place.crash()
    assert place.open().is_complete(CLICKS, 10) is Path("/proc/sys/kernel/random/boot_id").exists()


def test_damaged_record_of_losses_means_that_nothing_is_kept(place: Place) -> None:
    append_many(place.log(), 3)
    place.open_directory.set_complete_from(10)
    place.open_directory.set_aside(CLICKS, topic_id(0))
    place.log()
    place.crash()
    path = Path(place.path) / "kept-from"
    path.write_bytes(path.read_bytes()[:-5])
    directory = place.open()
    assert directory.complete_from is None
    directory.set_complete_from(30)
    place.crash()
    assert place.open().complete_from == 30


def test_recreated_log_is_complete_from_the_next_registration_on(place: Place) -> None:
    directory = _damaged(place)
    directory.set_complete_from(10)
    directory.set_aside(CLICKS, topic_id(0))
    run_inline(directory.create([(CLICKS, topic_id(0)), (ORDERS, topic_id(1))]))
    assert directory.is_usable(CLICKS)
    assert not directory.is_complete(CLICKS, 10)
    assert directory.is_complete(ORDERS, 10)
    place.crash()
    directory = place.open()
    assert not directory.is_complete(CLICKS, 10)
    directory.set_complete_from(20)
    place.crash()
    directory = place.open()
    assert not directory.is_complete(CLICKS, 10)
    assert directory.is_complete(CLICKS, 20)
    directory.delete(CLICKS)
    run_inline(directory.create([(CLICKS, topic_id(2))]))
    assert directory.is_complete(CLICKS, 10), "another topic's log"


def test_log_recreated_before_its_first_report_is_complete_from_this_registration_on(place: Place) -> None:
    directory = _damaged(place)
    directory.set_complete_from(20)
    directory.set_aside(CLICKS, topic_id(0), 20)
    run_inline(directory.create([(CLICKS, topic_id(0))]))
    assert not directory.is_complete(CLICKS, 19)
    assert directory.is_complete(CLICKS, 20)
    place.crash()
    directory = place.open()
    assert not directory.is_complete(CLICKS, 19)
    assert directory.is_complete(CLICKS, 20), "it holds all that it fetched in its place"


def test_log_that_is_set_aside_while_it_is_in_use_is_kept_from_the_next_registration_on(place: Place) -> None:
    append_many(place.log(), 3)
    place.open_directory.set_complete_from(20)
    for _ in range(2):
        place.open_directory.set_aside(CLICKS, topic_id(0), 20)
    run_inline(place.open_directory.create([(CLICKS, topic_id(0))]))
    assert not place.open_directory.is_complete(CLICKS, 20)


def _damaged(place: Place) -> LogDirectory:
    append_many(place.log(), 20)
    place.flush()
    place.open_directory.record_high_watermarks({CLICKS: 20})
    place.log().delete_records_before(7)
    place.open_directory.checkpoint()
    place.crash()
    path = Path(place.path) / "clicks-0" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[1_000] ^= 0xFF
    path.write_bytes(content)
    directory = place.open()
    assert isinstance(directory.failed[CLICKS], CorruptLog)
    assert not directory.is_usable(CLICKS)
    return directory


def _kept_names(place: Place) -> list[str]:
    return [path.name for path in Path(place.path).iterdir() if path.name.endswith("-damaged")]


def test_damaged_log_is_set_aside_and_an_empty_one_made(place: Place) -> None:
    directory = _damaged(place)
    directory.set_aside(CLICKS, topic_id(0))
    assert CLICKS not in directory.failed
    assert not directory.holds(CLICKS)
    (name,) = _kept_names(place)
    assert name.startswith(f"clicks-0.{topic_id(0).hex}.")
    assert len((Path(place.path) / name / "00000000000000000000.log").read_bytes()) > 1_000
    (log,) = run_inline(directory.create([(CLICKS, topic_id(0))]))
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    assert directory.high_watermarks() == {}
    append_many(log, 3)
    place.flush()
    place.clock.ms += 10**6
    directory.housekeep(place.clock.now_ms())
    place.crash()
    assert read_all(place.reopen_log()) == [0, 1, 2]
    assert _kept_names(place) == [name], "kept until an operator removes it"


def test_log_without_a_readable_topic_id_is_set_aside_by_the_trees(place: Place) -> None:
    append_many(place.log(), 20)
    place.flush()
    place.crash()
    (Path(place.path) / "clicks-0" / "partition.metadata").unlink()
    directory = place.open()
    assert directory.topic_id_of(CLICKS) is None
    directory.set_aside(CLICKS, topic_id(0))
    run_inline(directory.create([(CLICKS, topic_id(0))]))
    assert directory.is_usable(CLICKS)


def test_lost_log_is_recreated_after_it_was_set_aside(place: Place) -> None:
    append_many(place.log(), 20)
    place.flush()
    place.crash()
    (Path(place.path) / "clicks-0").rename(Path(place.path).parent / "gone")
    directory = place.open()
    with pytest.raises(StorageError, match="flushed up to offset 20"):
        run_inline(directory.create([(CLICKS, topic_id(0))]))
    directory.set_aside(CLICKS, topic_id(0))
    assert not _kept_names(place)
    run_inline(directory.create([(CLICKS, topic_id(0))]))


def test_log_that_went_offline_is_set_aside_while_its_readers_continue(place: Place) -> None:
    log = place.log()
    append_many(log, 3)
    place.flush()
    log.take_offline(CorruptLog(log.path, 0, 0, "planted"))
    file = log.segments[0].open()
    place.open_directory.set_aside(CLICKS, topic_id(0))
    assert log.is_deleted
    assert len(file.read_at(0, 100)) == 100
    run_inline(place.open_directory.create([(CLICKS, topic_id(0))]))
    place.close()
    assert place.open().was_clean


def test_second_damage_of_a_log_is_set_aside_beside_the_first(place: Place) -> None:
    directory = _damaged(place)
    for _ in range(2):
        directory.set_aside(CLICKS, topic_id(0))
        run_inline(directory.create([(CLICKS, topic_id(0))]))
        place.clock.ms += 1
    assert len(_kept_names(place)) == 2


def test_set_aside_that_could_not_be_synced_is_finished_by_the_next_call(tmp_path: Path) -> None:
    disk = FailingDisk()
    place = Place(tmp_path / "data", disk)
    directory = _damaged(place)
    disk.fail("write", "flushed-ends", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        directory.set_aside(CLICKS, topic_id(0))
    disk.heal()
    assert directory.holds(CLICKS)
    directory.set_aside(CLICKS, topic_id(0))
    assert not directory.holds(CLICKS)
    run_inline(directory.create([(CLICKS, topic_id(0))]))
    assert len(_kept_names(place)) == 1
