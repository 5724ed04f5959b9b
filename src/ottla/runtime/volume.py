"""The file system of a directory: its size and its free space."""

from __future__ import annotations

import os
from typing import NamedTuple


class VolumeSize(NamedTuple):
    """`usable_bytes` is what this process may still write."""

    total_bytes: int
    usable_bytes: int


def volume_size(path: str) -> VolumeSize:
    """Raises `OSError` when the path cannot be reached."""
    status = os.statvfs(path)
    return VolumeSize(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)
