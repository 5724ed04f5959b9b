"""A real file system of a few megabytes, where the tests may mount one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.eventually import eventually

MIB: Final = 1024 * 1024
_FILLER: Final = "foreign-file"


@contextmanager
def small_disk(place: Path, size_mib: int) -> Iterator[Path]:
    """An ext4 in a file, else a tmpfs, at `place`/disk; skips the test where neither can be mounted."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    at, image = place / "disk", place / "image"
    at.mkdir()
    with image.open("wb") as opened:
        opened.truncate(size_mib * MIB)
    is_mounted = (
        _runs("mkfs.ext4", "-q", "-F", "-m", "0", str(image)) and _runs("mount", "-o", "loop", str(image), str(at))
    ) or _runs("mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(at))
    if not is_mounted:
        pytest.skip("a small file system cannot be mounted here")
    try:
        yield at
    finally:
        eventually(lambda: _runs("umount", str(at)))


def fill(at: Path, left_bytes: int = 0) -> None:
    """As another program would: a file that leaves this much free.  `empty` removes it."""
    with (at / _FILLER).open("ab", buffering=0) as filler:
        try:
            while (free := free_bytes(at) - left_bytes) >= 4096:
                filler.write(bytes(min(free, MIB)))
        except OSError:
            return


def empty(at: Path) -> None:
    (at / _FILLER).unlink()


def free_bytes(at: Path) -> int:
    status = os.statvfs(at)
    return status.f_bavail * status.f_frsize


def _runs(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
