"""DescribeConfigs (key 32), v1-v4.

Topics (type 2): every topic setting with its value in force, its source (the topic's own, the broker's, the default)
and, when asked for, its synonyms and documentation.  This broker (type 4, its node id): every broker setting, those
that are read at its start as read-only.  All brokers (type 4, empty name): what was set for all of them at run time.
Keys that are asked for and unknown are left out; an empty list of keys asks for all, as null does.
A group (type 32, there or not): the settings of consumer groups.  UNKNOWN_TOPIC_OR_PARTITION for an unknown topic,
INVALID_TOPIC_EXCEPTION for an illegal name, INVALID_REQUEST for another broker's id, for a group without an id and for
other types.
Not done: broker loggers (type 8), client metrics (16).
"""

from __future__ import annotations

from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers.config_resources import (
    ResourceType,
    is_every_broker,
    require_group_name,
    require_topic,
    unknown_type,
)
from ottla.broker.handlers.error_text import error_text
from ottla.coordination.configs import ConfigEntity
from ottla.model.config_entries import (
    ConfigEntry,
    describe_broker,
    describe_every_broker,
    describe_group,
    describe_topic,
)
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.protocol.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


async def handle(request: DescribeConfigsRequest, broker: BrokerContext, call: Call) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_result(resource, request, broker) for resource in request.resources])


def _result(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, broker: BrokerContext
) -> DescribeConfigsResult:
    # As in Apache Kafka the message is empty, not null, on success.
    result = DescribeConfigsResult(ErrorCode.NONE, "", resource.resource_type, resource.resource_name)
    try:
        entries = _entries(resource, broker)
    except RequestError as error:
        result.error_code, result.error_message = error.code, error_text(error)
        return result
    wanted = resource.configuration_keys
    result.configs = [
        _entry_result(entry, request) for entry in entries if not wanted or entry.name in wanted
    ]  # fmt: skip
    return result


def _entries(resource: DescribeConfigsResource, broker: BrokerContext) -> list[ConfigEntry]:
    name = resource.resource_name
    if resource.resource_type == ResourceType.TOPIC:
        require_topic(broker, name)
        return describe_topic(broker.configs.topic(name), broker.settings)
    if resource.resource_type == ResourceType.BROKER:
        of_all = broker.configs.of(ConfigEntity.broker(None))
        if is_every_broker(broker, name):
            return describe_every_broker(of_all)
        return describe_broker(broker.settings, broker.configs.of(ConfigEntity.broker(broker.node_id)), of_all)
    if resource.resource_type == ResourceType.GROUP:
        require_group_name(name)
        return describe_group(broker.configs.of(ConfigEntity.group(name)), broker.settings)
    raise unknown_type(resource.resource_type)


def _entry_result(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        entry.name,
        entry.value,
        entry.is_read_only,
        entry.source,
        entry.is_sensitive,
        [DescribeConfigsSynonym(*synonym) for synonym in synonyms],
        entry.type,
        entry.about if request.include_documentation else None,
    )
