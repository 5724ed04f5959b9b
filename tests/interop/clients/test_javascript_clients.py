"""The two JavaScript clients that do not wrap librdkafka, by test programs."""

from __future__ import annotations

from typing import Final

import pytest

from ottla.testing.broker import RunningBroker
from tests.interop.clients.javascript_client import javascript_scenarios
from tests.interop.clients.scenarios import ENDS_WITHIN_S, outcomes_of
from tests.peers.cache import BROUGHT_WITHIN_S

pytestmark = [pytest.mark.interop, pytest.mark.timeout(BROUGHT_WITHIN_S + ENDS_WITHIN_S)]

SCENARIOS: Final = ("produce", "compression", "headers", "classic-group", "transactions", "admin")
# kafkajs supports classic groups only.
PLATFORMATIC_SCENARIOS: Final = (*SCENARIOS, "consumer-group")


@pytest.fixture(scope="module")
def kafkajs(grouping_broker: RunningBroker) -> dict[str, str]:
    return outcomes_of("kafkajs", lambda: javascript_scenarios("kafkajs"), SCENARIOS, grouping_broker)


@pytest.fixture(scope="module")
def platformatic(grouping_broker: RunningBroker) -> dict[str, str]:
    return outcomes_of(
        "platformatic", lambda: javascript_scenarios("platformatic"), PLATFORMATIC_SCENARIOS, grouping_broker
    )


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_kafkajs_is_served(scenario: str, kafkajs: dict[str, str]) -> None:
    assert kafkajs[scenario] == "ok"


@pytest.mark.parametrize("scenario", PLATFORMATIC_SCENARIOS)
def test_platformatic_kafka_is_served(scenario: str, platformatic: dict[str, str]) -> None:
    assert platformatic[scenario] == "ok"
