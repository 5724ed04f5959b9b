"""AlterConfigs (key 33), v0-v2.

A topic's or a group's own settings (types 2, 32) become those of the request: what it does not name is unset.  They are
in force when the answer is sent.  `validate_only` checks and changes nothing.  Errors as in IncrementalAlterConfigs,
which clients should prefer: INVALID_CONFIG for an unknown setting or a bad value, INVALID_REQUEST for a setting or a
resource that occurs twice, a missing value, an unknown type. Not done: brokers (type 4): their settings are read at
start, so any change is INVALID_REQUEST.
"""

from __future__ import annotations

from collections import Counter

from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers.config_resources import (
    ResourceType,
    alter_each,
    refuse_broker_changes,
    require_few_settings,
    require_group_name,
    require_topic,
    unknown_type,
)
from ottla.coordination.configs import ConfigEntity
from ottla.model.config_entries import checked_overrides
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.group_settings import check_group, group_setting
from ottla.protocol.schemas.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(request: AlterConfigsRequest, context: BrokerContext, call: Call) -> AlterConfigsResponse:
    async def alter(resource: AlterConfigsResource) -> None:
        await _alter(resource, context, validate_only=request.validate_only)

    responses = await alter_each(
        request.resources, alter, lambda outcome: AlterConfigsResourceResponse(**outcome._asdict())
    )
    return AlterConfigsResponse(responses=responses)


async def _alter(resource: AlterConfigsResource, context: BrokerContext, *, validate_only: bool) -> None:
    name = resource.resource_name
    given = _given(resource)
    if resource.resource_type == ResourceType.BROKER:
        refuse_broker_changes(context, name, given)
        return
    if resource.resource_type == ResourceType.GROUP:
        require_group_name(name)
        of_group = checked_overrides(given, group_setting)
        check_group(of_group, context.settings)
        if not validate_only:
            await context.topic_admin.alter_config(ConfigEntity.group(name), of_group, replaces_all=True)
        return
    if resource.resource_type != ResourceType.TOPIC:
        raise unknown_type(resource.resource_type)
    require_topic(context, name)
    after = checked_overrides(given)
    if not validate_only:
        await context.topic_admin.alter_config(ConfigEntity.topic(name), after, replaces_all=True)


def _given(resource: AlterConfigsResource) -> dict[str, str | None]:
    """The settings by name; `RequestError` is the client's mistake, not a bad setting."""
    require_few_settings(len(resource.configs))
    names = Counter(config.name for config in resource.configs)
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"{', '.join(twice)}: there twice in one request")
    without = sorted(config.name for config in resource.configs if config.value is None)
    if without:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"{', '.join(without)}: a value is needed")
    return {config.name: config.value for config in resource.configs}
