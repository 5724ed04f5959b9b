"""DescribeTransactions (key 65), v0-v0.

The coordinator of each transactional id describes it: NOT_COORDINATOR elsewhere, TRANSACTIONAL_ID_NOT_FOUND for an
unknown one.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.context import BrokerContext, Call
from ottla.broker.shards.shard_table import Gathering
from ottla.model.identifiers import indexes_by_topic
from ottla.protocol.schemas.describe_transactions import (
    DescribedTransactionState,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionTopic,
)
from ottla.runtime.steps import Steps
from ottla.transactions.commands import DescribedTransaction, DescribeTransaction


def answer(
    request: DescribeTransactionsRequest,
    context: BrokerContext,
    call: Call,
    reply: Callable[[DescribeTransactionsResponse | Steps[DescribeTransactionsResponse]], None],
) -> Steps[None]:
    transactional_ids = list(dict.fromkeys(request.transactional_ids))

    def response(described: list[DescribedTransaction]) -> Steps[DescribeTransactionsResponse]:
        states: list[DescribedTransactionState] = []
        for each in described:
            states.append(_state(each))
            yield
        return DescribeTransactionsResponse(transaction_states=states)

    gathering: Gathering[DescribedTransaction] = Gathering(
        len(transactional_ids), lambda described: reply(response(described))
    )
    for place, transactional_id in enumerate(transactional_ids):
        context.transactions.submit(DescribeTransaction(transactional_id), gathering.place(place))
        yield


def _state(described: DescribedTransaction) -> DescribedTransactionState:
    found = described.transaction
    if found is None:
        return DescribedTransactionState(described.error, described.transactional_id)
    return DescribedTransactionState(
        described.error,
        described.transactional_id,
        found.state.title,
        found.timeout_ms,
        found.started_ms,
        found.producer_id,
        found.producer_epoch,
        [TransactionTopic(topic, indexes) for topic, indexes in indexes_by_topic(found.partitions)],
    )
