"""AlterClientQuotas (key 49), v0-v1.

Sets and removes the quotas of users, clients, clients of users, and addresses; each entity is changed at once, or not
at all, and the change is in force at this broker when the answer is sent.  `validate_only` changes nothing.
INVALID_REQUEST: an entity without parts, with an unknown or repeated type, an empty name or one that is no address; a
quota that the entity cannot have; a value that is not above 0, or not whole where it must be (KIP-546, KIP-612).
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers.error_text import error_text
from ottla.broker.quotas.stored_quotas import config_entity
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, RequestError
from ottla.model.quotas import DEFAULT_NAME, EntityType, QuotaEntity, check_entity, entity_type_of, kind_of, quota_text
from ottla.protocol.schemas.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntryData,
    EntityData,
    EntryData,
)
from ottla.runtime.loop_offload import LoopOffload


async def handle(request: AlterClientQuotasRequest, context: BrokerContext, call: Call) -> AlterClientQuotasResponse:
    turn = LoopOffload()
    results: list[AlteredEntryData] = []
    for entry in request.entries:
        results.append(await _alter(entry, context, validate_only=request.validate_only))
        await turn.pause()
    return AlterClientQuotasResponse(entries=results)


async def _alter(entry: EntryData, context: BrokerContext, *, validate_only: bool) -> AlteredEntryData:
    try:
        entity = _entity(entry.entity)
        changed = _changed(entity, entry)
        if changed and not validate_only:
            await context.topic_admin.alter_config(config_entity(entity), changed)
    except OttlaError as error:
        return AlteredEntryData(error.error_code, error_text(error), entry.entity)
    return AlteredEntryData(entity=entry.entity)


def _entity(parts: list[EntityData]) -> QuotaEntity:
    named: dict[EntityType, str] = {}
    for part in parts:
        entity_type = entity_type_of(part.entity_type, ErrorCode.INVALID_REQUEST)
        if entity_type in named:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"the entity type {entity_type} occurs twice")
        if part.entity_name == DEFAULT_NAME:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"the name of a {entity_type} must not be empty")
        named[entity_type] = DEFAULT_NAME if part.entity_name is None else part.entity_name
    entity = QuotaEntity(named.get(EntityType.USER), named.get(EntityType.CLIENT_ID), named.get(EntityType.IP))
    check_entity(entity)
    return entity


def _changed(entity: QuotaEntity, entry: EntryData) -> Mapping[str, str | None]:
    """The last of several operations on one quota counts."""
    changed: dict[str, str | None] = {}
    for each in entry.ops:
        kind = kind_of(entity, each.key)
        changed[kind.value] = None if each.remove else quota_text(kind, each.value)
    return changed
