"""Which quota holds for a client, of all that are set: the most specific one, in Kafka's order of eight levels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.model.quotas import CLIENT_KINDS, DEFAULT_NAME, QuotaEntity, QuotaKind


class Limit(NamedTuple):
    """A quota as it holds for a client."""

    kind: QuotaKind
    # In units of the kind, each second.
    value: float
    # Who shares it: a user, a client of it, a client of all users, or an address.
    sharer: QuotaEntity
    # Where it is set.
    owner: QuotaEntity


class QuotaLimits:
    """All quotas as they are set, their addresses spelled as the system does those of clients (`quota_entity`).

    A higher `version` is newer."""

    def __init__(self, version: int, quotas: Mapping[QuotaEntity, Mapping[QuotaKind, float]]) -> None:
        self.version: Final = version
        self.by_entity: Final = quotas
        self.has_clients: Final = any(entity.ip is None and those for entity, those in quotas.items())
        self.has_addresses: Final = any(entity.ip is not None and those for entity, those in quotas.items())

    def of_client(self, user: str, client_id: str) -> Mapping[QuotaKind, Limit]:
        """The quotas of a client of a user, each found by its own kind."""
        of_both, of_user = QuotaEntity(user, client_id), QuotaEntity(user)
        of_client = QuotaEntity(None, client_id)
        # The owner, and who shares what it allows.
        levels = (
            (of_both, of_both),
            (QuotaEntity(user, DEFAULT_NAME), of_both),
            (of_user, of_user),
            (QuotaEntity(DEFAULT_NAME, client_id), of_both),
            (QuotaEntity(DEFAULT_NAME, DEFAULT_NAME), of_both),
            (QuotaEntity(DEFAULT_NAME), of_user),
            (of_client, of_client),
            (QuotaEntity(None, DEFAULT_NAME), of_client),
        )
        found: dict[QuotaKind, Limit] = {}
        for owner, sharer in levels:
            for kind, value in self.by_entity.get(owner, _NONE_SET).items():
                if kind not in found and kind in CLIENT_KINDS:
                    found[kind] = Limit(kind, value, sharer, owner)
        return found

    def of_address(self, ip: str) -> Limit | None:
        """How many connections an address may open each second; None: any number."""
        kind = QuotaKind.CONNECTION_CREATION_RATE
        for owner in (QuotaEntity(ip=ip), QuotaEntity(ip=DEFAULT_NAME)):
            value = self.by_entity.get(owner, _NONE_SET).get(kind)
            if value is not None:
                return Limit(kind, value, QuotaEntity(ip=ip), owner)
        return None


_NONE_SET: Final[Mapping[QuotaKind, float]] = {}
NO_LIMITS: Final = QuotaLimits(0, {})
