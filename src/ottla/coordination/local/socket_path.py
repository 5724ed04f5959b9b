"""Paths of Unix sockets: their address has room for about 100 bytes, and data directories lie deeper."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ottla.model.errors import OttlaError

# `sockaddr_un.sun_path` has 108 bytes on Linux and 104 elsewhere, with a zero at the end.
PATH_BYTES_MAX: Final = (108 if sys.platform == "linux" else 104) - 1


class SocketPathTooLong(OttlaError):
    """No address holds the path."""

    hint = "choose a data directory with a shorter path"


class SocketPath:
    """Where a socket is or will be; its directory exists."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path

    @contextmanager
    def reachable(self) -> Iterator[str]:
        """A path that an address can hold, for as long as the block runs.  Raises `SocketPathTooLong`, `OSError`."""
        path = os.path.abspath(self.path)
        if len(os.fsencode(path)) <= PATH_BYTES_MAX:
            yield path
            return
        directory, name = os.path.split(path)
        if sys.platform != "linux":
            raise SocketPathTooLong(f"{path} has more than the {PATH_BYTES_MAX} bytes of a Unix socket's address")
        descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
        try:
            # Linux follows it to the directory, however long its path is.
            yield f"/proc/self/fd/{descriptor}/{name}"
        finally:
            os.close(descriptor)
