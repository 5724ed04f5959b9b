"""Which offsets each leader epoch wrote in one log (KIP-101, KIP-279): kept in memory, written to its checkpoint.

An entry is (epoch, offset of its first record); both rise strictly, and an epoch ends where the next one starts.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from ottla.model.identifiers import NO_LEADER_EPOCH, NO_OFFSET
from ottla.observe.events import fields
from ottla.runtime.disk import Disk, read_file, replace_file, write_fully
from ottla.storage.checkpoints import LEADER_EPOCH_FILE, DamagedCheckpoint, EpochStart, format_epochs, parse_epochs

_log = logging.getLogger(__name__)

UNKNOWN_EPOCH: Final = (NO_LEADER_EPOCH, NO_OFFSET)


def _epoch_of_entry(entry: EpochStart) -> int:
    return entry.epoch


def _start_of_entry(entry: EpochStart) -> int:
    return entry.start_offset


def put_file(disk: Disk, path: str, content: bytes) -> None:
    """Replace a file without any sync."""
    temporary = path + ".tmp"
    if disk.exists(temporary):
        disk.remove(temporary)
    file = disk.open(temporary, create=True)
    try:
        write_fully(file, 0, content)
    finally:
        file.close()
    disk.rename(temporary, path)


class LeaderEpochs:
    """The epochs of one log.  A change is durable when its call returns, except where its docstring differs."""

    __slots__ = ("_disk", "_entries", "_path")

    def __init__(self, disk: Disk, directory: str, entries: Iterable[EpochStart] = ()) -> None:
        """`entries` are the state; they are not written."""
        self._disk = disk
        self._path = f"{directory}/{LEADER_EPOCH_FILE}"
        self._entries = list(entries)
        self.check_invariants()

    @classmethod
    def load(cls, disk: Disk, directory: str) -> LeaderEpochs | None:
        """The checkpoint's epochs; None when it is missing or damaged: the batches' heads have them too."""
        path = f"{directory}/{LEADER_EPOCH_FILE}"
        if not disk.exists(path):
            return None
        try:
            return cls(disk, directory, parse_epochs(read_file(disk, path), path))
        except DamagedCheckpoint as error:
            _log.warning("checkpoint.damaged", extra=fields(path=path, reason=str(error)))
            return None

    @classmethod
    def empty(cls, disk: Disk, directory: str) -> LeaderEpochs:
        return cls(disk, directory)

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int | None:
        return self._entries[-1].epoch if self._entries else None

    def assign(self, *starts: EpochStart) -> None:
        """These epochs start, oldest first: write the checkpoint without a sync.

        The first append of an epoch calls it, and its flush syncs the file system.  Until then a power loss may leave
        the former checkpoint or a torn one; the batches' heads have what is missing.
        """
        for start in starts:
            self._add(start)
        self._put()

    def replace_from(self, start_offset: int, found: Iterable[EpochStart]) -> None:
        """Replace the epochs from `start_offset` on by those that a scan found there; written once."""
        before = list(self._entries)
        self._entries = [entry for entry in before if entry.start_offset < start_offset]
        for entry in found:
            self._add(entry)
        if self._entries != before:
            self.save()

    def _add(self, entry: EpochStart) -> None:
        """Of the latest epoch only an earlier start is news."""
        assert entry.epoch >= 0
        assert entry.start_offset >= 0
        if self._entries:
            latest = self._entries[-1]
            if entry.epoch == latest.epoch and entry.start_offset >= latest.start_offset:
                return
        # An epoch that wrote nothing, or whose records were truncated, is dropped.
        while self._entries and (
            self._entries[-1].epoch >= entry.epoch or self._entries[-1].start_offset >= entry.start_offset
        ):
            self._entries.pop()
        self._entries.append(entry)

    def end_offset_for(self, epoch: int, log_end_offset: int, leader_epoch: int = NO_LEADER_EPOCH) -> tuple[int, int]:
        """(the greatest known epoch not above `epoch`, its end offset).

        `leader_epoch` is the one that was started last: it is known, and starts at the log end, before its first
        append too.  An epoch above all known ones, or no epoch: (-1, -1).  One below all known ones: itself and the
        start of the first known, since what it wrote is not in this log any more.
        """
        entries = self._entries
        if leader_epoch > (entries[-1].epoch if entries else NO_LEADER_EPOCH):
            entries = [*entries, EpochStart(leader_epoch, log_end_offset)]
        if not entries or epoch < 0 or epoch > entries[-1].epoch:
            return UNKNOWN_EPOCH
        if epoch == entries[-1].epoch:
            return epoch, log_end_offset
        above = bisect_right(entries, epoch, key=_epoch_of_entry)
        end_offset = entries[above].start_offset
        return (epoch, end_offset) if above == 0 else (entries[above - 1].epoch, end_offset)

    def epoch_of(self, offset: int) -> int:
        """The epoch that wrote `offset`, -1 when it is below all known ones."""
        above = bisect_right(self._entries, offset, key=_start_of_entry)
        return self._entries[above - 1].epoch if above else NO_LEADER_EPOCH

    def take_back(self, end_offset: int) -> None:
        """The append of the epochs assigned from `end_offset` on failed: forget them, in memory only.

        The next change writes the checkpoint without it, and an opening believes no entry at the log's end or above.
        """
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at `end_offset`: epochs that start there or later are dropped.  Written without a sync."""
        kept = [entry for entry in self._entries if entry.start_offset < end_offset]
        if len(kept) != len(self._entries):
            self._entries = kept
            self._put()

    def truncate_from_start(self, start_offset: int) -> bool:
        """The log now starts at `start_offset`: the epoch that holds it starts there, earlier ones are dropped.

        True: the checkpoint was written, without a sync.  Until there is one a power loss may leave the former one,
        whose entries below the start do no harm, or a torn one.
        """
        above = bisect_right(self._entries, start_offset, key=_start_of_entry)
        if above == 0 or (above == 1 and self._entries[0].start_offset == start_offset):
            return False
        self._entries[:above] = [EpochStart(self._entries[above - 1].epoch, start_offset)]
        self._put()
        return True

    def _put(self) -> None:
        """`save` without a sync."""
        self.check_invariants()
        put_file(self._disk, self._path, format_epochs(self._entries))

    def save(self) -> None:
        """Write the checkpoint as it is in memory."""
        self.check_invariants()
        replace_file(self._disk, self._path, format_epochs(self._entries))

    def check_invariants(self) -> None:
        for former, latter in zip(self._entries, self._entries[1:], strict=False):
            assert former.epoch < latter.epoch
            assert former.start_offset < latter.start_offset
