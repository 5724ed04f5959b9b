"""ListTransactions (API key 66; KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int16, int32, int64, int64_array, nullable_string, string, string_array


@message
class ListTransactionsRequest:
    state_filters: list[str] = string_array()
    producer_id_filters: list[int] = int64_array()
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = nullable_string("2+", nullable="2+")


@message
class ListedTransactionState:
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@message
class ListTransactionsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = string_array()
    transaction_states: list[ListedTransactionState] = array(ListedTransactionState)
