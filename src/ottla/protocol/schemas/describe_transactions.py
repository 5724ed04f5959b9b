"""DescribeTransactions (API key 65; KIP-664)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int16, int32, int32_array, int64, string, string_array


@message
class DescribeTransactionsRequest:
    transactional_ids: list[str] = string_array()


@message
class TransactionTopic:
    topic: str = string()
    partitions: list[int] = int32_array()


@message
class DescribedTransactionState:
    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TransactionTopic] = array(TransactionTopic)


@message
class DescribeTransactionsResponse:
    throttle_time_ms: int = int32()
    transaction_states: list[DescribedTransactionState] = array(DescribedTransactionState)
