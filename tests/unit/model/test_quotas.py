"""Which entities may have which quotas, and their values."""

from __future__ import annotations

import pytest

from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.quotas import DEFAULT_NAME, QuotaEntity, QuotaKind, check_entity, kind_of, quota_text, quota_value

BYTES, PERCENTAGE = QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.REQUEST_PERCENTAGE


@pytest.mark.parametrize(
    "entity",
    [
        QuotaEntity("alice"),
        QuotaEntity(DEFAULT_NAME, DEFAULT_NAME),
        QuotaEntity(None, "app/1 %"),
        QuotaEntity(ip="::1"),
        QuotaEntity(ip=DEFAULT_NAME),
    ],
)
def test_users_clients_and_addresses_have_quotas(entity: QuotaEntity) -> None:
    check_entity(entity)


@pytest.mark.parametrize(
    "entity",
    [
        QuotaEntity(),
        QuotaEntity("alice", ip="10.0.0.1"),
        QuotaEntity(None, "app", "10.0.0.1"),
        QuotaEntity(ip="broker.example"),
        QuotaEntity("a" * 256),
        QuotaEntity("a\0b"),
    ],
)
def test_other_entities_have_none(entity: QuotaEntity) -> None:
    with pytest.raises(RequestError) as refusal:
        check_entity(entity)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("entity", "key"),
    [
        (QuotaEntity("alice"), "connection_creation_rate"),
        (QuotaEntity(ip="10.0.0.1"), "producer_byte_rate"),
        (QuotaEntity("alice"), "SCRAM-SHA-256"),
    ],
)
def test_entity_has_only_its_quotas(entity: QuotaEntity, key: str) -> None:
    with pytest.raises(RequestError, match="quota"):
        kind_of(entity, key)


@pytest.mark.parametrize(("kind", "value", "text"), [(BYTES, 1024.0, "1024"), (PERCENTAGE, 12.5, "12.5")])
def test_value_is_stored_as_text_and_read_again(kind: QuotaKind, value: float, text: str) -> None:
    assert quota_text(kind, value) == text
    assert quota_value(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (BYTES, 0.0),
        (BYTES, -1.0),
        (BYTES, 0.5),
        (BYTES, 1e19),
        (PERCENTAGE, float("nan")),
        (PERCENTAGE, float("inf")),
        (QuotaKind.CONNECTION_CREATION_RATE, 3e9),
    ],
)
def test_value_that_means_nothing_is_refused(kind: QuotaKind, value: float) -> None:
    with pytest.raises(RequestError, match=kind):
        quota_text(kind, value)


def test_text_that_is_no_quota_is_none() -> None:
    assert [quota_value(BYTES, text) for text in ("", "fast", "-5", "nan")] == [None] * 4
