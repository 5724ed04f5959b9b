"""Producer states on disk: `<offset>.snapshot`, the state of all batches below that offset, in Kafka's format.

 0  version          int16     1
 2  crc              uint32    CRC-32C of everything after it
 6  entries count    int32
10  entries, 46 bytes each:
    producer id int64, epoch int16, last sequence int32, last offset int64, last offset delta int32, timestamp int64,
    coordinator epoch int32, first offset of the open transaction int64 (-1: none)

Apache Kafka writes one entry for each producer, its last batch, and so forgets four of five batches at a restart.
Here a producer has an entry for each remembered batch, oldest first: Kafka's reader keeps the last entry of an id.
The timestamp is that of the producer's last activity.

Snapshots are a cache: a missing or damaged one costs the replay of more of the log, never data.
"""

from __future__ import annotations

import logging
import re
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.observe.events import fields
from ottla.records.checksum import crc32c
from ottla.runtime.disk import Disk, read_file, write_fully
from ottla.storage.errors import StorageError
from ottla.storage.producers.producer_state import (
    EXPIRATION_MS,
    NO_OFFSET,
    SEQUENCE_MASK,
    WINDOW_BATCHES,
    ProducerEntry,
    ProducerStates,
)

SNAPSHOT_SUFFIX: Final = ".snapshot"
VERSION: Final = 1

_HEAD: Final = struct.Struct(">hIi")
_ENTRIES_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_CRC_COVERS_FROM: Final = 6
_NAME: Final = re.compile(r"([0-9]{20})\.snapshot\Z", re.ASCII)
_NO_SEQUENCE: Final = -1

_log = logging.getLogger(__name__)


class DamagedSnapshot(StorageError):
    """The bytes are not what `encode_snapshot` or Apache Kafka writes."""


class LoadedProducers(NamedTuple):
    """The states of all batches below `offset`; later ones are still to be replayed."""

    states: ProducerStates
    offset: int


def snapshot_file_name(offset: int) -> str:
    return f"{offset:020d}{SNAPSHOT_SUFFIX}"


def snapshot_offsets_in(names: Sequence[str]) -> list[int]:
    """The offsets of the snapshots among a directory's names, in order."""
    return sorted(int(match[1]) for name in names if (match := _NAME.match(name)))


def encode_snapshot(states: ProducerStates) -> bytes:
    """All producers as the content of a snapshot file."""
    entries = bytearray()
    count = 0
    for producer_id, entry in states.entries():
        # A producer known only by a marker has no batch; Kafka's mark for that is offset -1.
        for batch in entry.batches or [(_NO_SEQUENCE, _NO_SEQUENCE, NO_OFFSET, 0)]:
            entries += _ENTRY.pack(
                producer_id,
                entry.epoch,
                batch[1],
                batch[2] + batch[3],
                batch[3],
                entry.last_active_ms,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
            )
            count += 1
    covered = _ENTRIES_COUNT.pack(count) + entries
    return _HEAD.pack(VERSION, crc32c(covered), count) + bytes(entries)


def decode_snapshot(data: bytes, expiration_ms: int = EXPIRATION_MS) -> ProducerStates:
    """The producers of a snapshot file, of ours or of Apache Kafka's.  Raises `DamagedSnapshot`."""
    if len(data) < _HEAD.size:
        raise DamagedSnapshot(f"a snapshot of {len(data)} bytes has no head")
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise DamagedSnapshot(f"a snapshot of version {version}, {VERSION} is known")
    if crc32c(memoryview(data)[_CRC_COVERS_FROM:]) != crc:
        raise DamagedSnapshot("the snapshot's checksum is not that of its bytes")
    if count < 0 or len(data) != _HEAD.size + count * _ENTRY.size:
        raise DamagedSnapshot(f"a snapshot of {len(data)} bytes cannot hold {count} entries")
    states = ProducerStates(expiration_ms)
    for fields_of_entry in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :]):
        _restore(states, fields_of_entry)
    return states


def _restore(states: ProducerStates, fields_of_entry: tuple[int, ...]) -> None:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp_ms, coordinator_epoch, txn_first = fields_of_entry
    if producer_id < 0 or epoch < 0:
        return
    entry = states.entry(producer_id)
    if entry is None:
        entry = ProducerEntry(epoch)
        states.restore(producer_id, entry)
    entry.start_epoch(epoch)
    entry.last_active_ms = timestamp_ms
    entry.coordinator_epoch = coordinator_epoch
    entry.current_txn_first_offset = txn_first
    if last_offset >= 0:
        first_sequence = (last_sequence - delta) & SEQUENCE_MASK
        entry.add((first_sequence, last_sequence, last_offset - delta, delta))
    assert len(entry.batches) <= WINDOW_BATCHES


def write_snapshot(disk: Disk, directory: str, offset: int, states: ProducerStates, *, sync: bool = False) -> None:
    """Write the state of all batches below `offset`.

    Without `sync` a power loss may tear or lose it, which its checksum shows.  An older one of the same name is
    removed first and not written over: its old bytes under the new name would pass the checksum.
    """
    path = f"{directory}/{snapshot_file_name(offset)}"
    if disk.exists(path):
        disk.remove(path)
    file = disk.open(path, create=True)
    try:
        write_fully(file, 0, encode_snapshot(states))
        if sync:
            file.sync_data()
    finally:
        file.close()


def sync_snapshot(disk: Disk, directory: str, offset: int) -> None:
    """Make a snapshot durable, if it exists: before the batches are removed that it describes."""
    path = f"{directory}/{snapshot_file_name(offset)}"
    if disk.exists(path):
        file = disk.open(path)
        try:
            file.sync_data()
        finally:
            file.close()
        disk.sync_directory(directory)


def load_latest_snapshot(
    disk: Disk,
    directory: str,
    offset_max: int,
    expiration_ms: int = EXPIRATION_MS,
    offsets: Sequence[int] | None = None,
) -> LoadedProducers | None:
    """The states of the newest whole snapshot not above `offset_max`; damaged ones are reported and removed.

    `offsets` are those of the directory's snapshots, in order, when the caller has listed it already.
    """
    if offsets is None:
        offsets = snapshot_offsets_in(disk.list_directory(directory))
    for offset in reversed(offsets):
        if offset > offset_max:
            continue
        path = f"{directory}/{snapshot_file_name(offset)}"
        try:
            return LoadedProducers(decode_snapshot(read_file(disk, path), expiration_ms), offset)
        except DamagedSnapshot as error:
            _log.warning("snapshot.damaged", extra=fields(path=path, reason=str(error)))
            disk.remove(path)
    return None


def remove_snapshots(disk: Disk, directory: str, *, below: int | None = None, above: int | None = None) -> None:
    """Remove the snapshots below `below` and those above `above` (both limits are kept)."""
    for offset in snapshot_offsets_in(disk.list_directory(directory)):
        if (below is not None and offset < below) or (above is not None and offset > above):
            disk.remove(f"{directory}/{snapshot_file_name(offset)}")
