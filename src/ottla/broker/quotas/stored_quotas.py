"""Quotas as the tree has them: settings of users, clients and addresses, beside the credentials of users."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.coordination.configs import ConfigEntity, ConfigsView
from ottla.model.quotas import QuotaEntity, QuotaKind, quota_value
from ottla.security.acl import canonical_host


def config_entity(entity: QuotaEntity) -> ConfigEntity:
    """The owner of the settings of an entity that `check_entity` has passed."""
    if entity.ip is not None:
        return ConfigEntity.address(canonical_host(entity.ip))
    return ConfigEntity.quota_of(entity.user, entity.client_id)


def quota_entity(entity: ConfigEntity) -> QuotaEntity:
    if entity.kind == "ips":
        return QuotaEntity(ip=canonical_host(entity.name))
    if entity.kind == "clients":
        return QuotaEntity(client_id=entity.name)
    return QuotaEntity(entity.name, entity.client_id)


def quotas_in(view: ConfigsView) -> dict[QuotaEntity, Mapping[QuotaKind, float]]:
    """All that are set.  What is no valid quota is left out: a user's other settings, and those of a newer version."""
    found: dict[QuotaEntity, Mapping[QuotaKind, float]] = {}
    for entity, settings in view.with_quotas():
        quotas = {
            kind: value
            for kind in QuotaKind
            if kind in settings and (value := quota_value(kind, settings[kind])) is not None
        }
        if quotas:
            found[quota_entity(entity)] = quotas
    return found
