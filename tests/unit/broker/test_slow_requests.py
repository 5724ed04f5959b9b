"""Requests that take long get a line in the log, not more than one a second."""

from __future__ import annotations

from typing import cast

import pytest

from ottla.broker.connection import Connection
from ottla.broker.slow_requests import REPORT_EVERY_S, SlowRequests
from ottla.protocol.api import ApiKey


class Peer:
    peer_name = "192.0.2.7:4711"
    client_id = "a-client"


CONNECTION = cast("Connection", Peer())


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0


def facts(record: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [dict(each.__dict__["ottla_facts"]) for each in record.records if each.getMessage() == "request.slow"]


def test_slow_request_says_where_its_time_went(caplog: pytest.LogCaptureFixture) -> None:
    SlowRequests(200).note(CONNECTION, ApiKey.CREATE_TOPICS, 7, read=0.001, work=0.25, write=0.002)
    (found,) = facts(caplog)
    assert found == {
        "api": "CREATE_TOPICS",
        "version": 7,
        "peer": "192.0.2.7:4711",
        "client_id": "a-client",
        "took_ms": 253,
        "read_ms": 1,
        "work_ms": 250,
        "write_ms": 2,
        "left_out_count": 0,
    }


@pytest.mark.parametrize(("limit_ms", "lines_count"), [(200, 0), (0, 0), (100, 1)])
def test_request_within_the_limit_gets_no_line(
    caplog: pytest.LogCaptureFixture, limit_ms: int, lines_count: int
) -> None:
    SlowRequests(limit_ms).note(CONNECTION, ApiKey.METADATA, 12, turn=0.2)
    assert len(facts(caplog)) == lines_count


def test_lines_are_few_and_say_how_many_were_left_out(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    slow = SlowRequests(200, lambda: clock.now_s)
    for _ in range(5):
        slow.note(CONNECTION, ApiKey.PRODUCE, 9, flush=0.3)
    clock.now_s += REPORT_EVERY_S
    slow.note(CONNECTION, 999, 9, flush=0.3)
    assert [(each["api"], each["left_out_count"]) for each in facts(caplog)] == [("PRODUCE", 0), (999, 4)]
