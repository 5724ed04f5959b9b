"""One module for each API: versions, behaviour and gaps in its head.

`HANDLERS` has the coroutines of the cold APIs; `GROUP_HANDLERS` those of groups, which reply by callback; Produce and
Fetch are in neither.  A module is imported at the first request of its API: each brings its message classes,
and a broker that only moves records needs few of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final, TypeAlias

from ottla.broker.context import BrokerContext, Call
from ottla.protocol.api import ApiKey
from ottla.runtime.steps import Steps

# Takes the API's request class and gives its response class; `messages` pairs them.
Handler: TypeAlias = Callable[[object, BrokerContext, Call], Awaitable[object]]
# The same, but the response goes to the last argument, once, now or later.  The caller runs the steps, if any.
GroupHandler: TypeAlias = Callable[[object, BrokerContext, Call, Callable[[object], None]], Steps[None] | None]


def _lazy(module_name: str) -> Handler:
    handle: Handler | None = None

    async def imported_when_called(request: object, context: BrokerContext, call: Call) -> object:
        nonlocal handle
        if handle is None:
            found: Handler = import_module(f"{__name__}.{module_name}").handle
            handle = found
        return await handle(request, context, call)

    return imported_when_called


def _lazy_group(module_name: str) -> GroupHandler:
    answer: GroupHandler | None = None

    def imported_when_called(
        request: object, context: BrokerContext, call: Call, reply: Callable[[object], None]
    ) -> Steps[None] | None:
        nonlocal answer
        if answer is None:
            found: GroupHandler = import_module(f"{__name__}.{module_name}").answer
            answer = found
        return answer(request, context, call, reply)

    return imported_when_called


HANDLERS: Final[Mapping[ApiKey, Handler]] = MappingProxyType(
    {
        ApiKey.API_VERSIONS: _lazy("api_versions"),
        ApiKey.SASL_HANDSHAKE: _lazy("sasl_handshake"),
        ApiKey.SASL_AUTHENTICATE: _lazy("sasl_authenticate"),
        ApiKey.METADATA: _lazy("metadata"),
        ApiKey.FIND_COORDINATOR: _lazy("find_coordinator"),
        ApiKey.LIST_OFFSETS: _lazy("list_offsets"),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: _lazy("offset_for_leader_epoch"),
        ApiKey.INIT_PRODUCER_ID: _lazy("init_producer_id"),
        ApiKey.CREATE_TOPICS: _lazy("create_topics"),
        ApiKey.DELETE_TOPICS: _lazy("delete_topics"),
        ApiKey.DELETE_RECORDS: _lazy("delete_records"),
        ApiKey.DESCRIBE_ACLS: _lazy("describe_acls"),
        ApiKey.CREATE_ACLS: _lazy("create_acls"),
        ApiKey.DELETE_ACLS: _lazy("delete_acls"),
        ApiKey.DESCRIBE_CONFIGS: _lazy("describe_configs"),
        ApiKey.ALTER_CONFIGS: _lazy("alter_configs"),
        ApiKey.DESCRIBE_LOG_DIRS: _lazy("describe_log_dirs"),
        ApiKey.CREATE_PARTITIONS: _lazy("create_partitions"),
        ApiKey.ELECT_LEADERS: _lazy("elect_leaders"),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: _lazy("incremental_alter_configs"),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: _lazy("alter_partition_reassignments"),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: _lazy("list_partition_reassignments"),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: _lazy("describe_client_quotas"),
        ApiKey.ALTER_CLIENT_QUOTAS: _lazy("alter_client_quotas"),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _lazy("describe_user_scram_credentials"),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _lazy("alter_user_scram_credentials"),
        ApiKey.DESCRIBE_CLUSTER: _lazy("describe_cluster"),
        ApiKey.LIST_CONFIG_RESOURCES: _lazy("list_config_resources"),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: _lazy("describe_topic_partitions"),
    }
)

GROUP_HANDLERS: Final[Mapping[ApiKey, GroupHandler]] = MappingProxyType(
    {
        ApiKey.OFFSET_COMMIT: _lazy_group("offset_commit"),
        ApiKey.OFFSET_FETCH: _lazy_group("offset_fetch"),
        ApiKey.JOIN_GROUP: _lazy_group("join_group"),
        ApiKey.HEARTBEAT: _lazy_group("heartbeat"),
        ApiKey.LEAVE_GROUP: _lazy_group("leave_group"),
        ApiKey.SYNC_GROUP: _lazy_group("sync_group"),
        ApiKey.DESCRIBE_GROUPS: _lazy_group("describe_groups"),
        ApiKey.LIST_GROUPS: _lazy_group("list_groups"),
        ApiKey.DELETE_GROUPS: _lazy_group("delete_groups"),
        ApiKey.OFFSET_DELETE: _lazy_group("offset_delete"),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: _lazy_group("consumer_group_heartbeat"),
        ApiKey.CONSUMER_GROUP_DESCRIBE: _lazy_group("consumer_group_describe"),
    }
)
