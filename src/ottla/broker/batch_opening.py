"""Topics whose settings force batches open: keys that compaction needs, timestamp bounds, a codec of the topic's own,
compressed records that are to be checked.

All other topics have no `BatchOpening`, and their batches are stored as they came (docs/decisions/0001).  The work is
done on the event loop: it costs what decompressing, walking and compressing the batch costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.broker.limits import (
    OPENED_BATCH_BYTES_MAX,
    OPENED_BATCH_RECORDS_MAX,
    OPENED_REQUEST_BYTES_MAX,
    OPENED_REQUEST_RECORDS_MAX,
)
from ottla.model.counted import counted
from ottla.model.error_code import ErrorCode
from ottla.model.errors import WireError
from ottla.protocol.produce import RecordErrors
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec, compress, decompress
from ottla.records.errors import DecompressedTooLarge
from ottla.records.header import (
    ATTRIBUTES_AT,
    BATCH_OVERHEAD_BYTES,
    CODEC_MASK,
    CRC,
    CRC_AT,
    HEADER,
    LOG_OVERHEAD_BYTES,
)
from ottla.records.record_bounds import COMPILED, IN_PYTHON, SOUND, RecordCheck, fault_text
from ottla.records.record_walk import FaultKind, RecordFault, WalkRules, walk_records
from ottla.storage.log_config import FOREVER, LogConfig

_LOG_APPEND_TIME: Final = "LogAppendTime"
_AS_IT_CAME: Final = "producer"
# Records that an answer names at most, when every record of a batch is wrong: enough to find the mistake.
FAULTS_NAMED_MAX: Final = 1_000
_FAULTS_IN_MESSAGE: Final = 3
# The library's greatest level does what Kafka's levels up to 17 do.
_LZ4_LEVEL_MAX: Final = 12
_ZSTD_LEVEL_MIN: Final = -7


class BatchRefused(Exception):
    """The batch is not appended."""

    def __init__(self, error_code: ErrorCode, errors: RecordErrors) -> None:
        super().__init__(errors.message)
        self.error_code = error_code
        self.errors = errors


class BatchOpening(NamedTuple):
    """Why a topic's batches are opened.  `codec` None: batches keep their own."""

    codec: Codec | None
    level: int | None
    requires_keys: bool
    # Bounds of the records' times around the broker's; both None where the broker's time is stamped.
    before_max_ms: int | None
    after_max_ms: int | None
    # Of the records of compressed batches; those of others are checked before.
    check_records: RecordCheck | None = None
    checks_compressed: bool = False

    @property
    def walks_always(self) -> bool:
        return self.requires_keys or self.before_max_ms is not None


class OpenedSum:
    """Total size opened for one request: a hundred batches of megabytes would block the event loop."""

    __slots__ = ("opened_bytes", "records_count")

    def __init__(self) -> None:
        self.opened_bytes = 0
        self.records_count = 0

    def clear(self) -> None:
        self.opened_bytes = self.records_count = 0

    def begin(self, records_count: int) -> None:
        """A batch is to be opened; it counts as the largest until `end` has its size.  Raises `BatchRefused`.

        The error is the one that all clients know as "not appended, try again".  MESSAGE_TOO_LARGE would be final to
        most of them, and a single record cannot be split.
        """
        together_count = self.records_count + records_count
        if self.opened_bytes >= OPENED_REQUEST_BYTES_MAX or (
            self.records_count and together_count > OPENED_REQUEST_RECORDS_MAX
        ):
            problem = "the batches before it in this request took the time that there is to open batches: send it again"
            raise BatchRefused(ErrorCode.NOT_ENOUGH_REPLICAS, RecordErrors(problem))
        self.records_count = together_count
        self.opened_bytes += OPENED_BATCH_BYTES_MAX

    def end(self, opened_bytes: int) -> None:
        self.opened_bytes += opened_bytes - OPENED_BATCH_BYTES_MAX


def opening_of(config: LogConfig) -> BatchOpening | None:
    """What a topic's settings require, None when its batches need not be opened.

    The greatest timestamp of a batch is in its head, so the bound on future timestamps opens no batch by itself.
    """
    codec, level = _codec_and_level(config)
    requires_keys = "compact" in config.cleanup_policy
    has_times = config.message_timestamp_type != _LOG_APPEND_TIME
    before_max_ms = config.message_timestamp_before_max_ms
    bounds_past = has_times and before_max_ms != FOREVER
    checks_compressed = config.record_validation == "all"
    if codec is None and not requires_keys and not bounds_past and not checks_compressed:
        return None
    after_max_ms = config.message_timestamp_after_max_ms if has_times else None
    check = record_check_of(config)
    bound_ms = before_max_ms if bounds_past else None
    return BatchOpening(codec, level, requires_keys, bound_ms, after_max_ms, check, checks_compressed)


def record_check_of(config: LogConfig) -> RecordCheck | None:
    """What tells whether the records of a topic's batches can be read (`record.validation`); None: nobody asks."""
    if config.record_validation == "auto":
        return COMPILED
    return None if config.record_validation == "none" else COMPILED or IN_PYTHON


def malformed(number: int, records_count: int) -> RecordErrors:
    """The errors of a batch of which `FirstFault` gave this number."""
    text = fault_text(number, records_count)
    return RecordErrors(f"no client could read the batch: {text}", [(min(number, records_count - 1), text)])


def _codec_and_level(config: LogConfig) -> tuple[Codec | None, int | None]:
    name = config.compression_type
    if name == _AS_IT_CAME:
        return None, None
    if name == "uncompressed":
        return Codec.NONE, None
    codec = Codec.from_name(name)
    levels = {
        Codec.GZIP: config.compression_gzip_level if config.compression_gzip_level > 0 else None,
        Codec.LZ4: min(config.compression_lz4_level, _LZ4_LEVEL_MAX),
        Codec.ZSTD: max(config.compression_zstd_level, _ZSTD_LEVEL_MIN),
    }
    return codec, levels.get(codec)


def open_batch(
    batch: memoryview, header: tuple[int, ...], opening: BatchOpening, now_ms: int, place: object, opened: OpenedSum
) -> memoryview:  # fmt: skip
    """The batch to append: the same, or one with the topic's codec.  Raises `BatchRefused`.

    `header` is the batch's, checked by `batch_rules`; `place` names the partition in messages; `opened` is the
    request's. The new batch has the records of the old one, byte for byte before compression.
    """
    codec = Codec(header[5] & CODEC_MASK)
    target = codec if opening.codec is None else opening.codec
    needs_walk = target is not codec or opening.walks_always
    if not needs_walk and (codec is Codec.NONE or not opening.checks_compressed):
        return batch
    if header[12] > OPENED_BATCH_RECORDS_MAX:
        problem = f"the batch has {header[12]} records, {OPENED_BATCH_RECORDS_MAX} are allowed in this topic"
        raise BatchRefused(ErrorCode.MESSAGE_TOO_LARGE, RecordErrors(problem))
    opened.begin(header[12])
    try:
        body = decompress(codec, batch[BATCH_OVERHEAD_BYTES:], OPENED_BATCH_BYTES_MAX)
        opened.end(len(body))
        if codec is not Codec.NONE and opening.check_records is not None:
            faulty = opening.check_records.first_fault(body, 0, header[12], header[7])
            if faulty != SOUND:
                raise BatchRefused(ErrorCode.INVALID_RECORD, malformed(faulty, header[12]))
        if not needs_walk:
            return batch
        walked = walk_records(body, header[12], header[7], _walk_rules(opening, now_ms))
    except DecompressedTooLarge as error:
        raise BatchRefused(ErrorCode.MESSAGE_TOO_LARGE, RecordErrors(str(error))) from error
    except WireError as error:
        problem = f"the records of the batch cannot be read: {error}"
        raise BatchRefused(ErrorCode.INVALID_RECORD, RecordErrors(problem)) from error
    if walked.faults:
        raise _refusal(walked.faults, opening, now_ms, place)
    if target is codec:
        return batch
    return _rebuilt(batch, header, target, compress(target, body, opening.level), walked.max_timestamp_ms)


def _walk_rules(opening: BatchOpening, now_ms: int) -> WalkRules:
    rules = WalkRules(opening.requires_keys)
    if opening.before_max_ms is not None:
        rules = rules._replace(timestamp_ms_min=now_ms - opening.before_max_ms)
    if opening.after_max_ms is not None:
        rules = rules._replace(timestamp_ms_max=now_ms + opening.after_max_ms)
    return rules


def _rebuilt(
    batch: memoryview, header: tuple[int, ...], codec: Codec, body: bytes, max_timestamp_ms: int
) -> memoryview:  # fmt: skip
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


def _refusal(faults: Sequence[RecordFault], opening: BatchOpening, now_ms: int, place: object) -> BatchRefused:
    rows = [(fault.number, _text(fault, opening, now_ms, place)) for fault in faults[:FAULTS_NAMED_MAX]]
    refused = f"{counted(len(faults), 'record is', 'records are')} refused"
    if any(fault.kind is FaultKind.TIMESTAMP for fault in faults):
        message = f"{refused}, some for their timestamp"
        return BatchRefused(ErrorCode.INVALID_TIMESTAMP, RecordErrors(message, rows))
    first = "; ".join(f"record {number}: {text}" for number, text in rows[:_FAULTS_IN_MESSAGE])
    message = f"{refused}, the first ones: {first}"
    return BatchRefused(ErrorCode.INVALID_RECORD, RecordErrors(message, rows))


def _text(fault: RecordFault, opening: BatchOpening, now_ms: int, place: object) -> str:
    if fault.kind is FaultKind.NO_KEY:
        return f"{place} is compacted, so its records need keys"
    oldest = "any time" if opening.before_max_ms is None else str(now_ms - opening.before_max_ms)
    latest = "any time" if opening.after_max_ms is None else str(now_ms + opening.after_max_ms)
    return f"timestamp {fault.timestamp_ms} is not within {oldest} to {latest}"
