"""The eight levels of quotas, from the most specific to the default of all clients."""

from __future__ import annotations

import pytest

from ottla.broker.quotas.quota_limits import Limit, QuotaLimits
from ottla.broker.quotas.stored_quotas import quota_entity
from ottla.coordination.configs import ConfigEntity
from ottla.model.quotas import DEFAULT_NAME, QuotaEntity, QuotaKind

PRODUCE, FETCH = QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE
ALICE, APP = "alice", "app"
BOTH, USER, CLIENT = QuotaEntity(ALICE, APP), QuotaEntity(ALICE), QuotaEntity(None, APP)
# In the order in which they count, with those who share each.
LEVELS = [
    (QuotaEntity(ALICE, APP), BOTH),
    (QuotaEntity(ALICE, DEFAULT_NAME), BOTH),
    (QuotaEntity(ALICE), USER),
    (QuotaEntity(DEFAULT_NAME, APP), BOTH),
    (QuotaEntity(DEFAULT_NAME, DEFAULT_NAME), BOTH),
    (QuotaEntity(DEFAULT_NAME), USER),
    (QuotaEntity(None, APP), CLIENT),
    (QuotaEntity(None, DEFAULT_NAME), CLIENT),
]


@pytest.mark.parametrize("place", range(len(LEVELS)))
def test_most_specific_quota_counts(place: int) -> None:
    limits = QuotaLimits(1, {owner: {PRODUCE: float(number + 1)} for number, (owner, _) in enumerate(LEVELS[place:])})
    owner, sharer = LEVELS[place]
    assert limits.of_client(ALICE, APP) == {PRODUCE: Limit(PRODUCE, 1.0, sharer, owner)}


def test_each_kind_is_found_at_its_own_level() -> None:
    limits = QuotaLimits(1, {USER: {PRODUCE: 1.0}, CLIENT: {PRODUCE: 2.0, FETCH: 3.0}})
    found = limits.of_client(ALICE, APP)
    assert (found[PRODUCE].owner, found[FETCH].owner) == (USER, CLIENT)


def test_quotas_of_others_do_not_count() -> None:
    others = [QuotaEntity("bob"), QuotaEntity(None, "other"), QuotaEntity(ALICE, "other"), QuotaEntity(ip="10.0.0.1")]
    limits = QuotaLimits(1, {other: {PRODUCE: 1.0} for other in others})
    assert limits.of_client(ALICE, APP) == {}


def test_address_has_its_quota_or_the_default() -> None:
    kind = QuotaKind.CONNECTION_CREATION_RATE
    limits = QuotaLimits(1, {QuotaEntity(ip="10.0.0.1"): {kind: 5.0}, QuotaEntity(ip=DEFAULT_NAME): {kind: 9.0}})
    found = [limits.of_address(ip) for ip in ("10.0.0.1", "10.0.0.2")]
    assert [(each.value, each.sharer.ip) for each in found if each] == [(5.0, "10.0.0.1"), (9.0, "10.0.0.2")]
    assert QuotaLimits(1, {}).of_address("10.0.0.1") is None


def test_address_has_its_quota_in_each_spelling() -> None:
    owner = quota_entity(ConfigEntity.address("0:0:0:0:0:0:0:1"))
    limits = QuotaLimits(1, {owner: {QuotaKind.CONNECTION_CREATION_RATE: 5.0}})
    found = limits.of_address("::1")
    assert found is not None
    assert (found.value, found.sharer.ip) == (5.0, "::1")


def test_only_what_is_set_makes_a_broker_look() -> None:
    kind = QuotaKind.CONNECTION_CREATION_RATE
    of_address = QuotaLimits(1, {QuotaEntity(ip=DEFAULT_NAME): {kind: 9.0}})
    of_client = QuotaLimits(1, {USER: {PRODUCE: 1.0}})
    assert (of_address.has_clients, of_address.has_addresses) == (False, True)
    assert (of_client.has_clients, of_client.has_addresses) == (True, False)
