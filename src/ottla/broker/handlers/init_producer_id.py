"""InitProducerId (key 22), v0-v4.

Without a transactional id: a producer id that was never assigned before, and epoch 0; the producer's former id and
epoch (v3+) are ignored, as in Apache Kafka, but an id without an epoch or an epoch without an id is INVALID_REQUEST.
COORDINATOR_LOAD_IN_PROGRESS while the tree does not answer: clients try again after it.
Not done: transactional ids (INVALID_REQUEST).  Their producers end before this call, since FindCoordinator refuses
them.
"""

from __future__ import annotations

import logging

from ottla.broker.context import BrokerContext, Call
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NO_PRODUCER_ID
from ottla.observe.events import frequent
from ottla.protocol.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

log = logging.getLogger(__name__)

_NO_EPOCH = -1


async def handle(request: InitProducerIdRequest, context: BrokerContext, call: Call) -> InitProducerIdResponse:
    has_id, has_epoch = request.producer_id != NO_PRODUCER_ID, request.producer_epoch != _NO_EPOCH
    if request.transactional_id is not None or has_id != has_epoch:
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=_NO_EPOCH)
    try:
        return InitProducerIdResponse(producer_id=await context.producer_ids.next())
    except OttlaError as error:
        log.warning("producer_id.not_assigned", extra=frequent(error=str(error)))
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=_NO_EPOCH)
