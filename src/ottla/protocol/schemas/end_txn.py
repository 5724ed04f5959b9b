"""EndTxn (API key 26; KIP-98).  From version 5 on each end advances the producer's epoch (KIP-890)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import boolean, int16, int32, int64, string


@message
class EndTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@message
class EndTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
