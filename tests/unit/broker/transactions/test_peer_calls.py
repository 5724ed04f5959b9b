"""Calls to other brokers: what leaves together, what waits, and what becomes of calls that are not answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from typing_extensions import Buffer

from ottla.broker.replicas.peer_connection import PeerError, PeerTimedOut, PeerUnreachable
from ottla.broker.transactions.peer_calls import PeerApi, PeerCalls
from ottla.broker.transactions.verifier import (
    VERIFICATION_VERSION,
    PeerVerification,
    on_not_verified,
    on_verified,
    verification_request,
)
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import decode_request, encode_response
from ottla.protocol.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from ottla.transactions.commands import AddPartitions

NONE = ErrorCode.NONE
OTHER = NodeId(2)
TP = TopicPartition("t", 0)
TIMEOUT_MS = 700
# Of the loop: each step of a call needs one or two.
TURNS_COUNT = 10


class FakeConnection:
    """A call waits until the test answers it."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.timeout_ms = 0
        self.is_closed = False
        self._answer: asyncio.Future[bytes] | None = None

    async def call(self, api: ApiKey, version: int, body: Buffer, timeout_ms: int) -> memoryview:
        assert self._answer is None, "one request at a time"
        assert not self.is_closed
        request = decode_request(api, version, body)
        assert isinstance(request, AddPartitionsToTxnRequest)
        self.names, self.timeout_ms = [each.transactional_id for each in request.transactions], timeout_ms
        self._answer = asyncio.get_running_loop().create_future()
        try:
            return memoryview(await self._answer)
        finally:
            self._answer = None

    def close(self) -> None:
        self.is_closed = True

    @property
    def waits(self) -> bool:
        return self._answer is not None

    async def answer(self, error: ErrorCode = NONE) -> None:
        of_partition = [AddPartitionsToTxnPartitionResult(TP.partition, error)]
        of_topic = [AddPartitionsToTxnTopicResult(TP.topic, of_partition)]
        response = AddPartitionsToTxnResponse(
            results_by_transaction=[AddPartitionsToTxnResult(name, of_topic) for name in self.names]
        )
        await self.answer_bytes(bytes(encode_response(ApiKey.ADD_PARTITIONS_TO_TXN, VERIFICATION_VERSION, response)))

    async def answer_bytes(self, body: bytes) -> None:
        assert self._answer is not None
        self._answer.set_result(body)
        await turns()

    async def fail(self, error: Exception) -> None:
        assert self._answer is not None
        self._answer.set_exception(error)
        await turns()


class OtherBrokers:
    """`Peers`, and the calls to them."""

    def __init__(self, connections_max: int = 1) -> None:
        self.connections: list[FakeConnection] = []
        self.refusal: PeerError | None = None
        self.replies: dict[str, list[ErrorCode]] = {}
        api = PeerApi[PeerVerification](
            ApiKey.ADD_PARTITIONS_TO_TXN,
            VERIFICATION_VERSION,
            connections_max,
            TIMEOUT_MS,
            lambda item: item.wanted.transactional_id,
            verification_request,
            on_verified,
            on_not_verified,
        )
        self.calls = PeerCalls(self, asyncio.get_running_loop(), api)

    async def connect(self, node_id: NodeId, api: ApiKey, version: int) -> FakeConnection:
        assert (node_id, api, version) == (OTHER, ApiKey.ADD_PARTITIONS_TO_TXN, VERIFICATION_VERSION)
        if self.refusal is not None:
            raise self.refusal
        self.connections.append(FakeConnection())
        return self.connections[-1]

    async def send(self, *names: str) -> None:
        for name in names:
            wanted = AddPartitions(name, 7, 0, frozenset([TP]))
            self.calls.send(OTHER, PeerVerification(wanted, self._reply_to(name)))
        await turns()

    def _reply_to(self, name: str) -> Callable[[ErrorCode], None]:
        return self.replies.setdefault(name, []).append

    def sent(self) -> Sequence[list[str]]:
        """The names in the request of each connection that waits for its answer."""
        return [each.names for each in self.connections if each.waits]


async def turns() -> None:
    for _ in range(TURNS_COUNT):
        await asyncio.sleep(0)


async def test_what_comes_during_a_call_leaves_together_on_the_same_connection() -> None:
    others = OtherBrokers()
    await others.send("a")
    await others.send("b")
    await others.send("c")
    assert others.sent() == [["a"]]
    [connection] = others.connections
    await connection.answer()
    assert others.replies["a"] == [NONE]
    assert others.sent() == [["b", "c"]]
    await connection.answer(ErrorCode.INVALID_TXN_STATE)
    assert others.replies == {"a": [NONE], "b": [ErrorCode.INVALID_TXN_STATE], "c": [ErrorCode.INVALID_TXN_STATE]}
    await others.calls.stop()


async def test_second_connection_is_opened_up_to_the_most() -> None:
    others = OtherBrokers(connections_max=2)
    for name in ("a", "b", "c"):
        await others.send(name)
    assert others.sent() == [["a"], ["b"]]
    await others.connections[1].answer()
    assert others.sent() == [["a"], ["c"]]
    await others.calls.stop()


async def test_item_waits_for_the_answer_to_another_with_its_key_though_a_connection_is_free() -> None:
    others = OtherBrokers(connections_max=2)
    await others.send("a")
    await others.send("a", "b")
    assert others.sent() == [["a"], ["b"]]
    await others.connections[1].answer()
    assert others.sent() == [["a"]]
    await others.connections[0].answer()
    assert others.sent() == [["a"]]
    assert others.replies["a"] == [NONE]
    await others.connections[0].answer(ErrorCode.INVALID_TXN_STATE)
    assert others.replies["a"] == [NONE, ErrorCode.INVALID_TXN_STATE]
    await others.calls.stop()


async def test_call_that_is_not_answered_in_time_fails_and_the_next_one_has_another_connection() -> None:
    others = OtherBrokers()
    await others.send("a")
    [first] = others.connections
    assert first.timeout_ms == TIMEOUT_MS
    await others.send("b")
    await first.fail(PeerTimedOut("no answer"))
    assert first.is_closed
    assert others.replies["a"] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert others.replies["b"] == []
    second = others.connections[1]
    assert second.names == ["b"]
    await second.answer()
    assert others.replies["b"] == [NONE]
    assert not second.is_closed
    await others.calls.stop()


async def test_response_that_cannot_be_read_closes_its_connection() -> None:
    others = OtherBrokers()
    await others.send("a")
    [connection] = others.connections
    await connection.answer_bytes(b"\xff")
    assert connection.is_closed
    assert others.replies["a"] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    await others.calls.stop()


async def test_each_item_for_a_broker_that_is_not_reached_fails_and_later_ones_connect_again() -> None:
    others = OtherBrokers()
    others.refusal = PeerUnreachable("no route")
    await others.send("a", "b")
    unavailable = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert others.replies == {"a": unavailable, "b": unavailable}
    others.refusal = None
    await others.send("a")
    await others.connections[0].answer()
    assert others.replies["a"] == [*unavailable, NONE]
    await others.calls.stop()


async def test_stop_closes_all_connections_and_sends_nothing_more() -> None:
    others = OtherBrokers(connections_max=2)
    await others.send("a")
    await others.send("b")
    idle, busy = others.connections
    await idle.answer()
    await others.calls.stop()
    assert idle.is_closed
    assert busy.is_closed
    await others.send("c")
    assert len(others.connections) == 2
    assert others.replies == {"a": [NONE], "b": [], "c": []}
