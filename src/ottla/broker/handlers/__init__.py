"""One module for each API: versions, behaviour and gaps in its head.

`HANDLERS` has the coroutines of the cold APIs; Produce and Fetch are served without one.  A module is imported when its
API is first asked for: each brings its message classes, and a broker that only moves records needs few of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final, TypeAlias

from ottla.broker.context import BrokerContext, Call
from ottla.protocol.api import ApiKey

# Takes the API's request class and gives its response class; `messages` pairs them.
Handler: TypeAlias = Callable[[object, BrokerContext, Call], Awaitable[object]]


def _lazy(module_name: str) -> Handler:
    handle: Handler | None = None

    async def imported_when_called(request: object, broker: BrokerContext, call: Call) -> object:
        nonlocal handle
        if handle is None:
            found: Handler = import_module(f"{__name__}.{module_name}").handle
            handle = found
        return await handle(request, broker, call)

    return imported_when_called


HANDLERS: Final[Mapping[ApiKey, Handler]] = MappingProxyType(
    {
        ApiKey.API_VERSIONS: _lazy("api_versions"),
        ApiKey.METADATA: _lazy("metadata"),
        ApiKey.LIST_OFFSETS: _lazy("list_offsets"),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: _lazy("offset_for_leader_epoch"),
        ApiKey.INIT_PRODUCER_ID: _lazy("init_producer_id"),
        ApiKey.CREATE_TOPICS: _lazy("create_topics"),
        ApiKey.DELETE_TOPICS: _lazy("delete_topics"),
        ApiKey.DELETE_RECORDS: _lazy("delete_records"),
        ApiKey.DESCRIBE_CONFIGS: _lazy("describe_configs"),
        ApiKey.ALTER_CONFIGS: _lazy("alter_configs"),
        ApiKey.DESCRIBE_LOG_DIRS: _lazy("describe_log_dirs"),
        ApiKey.CREATE_PARTITIONS: _lazy("create_partitions"),
        ApiKey.ELECT_LEADERS: _lazy("elect_leaders"),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: _lazy("incremental_alter_configs"),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: _lazy("list_partition_reassignments"),
        ApiKey.DESCRIBE_CLUSTER: _lazy("describe_cluster"),
    }
)
