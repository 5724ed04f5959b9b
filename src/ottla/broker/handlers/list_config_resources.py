"""ListConfigResources (key 74), v0-v1.

The resources whose settings can be described, of the requested types, none meaning all: every topic (2), the live
brokers (4, and 8 for their loggers), and groups (32) that have settings of their own.  Client metrics (16) can be
requested, and there are none: so v0, which requests only them, is always empty.  UNSUPPORTED_VERSION for other types.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers.config_resources import ResourceType
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_KNOWN: Final = frozenset[int](ResourceType)


async def handle(
    request: ListConfigResourcesRequest, context: BrokerContext, call: Call
) -> ListConfigResourcesResponse:
    asked: Iterable[int] = request.resource_types or ResourceType
    wanted = list(dict.fromkeys(asked)) if call.api_version >= 1 else []
    if not _KNOWN.issuperset(wanted):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    resources = [ConfigResource(name, each) for each in wanted for name in _names(context, call, each)]
    return ListConfigResourcesResponse(config_resources=resources)


def _names(context: BrokerContext, call: Call, resource_type: int) -> Iterable[str]:
    if resource_type == ResourceType.TOPIC:
        return sorted(context.topics.by_name)
    if resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(address.node_id) for address in context.brokers.addresses_for(call.local_address)]
    if resource_type == ResourceType.GROUP:
        return sorted(context.configs.groups())
    return ()
