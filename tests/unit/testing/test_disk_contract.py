"""What storage relies on, held by the real disk and the one in memory alike."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.runtime.disk import Disk, File, read_file, replace_file, write_fully
from ottla.runtime.posix_disk import PosixDisk
from ottla.testing.controlled.conditions import Conditions
from ottla.testing.controlled.process import LimitedDisk
from ottla.testing.memory_disk import MemoryDisk


@pytest.fixture(params=[PosixDisk, MemoryDisk, lambda: LimitedDisk(Conditions())], ids=["posix", "memory", "limited"])
def disk(request: pytest.FixtureRequest) -> Disk:
    made = request.param()
    assert isinstance(made, PosixDisk | MemoryDisk)
    return made


@pytest.fixture
def root(disk: Disk, tmp_path: Path) -> str:
    if isinstance(disk, MemoryDisk):
        for parent in [*reversed(tmp_path.parents), tmp_path]:
            disk.make_directory(str(parent))
    return str(tmp_path)


def put(disk: Disk, path: str, content: bytes) -> None:
    file = disk.open(path, create=True)
    write_fully(file, 0, content)
    file.close()


def fill(file: File, peer: socket.socket) -> None:
    """Send until the socket has no room."""
    while True:
        file.send_to(peer, 0, 10)


def test_file_gives_back_what_was_written(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/a", create=True)
    assert file.write_at(0, b"hello") == 5
    assert file.write_at(3, memoryview(b"p, world")) == 8
    assert file.read_at(0, 100) == b"help, world"
    assert file.read_at(11, 5) == b""
    assert file.size_bytes() == disk.file_size_bytes(f"{root}/a") == 11
    assert file.path == f"{root}/a"
    file.close()


def test_write_beyond_the_end_leaves_zeros_between(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/a", create=True)
    file.write_at(4, b"x")
    assert file.read_at(0, 9) == b"\0\0\0\0x"
    file.close()


def test_truncate_cuts_and_extends_with_zeros(disk: Disk, root: str) -> None:
    put(disk, f"{root}/a", b"abcdef")
    file = disk.open(f"{root}/a")
    file.truncate(2)
    file.truncate(4)
    assert file.read_at(0, 9) == b"ab\0\0"
    file.close()


def test_allocate_makes_longer_but_never_shorter(disk: Disk, root: str) -> None:
    put(disk, f"{root}/a", b"abcdef")
    file = disk.open(f"{root}/a")
    file.allocate(3)
    assert file.size_bytes() == 6
    file.allocate(8)
    assert file.read_at(0, 9) == b"abcdef\0\0"
    file.close()


def test_open_creates_only_when_requested_and_never_truncates(disk: Disk, root: str) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/a")
    put(disk, f"{root}/a", b"abc")
    disk.open(f"{root}/a", create=True).close()
    assert read_file(disk, f"{root}/a") == b"abc"
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/nowhere/a", create=True)


def test_read_only_and_closed_files_refuse_writes(disk: Disk, root: str) -> None:
    put(disk, f"{root}/a", b"abc")
    file = disk.open(f"{root}/a", read_only=True)
    with pytest.raises(OSError) as refused:
        file.write_at(0, b"x")
    assert refused.value.errno == errno.EBADF
    file.close()
    with pytest.raises(OSError) as closed:
        file.read_at(0, 1)
    assert closed.value.errno == errno.EBADF
    file.close()


def test_removed_file_lives_on_in_its_handles(disk: Disk, root: str) -> None:
    put(disk, f"{root}/a", b"abc")
    file = disk.open(f"{root}/a")
    disk.remove(f"{root}/a")
    assert not disk.exists(f"{root}/a")
    file.write_at(3, b"d")
    assert file.read_at(0, 9) == b"abcd"
    file.sync_data()
    file.close()


def test_rename_replaces_the_target(disk: Disk, root: str) -> None:
    put(disk, f"{root}/a", b"new")
    put(disk, f"{root}/b", b"old")
    disk.rename(f"{root}/a", f"{root}/b")
    assert disk.list_directory(root) == ["b"]
    assert read_file(disk, f"{root}/b") == b"new"
    with pytest.raises(FileNotFoundError):
        disk.rename(f"{root}/a", f"{root}/c")


def test_directory_is_renamed_with_its_files(disk: Disk, root: str) -> None:
    disk.make_directory(f"{root}/d")
    disk.make_directory(f"{root}/d")
    put(disk, f"{root}/d/a", b"abc")
    disk.rename(f"{root}/d", f"{root}/e")
    assert not disk.is_directory(f"{root}/d")
    assert disk.is_directory(f"{root}/e")
    assert not disk.is_directory(f"{root}/e/a")
    assert read_file(disk, f"{root}/e/a") == b"abc"


def test_directory_that_is_not_empty_stays(disk: Disk, root: str) -> None:
    disk.make_directory(f"{root}/d")
    put(disk, f"{root}/d/a", b"abc")
    with pytest.raises(OSError) as refused:
        disk.remove_directory(f"{root}/d")
    assert refused.value.errno == errno.ENOTEMPTY
    disk.remove(f"{root}/d/a")
    disk.remove_directory(f"{root}/d")
    assert disk.list_directory(root) == []


def test_link_is_a_second_name_of_the_same_file(disk: Disk, root: str) -> None:
    put(disk, f"{root}/a", b"abc")
    disk.link(f"{root}/a", f"{root}/b")
    with pytest.raises(FileExistsError):
        disk.link(f"{root}/a", f"{root}/b")
    put(disk, f"{root}/a", b"xyz")
    disk.remove(f"{root}/a")
    assert read_file(disk, f"{root}/b") == b"xyz"


@pytest.mark.parametrize(
    "call",
    [
        lambda disk, path: disk.list_directory(path),
        lambda disk, path: disk.file_size_bytes(path),
        lambda disk, path: disk.remove(path),
        lambda disk, path: disk.remove_directory(path),
        lambda disk, path: disk.sync_directory(path),
        lambda disk, path: disk.sync_file_system(path),
    ],
)
def test_calls_on_a_missing_path_say_so(disk: Disk, root: str, call: Callable[[Disk, str], object]) -> None:
    with pytest.raises(FileNotFoundError):
        call(disk, f"{root}/missing")


def test_replace_file_leaves_no_temporary(disk: Disk, root: str) -> None:
    put(disk, f"{root}/a.tmp", b"left over by a crash")
    replace_file(disk, f"{root}/a", b"one")
    replace_file(disk, f"{root}/a", b"two")
    assert disk.list_directory(root) == ["a"]
    assert read_file(disk, f"{root}/a") == b"two"


def test_syncs_of_existing_things_return(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/a", create=True)
    file.sync_data()
    file.close()
    disk.sync_directory(root)
    disk.sync_file_system(root)
    assert disk.free_bytes(root) > 0


def test_send_gives_a_run_of_the_file_to_a_socket(disk: Disk, root: str) -> None:
    put(disk, f"{root}/a", b"0123456789")
    file = disk.open(f"{root}/a", read_only=True)
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        assert file.send_to(left, 2, 5) == 5
        assert right.recv(100) == b"23456"
        assert file.send_to(left, 10, 5) == 0
        with pytest.raises(BlockingIOError):
            fill(file, left)
    file.close()


def test_held_directory_is_synced_as_any_other_and_released_once(disk: Disk, root: str) -> None:
    disk.make_directory(f"{root}/held")
    disk.hold_directory(f"{root}/held")
    disk.hold_directory(f"{root}/held")
    disk.sync_directory(f"{root}/held")
    disk.sync_file_system(f"{root}/held")
    # It is the directory that is held, not its name.
    disk.rename(f"{root}/held", f"{root}/moved")
    for _ in range(2):
        disk.release_directory(f"{root}/held")
    disk.sync_directory(f"{root}/moved")
    for sync in (disk.sync_directory, disk.sync_file_system, disk.hold_directory):
        with pytest.raises(FileNotFoundError):
            sync(f"{root}/held")
