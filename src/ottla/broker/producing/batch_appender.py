"""Checks one partition's batch and appends it: its head and checksum, the bounds of its records, the topic's settings.

Nothing is decoded per record, and compressed batches are not opened (docs/decisions/0001) unless the topic's settings
require it (`batch_opening`).  Checks run from cheap to expensive, sizes first.
"""

from __future__ import annotations

import logging
from typing import Final

from ottla.broker.partitions.partition import NO_WAIT, Partition, RestOfPipeline
from ottla.broker.partitions.topic_configs import BatchOpening
from ottla.broker.partitions.waiting_requests import ACKS_ALL, ACKS_LEADER
from ottla.broker.producing.batch_opening import BatchRefused, OpeningTerms, malformed
from ottla.broker.producing.opening_threads import BatchOpener, Opened
from ottla.broker.producing.transactional_produce import TransactionalProduce
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NO_TIMESTAMP
from ottla.observe.events import fields
from ottla.protocol.produce import ProducePartitionResult, RecordErrors, refusal_of
from ottla.records.checksum import crc32c
from ottla.records.header import (
    ATTRIBUTES,
    ATTRIBUTES_AT,
    BATCH_OVERHEAD_BYTES,
    CODEC_MASK,
    CRC,
    CRC_AT,
    HEADER,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAX_TIMESTAMP,
    MAX_TIMESTAMP_AT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from ottla.records.record_bounds import SOUND
from ottla.replication.replica import Role
from ottla.storage.errors import OutOfOrderSequence

_log = logging.getLogger(__name__)

# length, attributes, timestamp delta, offset delta, key length, value length, headers count: a byte each.
RECORD_BYTES_MIN: Final = 7
_CODEC_MAX: Final = 4
_CODEC_ZSTD: Final = 4
# Codec, timestamp type and transactional: what a client may set.  The control bit and the delete horizon are the
# broker's own.
_CLIENT_ATTRIBUTES: Final = CODEC_MASK | TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT
_ZSTD_PRODUCE_VERSION_MIN: Final = 7
_ACKS_LEGAL: Final = frozenset({ACKS_ALL, 0, ACKS_LEADER})
_LEADER: Final = Role.LEADER
_ONE_BATCH: Final = RecordErrors(
    "exactly one record batch of format v2, with a consistent head, is taken for each partition"
)
_FUTURE: Final = RecordErrors("a record's time is further ahead than message.timestamp.after.max.ms allows")
# At most one line of the log about refused sequences in this time.
REPORT_EVERY_MS: Final = 1_000

# Plain ints: they are compared and packed for every batch.
_NONE: Final = int(ErrorCode.NONE)
_ID_DENIED: Final = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
_CORRUPT: Final = int(ErrorCode.CORRUPT_MESSAGE)
_INVALID_RECORD: Final = int(ErrorCode.INVALID_RECORD)
_INVALID_ACKS: Final = int(ErrorCode.INVALID_REQUIRED_ACKS)
_INVALID_TIMESTAMP: Final = int(ErrorCode.INVALID_TIMESTAMP)
_NOT_ENOUGH_REPLICAS: Final = int(ErrorCode.NOT_ENOUGH_REPLICAS)
_TOO_LARGE: Final = int(ErrorCode.MESSAGE_TOO_LARGE)
_UNSUPPORTED_CODEC: Final = int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


class BatchAppender:
    """One instance serves all produce requests."""

    __slots__ = ("_gap_reports", "_opener")

    def __init__(self, opener: BatchOpener) -> None:
        self._opener = opener
        self._gap_reports = _GapReports()

    def append(
        self,
        partition: Partition,
        view: memoryview,
        start: int,
        stop: int,
        version: int,
        acks: int,
        now_ms: int,
        opened: Opened | None,
        transaction: TransactionalProduce | None = None,
    ) -> tuple[ProducePartitionResult, int]:
        """Check and append one partition's records: (the result, the end to wait for or `NO_WAIT`).

        `opened`: what became of the batch in a thread, if it was there.  Raises `OpensOffLoop` if it must go there.
        `transaction`: of a request with a transactional id.
        """
        if acks not in _ACKS_LEGAL:
            return _refused(partition, _INVALID_ACKS)
        if stop - start < BATCH_OVERHEAD_BYTES:
            return _refused(partition, _INVALID_RECORD, _ONE_BATCH)
        if stop - start > partition.max_message_bytes:
            return _refused(partition, _TOO_LARGE)
        batch = view[start:stop]
        header = HEADER.unpack_from(batch)
        error = batch_error(batch, header, version)
        if error:
            return _refused(partition, error, _ONE_BATCH if error == _INVALID_RECORD else None)
        guard = None
        if header[5] & TRANSACTIONAL_BIT:
            refused = _ID_DENIED if transaction is None else transaction.refusal_of(partition)
            if transaction is None or refused:
                return _refused(partition, refused)
            guard = transaction.guard_of(partition, header)
        batch_fault = partition.batch_fault
        if batch_fault is not None and (faulty := batch_fault(batch)) != SOUND:
            return _refused(partition, _INVALID_RECORD, malformed(faulty, header[12]))
        try:
            opening = partition.opening
            # Another broker's partition takes nothing.
            if (
                opening is not None
                and partition.role is _LEADER
                and (header[5] & CODEC_MASK or opening.opens_uncompressed)
            ):
                batch, header = _opened(partition, opening, batch, header, now_ms, self._opener, opened)
            append_time_ms = NO_TIMESTAMP
            if partition.stamps_append_time:
                append_time_ms = now_ms
                header = _stamp_time(batch, now_ms)
            elif header[8] > now_ms + partition.timestamp_after_max_ms:
                return _refused(partition, _INVALID_TIMESTAMP, _FUTURE)
            base_offset, required_end, log_start_offset = partition.append(batch, header, acks, now_ms, guard)
        except BatchRefused as refusal:
            if refusal.error_code == _NOT_ENOUGH_REPLICAS:
                # No want of replicas: there was no time to open it, and it is sent again.
                partition.on_refused(now_ms)
            return _refused(partition, refusal.error_code, refusal.errors)
        except (OutOfOrderSequence, RestOfPipeline) as gap:
            answer = gap.error_code
            self._gap_reports.add(partition.topic_partition, partition.leader_epoch, str(gap), answer.name, now_ms)
            return _refused(partition, answer)
        except OttlaError as refusal:
            return _refused(partition, refusal.error_code)
        return (partition.index, _NONE, base_offset, append_time_ms, log_start_offset, None), required_end


def batch_error(batch: memoryview, header: tuple[int, ...], produce_version: int) -> int:
    """The protocol's error code for what is wrong with a batch, 0 when it may be appended.

    `header` is `HEADER.unpack_from(batch)`; the batch has at least `BATCH_OVERHEAD_BYTES`.
    """
    size_bytes = len(batch)
    if header[3] != MAGIC or header[1] + LOG_OVERHEAD_BYTES != size_bytes:
        # A longer batch_length is a cut batch, a shorter one means that a second batch follows: one is allowed.
        return _CORRUPT if header[3] == MAGIC and header[1] + LOG_OVERHEAD_BYTES > size_bytes else _INVALID_RECORD
    if crc32c(batch[ATTRIBUTES_AT:]) != header[4]:
        return _CORRUPT
    attributes = header[5]
    count = header[12]
    if count <= 0 or header[6] != count - 1 or header[0] != 0:
        # As in Apache Kafka a client counts its records from 0.
        return _INVALID_RECORD
    records_bytes = size_bytes - BATCH_OVERHEAD_BYTES
    if not attributes & CODEC_MASK and count * RECORD_BYTES_MIN > records_bytes:
        return _INVALID_RECORD
    # Small batches mostly have none: no compression, the producer's own time, no transaction.
    if attributes and (error := _attributes_error(attributes, records_bytes, produce_version)):
        return error
    producer_id = header[9]
    if producer_id == -1:
        # A transaction belongs to a producer.
        return _INVALID_RECORD if attributes & TRANSACTIONAL_BIT else _NONE
    # An idempotent batch has all three; with only some of them it would bypass the sequence checks.
    return _NONE if producer_id >= 0 and header[10] >= 0 and header[11] >= 0 else _INVALID_RECORD


def _attributes_error(attributes: int, records_bytes: int, produce_version: int) -> int:
    codec = attributes & CODEC_MASK
    if codec:
        if codec > _CODEC_MAX:
            return _UNSUPPORTED_CODEC
        if records_bytes == 0:
            return _INVALID_RECORD
        if codec == _CODEC_ZSTD and produce_version < _ZSTD_PRODUCE_VERSION_MIN:
            return _UNSUPPORTED_CODEC
    if attributes & ~_CLIENT_ATTRIBUTES:
        # Control batches are written by brokers only: a client's marker could end another producer's transaction.
        return _INVALID_RECORD
    return _INVALID_TIMESTAMP if attributes & TIMESTAMP_TYPE_BIT else _NONE


def _refused(
    partition: Partition, error_code: int, errors: RecordErrors | None = None
) -> tuple[ProducePartitionResult, int]:
    return refusal_of(partition.index, error_code, errors), NO_WAIT


def _opened(
    partition: Partition,
    opening: BatchOpening,
    batch: memoryview,
    header: tuple[int, ...],
    now_ms: int,
    opener: BatchOpener,
    opened: Opened | None,
) -> tuple[memoryview, tuple[int, ...]]:
    """The batch that the topic's settings make of this one, and its head.  Raises `BatchRefused`, `OpensOffLoop`."""
    if opened is None or opened.terms.opening != opening or opened.terms.size_bytes_max != partition.max_message_bytes:
        # The settings may have changed meanwhile.
        terms = OpeningTerms(opening, partition.max_message_bytes, now_ms, partition.topic_partition)
        made = opener.open_now(batch, header, terms)
    elif opened.refusal is not None:
        raise BatchRefused(*opened.refusal)
    else:
        made = opened.batch
    return (batch, header) if made is None else (made, HEADER.unpack_from(made))


def _stamp_time(batch: memoryview, now_ms: int) -> tuple[int, ...]:
    """Stamp a batch with the broker's time, as LogAppendTime requires; returns the new head.

    The attribute and the greatest timestamp change, the base timestamp stays; the CRC covers both.
    """
    ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, ATTRIBUTES.unpack_from(batch, ATTRIBUTES_AT)[0] | TIMESTAMP_TYPE_BIT)
    MAX_TIMESTAMP.pack_into(batch, MAX_TIMESTAMP_AT, now_ms)
    CRC.pack_into(batch, CRC_AT, crc32c(batch[ATTRIBUTES_AT:]))
    return HEADER.unpack_from(batch)


class _GapReports:
    """Lines of the log for refused sequences: not one for each batch of each producer when leaders change."""

    __slots__ = ("_left_out_count", "_reported_ms")

    def __init__(self) -> None:
        self._reported_ms: int | None = None
        self._left_out_count = 0

    def add(self, partition: object, leader_epoch: int, reason: str, answer: str, now_ms: int) -> None:
        """A batch of this partition was refused for its sequence, with this error."""
        if self._reported_ms is not None and 0 <= now_ms - self._reported_ms < REPORT_EVERY_MS:
            self._left_out_count += 1
            return
        _log.warning(
            "produce.sequence_refused",
            extra=fields(
                partition=partition,
                leader_epoch=leader_epoch,
                reason=reason,
                answer=answer,
                left_out_count=self._left_out_count,
            ),
        )
        self._reported_ms = now_ms
        self._left_out_count = 0
