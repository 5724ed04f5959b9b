"""Quotas: the names, and which values they take (Kafka's, KIP-13, KIP-124, KIP-546, KIP-599, KIP-612)."""

from __future__ import annotations

import math
from enum import StrEnum
from ipaddress import ip_address
from typing import Final, NamedTuple

from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.limits import INT32_MAX, INT64_MAX

# Of a user, a client or an address: the entity that has no quota itself.
DEFAULT_NAME: Final = ""
NAME_LENGTH_MAX: Final = 255
# As Apache Kafka: what a computation with floats adds to a whole number.
_WHOLE_WITHIN: Final = 1e-6


class QuotaKind(StrEnum):
    """Named as its setting."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"

    @property
    def whole_max(self) -> int | None:
        """The highest value of one that takes whole numbers only; None: it takes fractions."""
        return _WHOLE_MAX.get(self)


CLIENT_KINDS: Final = (
    QuotaKind.PRODUCER_BYTE_RATE,
    QuotaKind.CONSUMER_BYTE_RATE,
    QuotaKind.REQUEST_PERCENTAGE,
    QuotaKind.CONTROLLER_MUTATION_RATE,
)
_WHOLE_MAX: Final = {
    QuotaKind.PRODUCER_BYTE_RATE: INT64_MAX,
    QuotaKind.CONSUMER_BYTE_RATE: INT64_MAX,
    QuotaKind.CONNECTION_CREATION_RATE: INT32_MAX,
}


class EntityType(StrEnum):
    """What a quota can be for."""

    USER = "user"
    CLIENT_ID = "client-id"
    IP = "ip"


def entity_type_of(text: str, code_of_unknown: ErrorCode) -> EntityType:
    """Raises `RequestError` with this code for one that does not exist."""
    try:
        return EntityType(text)
    except ValueError:
        raise RequestError(code_of_unknown, f"there is no entity type {text!r}: {', '.join(EntityType)}") from None


class QuotaEntity(NamedTuple):
    """The owner of quotas: a user, a client, a client of a user, or an address.

    None: it is not named by this part.  An empty name is the default: all users, clients or addresses without quotas.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def parts(self) -> dict[EntityType, str]:
        """The parts that it has, by type."""
        named = zip(EntityType, self, strict=True)
        return {entity_type: name for entity_type, name in named if name is not None}


def check_entity(entity: QuotaEntity) -> None:
    """Raises `RequestError` (INVALID_REQUEST) for one that cannot have quotas."""
    parts = entity.parts()
    if not parts:
        raise _invalid("a quota needs a user, a client-id or an ip")
    if EntityType.IP in parts and len(parts) > 1:
        raise _invalid("a quota of an ip has no user and no client-id")
    for entity_type, name in parts.items():
        if len(name) > NAME_LENGTH_MAX or "\0" in name:
            raise _invalid(f"the name of a {entity_type} has at most {NAME_LENGTH_MAX} characters, without NUL")
    if entity.ip:
        try:
            ip_address(entity.ip)
        except ValueError:
            raise _invalid(f"{entity.ip!r} is not an address, as 10.0.0.1 or ::1") from None


def kind_of(entity: QuotaEntity, key: str) -> QuotaKind:
    """The quota with this name.  Raises `RequestError` (INVALID_REQUEST) for one that the entity cannot have."""
    allowed = (QuotaKind.CONNECTION_CREATION_RATE,) if entity.ip is not None else CLIENT_KINDS
    try:
        kind = QuotaKind(key)
    except ValueError:
        raise _invalid(f"there is no quota {key!r}: {', '.join(allowed)}") from None
    if kind not in allowed:
        raise _invalid(f"{kind} is no quota of this entity, which may have {', '.join(allowed)}")
    return kind


def quota_text(kind: QuotaKind, value: float) -> str:
    """The value as its node has it.  Raises `RequestError` (INVALID_REQUEST) for one that is not allowed."""
    if not math.isfinite(value) or value <= 0:
        raise _invalid(f"{kind} must be above 0, not {value:g}")
    whole_max = kind.whole_max
    if whole_max is None:
        return repr(value)
    if abs(value - round(value)) > _WHOLE_WITHIN:
        raise _invalid(f"{kind} must be a whole number, not {value:g}")
    if value > whole_max:
        raise _invalid(f"{kind} is at most {whole_max}")
    return str(round(value))


def quota_value(kind: QuotaKind, text: str) -> float | None:
    """The value that a node has; None for text that is no valid one."""
    try:
        value = float(text)
        quota_text(kind, value)
    except (ValueError, RequestError):
        return None
    return value


def _invalid(problem: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, problem)
