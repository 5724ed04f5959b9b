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


def test_sync_of_the_file_system_begins_after_the_failure_of_the_one_before_was_reported(
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
    disk.on_sync_failed = report
    disk.hold_directory(str(tmp_path))
    with pytest.raises(OSError):
        disk.sync_file_system(str(tmp_path))
    second.join()
    disk.release_directory(str(tmp_path))
    assert second_began.is_set()
    assert began_early == [False]
