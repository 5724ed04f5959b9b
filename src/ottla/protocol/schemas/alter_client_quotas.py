"""AlterClientQuotas (API key 49; KIP-546)."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.protocol.schema import array, boolean, float64, int16, int32, nullable_string, string


@dataclass(slots=True)
class EntityData:
    """`entity_name`: None is the default of its type."""

    entity_type: str = string()
    entity_name: str | None = nullable_string()


@dataclass(slots=True)
class OpData:
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@dataclass(slots=True)
class EntryData:
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


@dataclass(slots=True)
class AlterClientQuotasRequest:
    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


@dataclass(slots=True)
class AlteredEntryData:
    error_code: int = int16()
    error_message: str | None = nullable_string()
    entity: list[EntityData] = array(EntityData)


@dataclass(slots=True)
class AlterClientQuotasResponse:
    throttle_time_ms: int = int32()
    entries: list[AlteredEntryData] = array(AlteredEntryData)
