"""How far each log is known to be flushed, recorded after every flush: recovery cuts only above it.

One preallocated file of 32-byte slots, one for each log:

 0  topic id        16 bytes
16  partition       int32
20  flushed end     int64     exclusive
28  crc             uint32    CRC-32C of this format's name and the 28 bytes before

A log's slot is durable before its first append, and from then on until the log is deleted.  So a log that holds
records and has no slot, or one with a wrong checksum, has lost its proof of what was flushed: only a clean stop or
`ottla log repair` gives it a new one.

Later ends are written without a sync, after the log was synced: after a power loss a slot is at worst out of
date.  It is never torn by one: 32 bytes at a multiple of 32 are in one sector, which a device writes whole or not at
all.  It must never be too high, so a truncation lowers it, durably, before it cuts the log's files.  A deletion removes
the log's directory first: a slot without a log is harmless, since topic ids are never used twice.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from ottla.model.identifiers import TopicPartition
from ottla.observe.events import fields
from ottla.records.checksum import crc32c
from ottla.runtime.disk import Disk, File, read_file, write_fully
from ottla.runtime.offload import INLINE, Offload, run_inline
from ottla.storage.checkpoints import read_recovery_points
from ottla.storage.log_files import FLUSHED_ENDS_FILE

SLOT_BYTES: Final = 32
SLOTS_COUNT_MIN: Final = 4096
# More slots than this are written as whole pages.
_PAGE_BYTES: Final = 4096
_SLOTS_WRITTEN_SINGLY_MAX: Final = 8

_SLOT: Final = struct.Struct(">16siqI")
_KEY: Final = struct.Struct(">16si")
_END: Final = struct.Struct(">q")
_END_AND_CRC: Final = struct.Struct(">qI")
_CRC_SEED: Final = crc32c(b"ottla flushed end, version 1")
_ZERO_SLOT: Final = bytes(SLOT_BYTES)

assert _SLOT.size == _KEY.size + _END_AND_CRC.size == SLOT_BYTES

LogKey = tuple[UUID, int]
# (topic id, partition, flushed end), the end exclusive.
LogEnd = tuple[UUID, int, int]
# (topic id as a number, partition): a UUID's own hash is slow, and every flush looks its logs up.
_FastKey = tuple[int, int]

_log = logging.getLogger(__name__)


def read_flushed_ends(disk: Disk, directory: str) -> dict[LogKey, int]:
    """The recorded end of each log; nothing is changed, and a missing file has no records.  Raises `OSError`."""
    path = f"{directory}/{FLUSHED_ENDS_FILE}"
    content = read_file(disk, path) if disk.exists(path) else b""
    ends: dict[LogKey, int] = {}
    for at in range(0, len(content) - SLOT_BYTES + 1, SLOT_BYTES):
        if _is_whole(content, at):
            topic_id, partition, end, _ = _SLOT.unpack_from(content, at)
            key = (UUID(bytes=topic_id), partition)
            # Only one of two records can be right; the lower one is certainly not ahead.
            ends[key] = min(end, ends.get(key, end))
    return ends


def restore_flushed_ends(
    disk: Disk, directory: str, flushed_ends: FlushedEnds, logs: Iterable[tuple[TopicPartition, UUID]]
) -> None:
    """After a clean stop logs are whole, and recovery points say where each ended: recreate lost records from them.

    They are durable when this returns; the mark of the clean stop must not be removed before.  Raises `OSError`.
    """
    lost = [each for each in logs if flushed_ends.end_of(each[1], each[0].partition) is None]
    if not lost:
        return
    points = read_recovery_points(disk, directory)
    found = [(topic_id, each.partition, points[each]) for each, topic_id in lost if each in points]
    flushed_ends.add(found)
    flushed_ends.sync()
    facts = fields(path=directory, lost_count=len(lost), restored_count=len(found))
    _log.warning("flushed_ends.restored", extra=facts)


def _is_whole(content: bytes | bytearray, at: int) -> bool:
    _, _, end, crc = _SLOT.unpack_from(content, at)
    key_crc = crc32c(content[at : at + _KEY.size], _CRC_SEED)
    return end >= 0 and bool(crc32c(_END.pack(end), key_crc) == crc)


class FlushedEnds:
    """The file of one data directory, and the same bytes in memory."""

    def __init__(self, file: File, content: bytes = b"") -> None:
        """`content` is what the file holds; a slot with a wrong checksum counts as absent."""
        self._file = file
        self._slots = bytearray()
        # (slot, CRC of the slot's key) of each log.
        self._slot_of: dict[_FastKey, tuple[int, int]] = {}
        self._free: list[int] = []
        self._is_failing = False
        self._load(content)
        if len(self._slots) < SLOTS_COUNT_MIN * SLOT_BYTES:
            self._grow(SLOTS_COUNT_MIN)

    @classmethod
    def open(cls, disk: Disk, directory: str) -> FlushedEnds:
        """Open the directory's file, or create it, durably.  Raises `OSError`."""
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
            self._load_slot(slot)
        self._free.sort(reverse=True)

    def _load_slot(self, slot: int) -> None:
        at = slot * SLOT_BYTES
        if not _is_whole(self._slots, at):
            self._free.append(slot)
            return
        topic_id, partition, end, _ = _SLOT.unpack_from(self._slots, at)
        key_crc = crc32c(self._slots[at : at + _KEY.size], _CRC_SEED)
        key = (int.from_bytes(topic_id, "big"), partition)
        other = self._slot_of.get(key)
        if other is not None and self._end_in(other[0]) <= end:
            # Only one of two records can be right; the lower one is certainly not ahead.
            self._clear(slot)
            self._free.append(slot)
            return
        if other is not None:
            self._clear(other[0])
            self._free.append(other[0])
        self._slot_of[key] = (slot, key_crc)

    def _end_in(self, slot: int) -> int:
        end: int = _END.unpack_from(self._slots, slot * SLOT_BYTES + _KEY.size)[0]
        return end

    def _grow(self, slots_count: int) -> None:
        self._file.allocate(slots_count * SLOT_BYTES)
        present = len(self._slots) // SLOT_BYTES
        self._slots += bytes((slots_count - present) * SLOT_BYTES)
        # The lowest is used first, so that the slots in use share pages.
        self._free = [*range(slots_count - 1, present - 1, -1), *self._free]

    def __len__(self) -> int:
        return len(self._slot_of)

    def end_of(self, topic_id: UUID, partition: int) -> int | None:
        """The recorded flushed end (exclusive); None when the log has no record."""
        found = self._slot_of.get((topic_id.int, partition))
        return None if found is None else self._end_in(found[0])

    def add(self, ends: Iterable[LogEnd]) -> None:
        """Write the records of logs that may have none yet; durable from the next sync on.  Raises `OSError`."""
        self._write([self._set(*end) for end in ends])

    def record(self, ends: Iterable[LogEnd]) -> None:
        """Write the ends of logs that have a record, without a sync.  Only after the logs' files were synced.

        A failed write is logged and raises nothing: the records stay older than the truth.
        """
        try:
            self._write([self._set(*end) for end in ends])
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:
                self._is_failing = True
                _log.warning("flushed_ends.write_failed", extra=fields(path=self._file.path, error=str(error)))

    def lower(self, topic_id: UUID, partition: int, flushed_end: int) -> None:
        """`lower_unsynced`, durable when this returns."""
        if self.lower_unsynced(topic_id, partition, flushed_end):
            self.sync()

    def lower_unsynced(self, topic_id: UUID, partition: int, flushed_end: int) -> bool:
        """A log will be cut so that it ends at `flushed_end`: the record is no higher, durably after a sync.

        Whether it was higher.  Raises `OSError`.
        """
        recorded = self.end_of(topic_id, partition)
        if recorded is not None and recorded > flushed_end:
            slot = self._set(topic_id, partition, flushed_end)
            try:
                self._write([slot])
            except OSError:
                # The next call must write it again.
                self._set(topic_id, partition, recorded)
                raise
            return True
        return False

    def forget(self, keys: Iterable[LogKey]) -> None:
        """Logs were deleted: remove their records, durably when this returns."""
        run_inline(self.forget_in_steps(keys, INLINE))

    async def forget_in_steps(self, keys: Iterable[LogKey], offload: Offload) -> None:
        """`forget`, with the sync elsewhere."""
        known = [key for topic_id, partition in keys if (key := (topic_id.int, partition)) in self._slot_of]
        slots = [self._slot_of.pop(key)[0] for key in known]
        if not slots:
            return
        for slot in slots:
            self._clear(slot)
        self._write(slots)
        await offload(self._file.sync_data)
        self._free += sorted(slots, reverse=True)

    def _set(self, topic_id: UUID, partition: int, flushed_end: int) -> int:
        found = self._slot_of.get((topic_id.int, partition))
        slot, key_crc = self._take_slot(topic_id, partition) if found is None else found
        crc = crc32c(_END.pack(flushed_end), key_crc)
        _END_AND_CRC.pack_into(self._slots, slot * SLOT_BYTES + _KEY.size, flushed_end, crc)
        return slot

    def _take_slot(self, topic_id: UUID, partition: int) -> tuple[int, int]:
        if not self._free:
            self._grow(2 * len(self._slots) // SLOT_BYTES)
        slot = self._free.pop()
        key = _KEY.pack(topic_id.bytes, partition)
        self._slots[slot * SLOT_BYTES : slot * SLOT_BYTES + _KEY.size] = key
        taken = self._slot_of[(topic_id.int, partition)] = (slot, crc32c(key, _CRC_SEED))
        return taken

    def _clear(self, slot: int) -> None:
        self._slots[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES] = _ZERO_SLOT

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
        """Make the records durable.  Raises `OSError`."""
        self._file.sync_data()

    def close(self) -> None:
        self._file.close()
