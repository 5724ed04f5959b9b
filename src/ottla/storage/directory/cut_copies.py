"""Committed records that a follower cuts from its log are copied to a directory beside the logs before the cut.

It has the batches in files as a log has them, `ottla log dump` reads it, and no broker opens it.  Its name has the
topic's id, the offsets, and the leader epoch of the last record: a cut that is tried again finds the copy of before.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from ottla.model.limits import GIB, MIB
from ottla.observe.events import fields
from ottla.runtime.disk import Disk, write_fully
from ottla.runtime.mutex import Mutex
from ottla.runtime.offload import Offload
from ottla.storage.directory.directory_space import DirectorySpace
from ottla.storage.directory.removals import remove_tree
from ottla.storage.log.log import CutRun, Log
from ottla.storage.log_files import (
    CUT_DIRECTORY_SUFFIX,
    UNFINISHED_CUT_SUFFIX,
    deleted_directory_name,
    segment_file_name,
)

_log = logging.getLogger(__name__)

# Of all such directories together: a topic that allows unclean elections may cut again and again.
KEPT_BYTES_MAX: Final = 4 * GIB
_CHUNK_BYTES: Final = MIB
CUT_HINT: Final = "another leader's log does not have these records; remove the directory when they are not wanted"


class CutCopies:
    """Of one data directory.  A copy that fails is logged, and the cut is made without it."""

    def __init__(self, disk: Disk, path: str, space: DirectorySpace) -> None:
        self._disk = disk
        self._path = path
        self._space = space
        # One copy at a time: each one looks at the room that the former ones left.
        self._copying = Mutex()

    async def copy(self, log: Log, end_offset: int, runs: list[CutRun], offload: Offload) -> str | None:
        """Where the copy is, which gets its lasting name by `finish`; None when there is none."""
        unique = f"{log.topic_id.hex}.{end_offset}-{log.log_end_offset}.e{log.last_epoch()}"
        target = f"{self._path}/{deleted_directory_name(log.topic_partition, unique, CUT_DIRECTORY_SUFFIX)}"
        size_bytes = sum(run.size_bytes for run in runs)
        async with self._copying:
            try:
                if await offload(lambda: self._disk.exists(target)):
                    return None
                problem = await offload(lambda: self._problem_of(size_bytes))
                if not problem:
                    await offload(lambda: self._begin(target))
                    for run in runs:
                        await offload(partial(self._copy_run, run, target))
                    return target
            except OSError as error:
                problem = str(error)
                await offload(lambda: self.drop(target))
        report_not_kept(log, problem, size_bytes)
        return None

    def finish(self, log: Log, target: str) -> None:
        """The copy is durable.  Raises `OSError`."""
        self._disk.rename(f"{target}{UNFINISHED_CUT_SUFFIX}", target)
        _log.warning("log.cut_is_kept", extra=fields(partition=log.topic_partition, path=target, hint=CUT_HINT))

    def _problem_of(self, size_bytes: int) -> str:
        """Why so many bytes cannot be kept; empty when they can."""
        rules = self._space.rules
        left_bytes = self._disk.free_bytes(self._path) - size_bytes
        if left_bytes < max(rules.low_bytes, rules.resume_bytes):
            return "the disk would be low"
        if self._kept_bytes() + size_bytes > KEPT_BYTES_MAX:
            return f"more than {KEPT_BYTES_MAX // MIB} MiB of cut records would be kept"
        return ""

    def _kept_bytes(self) -> int:
        disk, kept_bytes = self._disk, 0
        for name in disk.list_directory(self._path):
            if name.endswith(CUT_DIRECTORY_SUFFIX):
                path = f"{self._path}/{name}"
                kept_bytes += sum(disk.file_size_bytes(f"{path}/{each}") for each in disk.list_directory(path))
        return kept_bytes

    def _begin(self, target: str) -> None:
        self.drop(target)
        self._disk.make_directory(f"{target}{UNFINISHED_CUT_SUFFIX}")

    def drop(self, target: str) -> None:
        """What a failed copy, or one that a crash interrupted, left; the next start removes what cannot be removed."""
        path = f"{target}{UNFINISHED_CUT_SUFFIX}"
        try:
            if self._disk.exists(path):
                remove_tree(self._disk, path)
        except OSError as error:
            _log.warning("log.cut_not_removed", extra=fields(path=path, error=str(error)))

    def _copy_run(self, run: CutRun, target: str) -> None:
        path = f"{target}{UNFINISHED_CUT_SUFFIX}/{segment_file_name(run.base_offset)}"
        # A separate descriptor: the log may close its file meanwhile.
        source = self._disk.open(run.path, read_only=True)
        try:
            copy = self._disk.open(path, create=True)
            try:
                for begin in range(0, run.size_bytes, _CHUNK_BYTES):
                    chunk_bytes = min(_CHUNK_BYTES, run.size_bytes - begin)
                    write_fully(copy, begin, source.read_at(run.position + begin, chunk_bytes))
            finally:
                copy.close()
        finally:
            source.close()


def report_not_kept(log: Log, reason: str, size_bytes: int | None = None) -> None:
    facts = fields(partition=log.topic_partition, reason=reason, size_bytes=size_bytes)
    _log.warning("log.cut_not_kept", extra=facts)
