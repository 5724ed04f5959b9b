from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ottla.runtime.disk import replace_file, write_fully
from ottla.testing.controlled.conditions import Conditions
from ottla.testing.controlled.process import LimitedDisk, LimitedFile

FULL = Conditions(is_disk_full=True)


@pytest.fixture
def disk() -> LimitedDisk:
    return LimitedDisk(Conditions())


@pytest.fixture
def file(disk: LimitedDisk, tmp_path: Path) -> LimitedFile:
    """Five bytes that were written while there was room; the disk is full now."""
    made = disk.open(f"{tmp_path}/a", create=True)
    write_fully(made, 0, b"hello")
    disk.conditions = FULL
    return made


def test_file_does_not_grow_on_a_full_disk(disk: LimitedDisk, file: LimitedFile, tmp_path: Path) -> None:
    def write() -> None:
        file.write_at(4, b"o!")

    for grow in (write, lambda: file.truncate(6), lambda: file.allocate(6)):
        with pytest.raises(OSError, match="No space") as raised:
            grow()
        assert raised.value.errno == errno.ENOSPC
    assert file.read_at(0, 10) == b"hello"


def test_what_is_there_can_be_overwritten_cut_and_removed(disk: LimitedDisk, file: LimitedFile, tmp_path: Path) -> None:
    assert file.write_at(0, b"j") == 1
    file.truncate(4)
    file.allocate(4)
    assert file.read_at(0, 10) == b"jell"
    disk.rename(file.path, f"{tmp_path}/b")
    disk.remove(f"{tmp_path}/b")
    assert disk.list_directory(str(tmp_path)) == []


def test_nothing_is_made_on_a_full_disk(disk: LimitedDisk, file: LimitedFile, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space"):
        disk.open(f"{tmp_path}/new", create=True)
    with pytest.raises(OSError, match="No space"):
        disk.make_directory(f"{tmp_path}/directory")
    with pytest.raises(OSError, match="No space"):
        replace_file(disk, f"{tmp_path}/checkpoint", b"1")
    assert disk.list_directory(str(tmp_path)) == ["a"]
    assert disk.free_bytes(str(tmp_path)) == 0


def test_what_is_there_is_opened_on_a_full_disk(disk: LimitedDisk, file: LimitedFile, tmp_path: Path) -> None:
    disk.open(file.path, create=True).close()
    disk.make_directory(str(tmp_path))


def test_file_grows_again_when_there_is_room(disk: LimitedDisk, file: LimitedFile, tmp_path: Path) -> None:
    disk.conditions = Conditions()
    assert file.write_at(5, b"!") == 1
    assert file.read_at(0, 10) == b"hello!"
    assert disk.free_bytes(str(tmp_path)) > 0


def test_nothing_is_synced(disk: LimitedDisk) -> None:
    called: list[int] = []
    disk.sync(called.append, 7)
    assert called == []
    assert not disk.is_synced
