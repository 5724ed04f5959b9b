"""DescribeClientQuotas (API key 48; KIP-546)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, boolean, float64, int8, int16, int32, nullable_array, nullable_string, string


@message
class ComponentData:
    """`match_type`: 0 the name, 1 the default, 2 any name."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = nullable_string()


@message
class DescribeClientQuotasRequest:
    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


@message
class EntityData:
    """`entity_name`: None is the default of its type."""

    entity_type: str = string()
    entity_name: str | None = nullable_string()


@message
class ValueData:
    key: str = string()
    value: float = float64()


@message
class EntryData:
    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


@message
class DescribeClientQuotasResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    entries: list[EntryData] | None = nullable_array(EntryData)
