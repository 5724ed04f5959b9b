"""DescribeClientQuotas (key 48), v0-v1.

The quotas that are set, of the entities that the components select: a user, client or address by its name, its default,
or any name.  An entity must have all the components; with `strict` it has no others.  INVALID_REQUEST: a component that
occurs twice, a match without the name that it needs or with one that it does not, an address with another component.
UNSUPPORTED_VERSION: another type of entity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers.error_text import error_text
from ottla.broker.quotas.stored_quotas import quotas_in
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.quotas import DEFAULT_NAME, EntityType, QuotaEntity, entity_type_of
from ottla.protocol.schemas.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from ottla.runtime.loop_offload import LoopOffload
from ottla.security.acl import canonical_host

_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2

# None: any name.
_Wanted = Mapping[EntityType, str | None]


async def handle(
    request: DescribeClientQuotasRequest, context: BrokerContext, call: Call
) -> DescribeClientQuotasResponse:
    try:
        wanted = _wanted(request.components)
    except RequestError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error_text(error))
    turn = LoopOffload()
    entries: list[EntryData] = []
    for entity, quotas in quotas_in(context.configs).items():
        await turn.pause()
        if _matches(entity, wanted, strict=request.strict):
            named = [EntityData(entity_type, name or None) for entity_type, name in entity.parts().items()]
            entries.append(EntryData(named, [ValueData(kind, value) for kind, value in quotas.items()]))
    return DescribeClientQuotasResponse(entries=entries)


def _matches(entity: QuotaEntity, wanted: _Wanted, *, strict: bool) -> bool:
    parts = entity.parts()
    if strict and parts.keys() != wanted.keys():
        return False
    return all(
        entity_type in parts and (name is None or parts[entity_type] == name) for entity_type, name in wanted.items()
    )


def _wanted(components: list[ComponentData]) -> _Wanted:
    wanted: dict[EntityType, str | None] = {}
    for each in components:
        entity_type = entity_type_of(each.entity_type, ErrorCode.UNSUPPORTED_VERSION)
        if entity_type in wanted:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"the entity type {entity_type} occurs twice")
        name = _name(each)
        wanted[entity_type] = canonical_host(name) if entity_type is EntityType.IP and name else name
    if EntityType.IP in wanted and len(wanted) > 1:
        raise RequestError(ErrorCode.INVALID_REQUEST, "a quota of an ip has no user and no client-id")
    return wanted


def _name(component: ComponentData) -> str | None:
    if component.match_type not in (_EXACT, _DEFAULT, _ANY):
        raise RequestError(ErrorCode.INVALID_REQUEST, f"there is no match type {component.match_type}")
    if (component.match_type == _EXACT) is (component.match is None):
        raise RequestError(ErrorCode.INVALID_REQUEST, "an exact match has a name, the others have none")
    if component.match_type == _DEFAULT:
        return DEFAULT_NAME
    # An empty name belongs to no entity; it is not the default.
    return component.match if component.match != DEFAULT_NAME else "\0"
