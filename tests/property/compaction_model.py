"""The model of a compacted log: a plain list of all appended batches, and the newest value of each key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.records.builder import BatchBuilder
from ottla.records.compression import Codec
from ottla.records.header import (
    BASE_OFFSET,
    DELETE_HORIZON_BIT,
    HEADER,
    LEADER_EPOCH,
    LEADER_EPOCH_AT,
    BatchHeader,
    read_header,
)
from ottla.records.record import Record, decode_batch, split_batches
from ottla.storage.log.log import Log
from ottla.testing.memory_disk import MemoryDisk

from .log_model import WINDOW, Producers
from .log_place import producers_in


class KeyedBatch(NamedTuple):
    """Records as (key, value, timestamp); None is no key, or a tombstone."""

    records: tuple[tuple[bytes | None, bytes | None, int], ...]
    codec: Codec = Codec.NONE
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False

    def build(self) -> memoryview:
        builder = BatchBuilder()
        for key, value, timestamp_ms in self.records:
            builder.append(timestamp_ms, key, value)
        return memoryview(
            builder.build(
                codec=self.codec,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.base_sequence,
                is_transactional=self.is_transactional,
            )
        )


class Appended(NamedTuple):
    """A batch as it was appended."""

    head: BatchHeader
    records: list[Record]


class Shown(NamedTuple):
    """A batch as it is read from the log now."""

    head: BatchHeader
    records: list[Record]


class CompactedModel:
    """`appended` is all that was appended and not truncated."""

    def __init__(self) -> None:
        self.appended: list[Appended] = []
        self.flushed_end = 0
        self.log_start_offset = 0
        # Tombstones by offset: when a clean first passed them.
        self.first_cleaned_ms: dict[int, int] = {}

    @property
    def log_end_offset(self) -> int:
        return self.appended[-1].head.next_offset if self.appended else 0

    @property
    def state(self) -> tuple[int, ...]:
        """Another one after each change within a step of a test."""
        return (len(self.appended), self.flushed_end, self.log_start_offset, len(self.first_cleaned_ms))

    def append(self, log: Log, batch: KeyedBatch, now_ms: int) -> None:
        data = batch.build()
        BASE_OFFSET.pack_into(data, 0, log.log_end_offset)
        LEADER_EPOCH.pack_into(data, LEADER_EPOCH_AT, log.leader_epoch)
        # First: a crash in the middle of the append may leave it there.
        self.appended.append(Appended(read_header(data), decode_batch(data)))
        log.append(data, HEADER.unpack_from(data), now_ms)

    def truncate_to(self, end_offset: int) -> None:
        self.appended = [batch for batch in self.appended if batch.head.next_offset <= end_offset]
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
        self.flushed_end = min(self.flushed_end, self.log_end_offset)
        self.first_cleaned_ms = {o: ms for o, ms in self.first_cleaned_ms.items() if o < end_offset}

    def was_cleaned_up_to(self, cleaned_end: int, now_ms: int) -> None:
        for batch in self.appended:
            if batch.head.next_offset <= cleaned_end:
                for record in batch.records:
                    if record.value is None:
                        self.first_cleaned_ms.setdefault(record.offset, now_ms)

    def records(self, end_offset: int) -> list[Record]:
        return [record for batch in self.appended for record in batch.records if record.offset < end_offset]

    def producers(self) -> Producers:
        found: Producers = {}
        for head, _ in self.appended:
            if head.producer_id < 0:
                continue
            epoch, window = found.get(head.producer_id, (head.producer_epoch, []))
            window = window if epoch == head.producer_epoch else []
            last_sequence = (head.base_sequence + head.last_offset_delta) % 2**31
            entry = (head.base_sequence, last_sequence, head.base_offset, head.last_offset_delta)
            found[head.producer_id] = (head.producer_epoch, [*window, entry][-WINDOW:])
        return found


def shown(log: Log, size_bytes_max: int = 300) -> list[Shown]:
    """All batches from the log's start to its end, read as a consumer reads them."""
    found: list[Shown] = []
    next_offset = log.log_start_offset
    while next_offset < log.log_end_offset:
        run = log.read(next_offset, log.log_end_offset, size_bytes_max, whole_first_batch=True)
        if run is None:
            break
        data = run.file.read_at(run.position, run.length_bytes)
        batches = [Shown(read_header(batch), decode_batch(batch)) for batch in split_batches(memoryview(data))]
        assert batches, "the first batch is whole"
        assert batches[0].head.next_offset > next_offset
        found += batches
        next_offset = batches[-1].head.next_offset
    return found


def newest_values(records: Iterable[Record], start_offset: int) -> dict[bytes, tuple[int, bytes]]:
    """The final (offset, value) of each key for a reader from `start_offset` on; deleted keys are left out."""
    state: dict[bytes, tuple[int, bytes]] = {}
    for record in records:
        if record.key is None or record.offset < start_offset:
            continue
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = (record.offset, record.value)
    return state


def check_cut(log: Log, model: CompactedModel, cut_at: int) -> None:
    """The invariants of a log that was truncated at `cut_at`, below the end of a clean.

    A key whose newest values were truncated may be gone, since older ones were cleaned before: but no older value
    comes back, and all batches appended after the cut are there.
    """
    log.check_invariants()
    appended = model.records(log.log_end_offset)
    by_offset = {record.offset: record for record in appended}
    present = [record for batch in shown(log) for record in batch.records]
    assert all(by_offset[record.offset] == record for record in present), "a record is not what was appended"
    values = newest_values(present, log.log_start_offset)
    expected = newest_values(appended, log.log_start_offset)
    assert values.items() <= expected.items(), "an old value came back"
    since = {key: found for key, found in expected.items() if found[0] >= cut_at}
    assert since.items() <= values.items(), "a value that was appended behind the cut is gone"


def check_compacted(log: Log, model: CompactedModel, now_ms: int, delete_retention_ms: int) -> list[Shown]:
    """All invariants of a log that may have been cleaned."""
    log.check_invariants()
    batches = shown(log)
    _check_extents(log, model, batches)
    appended = model.records(log.log_end_offset)
    by_offset = {record.offset: record for record in appended}
    present = [record for batch in batches for record in batch.records]
    assert all(by_offset[record.offset] == record for record in present), "a record is not what was appended"
    start_offset = log.log_start_offset
    assert newest_values(present, start_offset) == newest_values(appended, start_offset)
    _check_tombstones(model, appended, present, now_ms, delete_retention_ms, start_offset)
    assert producers_in(log) == model.producers()
    return batches


def _check_extents(log: Log, model: CompactedModel, batches: list[Shown]) -> None:
    """Each batch keeps its offsets and its producer's fields; no segment is larger than it may be."""
    heads = {batch.head.base_offset: batch.head for batch in model.appended}
    for head, records in batches:
        original = heads[head.base_offset]
        assert head.last_offset == original.last_offset
        assert (head.producer_id, head.producer_epoch, head.base_sequence, head.leader_epoch) == (
            original.producer_id,
            original.producer_epoch,
            original.base_sequence,
            original.leader_epoch,
        )
        assert len(records) == head.records_count
        if records and not head.is_log_append_time:
            assert head.max_timestamp_ms == max(record.timestamp_ms for record in records)
    offsets = [head.base_offset for head, _ in batches]
    assert offsets == sorted(set(offsets))
    for segment in log.segments:
        assert segment.size_bytes <= log.config.segment_bytes


def _check_tombstones(
    model: CompactedModel,
    appended: list[Record],
    present: list[Record],
    now_ms: int,
    delete_retention_ms: int,
    start_offset: int,
) -> None:
    newest = {record.key: record for record in appended if record.key is not None}
    offsets = {record.offset for record in present}
    for record in newest.values():
        if record.value is None and record.offset >= start_offset and record.offset not in offsets:
            cleaned_ms = model.first_cleaned_ms.get(record.offset)
            assert cleaned_ms is not None, f"the tombstone at {record.offset} went with the first clean"
            assert cleaned_ms + delete_retention_ms <= now_ms, f"the tombstone at {record.offset} went too early"


def check_cleaned(log: Log, cleaned_end: int, batches: list[Shown]) -> None:
    """Right after a clean: below its end each key is stored once, and no record without a key."""
    keys = [
        record.key
        for batch in batches
        for record in batch.records
        if log.log_start_offset <= record.offset < cleaned_end
    ]
    assert None not in keys
    assert len(keys) == len(set(keys))


def has_horizon(head: BatchHeader) -> bool:
    return bool(head.attributes & DELETE_HORIZON_BIT)


def log_files(disk: MemoryDisk) -> dict[str, bytes]:
    return {path: content for path, content in disk.files().items() if path.endswith(".log")}
