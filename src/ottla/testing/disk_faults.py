"""Faults of a `MemoryDisk`, planned ahead: the n-th write, sync or rename fails, or a write accepts fewer bytes."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import Literal, NamedTuple

OperationKind = Literal[
    "allocate",
    "create",
    "link",
    "make_directory",
    "open",
    "read",
    "remove",
    "remove_directory",
    "rename",
    "sync",
    "sync_directory",
    "sync_file_system",
    "truncate",
    "write",
]


class Operation(NamedTuple):
    """One call that reached the disk; position and length are 0 where they mean nothing."""

    kind: OperationKind
    path: str
    position: int = 0
    length_bytes: int = 0


@dataclass(slots=True)
class Fault:
    """Operations of `kind` on paths that contain `path_contains`: `skip_count` pass, then `times` fail (None: all)."""

    kind: OperationKind
    path_contains: str
    skip_count: int
    times: int | None
    error: int
    taken_bytes: int | None

    def takes(self, operation: Operation) -> bool:
        """Whether this fault occurs now; counts the operation."""
        if operation.kind != self.kind or self.path_contains not in operation.path or self.times == 0:
            return False
        if self.skip_count > 0:
            self.skip_count -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class DiskFaults:
    """The pending faults."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def fail(
        self,
        kind: OperationKind,
        *,
        error: int = errno.EIO,
        nth: int = 1,
        times: int | None = 1,
        path_contains: str = "",
    ) -> None:
        """The `nth` such operation from now on raises `OSError(error)`, and `times` - 1 after it (None: all)."""
        self._faults.append(Fault(kind, path_contains, nth - 1, times, error, None))

    def shorten_write(self, taken_bytes: int, *, nth: int = 1, times: int | None = 1, path_contains: str = "") -> None:
        """The `nth` write from now on accepts at most `taken_bytes`."""
        self._faults.append(Fault("write", path_contains, nth - 1, times, 0, taken_bytes))

    def clear(self) -> None:
        """Remove all faults."""
        self._faults.clear()

    def strike(self, operation: Operation) -> int | None:
        """Raise the planned error of this operation, or return the most bytes that a write accepts."""
        taken_bytes: int | None = None
        for fault in self._faults:
            if not fault.takes(operation):
                continue
            if fault.taken_bytes is None:
                raise OSError(fault.error, os.strerror(fault.error), operation.path)
            taken_bytes = fault.taken_bytes
        self._faults = [fault for fault in self._faults if fault.times != 0]
        return taken_bytes
