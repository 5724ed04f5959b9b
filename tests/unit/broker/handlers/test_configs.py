"""DescribeConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

import pytest

from ottla.broker.handlers.error_text import ERROR_TEXT_LENGTH_MAX
from ottla.coordination.configs import ConfigEntity
from ottla.model.broker_settings import BROKER_SETTINGS
from ottla.model.dynamic_broker_settings import DYNAMIC_BROKER_SETTINGS
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NodeId
from ottla.model.setting import Source, ValueType
from ottla.model.topic_settings import TOPIC_SETTINGS
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.unit.broker.handlers.small_broker import NODE_ID, SmallBroker

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
VERSIONS = range(1, 5)


async def describe(
    broker: SmallBroker,
    version: int,
    resource_type: int,
    name: str,
    keys: list[str] | None = None,
    *,
    synonyms: bool = False,
    documentation: bool = False,
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest([DescribeConfigsResource(resource_type, name, keys)], synonyms, documentation)
    return (await broker.ask(ApiKey.DESCRIBE_CONFIGS, version, request, DescribeConfigsResponse)).results[0]


def with_topic() -> SmallBroker:
    broker = SmallBroker(log_retention_ms="5000", log_segment_bytes="1000")
    broker.add_topic("t")
    broker.overrides = {ConfigEntity.topic("t"): {"retention.ms": "777", "cleanup.policy": "compact"}}
    return broker


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("keys", [None, []])
async def test_all_settings_of_a_topic_are_described(version: int, keys: list[str] | None) -> None:
    result = await describe(with_topic(), version, TOPIC, "t", keys)
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, "")
    assert (result.resource_type, result.resource_name) == (TOPIC, "t")
    by_name = {config.name: config for config in result.configs}
    assert by_name.keys() == TOPIC_SETTINGS.keys()
    assert (by_name["retention.ms"].value, by_name["retention.ms"].config_source) == ("777", Source.TOPIC)
    assert (by_name["segment.bytes"].value, by_name["segment.bytes"].config_source) == ("1000", Source.STATIC_BROKER)
    assert (by_name["segment.ms"].value, by_name["segment.ms"].config_source) == ("604800000", Source.DEFAULT)
    assert not any(config.read_only or config.is_sensitive or config.synonyms for config in result.configs)


@pytest.mark.parametrize("version", VERSIONS)
async def test_named_settings_are_described_with_synonyms_and_documentation(version: int) -> None:
    result = await describe(
        with_topic(), version, TOPIC, "t", ["retention.ms", "no.such.key"], synonyms=True, documentation=version >= 3
    )
    assert result.configs == [
        DescribeConfigsResourceResult(
            "retention.ms",
            "777",
            False,
            Source.TOPIC,
            False,
            [
                DescribeConfigsSynonym("retention.ms", "777", Source.TOPIC),
                DescribeConfigsSynonym("log.retention.ms", "5000", Source.STATIC_BROKER),
                DescribeConfigsSynonym("log.retention.hours", "168", Source.DEFAULT),
            ],
            ValueType.LONG if version >= 3 else 0,
            TOPIC_SETTINGS["retention.ms"].about if version >= 3 else None,
        )
    ]


@pytest.mark.parametrize("version", VERSIONS)
async def test_all_settings_of_the_broker_are_described_and_those_of_its_start_read_only(version: int) -> None:
    result = await describe(with_topic(), version, BROKER, str(NODE_ID))
    by_name = {config.name: config for config in result.configs}
    assert by_name.keys() == BROKER_SETTINGS.keys() | DYNAMIC_BROKER_SETTINGS.keys()
    assert {name for name, config in by_name.items() if config.read_only} == BROKER_SETTINGS.keys()
    assert (by_name["log.retention.ms"].value, by_name["log.retention.ms"].config_source) == (
        "5000",
        Source.STATIC_BROKER,
    )


async def test_nothing_is_set_for_all_brokers() -> None:
    assert await describe(SmallBroker(), 4, BROKER, "") == DescribeConfigsResult(0, "", BROKER)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (TOPIC, "unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "../etc", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "6", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (LOGGER, str(NODE_ID), ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "g" * 1_025, ErrorCode.INVALID_REQUEST),
        (99, "t", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_has_no_settings_here_is_told(version: int, resource_type: int, name: str, code: int) -> None:
    result = await describe(with_topic(), version, resource_type, name)
    assert (result.error_code, result.configs) == (code, [])
    assert result.error_message


async def alter(
    broker: SmallBroker,
    version: int,
    *configs: AlterableConfig,
    resource_type: int = TOPIC,
    name: str = "t",
    validate_only: bool = False,
) -> AlterConfigsResourceResponse:
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(resource_type, name, list(configs))], validate_only)
    response = await broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, request, IncrementalAlterConfigsResponse)
    result = response.responses[0]
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return result


@pytest.mark.parametrize("version", [0, 1])
async def test_settings_of_a_topic_are_changed_together(version: int) -> None:
    broker = with_topic()
    result = await alter(
        broker,
        version,
        AlterableConfig("retention.ms", DELETE),
        AlterableConfig("segment.bytes", SET, "2000"),
        AlterableConfig("cleanup.policy", APPEND, "delete"),
    )
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    assert broker.altered == [
        (
            ConfigEntity.topic("t"),
            {"retention.ms": None, "segment.bytes": "2000", "cleanup.policy": "compact,delete"},
        )
    ]


@pytest.mark.parametrize("version", [0, 1])
async def test_element_is_subtracted_from_a_list(version: int) -> None:
    broker = with_topic()
    broker.overrides = {ConfigEntity.topic("t"): {"cleanup.policy": "compact,delete"}}
    await alter(broker, version, AlterableConfig("cleanup.policy", SUBTRACT, "compact"))
    assert broker.altered == [(ConfigEntity.topic("t"), {"cleanup.policy": "delete"})]


@pytest.mark.parametrize("version", [0, 1])
async def test_nothing_is_changed_when_it_is_only_validated(version: int) -> None:
    broker = with_topic()
    good = await alter(broker, version, AlterableConfig("retention.ms", SET, "5"), validate_only=True)
    bad = await alter(broker, version, AlterableConfig("retention.ms", SET, "x"), validate_only=True)
    assert (good.error_code, bad.error_code) == (ErrorCode.NONE, ErrorCode.INVALID_CONFIG)
    assert broker.altered == []


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("config", "code"),
    [
        (AlterableConfig("no.such.key", SET, "1"), ErrorCode.INVALID_CONFIG),
        (AlterableConfig("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (AlterableConfig("retention.ms", SET, "-2"), ErrorCode.INVALID_CONFIG),
        (AlterableConfig("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (AlterableConfig("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (AlterableConfig("cleanup.policy", APPEND, None), ErrorCode.INVALID_REQUEST),
        (AlterableConfig("retention.ms", 4, "1"), ErrorCode.INVALID_REQUEST),
        (AlterableConfig("retention.ms", -1, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_bad_change_is_refused_with_all_that_came_with_it(
    version: int, config: AlterableConfig, code: ErrorCode
) -> None:
    broker = with_topic()
    result = await alter(broker, version, AlterableConfig("segment.bytes", SET, "2000"), config)
    assert result.error_code == code
    assert result.error_message
    assert broker.altered == []


async def test_what_is_not_set_can_be_deleted_whatever_its_name() -> None:
    broker = with_topic()
    result = await alter(broker, 1, AlterableConfig("no.such.key", DELETE), AlterableConfig("segment.ms", DELETE))
    assert result.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 1])
async def test_text_of_an_error_fits_into_every_version(version: int) -> None:
    result = await alter(with_topic(), version, AlterableConfig("n" * 32_000, SET, "1"))
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert len(result.error_message or "") <= ERROR_TEXT_LENGTH_MAX


async def test_setting_that_is_changed_twice_is_refused() -> None:
    result = await alter(
        with_topic(), 1, AlterableConfig("retention.ms", SET, "1"), AlterableConfig("retention.ms", DELETE)
    )
    assert result.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (TOPIC, "unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, str(NODE_ID), ErrorCode.INVALID_REQUEST),
        (BROKER, "", ErrorCode.INVALID_REQUEST),
        (BROKER, "6", ErrorCode.INVALID_REQUEST),
        (LOGGER, str(NODE_ID), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_cannot_be_changed_here_is_told(resource_type: int, name: str, code: ErrorCode) -> None:
    config = AlterableConfig("log.retention.ms", SET, "1")
    result = await alter(with_topic(), 1, config, resource_type=resource_type, name=name)
    assert result.error_code == code


async def test_resource_that_occurs_twice_is_refused() -> None:
    twice = [AlterConfigsResource(TOPIC, "t", []), AlterConfigsResource(TOPIC, "t", [])]
    response = await with_topic().ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(twice), IncrementalAlterConfigsResponse
    )
    assert [result.error_code for result in response.responses] == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize(("name", "node_id"), [(str(NODE_ID), NODE_ID), ("", None)])
async def test_few_settings_of_a_broker_are_changed_while_it_runs(name: str, node_id: NodeId | None) -> None:
    broker = SmallBroker()
    rate = "follower.replication.throttled.rate"
    entity = ConfigEntity.broker(node_id)
    result = await alter(broker, 1, AlterableConfig(rate, SET, "1000"), resource_type=BROKER, name=name)
    assert result.error_code == ErrorCode.NONE
    assert broker.altered == [(entity, {rate: "1000"})]
    broker.overrides = {entity: {rate: "1000"}}
    described = {config.name: config for config in (await describe(broker, 4, BROKER, name)).configs}
    assert described[rate].value == "1000"
    assert not described[rate].read_only
    deleted = ("leader.replication.throttled.rate", "replica.alter.log.dirs.io.max.bytes.per.second", rate)
    configs = [AlterableConfig(each, DELETE) for each in deleted]
    assert (await alter(broker, 1, *configs, resource_type=BROKER, name=name)).error_code == ErrorCode.NONE
    assert broker.altered[1:] == [(entity, {rate: None})]
    refused = await alter(broker, 1, AlterableConfig(rate, SET, "-1"), resource_type=BROKER, name=name)
    assert refused.error_code == ErrorCode.INVALID_CONFIG
