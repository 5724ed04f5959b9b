"""How far each log is known to be flushed, written down after every flush: recovery may cut only above it.

One preallocated file of 32-byte slots, one for each log:

 0  topic id        16 bytes
16  partition       int32
20  flushed end     int64     exclusive
28  crc             uint32    CRC-32C of this format's name and the 28 bytes before

A slot is written without a sync, after its log was synced: so after a power loss it is at worst older than the truth
(or torn, which its checksum tells, and then absent).  It must never be ahead.  Therefore whatever lowers an end - a
truncation, a deletion - is durable here before the log's own files change.  Topic ids are never used twice, so a slot
that a deleted topic left behind fits no other log.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from ottla.observe.events import fields
from ottla.records.checksum import crc32c
from ottla.runtime.disk import Disk, File, read_file, write_fully

FLUSHED_ENDS_FILE: Final = "flushed-ends"
SLOT_BYTES: Final = 32
SLOTS_COUNT_MIN: Final = 4096
# More than this many slots of one page are written as the page.
_PAGE_BYTES: Final = 4096
_SLOTS_WRITTEN_SINGLY_MAX: Final = 8

_SLOT: Final = struct.Struct(">16siqI")
_CRC_SEED: Final = crc32c(b"ottla flushed end, version 1")
_ZERO_SLOT: Final = bytes(SLOT_BYTES)

assert _SLOT.size == SLOT_BYTES

LogKey = tuple[UUID, int]

_log = logging.getLogger(__name__)


class FlushedEnds:
    """The file of one data directory, and the same bytes in memory."""

    def __init__(self, file: File, content: bytes = b"") -> None:
        """`content` is what the file holds; torn and foreign slots in it count as absent."""
        self._file = file
        self._slots = bytearray()
        self._slot_of: dict[LogKey, int] = {}
        self._free: list[int] = []
        self._is_failing = False
        self._load(content)
        if len(self._slots) < SLOTS_COUNT_MIN * SLOT_BYTES:
            self._grow(SLOTS_COUNT_MIN)

    @classmethod
    def open(cls, disk: Disk, directory: str) -> FlushedEnds:
        """Open the directory's file, or make it, durably.  Raises `OSError`."""
        path = f"{directory}/{FLUSHED_ENDS_FILE}"
        if disk.exists(path):
            return cls(disk.open(path), read_file(disk, path))
        ends = cls(disk.open(path, create=True))
        ends.sync()
        disk.sync_directory(directory)
        return ends

    def _load(self, content: bytes) -> None:
        slots_count = len(content) // SLOT_BYTES
        self._slots = bytearray(content[: slots_count * SLOT_BYTES])
        for slot in range(slots_count):
            if self._slots[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES] == _ZERO_SLOT:
                self._free.append(slot)
                continue
            end, key = self._read(slot)
            other = self._slot_of.get(key) if end is not None else None
            if end is None:
                self._free.append(slot)
            elif other is None:
                self._slot_of[key] = slot
            else:
                # Two claims cannot both be right; the lower one is certainly not ahead.
                other_end = self._read(other)[0]
                assert other_end is not None
                loser = other if end < other_end else slot
                self._slot_of[key] = slot if end < other_end else other
                self._free.append(loser)
                self._put(loser, _ZERO_SLOT)
        self._free.sort(reverse=True)

    def _read(self, slot: int) -> tuple[int | None, LogKey]:
        at = slot * SLOT_BYTES
        topic_id, partition, end, crc = _SLOT.unpack_from(self._slots, at)
        key = (UUID(bytes=topic_id), partition)
        if crc32c(memoryview(self._slots)[at : at + SLOT_BYTES - 4], _CRC_SEED) != crc or end < 0:
            return None, key
        return end, key

    def _grow(self, slots_count: int) -> None:
        self._file.allocate(slots_count * SLOT_BYTES)
        present = len(self._slots) // SLOT_BYTES
        self._slots += bytes((slots_count - present) * SLOT_BYTES)
        # The lowest is taken first, so that the slots in use share pages.
        self._free = [*range(slots_count - 1, present - 1, -1), *self._free]

    def __len__(self) -> int:
        return len(self._slot_of)

    def end_of(self, topic_id: UUID, partition: int) -> int:
        """The recorded flushed end (exclusive), 0 when there is none: nothing is known to be flushed then."""
        slot = self._slot_of.get((topic_id, partition))
        if slot is None:
            return 0
        end, _ = self._read(slot)
        assert end is not None
        return end

    def record(self, ends: Iterable[tuple[UUID, int, int]]) -> None:
        """Write (topic id, partition, flushed end) of each, without a sync.  Only after the logs' files were synced.

        A disk that takes no bytes is reported and no error: the records stay older than the truth.
        """
        try:
            slots = [self._set((topic_id, partition), end) for topic_id, partition, end in ends]
            self._write(slots)
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:
                self._is_failing = True
                _log.warning("flushed_ends.write_failed", extra=fields(path=self._file.path, error=str(error)))

    def lower(self, topic_id: UUID, partition: int, flushed_end: int) -> None:
        """A log will be cut so that it ends at `flushed_end`: the record is no higher, durably, when this returns."""
        if self.end_of(topic_id, partition) > flushed_end:
            self._write([self._set((topic_id, partition), flushed_end)])
            self._file.sync_data()

    def forget(self, keys: Iterable[LogKey]) -> None:
        """Logs are going to be deleted: they have no record, durably, when this returns."""
        slots = [self._slot_of.pop(key) for key in keys if key in self._slot_of]
        if not slots:
            return
        for slot in slots:
            self._put(slot, _ZERO_SLOT)
        self._write(slots)
        self._file.sync_data()
        self._free += sorted(slots, reverse=True)

    def retain(self, keys: Iterable[LogKey]) -> None:
        """Forget all logs but these: after loading, the slots of topics that are gone become free."""
        kept = set(keys)
        self.forget([key for key in self._slot_of if key not in kept])

    def _set(self, key: LogKey, flushed_end: int) -> int:
        slot = self._slot_of.get(key)
        if slot is None:
            if not self._free:
                self._grow(2 * len(self._slots) // SLOT_BYTES)
            slot = self._slot_of[key] = self._free.pop()
        covered = _SLOT.pack(key[0].bytes, key[1], flushed_end, 0)[:-4]
        self._put(slot, covered + crc32c(covered, _CRC_SEED).to_bytes(4, "big"))
        return slot

    def _put(self, slot: int, content: bytes) -> None:
        assert len(content) == SLOT_BYTES
        self._slots[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES] = content

    def _write(self, slots: list[int]) -> None:
        if len(slots) <= _SLOTS_WRITTEN_SINGLY_MAX:
            for slot in slots:
                at = slot * SLOT_BYTES
                write_fully(self._file, at, bytes(self._slots[at : at + SLOT_BYTES]))
            return
        for page in sorted({slot * SLOT_BYTES // _PAGE_BYTES for slot in slots}):
            at = page * _PAGE_BYTES
            write_fully(self._file, at, bytes(self._slots[at : at + _PAGE_BYTES]))

    def sync(self) -> None:
        """Make the records durable, for a clean shutdown."""
        self._file.sync_data()

    def close(self) -> None:
        self._file.close()
