"""Quotas of users, clients and addresses: set, removed and listed (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused, error_code_of
from ottla.model.quotas import DEFAULT_NAME, EntityType, QuotaEntity, QuotaKind
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas import alter_client_quotas as altering
from ottla.protocol.schemas.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
)

_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2


class SetQuotas(NamedTuple):
    """The quotas of an entity, by the names that its broker has for them."""

    entity: QuotaEntity
    values: Mapping[str, float]


def alter_quotas(cluster: Cluster, entity: QuotaEntity, changed: Mapping[QuotaKind, float | None]) -> None:
    """Set quotas of an entity, or with None remove them.  Raises BrokerRefused."""
    ops = [altering.OpData(kind, value or 0.0, remove=value is None) for kind, value in changed.items()]
    named = [altering.EntityData(each, name or None) for each, name in entity.parts().items()]
    request = altering.AlterClientQuotasRequest([altering.EntryData(named, ops)])
    response = cluster.call_any(ApiKey.ALTER_CLIENT_QUOTAS, request, altering.AlterClientQuotasResponse)
    for result in response.entries:
        if result.error_code:
            raise BrokerRefused(error_code_of(result.error_code), "quotas", result.error_message)


def describe_quotas(
    cluster: Cluster, wanted: Mapping[EntityType, str | None] | None = None, *, strict: bool = False
) -> list[SetQuotas]:
    """The quotas of the entities that have all the wanted parts; a part of None has any name.  Raises BrokerRefused.

    `strict`: they have no other parts.
    """
    components = [_component(entity_type, name) for entity_type, name in (wanted or {}).items()]
    request = DescribeClientQuotasRequest(components, strict)
    response = cluster.call_any(ApiKey.DESCRIBE_CLIENT_QUOTAS, request, DescribeClientQuotasResponse)
    if response.error_code:
        raise BrokerRefused(error_code_of(response.error_code), "quotas", response.error_message)
    return [
        SetQuotas(_entity(entry.entity), {each.key: each.value for each in entry.values})
        for entry in response.entries or ()
    ]


def _component(entity_type: EntityType, name: str | None) -> ComponentData:
    if name is None:
        return ComponentData(entity_type, _ANY)
    return ComponentData(entity_type, _DEFAULT) if name == DEFAULT_NAME else ComponentData(entity_type, _EXACT, name)


def _entity(parts: list[EntityData]) -> QuotaEntity:
    names = {part.entity_type: DEFAULT_NAME if part.entity_name is None else part.entity_name for part in parts}
    return QuotaEntity(*(names.get(each) for each in EntityType))
