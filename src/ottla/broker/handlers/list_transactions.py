"""ListTransactions (key 66), v0-v2.

The transactional ids that this broker coordinates: filtered by state and producer id, by how long a transaction has
been open (v1+), and by a pattern of RE2 that the whole id matches (v2+); an ill-formed pattern is
INVALID_REGULAR_EXPRESSION.  Names of states that do not exist are returned, and match nothing.  While some ids are not
loaded yet, COORDINATOR_LOAD_IN_PROGRESS and none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.groups.subscription_pattern import matching_names
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.protocol.schemas.list_transactions import (
    ListedTransactionState,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ottla.runtime.steps import Steps
from ottla.transactions.commands import ListReply, ListTransactions
from ottla.transactions.transaction import TransactionState

_STATES: Final = frozenset(state.title for state in TransactionState)
# Of states, of which there are a handful, and of producer ids.
_FILTERS_MAX: Final = 10_000


def answer(
    request: ListTransactionsRequest,
    context: BrokerContext,
    call: Call,
    reply: Callable[[ListTransactionsResponse | Steps[ListTransactionsResponse]], None],
) -> Steps[None]:
    if len(request.state_filters) > _FILTERS_MAX or len(request.producer_id_filters) > _FILTERS_MAX:
        reply(ListTransactionsResponse(error_code=ErrorCode.INVALID_REQUEST))
        return
    unknown = [state for state in request.state_filters if state not in _STATES]
    if unknown and len(unknown) == len(request.state_filters):
        reply(ListTransactionsResponse(0, ErrorCode.NONE, unknown))
        return

    def response(listed: list[ListReply]) -> Steps[ListTransactionsResponse]:
        errors = {each.error for each in listed} - {ErrorCode.NONE}
        if ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in errors:
            return ListTransactionsResponse(0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, unknown)
        found = {transaction.transactional_id: transaction for each in listed for transaction in each.transactions}
        yield
        if request.transactional_id_pattern:
            try:
                matching = matching_names(request.transactional_id_pattern, found)
            except RequestError as error:
                return ListTransactionsResponse(0, error.code, unknown)
            found = {name: found[name] for name in found if name in matching}
        states: list[ListedTransactionState] = []
        for transaction in found.values():
            states.append(ListedTransactionState(*transaction))
            yield
        return ListTransactionsResponse(0, next(iter(errors), ErrorCode.NONE), unknown, states)

    command = ListTransactions(
        [state for state in request.state_filters if state in _STATES],
        request.producer_id_filters,
        request.duration_filter,
    )
    yield from context.transactions.submit_to_all(command, lambda listed: reply(response(listed)))
