"""What the real disk adds to the operating system's calls."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from ottla.runtime import posix_disk
from ottla.runtime.posix_disk import PosixDisk

# Long enough for a thread that waits for nothing, on a busy machine too; a thread that waits makes no test fail.
ABSENCE_S = 0.2


def test_sync_of_the_file_system_starts_after_the_failure_of_the_one_before_was_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it could succeed, and be believed, although the one descriptor has reported the loss to another thread."""
    disk = PosixDisk()
    second_began = threading.Event()
    began_early: list[bool] = []
    second = threading.Thread(target=lambda: disk.sync_file_system(str(tmp_path)))

    def syncfs(_: int) -> None:
        if threading.current_thread() is second:
            second_began.set()
        else:
            raise OSError(errno.EIO, "lost")

    def report(_: OSError) -> None:
        second.start()
        began_early.append(second_began.wait(ABSENCE_S))

    monkeypatch.setattr(posix_disk, "_syncfs", syncfs)
    disk.report_failed_syncs(report)
    disk.hold_directory(str(tmp_path))
    with pytest.raises(OSError):
        disk.sync_file_system(str(tmp_path))
    second.join()
    disk.release_directory(str(tmp_path))
    assert second_began.is_set()
    assert began_early == [False]


@pytest.mark.parametrize("has_call", [True, False])
def test_allocated_file_has_its_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_call: bool) -> None:
    if not has_call:
        monkeypatch.delattr("os.posix_fallocate")
    file = PosixDisk().open(str(tmp_path / "file"), create=True)
    file.write_at(0, b"kept")
    file.allocate(3_000_000)
    # A file system may reserve blocks for written bytes only when it writes them.
    file.sync_data()
    assert file.read_at(0, 8) == b"kept\0\0\0\0"
    assert file.size_bytes() == 3_000_000
    assert (tmp_path / "file").stat().st_blocks * 512 >= 3_000_000
    file.close()
