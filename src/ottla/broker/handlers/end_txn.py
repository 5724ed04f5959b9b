"""EndTxn (key 26), v0-v5.

Answered when the outcome is on all in-sync replicas; the markers follow.  From v5 on the end gives its producer the
next epoch, or a new producer id after the last one (KIP-890); below, it keeps the epoch.

A repeated end gets the answer of the first one while markers are written, where Apache Kafka answers
CONCURRENT_TRANSACTIONS.  An end below v5 on an older connection than the producer's last accepted call was delayed on
its way: CONCURRENT_TRANSACTIONS (docs/transactions.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.protocol.schemas.end_txn import EndTxnRequest, EndTxnResponse
from ottla.transactions.commands import EndTransaction, ProducerReply

_FENCED_FROM_VERSION: Final = 2
_NEXT_EPOCH_FROM_VERSION: Final = 5


def answer(request: EndTxnRequest, context: BrokerContext, call: Call, reply: Callable[[EndTxnResponse], None]) -> None:
    def respond(ended: ProducerReply) -> None:
        reply(EndTxnResponse(0, ended.error, ended.producer_id, ended.producer_epoch))

    command = EndTransaction(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        commits=request.committed,
        advances_epoch=call.api_version >= _NEXT_EPOCH_FROM_VERSION,
        knows_fenced=call.api_version >= _FENCED_FROM_VERSION,
        connection=call.connection_number,
    )
    context.transactions.submit(command, respond)
