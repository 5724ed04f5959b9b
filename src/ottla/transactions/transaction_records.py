"""Transactional ids as records of `__transaction_state`: Kafka's TransactionLogKey v0, TransactionLogValue v0 and v1.

    key    int16 version 0 | string transactional id
    value  int16 version 1 | int64 producer id | int16 epoch | int32 time-out | int8 state
           | compact array of (compact string topic, compact array of int32, tags), null while the state is Empty
           | int64 updated | int64 started (-1: not) | tags: 0 previous producer id int64, 1 next producer id int64,
             2 client's transaction version int16

Version 0 has no tags, and lengths of int16 and int32.  Both are read, version 1 is written.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, WireError
from ottla.model.identifiers import NO_PRODUCER_ID, TopicPartition, indexes_by_topic
from ottla.protocol.primitives import (
    check_count,
    read_compact_length,
    read_length16,
    read_length32,
    read_tagged_count,
    read_uvarint,
    skip_tagged_fields,
    take,
    take_text,
    write_uvarint,
)
from ottla.transactions.transaction import Transaction, TransactionState

KEY_VERSION: Final = 0
VALUE_VERSION: Final = 1

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
# Version, producer id, epoch, time-out, state.
_HEAD: Final = struct.Struct(">hqhib")
_TIMES: Final = struct.Struct(">qq")
_PREVIOUS_PRODUCER_ID: Final = 0
_NEXT_PRODUCER_ID: Final = 1
_CLIENT_VERSION: Final = 2
# A topic without partitions: its name's length, their count, no tags.
_SMALLEST_TOPIC_BYTES: Final = 3


class TransactionRecordError(OttlaError):
    """A record of `__transaction_state` does not match its version: damaged, or written by another program."""

    error_code = ErrorCode.CORRUPT_MESSAGE
    hint = "read the record with Kafka's DumpLogSegments --transaction-log-decoder"


class TransactionRecord(NamedTuple):
    """No value is a tombstone: the transactional id has expired."""

    key: bytes
    value: bytes | None


def transaction_key(transactional_id: str) -> bytes:
    encoded = transactional_id.encode()
    return _INT16.pack(KEY_VERSION) + _INT16.pack(len(encoded)) + encoded


def decode_transaction_key(key: bytes) -> str | None:
    """The transactional id; None for a key of another version, which a later broker may have written."""
    if len(key) < _INT16.size:
        raise TransactionRecordError(f"the key of a transaction has {len(key)} bytes")
    if _INT16.unpack_from(key)[0] != KEY_VERSION:
        return None
    data = memoryview(key)
    try:
        length, position = read_length16(data, _INT16.size)
        transactional_id = take_text(data, position, length)
        if position + length != len(key):
            raise WireError(f"{len(key) - position - length} bytes follow its end")
    except WireError as error:
        raise TransactionRecordError(f"the key of a transaction: {error}") from None
    return transactional_id


def transaction_record(transactional_id: str, transaction: Transaction | None) -> TransactionRecord:
    """The record that makes `transaction` the state of its id; None removes the id."""
    value = None if transaction is None else encode_transaction(transaction)
    return TransactionRecord(transaction_key(transactional_id), value)


def encode_transaction(transaction: Transaction) -> bytes:
    out = bytearray(
        _HEAD.pack(
            VALUE_VERSION,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.timeout_ms,
            transaction.state,
        )
    )
    if transaction.state is TransactionState.EMPTY:
        assert not transaction.partitions
        write_uvarint(out, 0)
    else:
        by_topic = indexes_by_topic(transaction.partitions)
        write_uvarint(out, len(by_topic) + 1)
        for topic, partitions in by_topic:
            encoded = topic.encode()
            write_uvarint(out, len(encoded) + 1)
            out += encoded
            write_uvarint(out, len(partitions) + 1)
            for partition in partitions:
                out += _INT32.pack(partition)
            write_uvarint(out, 0)
    out += _TIMES.pack(transaction.updated_ms, transaction.started_ms)
    tags = [
        (tag, packed.pack(number))
        for tag, packed, number, default in (
            (_PREVIOUS_PRODUCER_ID, _INT64, transaction.previous_producer_id, NO_PRODUCER_ID),
            (_NEXT_PRODUCER_ID, _INT64, transaction.next_producer_id, NO_PRODUCER_ID),
            (_CLIENT_VERSION, _INT16, transaction.client_version, 0),
        )
        if number != default
    ]
    write_uvarint(out, len(tags))
    for tag, content in tags:
        write_uvarint(out, tag)
        write_uvarint(out, len(content))
        out += content
    return bytes(out)


def decode_transaction(value: bytes) -> Transaction:
    """Raises `TransactionRecordError` for bytes that are no value of version 0 or 1."""
    if len(value) < _HEAD.size:
        raise TransactionRecordError(f"the value of a transaction has {len(value)} bytes")
    version, producer_id, epoch, timeout_ms, state = _HEAD.unpack_from(value)
    if version not in (0, 1):
        raise TransactionRecordError(f"the value of a transaction has the unknown version {version}")
    try:
        data = memoryview(value)
        partitions, position = _read_partitions(data, _HEAD.size, is_flexible=version == 1)
        updated_ms, started_ms = _TIMES.unpack(take(data, position, _TIMES.size))
        position += _TIMES.size
        tags: dict[int, int] = {}
        if version == 1:
            tags, position = _read_tags(data, position)
        if position != len(value):
            raise WireError(f"{len(value) - position} bytes follow its end")
        found = TransactionState(state)
    except (WireError, ValueError, struct.error) as error:
        raise TransactionRecordError(f"the value of a transaction: {error}") from None
    return Transaction(
        producer_id,
        epoch,
        timeout_ms,
        found,
        partitions,
        updated_ms,
        started_ms,
        tags.get(_PREVIOUS_PRODUCER_ID, NO_PRODUCER_ID),
        tags.get(_NEXT_PRODUCER_ID, NO_PRODUCER_ID),
        tags.get(_CLIENT_VERSION, 0),
    )


def _read_partitions(data: memoryview, position: int, *, is_flexible: bool) -> tuple[frozenset[TopicPartition], int]:
    read_count = read_compact_length if is_flexible else read_length32
    read_name_length = read_compact_length if is_flexible else read_length16
    found = []
    topics_count, position = read_count(data, position)
    if topics_count < 0:
        return frozenset(), position
    check_count("topics", topics_count, _SMALLEST_TOPIC_BYTES, data, position)
    for _ in range(topics_count):
        length, position = read_name_length(data, position)
        topic = take_text(data, position, length)
        count, position = read_count(data, position + length)
        check_count("partitions", count, _INT32.size, data, position)
        for _ in range(count):
            found.append(TopicPartition(topic, _INT32.unpack(take(data, position, _INT32.size))[0]))
            position += _INT32.size
        if is_flexible:
            position = skip_tagged_fields(data, position)
    return frozenset(found), position


def _read_tags(data: memoryview, position: int) -> tuple[dict[int, int], int]:
    """The tagged fields that are known; others are skipped."""
    formats = {_PREVIOUS_PRODUCER_ID: _INT64, _NEXT_PRODUCER_ID: _INT64, _CLIENT_VERSION: _INT16}
    found = {}
    count, position = read_tagged_count(data, position)
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        length, position = read_uvarint(data, position)
        content = take(data, position, length)
        position += length
        if tag in formats:
            found[tag] = formats[tag].unpack(content)[0]
    return found, position
