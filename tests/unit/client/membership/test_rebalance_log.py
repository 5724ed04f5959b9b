"""What is logged of a group: rebalances from their first event to their end, and what one waits for."""

from __future__ import annotations

import logging

import pytest

from ottla.client.membership.membership import Failed
from ottla.client.membership.rebalance_log import RebalanceLog
from ottla.client.wire.errors import BrokerUnreachable
from ottla.consumers.effects import Blocked, Left, Lost, Released, Revoke, Settled, Start
from ottla.consumers.partition_nodes import ClaimId
from ottla.consumers.share import StreamId
from ottla.model.identifiers import TopicPartition
from ottla.testing.fake_clock import FakeClock

CLAIM = ClaimId(7, 1)


def start(number: int) -> Start:
    return Start(TopicPartition("t", number), StreamId("c", 0), 0, CLAIM, 0)


def test_a_rebalance_is_logged_at_its_start_and_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottla.client.group")
    clock = FakeClock()
    log = RebalanceLog("g", clock)
    log.on_events([start(0), start(1)])
    clock.advance(40)
    log.on_events([Settled()])
    assert caplog.messages == [
        "a rebalance of group g starts",
        "a rebalance of group g ended after 40 ms: 2 partitions, 2 more and 0 fewer than before",
    ]
    ended = vars(caplog.records[-1])
    assert ended["ottla_event"] == "rebalance.ended"
    assert ended["ottla_facts"]["gained_count"] == 2


def test_a_partition_that_comes_back_is_neither_gained_nor_lost(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottla.client.group")
    log = RebalanceLog("g", FakeClock())
    log.on_events([start(0), start(1), Settled()])
    caplog.clear()
    log.on_events([Revoke(TopicPartition("t", 0), CLAIM), Revoke(TopicPartition("t", 1), CLAIM)])
    log.on_events([Released(TopicPartition("t", 0), CLAIM, 5), Lost(TopicPartition("t", 1), CLAIM)])
    log.on_events([start(0), Settled()])
    assert caplog.messages == [
        "a rebalance of group g starts",
        "a rebalance of group g ended after 0 ms: 1 partitions, 0 more and 1 fewer than before",
    ]


def test_the_end_of_nothing_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "ottla.client.group")
    RebalanceLog("g", FakeClock()).on_events([Settled()])
    assert caplog.messages == []


def test_a_broker_that_is_down_is_named_once_and_not_as_a_rebalance(caplog: pytest.LogCaptureFixture) -> None:
    log = RebalanceLog("g", FakeClock())
    down = Blocked("group g: cannot connect to 127.0.0.1:9092: Connection refused")
    log.on_events([down, down])
    log.on_events([Blocked("t-0 is held by another")])
    assert caplog.messages == [
        "the consumer of group g waits: group g: cannot connect to 127.0.0.1:9092: Connection refused",
        "the consumer of group g waits: t-0 is held by another",
    ]
    caplog.clear()
    log.on_events([Settled(), down])
    assert len(caplog.messages) == 1


def test_texts_of_peers_stay_on_their_line(caplog: pytest.LogCaptureFixture) -> None:
    RebalanceLog("g\n", FakeClock()).on_events([Failed(BrokerUnreachable("a\x1b[2Jb"))])
    [message] = caplog.messages
    assert message == "the consumer cannot stay in group g\\n: a\\x1b[2Jb"


def test_the_end_of_a_membership_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottla.client.group")
    RebalanceLog("g", FakeClock()).on_events([Left()])
    assert caplog.messages == ["left group g"]
