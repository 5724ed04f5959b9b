"""Requests about groups without a task: answered at once, later, or never because the client has gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from ottla.broker.callback_requests import CallbackRequests
from ottla.broker.net.connection import ANONYMOUS, Answer, Connection
from ottla.broker.net.ready_connections import ReadyConnections
from ottla.groups.commands import DescribeGroup
from ottla.groups.replies import DescribedGroup
from ottla.model.errors import WireError
from ottla.model.identifiers import OFFSETS_TOPIC
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import read_request_header, read_response_header, request_frame
from ottla.protocol.messages import decode_response, encode_request
from ottla.protocol.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tests.unit.broker.handlers.small_broker import SmallBroker

JOIN = JoinGroupRequest("g", 10_000, 20_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"m")])


class Client:
    """The part of a connection that these calls use."""

    peer_name = "192.0.2.7:4711"
    local_address = ("ottla.example", 9092)
    principal, listener_name, access, quotas = ANONYMOUS, "PLAINTEXT", None, None
    number = 0

    def __init__(self) -> None:
        self.is_closed = False
        self.closed_reason = ""
        self.answered: list[bytes] = []
        self.parked: Answer | None = None

    def answer_now(self, data: bytes) -> None:
        self.answered.append(data)

    def park(self, *, exclusive: bool) -> Answer:
        assert exclusive, "nothing may start behind a request that waits"
        self.parked = Answer(cast("Connection", self))
        return self.parked

    def watch_close(self, on_close: Callable[[], None]) -> None:
        """These tests close no connection that is watched."""

    def unwatch_close(self) -> None:
        """See `watch_close`."""

    def close(self, reason: str) -> None:
        self.is_closed = True
        self.closed_reason = reason


class Ready:
    def __init__(self) -> None:
        self.added: list[object] = []

    def add(self, connection: object) -> None:
        self.added.append(connection)


class Calls:
    """A client before a broker whose first generation comes after 500 ms."""

    def __init__(self) -> None:
        self.broker = SmallBroker(group_initial_rebalance_delay_ms="500")
        self.broker.add_topic(OFFSETS_TOPIC)
        self.client = Client()
        self.ready = Ready()
        self._calls = CallbackRequests(self.broker, cast("ReadyConnections", self.ready))

    def ask(self, api: ApiKey, version: int, request: object) -> None:
        frame = request_frame(api, version, 77, "a-client", encode_request(api, version, request))
        header = read_request_header(frame, 4, len(frame))
        self._calls.handle(header, frame[header.body_position :], cast("Connection", self.client))

    def let_time_pass(self, duration_ms: int) -> None:
        self.broker.clock.advance(duration_ms)
        self.broker.loop.advance(duration_ms / 1000)


def read(api: ApiKey, version: int, frame: object) -> object:
    assert isinstance(frame, bytes)
    correlation_id, position = read_response_header(api, version, frame, 4, len(frame))
    assert correlation_id == 77
    return decode_response(api, version, frame[position:])


def test_answer_that_is_known_leaves_at_once() -> None:
    calls = Calls()
    calls.ask(ApiKey.HEARTBEAT, 4, HeartbeatRequest("g", 1, "m"))
    (frame,) = calls.client.answered
    assert read(ApiKey.HEARTBEAT, 4, frame) == HeartbeatResponse(error_code=25)
    assert calls.client.parked is None


def test_request_that_waits_is_parked_and_answered_later() -> None:
    calls = Calls()
    calls.ask(ApiKey.JOIN_GROUP, 3, JOIN)
    parked = calls.client.parked
    assert parked is not None
    assert calls.ready.added == []
    calls.let_time_pass(600)
    assert parked.pieces is not None
    joined = read(ApiKey.JOIN_GROUP, 3, parked.pieces[0])
    assert isinstance(joined, JoinGroupResponse)
    assert joined.generation_id == 1
    assert calls.ready.added == [calls.client]


def test_client_that_left_while_it_was_parked_is_forgotten() -> None:
    calls = Calls()
    calls.ask(ApiKey.JOIN_GROUP, 3, JOIN)
    calls.client.close("the peer closed")
    calls.let_time_pass(600)
    assert calls.client.parked is not None
    assert calls.client.parked.pieces is None
    assert calls.ready.added == []


def test_members_are_shown_to_come_from_where_they_came() -> None:
    calls = Calls()
    calls.ask(ApiKey.JOIN_GROUP, 3, JOIN)
    calls.let_time_pass(600)
    described: list[DescribedGroup] = []
    calls.broker.groups.submit("g", DescribeGroup("g"), described.append)
    assert [member.client_host for group in described for member in group.members] == ["/192.0.2.7"]


def test_answer_that_cannot_be_written_closes_its_connection_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> bytes:
        raise ValueError("a bug")

    calls = Calls()
    calls.ask(ApiKey.JOIN_GROUP, 3, JOIN)
    with monkeypatch.context() as patch:
        patch.setattr("ottla.broker.callback_requests.encode_response", broken)
        calls.let_time_pass(600)
    assert calls.client.closed_reason == "the request failed inside the broker"


def test_body_that_is_not_of_its_version_is_refused() -> None:
    calls = Calls()
    frame = request_frame(ApiKey.HEARTBEAT, 4, 77, "a-client", b"\x7f")
    header = read_request_header(frame, 4, len(frame))
    with pytest.raises(WireError):
        CallbackRequests(calls.broker, cast("ReadyConnections", calls.ready)).handle(
            header, frame[header.body_position :], cast("Connection", calls.client)
        )
