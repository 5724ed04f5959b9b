"""Requests that take long get a line in the log."""

from __future__ import annotations

from typing import cast

import pytest

from ottla.broker.net.connection import Connection
from ottla.broker.net.request_meter import SlowRequests
from ottla.protocol.api import ApiKey


class Peer:
    peer_name = "192.0.2.7:4711"
    client_id = "a-client"


CONNECTION = cast("Connection", Peer())


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
    }


@pytest.mark.parametrize(("limit_ms", "lines_count"), [(200, 0), (0, 0), (100, 1)])
def test_request_within_the_limit_gets_no_line(
    caplog: pytest.LogCaptureFixture, limit_ms: int, lines_count: int
) -> None:
    SlowRequests(limit_ms).note(CONNECTION, ApiKey.METADATA, 12, turn=0.2)
    assert len(facts(caplog)) == lines_count
