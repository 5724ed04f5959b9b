"""The shell of a member, a step at a time, on a coordinator in memory that does not answer."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from contextlib import closing
from typing import Final

import pytest

from ottla.client.groups.subscription import Subscription
from ottla.client.membership.kafka_group.member import KafkaGroupMember
from ottla.client.membership.kafka_group.membership import KafkaGroupMembership
from ottla.client.membership.kafka_group.options import CLASSIC, CONSUMER, KafkaGroupOptions
from ottla.client.wire.request_metrics import RequestMeter
from ottla.protocol.api import ApiKey
from tests.unit.client.fake_cluster import FakeCluster, Fault
from tests.unit.client.fake_transactions import FakeTransactions

SILENT: Final = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.JOIN_GROUP, ApiKey.LEAVE_GROUP)
STEPS_MAX: Final = 100


class SilentCoordinator(FakeTransactions):
    """Broker 1 coordinates each group, and no member gets an answer."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster, is_implicit=False)
        cluster.brokers[1].fault_of = lambda api: Fault.SILENCE if api in SILENT else None

    def answer(self, version: int, request: object) -> object | None:
        # What is not sent has no form.
        return super().answer(version, request) or request


class Shell:
    def __init__(self, protocol: str) -> None:
        fake = FakeCluster(1)
        fake.add_topic("t", 1)
        SilentCoordinator(fake)
        options = KafkaGroupOptions(protocol=protocol)
        self.membership = KafkaGroupMembership(fake.client(), "g", options)
        self.membership._on_events = lambda events: None
        self._member = KafkaGroupMember("g", "me", 77, Subscription({"t": 1}), options, random.Random(1))

    def step(self) -> None:
        self.membership._step(self._member)

    def step_until(self, is_reached: Callable[[], object]) -> None:
        for _ in range(STEPS_MAX):
            if is_reached():
                return
            self.step()
        raise AssertionError(f"not reached in {STEPS_MAX} steps")

    def is_joining(self) -> bool:
        ask = self.membership._link.in_flight
        return ask is not None and ask.api is ApiKey.JOIN_GROUP

    def lost_count(self) -> int:
        return RequestMeter.snapshot([self.membership.meter]).connections_lost_count


def ends_of_connections(caplog: pytest.LogCaptureFixture) -> list[object]:
    found = [vars(record).get("ottla_event") for record in caplog.records]
    return [event for event in found if event in ("connection.lost", "connection.closed")]


@pytest.mark.parametrize("protocol", [CONSUMER, CLASSIC])
def test_a_connection_whose_coordinator_does_not_answer_is_lost(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "ottla.client")
    shell = Shell(protocol)
    with closing(shell.membership):
        shell.step_until(lambda: ends_of_connections(caplog))
        assert ends_of_connections(caplog) == ["connection.lost"]
        assert shell.lost_count() == 1
        assert "the coordinator of group g did not answer in time" in caplog.text


def test_a_connection_whose_request_a_leaving_member_abandons_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "ottla.client")
    shell = Shell(CLASSIC)
    with closing(shell.membership):
        shell.step_until(shell.is_joining)
        shell.membership.leave()
        shell.step()
        assert ends_of_connections(caplog) == ["connection.closed"]
        assert shell.lost_count() == 0
