"""AlterClientQuotas (API key 49; KIP-546)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, boolean, float64, int16, int32, nullable_string, string


@message
class EntityData:
    """`entity_name`: None is the default of its type."""

    entity_type: str = string()
    entity_name: str | None = nullable_string()


@message
class OpData:
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@message
class EntryData:
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


@message
class AlterClientQuotasRequest:
    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


@message
class AlteredEntryData:
    error_code: int = int16()
    error_message: str | None = nullable_string()
    entity: list[EntityData] = array(EntityData)


@message
class AlterClientQuotasResponse:
    throttle_time_ms: int = int32()
    entries: list[AlteredEntryData] = array(AlteredEntryData)
