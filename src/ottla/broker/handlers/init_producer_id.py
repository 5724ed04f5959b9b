"""InitProducerId (key 22), v0-v4.

Without a transactional id: a producer id that was never assigned before, and epoch 0; the producer's former id and
epoch (v3+) are ignored, as in Apache Kafka, but an id without an epoch or an epoch without an id is INVALID_REQUEST.
Not done: transactional ids (INVALID_REQUEST).  Their producers end before this call, since FindCoordinator refuses
them.
"""

from __future__ import annotations

from ottla.broker.context import BrokerContext, Call
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NO_PRODUCER_ID
from ottla.protocol.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_NO_EPOCH = -1


async def handle(request: InitProducerIdRequest, broker: BrokerContext, call: Call) -> InitProducerIdResponse:
    has_id, has_epoch = request.producer_id != NO_PRODUCER_ID, request.producer_epoch != _NO_EPOCH
    if request.transactional_id is not None or has_id != has_epoch:
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=_NO_EPOCH)
    return InitProducerIdResponse(producer_id=await broker.next_producer_id())
