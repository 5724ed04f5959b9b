"""AddOffsetsToTxn (API key 25; KIP-98)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import int16, int32, int64, string


@message
class AddOffsetsToTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@message
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
