"""ListConfigResources."""

from __future__ import annotations

import pytest

from ottla.coordination.configs import ConfigEntity
from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from tests.unit.broker.handlers.small_broker import NODE_ID, SmallBroker

ALL = [(2, "a"), (2, "b"), (4, str(NODE_ID)), (8, str(NODE_ID)), (32, "g/1")]


async def ask(version: int, *types: int) -> tuple[int, list[tuple[int, str]]]:
    broker = SmallBroker()
    broker.add_topic("b")
    broker.add_topic("a")
    broker.overrides = {ConfigEntity.group("g/1"): {"x": "1"}, ConfigEntity.topic("a"): {"y": "2"}}
    request = ListConfigResourcesRequest(list(types))
    answer = await broker.ask(ApiKey.LIST_CONFIG_RESOURCES, version, request, ListConfigResourcesResponse)
    return answer.error_code, [(each.resource_type, each.resource_name) for each in answer.config_resources]


async def test_client_metrics_are_all_that_the_first_version_asks_for_and_there_are_none() -> None:
    assert await ask(0) == (ErrorCode.NONE, [])


@pytest.mark.parametrize("types", [(), (2,), (4,), (8,), (16,), (32,), (4, 32), (2, 2)])
async def test_resources_of_the_types_that_are_wanted_are_listed_once(types: tuple[int, ...]) -> None:
    assert await ask(1, *types) == (ErrorCode.NONE, [each for each in ALL if not types or each[0] in types])


@pytest.mark.parametrize("types", [(0,), (99,), (-1,), (2, 3)])
async def test_other_types_are_not_supported(types: tuple[int, ...]) -> None:
    assert await ask(1, *types) == (ErrorCode.UNSUPPORTED_VERSION, [])
