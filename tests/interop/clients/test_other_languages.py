"""Java's client in two releases and franz-go, by test programs: every feature that a Kafka application uses."""

from __future__ import annotations

from typing import Final

import pytest

from ottla.testing.broker import RunningBroker
from tests.interop.clients.go_client import go_scenarios
from tests.interop.clients.java_client import FORMER_VERSION, VERSION, java_scenarios
from tests.interop.clients.scenarios import ENDS_WITHIN_S, outcomes_of
from tests.peers.cache import BROUGHT_WITHIN_S

pytestmark = [pytest.mark.interop, pytest.mark.timeout(BROUGHT_WITHIN_S + ENDS_WITHIN_S)]

SCENARIOS: Final = ("produce", "compression", "headers", "classic-group", "consumer-group", "transactions", "admin")
Outcomes = dict[str, str]


@pytest.fixture(scope="module")
def java_39(grouping_broker: RunningBroker) -> Outcomes:
    return outcomes_of("java-3.9", lambda: java_scenarios(FORMER_VERSION), (*SCENARIOS, "pattern"), grouping_broker)


@pytest.fixture(scope="module")
def java_44(grouping_broker: RunningBroker) -> Outcomes:
    return outcomes_of("java-4.4", lambda: java_scenarios(VERSION), (*SCENARIOS, "pattern"), grouping_broker)


@pytest.fixture(scope="module")
def franz_go(grouping_broker: RunningBroker) -> Outcomes:
    return outcomes_of("franz-go", go_scenarios, SCENARIOS, grouping_broker)


@pytest.mark.parametrize("scenario", [*SCENARIOS, "pattern"])
def test_java_client_3_9_is_served(scenario: str, java_39: Outcomes) -> None:
    assert java_39[scenario] == "ok"


@pytest.mark.parametrize("scenario", [*SCENARIOS, "pattern"])
def test_java_client_4_4_is_served(scenario: str, java_44: Outcomes) -> None:
    assert java_44[scenario] == "ok"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_franz_go_is_served(scenario: str, franz_go: Outcomes) -> None:
    assert franz_go[scenario] == "ok"
