"""One module for each API: versions, behaviour and gaps in its head.

An API's module has its name: it has a coroutine `handle`, or, if it is one of `CALLBACK_APIS`, a function `answer`,
which replies by callback.  A module is imported at the first request of its API: each brings its message classes, and a
broker that only moves records needs few of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final, TypeAlias

from ottla.broker.context import BrokerContext, Call
from ottla.protocol.api import API_VERSIONS, ApiKey
from ottla.runtime.steps import Steps

# Takes the API's request class and gives its response class; `messages` pairs them.
Handler: TypeAlias = Callable[[object, BrokerContext, Call], Awaitable[object]]
# The same, but the response goes to the last argument, once, now or later.  The caller runs the steps, if any.
CallbackHandler: TypeAlias = Callable[[object, BrokerContext, Call, Callable[[object], None]], Steps[None] | None]


def _lazy(module_name: str) -> Handler:
    handle: Handler | None = None

    async def imported_when_called(request: object, context: BrokerContext, call: Call) -> object:
        nonlocal handle
        if handle is None:
            found: Handler = import_module(f"{__name__}.{module_name}").handle
            handle = found
        return await handle(request, context, call)

    return imported_when_called


def _lazy_callback(module_name: str) -> CallbackHandler:
    answer: CallbackHandler | None = None

    def imported_when_called(
        request: object, context: BrokerContext, call: Call, reply: Callable[[object], None]
    ) -> Steps[None] | None:
        nonlocal answer
        if answer is None:
            found: CallbackHandler = import_module(f"{__name__}.{module_name}").answer
            answer = found
        return answer(request, context, call, reply)

    return imported_when_called


# They answer from a coordinator's memory, or when another member or a flush lets them: by callback, without a task.
CALLBACK_APIS: Final = frozenset(
    {
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
    }
)
# Their shells are written by hand, before the tables.
HOT_APIS: Final = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})

HANDLERS: Final[Mapping[ApiKey, Handler]] = MappingProxyType(
    {api: _lazy(api.module_name) for api in API_VERSIONS if api not in CALLBACK_APIS | HOT_APIS}
)
CALLBACK_HANDLERS: Final[Mapping[ApiKey, CallbackHandler]] = MappingProxyType(
    {api: _lazy_callback(api.module_name) for api in API_VERSIONS if api in CALLBACK_APIS}
)
