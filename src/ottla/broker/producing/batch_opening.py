"""Opens a batch where the topic's settings require it: keys that compaction needs, timestamp bounds, the topic's own
codec, compressed records that must be checked.

All other topics have no `BatchOpening`, and their batches are stored as they came (docs/decisions/0001).  A batch is
opened on the event loop when it is small, else in a thread (`opening_threads`): nothing here touches more than the
batch.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.broker.partitions.topic_configs import BatchOpening
from ottla.model.counted import counted
from ottla.model.error_code import ErrorCode
from ottla.model.errors import WireError
from ottla.model.limits import INT64_MAX
from ottla.protocol.produce import RecordErrors
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec, compress, decompress_into, decompress_one_frame_into
from ottla.records.errors import CompressedTooLarge
from ottla.records.header import (
    ATTRIBUTES_AT,
    BATCH_OVERHEAD_BYTES,
    CODEC_MASK,
    CRC,
    CRC_AT,
    HEADER,
    LOG_OVERHEAD_BYTES,
)
from ottla.records.record_bounds import SOUND, fault_text
from ottla.records.record_walk import FaultKind, RecordFault, Walked, WalkRules, walk_records

_FAULTS_IN_MESSAGE: Final = 3


class BatchRefused(Exception):
    """The batch is not appended."""

    def __init__(self, error_code: ErrorCode, errors: RecordErrors) -> None:
        super().__init__(errors.message)
        self.error_code = error_code
        self.errors = errors


class OpeningTerms(NamedTuple):
    """What a batch is opened by.  `place` names the partition in messages."""

    opening: BatchOpening
    size_bytes_max: int
    now_ms: int
    place: object


class NoRoom(Exception):
    """The records of a batch do not fit the room that there is for them."""


def malformed(number: int, records_count: int) -> RecordErrors:
    """The errors of a batch of which `FirstFault` gave this number."""
    text = fault_text(number, records_count)
    return RecordErrors(f"no client could read the batch: {text}", [(max(0, min(number, records_count - 1)), text)])


def open_batch(batch: memoryview, header: tuple[int, ...], terms: OpeningTerms, room: memoryview) -> memoryview | None:
    """The batch to append with the topic's codec, None where it is appended as it came.

    `header` is the batch's, checked by `batch_error`.  Its records are decompressed to `room`, and may claim
    any size.  The new batch has the records of the old one, byte for byte before compression.
    Raises `BatchRefused`, or `NoRoom` when the records take more than `room`.
    """
    opening = terms.opening
    codec = Codec(header[5] & CODEC_MASK)
    target = opening.target(codec)
    walks = target is not codec or opening.walks_always
    checks = codec is not Codec.NONE and opening.check_records is not None
    if not walks and not (checks and opening.checks_compressed):
        return None
    try:
        body = batch[BATCH_OVERHEAD_BYTES:]
        if codec is not Codec.NONE:
            # What is compressed again need not be such as any client can decompress.
            decompress = decompress_one_frame_into if checks and target is codec else decompress_into
            size_bytes = decompress(codec, body, room)
            if size_bytes is None:
                raise NoRoom
            body = room[:size_bytes]
        if checks and opening.check_records is not None:
            faulty = opening.check_records.first_fault(body, 0, header[12], header[7])
            if faulty != SOUND:
                raise BatchRefused(ErrorCode.INVALID_RECORD, malformed(faulty, header[12]))
        if not walks:
            return None
        walked = walk_records(body, header[12], header[7], _walk_rules(opening, terms.now_ms))
        if walked.faults_count:
            raise _refusal(walked, terms)
        if target is codec:
            return None
        made = compress(target, body, opening.level, terms.size_bytes_max - BATCH_OVERHEAD_BYTES)
    except CompressedTooLarge as error:
        problem = f"the batch has more than {terms.size_bytes_max} bytes with the topic's own compression"
        raise BatchRefused(ErrorCode.MESSAGE_TOO_LARGE, RecordErrors(problem)) from error
    except WireError as error:
        problem = f"the records of the batch cannot be read: {error}"
        raise BatchRefused(ErrorCode.INVALID_RECORD, RecordErrors(problem)) from error
    return _rebuilt(batch, header, target, made, walked.max_timestamp_ms)


def _walk_rules(opening: BatchOpening, now_ms: int) -> WalkRules:
    rules = WalkRules(opening.requires_keys)
    if opening.before_max_ms is not None:
        rules = rules._replace(timestamp_ms_min=now_ms - opening.before_max_ms)
    if opening.after_max_ms is not None:
        rules = rules._replace(timestamp_ms_max=min(now_ms + opening.after_max_ms, INT64_MAX))
    return rules


def _rebuilt(
    batch: memoryview, header: tuple[int, ...], codec: Codec, body: bytes, max_timestamp_ms: int
) -> memoryview:
    rebuilt = bytearray(BATCH_OVERHEAD_BYTES + len(body))
    fields = list(header)
    fields[1] = len(rebuilt) - LOG_OVERHEAD_BYTES
    fields[5] = header[5] & ~CODEC_MASK | codec
    fields[8] = max_timestamp_ms
    HEADER.pack_into(rebuilt, 0, *fields)
    rebuilt[BATCH_OVERHEAD_BYTES:] = body
    view = memoryview(rebuilt)
    CRC.pack_into(rebuilt, CRC_AT, crc32c(view[ATTRIBUTES_AT:]))
    return view


def _refusal(walked: Walked, terms: OpeningTerms) -> BatchRefused:
    rows = [(fault.number, _text(fault, terms)) for fault in walked.faults]
    refused = f"{counted(walked.faults_count, 'record is', 'records are')} refused"
    if walked.timestamp_faults_count:
        message = f"{refused}, some for their timestamp"
        return BatchRefused(ErrorCode.INVALID_TIMESTAMP, RecordErrors(message, rows))
    first = "; ".join(f"record {number}: {text}" for number, text in rows[:_FAULTS_IN_MESSAGE])
    message = f"{refused}, the first ones: {first}"
    return BatchRefused(ErrorCode.INVALID_RECORD, RecordErrors(message, rows))


def _text(fault: RecordFault, terms: OpeningTerms) -> str:
    if fault.kind is FaultKind.NO_KEY:
        return f"{terms.place} is compacted, so its records need keys"
    opening, now_ms = terms.opening, terms.now_ms
    oldest = "any time" if opening.before_max_ms is None else str(now_ms - opening.before_max_ms)
    latest = "any time" if opening.after_max_ms is None else str(now_ms + opening.after_max_ms)
    return f"timestamp {fault.timestamp_ms} is not within {oldest} to {latest}"
