"""AlterClientQuotas and DescribeClientQuotas."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordination.configs import ConfigEntity
from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas import alter_client_quotas as alter
from ottla.protocol.schemas import describe_client_quotas as describe
from tests.unit.broker.handlers.small_broker import SmallBroker

RATE = "producer_byte_rate"
Parts = list[tuple[str, str | None]]


async def altered(
    broker: SmallBroker, parts: Parts, *ops: tuple[str, float | None], validate_only: bool = False
) -> int:
    entry = alter.EntryData(
        [alter.EntityData(*part) for part in parts],
        [alter.OpData(key, value or 0.0, remove=value is None) for key, value in ops],
    )
    request = alter.AlterClientQuotasRequest([entry], validate_only)
    answer = await broker.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, request, alter.AlterClientQuotasResponse)
    (result,) = answer.entries
    assert [(part.entity_type, part.entity_name) for part in result.entity] == parts
    return result.error_code


async def described(broker: SmallBroker, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    request = describe.DescribeClientQuotasRequest([describe.ComponentData(*each) for each in components], strict)
    answer = await broker.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, request, describe.DescribeClientQuotasResponse)
    if answer.error_code:
        return answer.error_code
    assert answer.entries is not None
    return [
        ([part.entity_name for part in entry.entity], {each.key: each.value for each in entry.values})
        for entry in answer.entries
    ]


def broker_with_quotas() -> SmallBroker:
    broker = SmallBroker()
    broker.overrides = {
        ConfigEntity.user("alice"): {RATE: "1024", "SCRAM-SHA-256": "a secret"},
        ConfigEntity.user("bob"): {"SCRAM-SHA-256": "a secret"},
        ConfigEntity.quota_of("alice", "app"): {"request_percentage": "12.5"},
        ConfigEntity.quota_of(None, ""): {RATE: "2048"},
        ConfigEntity.address("10.0.0.1"): {"connection_creation_rate": "5"},
        ConfigEntity.topic("orders"): {"retention.ms": "1"},
    }
    return broker


@pytest.mark.parametrize(
    ("parts", "owner"),
    [
        ([("user", "alice")], ConfigEntity.user("alice")),
        ([("user", None)], ConfigEntity.user("")),
        ([("client-id", "app"), ("user", "alice")], ConfigEntity.quota_of("alice", "app")),
        ([("user", None), ("client-id", None)], ConfigEntity.quota_of("", "")),
        ([("client-id", "app")], ConfigEntity.quota_of(None, "app")),
        ([("ip", None)], ConfigEntity.address("")),
        ([("ip", "0:0:0:0:0:0:0:1")], ConfigEntity.address("::1")),
    ],
)
async def test_quota_is_a_setting_of_its_owner(parts: Parts, owner: ConfigEntity) -> None:
    broker, key = SmallBroker(), "connection_creation_rate" if parts[0][0] == "ip" else RATE
    assert await altered(broker, parts, (key, 1024.0), (key, 2048.0)) == ErrorCode.NONE
    assert broker.altered == [(owner, {key: "2048"})]


async def test_quota_is_removed() -> None:
    broker = SmallBroker()
    assert await altered(broker, [("user", "alice")], (RATE, 1024.0), ("request_percentage", None)) == ErrorCode.NONE
    assert broker.altered == [(ConfigEntity.user("alice"), {RATE: "1024", "request_percentage": None})]


async def test_validation_changes_nothing() -> None:
    broker = SmallBroker()
    assert await altered(broker, [("user", "alice")], (RATE, 1.0), validate_only=True) == ErrorCode.NONE
    assert await altered(broker, [("user", "alice")], (RATE, -1.0), validate_only=True) == ErrorCode.INVALID_REQUEST
    assert broker.altered == []


@pytest.mark.parametrize(
    ("parts", "op"),
    [
        ([], (RATE, 1.0)),
        ([("group", "g")], (RATE, 1.0)),
        ([("user", "a"), ("user", "b")], (RATE, 1.0)),
        ([("user", "")], (RATE, 1.0)),
        ([("user", "a"), ("ip", "10.0.0.1")], (RATE, 1.0)),
        ([("ip", "10.0.0.1")], (RATE, 1.0)),
        ([("ip", "nowhere")], ("connection_creation_rate", 1.0)),
        ([("user", "a")], ("SCRAM-SHA-256", 1.0)),
        ([("user", "a")], (RATE, 0.5)),
        ([("user", "a")], (RATE, 0.0)),
    ],
)
async def test_what_is_no_quota_is_refused(parts: Parts, op: tuple[str, float]) -> None:
    broker = SmallBroker()
    assert await altered(broker, parts, op) == ErrorCode.INVALID_REQUEST
    assert broker.altered == []


async def test_refusal_that_names_a_long_text_of_the_client_can_be_sent() -> None:
    # A text of version 0 has 32,767 bytes at most, and a message repeats each of these in four.
    unprintable = "\x01" * 32_000
    entry = alter.EntryData([alter.EntityData(unprintable, "alice")], [alter.OpData(RATE, 5.0)])
    request = alter.AlterClientQuotasRequest([entry])
    answer = await SmallBroker().ask(ApiKey.ALTER_CLIENT_QUOTAS, 0, request, alter.AlterClientQuotasResponse)
    assert answer.entries[0].error_code == ErrorCode.INVALID_REQUEST
    question = describe.DescribeClientQuotasRequest([describe.ComponentData(unprintable, 0, "alice")])
    found = await SmallBroker().ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, question, describe.DescribeClientQuotasResponse)
    assert found.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_entries_are_changed_each_for_itself() -> None:
    broker = SmallBroker()
    wrong = alter.EntryData([alter.EntityData("user", "")], [])
    right = alter.EntryData([alter.EntityData("user", "alice")], [alter.OpData(RATE, 5.0)])
    request = alter.AlterClientQuotasRequest([wrong, right])
    answer = await broker.ask(ApiKey.ALTER_CLIENT_QUOTAS, 0, request, alter.AlterClientQuotasResponse)
    assert [each.error_code for each in answer.entries] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert len(broker.altered) == 1


async def test_all_quotas_are_described_and_no_credential() -> None:
    assert await described(broker_with_quotas()) == [
        (["alice"], {RATE: 1024.0}),
        (["alice", "app"], {"request_percentage": 12.5}),
        ([None], {RATE: 2048.0}),
        (["10.0.0.1"], {"connection_creation_rate": 5.0}),
    ]


async def test_components_select_entities_that_have_them_all() -> None:
    broker = broker_with_quotas()
    assert [names for names, _ in await described(broker, ("user", 0, "alice"))] == [["alice"], ["alice", "app"]]
    assert [names for names, _ in await described(broker, ("user", 0, "alice"), strict=True)] == [["alice"]]
    assert [names for names, _ in await described(broker, ("client-id", 2, None))] == [["alice", "app"], [None]]
    assert [names for names, _ in await described(broker, ("client-id", 1, None))] == [[None]]
    assert await described(broker, ("ip", 0, "::ffff:10.0.0.1"))
    assert await described(broker, ("user", 0, "carol")) == []
    assert await described(broker, ("client-id", 0, "")) == []


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "alice")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("group", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_filter_that_means_nothing_is_refused(components: list[tuple[str, int, str | None]], code: int) -> None:
    assert await described(broker_with_quotas(), *components) == code
