"""The records of `__transaction_state`, byte for byte as Apache Kafka writes and reads them."""

from __future__ import annotations

import pytest

from ottla.model.identifiers import TopicPartition
from ottla.transactions.transaction import Transaction, TransactionState
from ottla.transactions.transaction_records import (
    TransactionRecordError,
    decode_transaction,
    decode_transaction_key,
    encode_transaction,
    transaction_key,
    transaction_record,
)

EMPTY = Transaction(4000, 3, 60_000, TransactionState.EMPTY, updated_ms=1_700_000_000_000)
EMPTY_BYTES = bytes.fromhex(
    "0001"  # version
    "0000000000000fa0 0003 0000ea60 00"
    "00"  # no partitions: null
    "0000018bcfe56800 ffffffffffffffff"
    "00"  # no tags
)
PREPARED = Transaction(
    4000,
    4,
    60_000,
    TransactionState.PREPARE_COMMIT,
    frozenset({TopicPartition("t", 1), TopicPartition("t", 0), TopicPartition("__consumer_offsets", 7)}),
    1_700_000_000_005,
    1_700_000_000_001,
    next_producer_id=5000,
    client_version=2,
)
PREPARED_BYTES = bytes.fromhex(
    "0001 0000000000000fa0 0004 0000ea60 02"
    "03"  # two topics
    "13 5f5f636f6e73756d65725f6f666673657473 02 00000007 00"
    "02 74 03 00000000 00000001 00"
    "0000018bcfe56805 0000018bcfe56801"
    "02 01 08 0000000000001388 02 02 0002"
)


@pytest.mark.parametrize(("transaction", "expected"), [(EMPTY, EMPTY_BYTES), (PREPARED, PREPARED_BYTES)])
def test_value_has_kafkas_bytes_and_is_read_back(transaction: Transaction, expected: bytes) -> None:
    assert encode_transaction(transaction) == expected
    assert decode_transaction(expected) == transaction


def test_complete_transaction_has_an_empty_array_and_not_null() -> None:
    complete = EMPTY._replace(state=TransactionState.COMPLETE_ABORT, previous_producer_id=17)
    assert encode_transaction(complete) == EMPTY_BYTES[:16] + b"\x05\x01" + EMPTY_BYTES[18:34] + bytes.fromhex(
        "01 00 08 0000000000000011"
    )
    assert decode_transaction(encode_transaction(complete)) == complete


def test_key_has_version_0_and_a_string() -> None:
    assert transaction_key("tx-1") == bytes.fromhex("0000 0004 74782d31")
    assert decode_transaction_key(transaction_key("tx-1")) == "tx-1"


def test_key_of_an_unknown_version_is_skipped() -> None:
    assert decode_transaction_key(b"\x00\x01" + transaction_key("tx-1")[2:]) is None


def test_expired_id_is_a_tombstone() -> None:
    assert transaction_record("tx-1", None) == (transaction_key("tx-1"), None)
    assert transaction_record("tx-1", EMPTY) == (transaction_key("tx-1"), EMPTY_BYTES)


def test_value_of_version_0_is_read() -> None:
    value = bytes.fromhex(
        "0000 0000000000000fa0 0003 0000ea60 01"
        "00000001 0001 74 00000002 00000003 00000005"
        "0000018bcfe56800 0000018bcfe56800"
    )
    assert decode_transaction(value) == EMPTY._replace(
        state=TransactionState.ONGOING,
        partitions=frozenset({TopicPartition("t", 3), TopicPartition("t", 5)}),
        started_ms=1_700_000_000_000,
    )
    without_partitions = bytes.fromhex(
        "0000 0000000000000fa0 0003 0000ea60 00 ffffffff 0000018bcfe56800 ffffffffffffffff"
    )
    assert decode_transaction(without_partitions) == EMPTY


def test_unknown_tags_of_a_later_version_are_skipped() -> None:
    # KIP-939: tag 3, the next producer epoch.
    value = EMPTY_BYTES[:-1] + bytes.fromhex("02 02 02 0002 03 02 0009")
    assert decode_transaction(value) == EMPTY._replace(client_version=2)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        EMPTY_BYTES[:-1],
        EMPTY_BYTES + b"\x00",
        b"\x00\x02" + EMPTY_BYTES[2:],
        EMPTY_BYTES[:16] + b"\x09" + EMPTY_BYTES[17:],
        EMPTY_BYTES[:17] + b"\xff\xff\xff\xff\x07" + EMPTY_BYTES[18:],
        EMPTY_BYTES[:-1] + bytes.fromhex("01 02 01 02"),
    ],
)
def test_damaged_value_is_refused(value: bytes) -> None:
    with pytest.raises(TransactionRecordError):
        decode_transaction(value)


@pytest.mark.parametrize("key", [b"", b"\x00\x00\x00\x09tx", b"\x00\x00\x00\x01tx", b"\x00\x00\x00\x01\xff"])
def test_damaged_key_is_refused(key: bytes) -> None:
    with pytest.raises(TransactionRecordError):
        decode_transaction_key(key)
