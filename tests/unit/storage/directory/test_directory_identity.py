from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.directory.directory_identity import claim
from ottla.storage.directory.directory_lock import FileLock
from ottla.storage.errors import DirectoryUnusable


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "make room on its file system, or choose a --data-dir on another"),
        (errno.EDQUOT, "make room on its file system, or choose a --data-dir on another"),
        (errno.EACCES, DirectoryUnusable.hint),
    ],
)
def test_directory_that_cannot_be_used_is_reported_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, hint: str
) -> None:
    def fails(_disk: PosixDisk, path: str) -> None:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(PosixDisk, "make_directory", fails)
    with pytest.raises(DirectoryUnusable, match=f"cannot be a data directory: {os.strerror(number)}") as caught:
        claim(PosixDisk(), str(tmp_path / "data"), 0, FileLock())
    assert caught.value.hint == hint


def test_directory_without_a_name_is_reported_as_one() -> None:
    with pytest.raises(DirectoryUnusable, match=r"^'' cannot be a data directory"):
        claim(PosixDisk(), "", 0, FileLock())
