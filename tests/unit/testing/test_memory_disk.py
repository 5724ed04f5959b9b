from __future__ import annotations

import errno
import random

import pytest

from ottla.runtime.disk import read_file, replace_file, write_fully
from ottla.testing.memory_disk import SYNC_KINDS, MemoryDisk, MemoryFile, Operation, Survival

SEEDS = range(200)


def written(disk: MemoryDisk, path: str, content: bytes) -> MemoryFile:
    file = disk.open(path, create=True)
    write_fully(file, 0, content)
    return file


def durable(disk: MemoryDisk, path: str, content: bytes) -> MemoryFile:
    file = written(disk, path, content)
    file.sync_data()
    disk.sync_directory(path.rsplit("/", 1)[0])
    return file


def crashes_of(disk: MemoryDisk, path: str, seeds: range = SEEDS) -> set[bytes | None]:
    """Every content that the file has after some power loss, None where it is missing."""
    return {disk.crash(random.Random(seed)).files().get(path) for seed in seeds}


def test_crash_keeps_what_was_synced_with_its_name() -> None:
    disk = MemoryDisk()
    durable(disk, "/a", b"abc")
    assert crashes_of(disk, "/a") == {b"abc"}


def test_crash_may_lose_a_name_whose_directory_was_not_synced() -> None:
    disk = MemoryDisk()
    written(disk, "/a", b"abc").sync_data()
    assert crashes_of(disk, "/a") == {b"abc", None}


def test_crash_may_lose_a_directory_with_all_that_is_in_it() -> None:
    disk = MemoryDisk()
    disk.make_directory("/d")
    durable(disk, "/d/a", b"abc")
    assert crashes_of(disk, "/d/a") == {b"abc", None}
    disk.sync_directory("/")
    assert crashes_of(disk, "/d/a") == {b"abc"}


def test_crash_may_keep_lose_or_tear_an_unsynced_write() -> None:
    disk = MemoryDisk()
    file = durable(disk, "/a", b"abc")
    file.write_at(3, b"defghi")
    seen = crashes_of(disk, "/a", range(1_000))
    assert {b"abc", b"abcdefghi"} <= seen
    # Its beginning alone, its end alone, and its room without all of its bytes.
    assert seen & {b"abcd", b"abcde", b"abcdef"}
    assert seen & {b"abc\0efghi", b"abc\0\0fghi", b"abc\0\0\0ghi"}
    assert seen & {b"abcd\0\0\0\0\0", b"abcde\0\0\0\0", b"abcdef\0\0\0"}
    assert all(content is not None and content.startswith(b"abc") and len(content) <= 9 for content in seen)


def test_crash_may_keep_a_later_write_without_an_earlier_one() -> None:
    disk = MemoryDisk()
    file = durable(disk, "/a", b"")
    file.write_at(0, b"one")
    file.write_at(3, b"two")
    assert b"\0\0\0two" in crashes_of(disk, "/a")


def test_crash_may_keep_one_sector_of_a_write_and_not_the_next() -> None:
    disk = MemoryDisk()
    file = durable(disk, "/a", b"o" * 1024)
    file.write_at(0, b"n" * 1024)
    seen = crashes_of(disk, "/a")
    assert {b"o" * 512 + b"n" * 512, b"n" * 512 + b"o" * 512} <= seen


def test_crash_may_undo_or_keep_a_cut() -> None:
    disk = MemoryDisk()
    file = durable(disk, "/a", b"abcdef")
    file.truncate(2)
    # The rest of the last block is cleared first, and the size follows on its own.
    assert crashes_of(disk, "/a") == {b"abcdef", b"ab\0\0\0\0", b"ab"}


def test_crash_may_keep_the_size_without_the_data() -> None:
    disk = MemoryDisk()
    file = durable(disk, "/a", b"")
    file.write_at(0, b"abc")
    assert b"\0\0\0" in crashes_of(disk, "/a")


def test_sync_covers_every_write_before_it_and_none_after() -> None:
    disk = MemoryDisk()
    file = durable(disk, "/a", b"")
    file.write_at(0, b"one")
    file.write_at(1, b"nce")
    file.truncate(3)
    file.sync_data()
    file.write_at(3, b"?")
    assert crashes_of(disk, "/a") == {b"onc", b"onc?", b"onc\0"}


def test_rename_is_seen_whole_or_not_at_all_after_a_crash() -> None:
    disk = MemoryDisk()
    durable(disk, "/old", b"abc")
    disk.rename("/old", "/new")
    seen = {tuple(disk.crash(random.Random(seed)).files()) for seed in SEEDS}
    assert seen == {("/old",), ("/new",)}
    disk.sync_directory("/")
    assert {tuple(disk.crash(random.Random(seed)).files()) for seed in SEEDS} == {("/new",)}


def test_rename_between_directories_is_durable_in_both_when_one_is_synced() -> None:
    disk = MemoryDisk()
    disk.make_directory("/d")
    disk.make_directory("/e")
    durable(disk, "/d/a", b"abc")
    durable(disk, "/e/a", b"xyz")
    disk.sync_directory("/")
    disk.remove("/e/a")
    disk.rename("/d/a", "/e/a")
    disk.sync_directory("/d")
    assert {tuple(disk.crash(random.Random(seed)).files().items()) for seed in SEEDS} == {(("/e/a", b"abc"),)}


def test_removed_file_may_come_back_after_a_crash_until_its_directory_is_synced() -> None:
    disk = MemoryDisk()
    durable(disk, "/a", b"abc")
    disk.remove("/a")
    assert crashes_of(disk, "/a") == {b"abc", None}
    disk.sync_directory("/")
    assert crashes_of(disk, "/a") == {None}


def test_replace_file_leaves_the_old_or_the_new_content_at_every_moment() -> None:
    disk = MemoryDisk()
    replace_file(disk, "/a", b"old")
    seen: set[bytes | None] = set()
    disk.on_operation = lambda _: seen.update(crashes_of(disk, "/a"))
    replace_file(disk, "/a", b"new")
    assert seen == {b"old", b"new"}


def test_file_system_sync_covers_files_and_names() -> None:
    disk = MemoryDisk()
    disk.make_directory("/d")
    written(disk, "/d/a", b"abc")
    written(disk, "/b", b"xyz")
    disk.sync_file_system("/d")
    for seed in SEEDS:
        assert disk.crash(random.Random(seed)).files() == {"/b": b"xyz", "/d/a": b"abc"}


def test_survival_can_be_chosen() -> None:
    disk = MemoryDisk()
    file = durable(disk, "/a", b"abc")
    file.write_at(3, b"def")
    written(disk, "/b", b"xyz")
    assert disk.crash(random.Random(1), Survival.NOTHING).files() == {"/a": b"abc"}
    assert disk.crash(random.Random(1), Survival.EVERYTHING).files() == {"/a": b"abcdef", "/b": b"xyz"}


def test_crash_is_the_same_for_the_same_seed() -> None:
    disk = MemoryDisk()
    file = durable(disk, "/a", b"abc")
    for position in range(3, 60, 3):
        file.write_at(position, b"def")
    assert [disk.crash(random.Random(7)).files() for _ in range(3)] == [disk.crash(random.Random(7)).files()] * 3


def test_crash_leaves_nothing_unsynced_and_the_disk_itself_alone() -> None:
    disk = MemoryDisk()
    written(disk, "/a", b"abc")
    after = disk.crash(random.Random(1), Survival.EVERYTHING)
    assert crashes_of(after, "/a") == {b"abc"}
    after.open("/a").truncate(0)
    assert disk.files() == {"/a": b"abc"}


def test_kill_keeps_the_page_cache_and_what_was_unsynced_in_it() -> None:
    disk = MemoryDisk()
    file = durable(disk, "/a", b"abc")
    file.write_at(3, b"d")
    written(disk, "/b", b"xyz")
    after = disk.kill()
    assert after.files() == {"/a": b"abcd", "/b": b"xyz"}
    assert after.crash(random.Random(1), Survival.NOTHING).files() == {"/a": b"abc"}
    file.write_at(4, b"e")
    assert after.files()["/a"] == b"abcd"


def test_links_are_still_one_file_after_a_crash() -> None:
    disk = MemoryDisk()
    durable(disk, "/a", b"abc")
    disk.link("/a", "/b")
    disk.sync_directory("/")
    after = disk.crash(random.Random(1))
    after.open("/a").write_at(0, b"x")
    assert after.files() == {"/a": b"xbc", "/b": b"xbc"}


def test_only_the_planned_write_fails() -> None:
    disk = MemoryDisk()
    file = disk.open("/a", create=True)
    disk.faults.fail("write", error=errno.EIO, nth=2)
    assert file.write_at(0, b"one") == 3
    with pytest.raises(OSError) as failed:
        file.write_at(3, b"two")
    assert failed.value.errno == errno.EIO
    assert file.write_at(3, b"two") == 3
    assert disk.files() == {"/a": b"onetwo"}


def test_fault_strikes_only_paths_that_it_names() -> None:
    disk = MemoryDisk()
    disk.faults.fail("create", path_contains=".log", times=None)
    disk.open("/a.index", create=True)
    for _ in range(2):
        with pytest.raises(OSError):
            disk.open("/a.log", create=True)
    disk.faults.clear()
    disk.open("/a.log", create=True)


def test_failed_rename_and_remove_change_nothing() -> None:
    disk = MemoryDisk()
    written(disk, "/a", b"abc")
    disk.faults.fail("rename")
    disk.faults.fail("remove")
    with pytest.raises(OSError):
        disk.rename("/a", "/b")
    with pytest.raises(OSError):
        disk.remove("/a")
    assert disk.files() == {"/a": b"abc"}


def test_data_of_a_failed_sync_is_never_written_although_a_retry_succeeds() -> None:
    disk = MemoryDisk()
    file = durable(disk, "/a", b"abc")
    file.write_at(3, b"lost")
    disk.faults.fail("sync")
    with pytest.raises(OSError):
        file.sync_data()
    assert file.read_at(0, 9) == b"abclost"
    file.sync_data()
    assert crashes_of(disk, "/a") == {b"abc"}


def test_failed_file_system_sync_loses_what_all_files_had_unsynced() -> None:
    disk = MemoryDisk()
    durable(disk, "/a", b"abc").write_at(3, b"lost")
    disk.faults.fail("sync_file_system")
    with pytest.raises(OSError):
        disk.sync_file_system("/")
    disk.sync_file_system("/")
    assert crashes_of(disk, "/a") == {b"abc"}


def test_short_write_takes_the_planned_bytes() -> None:
    disk = MemoryDisk()
    file = disk.open("/a", create=True)
    disk.faults.shorten_write(2)
    assert file.write_at(0, b"abc") == 2
    assert file.write_at(2, b"c") == 1
    assert disk.files() == {"/a": b"abc"}


def test_full_disk_takes_what_fits_then_refuses_and_resumes_with_room() -> None:
    disk = MemoryDisk()
    disk.room_bytes = 5
    file = disk.open("/a", create=True)
    assert file.write_at(0, b"abc") == 3
    assert file.write_at(3, b"def") == 2
    for refused in (lambda: file.write_at(5, b"f"), lambda: file.allocate(6)):
        with pytest.raises(OSError) as full:
            refused()
        assert full.value.errno == errno.ENOSPC
    assert file.write_at(0, b"ABC") == 3
    assert disk.free_bytes("/") == 0
    disk.room_bytes = 6
    assert file.write_at(5, b"f") == 1
    disk.remove("/a")
    assert disk.free_bytes("/") == 6


def test_lying_disk_returns_from_syncs_and_loses_everything() -> None:
    disk = MemoryDisk()
    disk.ignored_syncs = SYNC_KINDS
    durable(disk, "/a", b"abc")
    disk.sync_file_system("/")
    assert disk.crash(random.Random(1), Survival.NOTHING).files() == {}


def test_disk_that_lies_about_directories_alone_loses_names() -> None:
    disk = MemoryDisk()
    durable(disk, "/a", b"abc")
    disk.ignored_syncs = frozenset({"sync_directory"})
    durable(disk, "/b", b"xyz")
    disk.open("/a").truncate(1)
    disk.open("/a").sync_data()
    assert disk.crash(random.Random(1), Survival.NOTHING).files() == {"/a": b"a"}


def test_operations_are_recorded_and_reads_are_not() -> None:
    disk = MemoryDisk()
    file = durable(disk, "/a", b"abc")
    read_file(disk, "/a")
    file.truncate(1)
    assert disk.operations == [
        Operation("create", "/a"),
        Operation("write", "/a", 0, 3),
        Operation("sync", "/a"),
        Operation("sync_directory", ""),
        Operation("truncate", "/a", 0, 1),
    ]


def test_hook_sees_the_disk_before_the_operation() -> None:
    disk = MemoryDisk()
    seen: list[tuple[str, dict[str, bytes]]] = []
    disk.on_operation = lambda operation: seen.append((operation.kind, disk.files()))
    written(disk, "/a", b"abc")
    assert seen == [("create", {}), ("write", {"/a": b""})]


def test_negative_places_are_refused() -> None:
    file = MemoryDisk().open("/a", create=True)
    for refused in (lambda: file.write_at(-1, b"x"), lambda: file.read_at(-1, 1), lambda: file.truncate(-1)):
        with pytest.raises(OSError) as invalid:
            refused()
        assert invalid.value.errno == errno.EINVAL


def syncs(disk: MemoryDisk) -> bool:
    """Whether a sync of the file system succeeds."""
    try:
        disk.sync_file_system("/")
    except OSError:
        return False
    return True


def test_lost_write_back_is_reported_once_to_each_descriptor_that_was_open_before() -> None:
    disk = MemoryDisk()
    file, other = durable(disk, "/a", b"abc"), durable(disk, "/b", b"abc")
    file.write_at(3, b"lost")
    other.write_at(3, b"kept")
    disk.hold_directory("/")
    disk.lose_write_back("/a")
    with pytest.raises(OSError):
        file.sync_data()
    file.sync_data()
    other.sync_data()
    assert [syncs(disk), syncs(disk)] == [False, True]
    assert (crashes_of(disk, "/a"), crashes_of(disk, "/b")) == ({b"abc"}, {b"abckept"})


def test_lost_write_back_is_reported_to_a_new_descriptor_only_when_no_other_got_it() -> None:
    disk = MemoryDisk()
    disk.lose_write_back()
    # Not held: each sync has a descriptor of its own.
    assert [syncs(disk), syncs(disk)] == [False, True]


def test_failed_syncs_are_reported_before_they_are_raised() -> None:
    disk = MemoryDisk()
    file = durable(disk, "/a", b"abc")
    reported: list[OSError] = []
    disk.report_failed_syncs(reported.append)
    for kind in ("sync", "sync_directory", "sync_file_system"):
        disk.faults.fail(kind)
    for sync in (file.sync_data, lambda: disk.sync_directory("/"), lambda: disk.sync_file_system("/")):
        with pytest.raises(OSError) as raised:
            sync()
        assert reported.pop() is raised.value
    disk.faults.fail("write")
    with pytest.raises(OSError):
        file.write_at(0, b"x")
    assert not reported


def test_process_without_descriptors_opens_nothing_until_one_is_closed() -> None:
    disk = MemoryDisk()
    file = durable(disk, "/a", b"abc")
    disk.hold_directory("/")
    disk.descriptors_max = disk.open_files_count
    for needs_one in (
        lambda: disk.open("/a"),
        lambda: disk.open("/b", create=True),
        lambda: disk.list_directory("/"),
        lambda: disk.sync_directory("."),
    ):
        with pytest.raises(OSError) as refused:
            needs_one()
        assert refused.value.errno == errno.EMFILE
    disk.sync_directory("/")
    disk.sync_file_system("/")
    assert not disk.exists("/b")
    file.close()
    assert disk.list_directory("/") == ["a"]
