"""InitProducerId (API key 22; KIP-98, KIP-360)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import int16, int32, int64, nullable_string


@message
class InitProducerIdRequest:
    transactional_id: str | None = nullable_string()
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


@message
class InitProducerIdResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
