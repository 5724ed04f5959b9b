"""InitProducerId (key 22), v0-v5.

Without a transactional id: a producer id that was never assigned before, and epoch 0; the producer's former id and
epoch (v3+) are ignored, as in Apache Kafka, but an id without an epoch or an epoch without an id is INVALID_REQUEST.
COORDINATOR_LOAD_IN_PROGRESS while the tree does not answer: clients try again after it.

With a transactional id: its coordinator gives the producer the next epoch, and aborts the transaction of the one before
it.  The answer waits up to a second for the markers of that, then it is CONCURRENT_TRANSACTIONS, which clients repeat;
Apache Kafka answers so at once.  A producer that gives its own id and epoch continues (KIP-360); with any other it is
PRODUCER_FENCED, below v4 INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

import logging
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NO_PRODUCER_ID
from ottla.observe.events import frequent
from ottla.protocol.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.runtime.waiting_reply import reply_of
from ottla.transactions.commands import InitProducer, ProducerReply

log = logging.getLogger(__name__)

_NO_EPOCH: Final = -1
_FENCED_FROM_VERSION: Final = 4


async def handle(request: InitProducerIdRequest, context: BrokerContext, call: Call) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return await _init_transactional(request, request.transactional_id, context, call)
    has_id, has_epoch = request.producer_id != NO_PRODUCER_ID, request.producer_epoch != _NO_EPOCH
    if has_id != has_epoch:
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=_NO_EPOCH)
    try:
        return InitProducerIdResponse(producer_id=await context.producer_ids.next())
    except OttlaError as error:
        log.warning("producer_id.not_assigned", extra=frequent(error=str(error)))
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=_NO_EPOCH)


async def _init_transactional(
    request: InitProducerIdRequest, transactional_id: str, context: BrokerContext, call: Call
) -> InitProducerIdResponse:
    command = InitProducer(
        transactional_id,
        request.transaction_timeout_ms,
        request.producer_id,
        request.producer_epoch,
        knows_fenced=call.api_version >= _FENCED_FROM_VERSION,
    )
    given: ProducerReply = await reply_of(lambda reply: context.transactions.submit(command, reply))
    return InitProducerIdResponse(0, given.error, given.producer_id, given.producer_epoch)
