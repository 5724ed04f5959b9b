"""Quotas as settings of the tree, and the parts of a broker that follow them."""

from __future__ import annotations

import pytest

from ottla.broker.assembly.quota_parts import QuotaParts
from ottla.broker.net.address_limits import AddressLimits
from ottla.broker.quotas.quotas import Quotas
from ottla.broker.quotas.rate import Window
from ottla.broker.quotas.stored_quotas import config_entity, quota_entity, quotas_in
from ottla.broker.quotas.usage import QuotaUsage
from ottla.coordination.configs import ConfigEntity, ConfigsView
from ottla.model.quotas import QuotaEntity, QuotaKind
from tests.unit.broker.turned_loop import TurnedClock

ENTITIES = [
    QuotaEntity("alice"),
    QuotaEntity(""),
    QuotaEntity("alice", "app"),
    QuotaEntity("", ""),
    QuotaEntity(None, "app"),
    QuotaEntity(None, ""),
    QuotaEntity(ip="10.0.0.1"),
    QuotaEntity(ip=""),
]
RATE = {"producer_byte_rate": "1000"}


@pytest.mark.parametrize("entity", ENTITIES)
def test_entity_is_found_by_the_owner_of_its_settings(entity: QuotaEntity) -> None:
    assert quota_entity(config_entity(entity)) == entity


def test_address_in_another_spelling_is_the_same() -> None:
    assert config_entity(QuotaEntity(ip="0:0:0:0:0:0:0:1")) == config_entity(QuotaEntity(ip="::1"))
    assert quota_entity(ConfigEntity.address("::ffff:10.0.0.1")) == QuotaEntity(ip="10.0.0.1")


def test_what_is_no_quota_is_left_out() -> None:
    settings = {
        ConfigEntity.user("alice"): {"SCRAM-SHA-256": "a secret", "producer_byte_rate": "5", "future_rate": "1"},
        ConfigEntity.user("bob"): {"consumer_byte_rate": "fast"},
        ConfigEntity.topic("orders"): {"producer_byte_rate": "5"},
    }
    assert quotas_in(ConfigsView(1, settings)) == {QuotaEntity("alice"): {QuotaKind.PRODUCER_BYTE_RATE: 5.0}}


def parts() -> QuotaParts:
    clock, window = TurnedClock(), Window(11, 1_000)
    quotas = Quotas(QuotaUsage(window, window), clock, 1_000)
    return QuotaParts(quotas, AddressLimits(quotas, 100, {}), clock)  # type: ignore[arg-type]  # its timers


class Ignoring:
    def mute(self) -> None: ...

    def unmute(self) -> None: ...


def test_connections_have_quotas_while_a_client_has_any() -> None:
    following, changes = parts(), []
    following.limits_changed.subscribe(lambda: changes.append(following.quotas.limits.version))
    assert following.quotas_of(Ignoring(), "User:alice") is None
    following.follow(ConfigsView(1, {ConfigEntity.user("alice"): RATE}))
    assert following.quotas_of(Ignoring(), "User:bob") is not None
    # Another setting has changed.
    following.follow(ConfigsView(2, {ConfigEntity.user("alice"): RATE, ConfigEntity.topic("t"): {}}))
    following.follow(ConfigsView(3, {}))
    assert following.quotas_of(Ignoring(), "User:bob") is None
    assert changes == [1, 2]


def test_listener_for_brokers_has_no_quotas() -> None:
    following = parts()
    assert following.of_listener("INTERNAL", "INTERNAL") is None
    assert following.of_listener("CLIENTS", "INTERNAL") is not None
