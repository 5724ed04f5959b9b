"""IncrementalAlterConfigs (key 44), v0-v1.

Topics (type 2): set, delete, append to and subtract from a list; all changes of a topic or none.  They are in force
when the answer is sent.  A group (type 32, there or not): the same, within the broker's bounds. `validate_only` checks
and changes nothing.  INVALID_CONFIG for an unknown setting, a bad value, or an append or subtract on a setting that is
not a list; INVALID_REQUEST for a setting or a resource that occurs twice, a missing value, an unknown operation or
type.  Deleting a setting that is not set succeeds, also of an unknown name.  A broker (type 4; all of them by an empty
name): the few settings that change while it runs; its others are read at start, so a change of them is INVALID_REQUEST.
Not done: loggers, client metrics (8, 16).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers.config_resources import (
    ResourceType,
    alter_each,
    is_every_broker,
    refuse_broker_changes,
    require_few_settings,
    require_group_name,
    require_topic,
    unknown_type,
)
from ottla.coordination.configs import ConfigEntity
from ottla.model.config_entries import ConfigChange, ConfigOperation, changed_overrides
from ottla.model.dynamic_broker_settings import DYNAMIC_BROKER_SETTINGS, dynamic_broker_setting
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.group_settings import check_group, group_setting
from ottla.protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(
    request: IncrementalAlterConfigsRequest, context: BrokerContext, call: Call
) -> IncrementalAlterConfigsResponse:
    async def alter(resource: AlterConfigsResource) -> None:
        await _alter(resource, context, validate_only=request.validate_only)

    responses = await alter_each(
        request.resources, alter, lambda outcome: AlterConfigsResourceResponse(**outcome._asdict())
    )
    return IncrementalAlterConfigsResponse(responses=responses)


async def _alter(resource: AlterConfigsResource, context: BrokerContext, *, validate_only: bool) -> None:
    name = resource.resource_name
    changes = _changes(resource.configs)
    if resource.resource_type == ResourceType.BROKER:
        refuse_broker_changes(
            context, name, [each.name for each in changes if each.name not in DYNAMIC_BROKER_SETTINGS]
        )
        node_id = None if is_every_broker(context, name) else context.node_id
        await _alter_broker(ConfigEntity.broker(node_id), changes, context, validate_only=validate_only)
        return
    if resource.resource_type == ResourceType.GROUP:
        require_group_name(name)
        await _alter_group(name, changes, context, validate_only=validate_only)
        return
    if resource.resource_type != ResourceType.TOPIC:
        raise unknown_type(resource.resource_type)
    require_topic(context, name)
    before = context.configs.topic(name)
    after = changed_overrides(before, _effective(changes, before), context.settings)
    if not validate_only:
        await context.topic_admin.alter_config(ConfigEntity.topic(name), _changed(before, after))


async def _alter_broker(
    entity: ConfigEntity, changes: list[ConfigChange], context: BrokerContext, *, validate_only: bool
) -> None:
    before = context.configs.of(entity)
    after = changed_overrides(before, _effective(changes, before), context.settings, dynamic_broker_setting)
    if not validate_only and after != before:
        await context.topic_admin.alter_config(entity, _changed(before, after))


async def _alter_group(
    group_id: str, changes: list[ConfigChange], context: BrokerContext, *, validate_only: bool
) -> None:
    entity = ConfigEntity.group(group_id)
    before = context.configs.of(entity)
    after = changed_overrides(before, _effective(changes, before), context.settings, group_setting)
    check_group(after, context.settings)
    if not validate_only:
        await context.topic_admin.alter_config(entity, _changed(before, after))


def _effective(changes: list[ConfigChange], before: Mapping[str, str]) -> list[ConfigChange]:
    """A setting that is not set, known or not, can be deleted: scripts do so to be sure."""
    return [each for each in changes if each.operation is not ConfigOperation.DELETE or each.name in before]


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str | None]:
    return {key: after.get(key) for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def _changes(configs: list[AlterableConfig]) -> list[ConfigChange]:
    """The changes, when the request is well formed: `RequestError` is the client's mistake, not a bad setting."""
    require_few_settings(len(configs))
    names = Counter(config.name for config in configs)
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"{', '.join(twice)}: changed twice in one request")
    changes: list[ConfigChange] = []
    for config in configs:
        try:
            operation = ConfigOperation(config.config_operation)
        except ValueError:
            problem = f"{config.name}: there is no operation {config.config_operation}"
            raise RequestError(ErrorCode.INVALID_REQUEST, problem) from None
        if config.value is None and operation is not ConfigOperation.DELETE:
            problem = f"{config.name}: {operation.name.lower()} needs a value"
            raise RequestError(ErrorCode.INVALID_REQUEST, problem)
        changes.append(ConfigChange(config.name, operation, config.value))
    return changes
