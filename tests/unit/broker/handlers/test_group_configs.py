"""DescribeConfigs, IncrementalAlterConfigs and AlterConfigs of groups."""

from __future__ import annotations

import pytest

from ottla.broker.groups.coordinator import consumer_times
from ottla.coordination.configs import ConfigEntity
from ottla.groups.settings import ConsumerTimes
from ottla.model.error_code import ErrorCode
from ottla.model.group_settings import GROUP_SETTINGS
from ottla.model.setting import Source, ValueType
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas import alter_configs as replacing
from ottla.protocol.schemas.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)
from ottla.protocol.schemas.incremental_alter_configs import AlterableConfig, AlterConfigsResourceResponse
from tests.unit.broker.handlers.small_broker import SmallBroker
from tests.unit.broker.handlers.test_configs import APPEND, DELETE, GROUP, SET, alter, describe

SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
G = ConfigEntity.group("g")


def with_group(**broker: str) -> SmallBroker:
    made = SmallBroker(**broker)
    made.overrides = {G: {SESSION: "50000"}}
    return made


async def change(broker: SmallBroker, *configs: AlterableConfig, check: bool = False) -> AlterConfigsResourceResponse:
    return await alter(broker, 1, *configs, resource_type=GROUP, name="g", validate_only=check)


@pytest.mark.parametrize("version", range(1, 5))
async def test_settings_of_a_group_are_described_each_its_own_only_synonym(version: int) -> None:
    broker = with_group(group_consumer_heartbeat_interval_ms="6000")
    result = await describe(broker, version, GROUP, "g", synonyms=True)
    kind = ValueType.INT if version >= 3 else 0
    assert result.configs == [
        DescribeConfigsResourceResult(
            name, value, False, source, False, [DescribeConfigsSynonym(name, value, source)], kind
        )
        for name, value, source in [(INTERVAL, "6000", Source.DEFAULT), (SESSION, "50000", Source.GROUP)]
    ]


async def test_a_group_that_was_never_heard_of_has_settings() -> None:
    result = await describe(SmallBroker(), 4, GROUP, "unknown/group")
    assert {config.name: config.config_source for config in result.configs} == dict.fromkeys(
        GROUP_SETTINGS, Source.DEFAULT
    )


async def test_settings_of_a_group_are_changed_together() -> None:
    broker = with_group()
    result = await change(broker, AlterableConfig(SESSION, DELETE), AlterableConfig(INTERVAL, SET, "7000"))
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    assert broker.altered == [(G, {SESSION: None, INTERVAL: "7000"})]


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (AlterableConfig(SESSION, SET, "44999"), ErrorCode.INVALID_CONFIG),
        (AlterableConfig(SESSION, SET, "60001"), ErrorCode.INVALID_CONFIG),
        (AlterableConfig(INTERVAL, SET, "4999"), ErrorCode.INVALID_CONFIG),
        (AlterableConfig(INTERVAL, SET, "15001"), ErrorCode.INVALID_CONFIG),
        (AlterableConfig(SESSION, SET, "soon"), ErrorCode.INVALID_CONFIG),
        (AlterableConfig(SESSION, APPEND, "50000"), ErrorCode.INVALID_CONFIG),
        (AlterableConfig("share.session.timeout.ms", SET, "50000"), ErrorCode.INVALID_CONFIG),
        (AlterableConfig("retention.ms", SET, "50000"), ErrorCode.INVALID_CONFIG),
        (AlterableConfig(SESSION, SET, None), ErrorCode.INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("check", [False, True])
async def test_bad_change_of_a_group_is_refused(config: AlterableConfig, code: ErrorCode, check: bool) -> None:
    broker = SmallBroker()
    result = await change(broker, config, check=check)
    assert result.error_code == code
    assert result.error_message
    assert broker.altered == []


async def test_bounds_are_the_brokers_and_both_ends_are_allowed() -> None:
    broker = SmallBroker(group_consumer_min_session_timeout_ms="6000", group_consumer_max_session_timeout_ms="6001")
    codes = [(await change(broker, AlterableConfig(SESSION, SET, str(ms)))).error_code for ms in range(5_999, 6_003)]
    assert codes == [ErrorCode.INVALID_CONFIG, 0, 0, ErrorCode.INVALID_CONFIG]


async def test_a_session_must_outlast_the_interval_that_is_inherited() -> None:
    broker = SmallBroker(group_consumer_min_session_timeout_ms="1", group_consumer_heartbeat_interval_ms="6000")
    refused = await change(broker, AlterableConfig(SESSION, SET, "6000"))
    taken = await change(broker, AlterableConfig(SESSION, SET, "6001"))
    assert (refused.error_code, taken.error_code) == (ErrorCode.INVALID_CONFIG, ErrorCode.NONE)


async def test_a_change_that_is_only_checked_changes_nothing() -> None:
    broker = with_group()
    assert (await change(broker, AlterableConfig(SESSION, SET, "55000"), check=True)).error_code == ErrorCode.NONE
    assert broker.altered == []


@pytest.mark.parametrize(
    ("group", "name", "value", "code"),
    [
        ("g", INTERVAL, "7000", ErrorCode.NONE),
        ("g", INTERVAL, "1", ErrorCode.INVALID_CONFIG),
        ("g", "bogus", "1", ErrorCode.INVALID_CONFIG),
        ("", INTERVAL, "7000", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_settings_of_a_group_are_replaced(group: str, name: str, value: str, code: ErrorCode) -> None:
    broker = with_group()
    resource = replacing.AlterConfigsResource(GROUP, group, [replacing.AlterableConfig(name, value)])
    request = replacing.AlterConfigsRequest([resource])
    response = await broker.ask(ApiKey.ALTER_CONFIGS, 2, request, replacing.AlterConfigsResponse)
    assert response.responses[0].error_code == code
    assert broker.replaced == ([] if code else [(G, {INTERVAL: "7000"})])


def test_members_live_by_what_the_group_has_and_else_by_the_brokers_settings() -> None:
    broker = with_group(group_consumer_heartbeat_interval_ms="6000")
    assert consumer_times(broker.configs, "g", broker.settings) == ConsumerTimes(50_000, 6_000)
    assert consumer_times(broker.configs, "h", broker.settings) == ConsumerTimes(45_000, 6_000)
