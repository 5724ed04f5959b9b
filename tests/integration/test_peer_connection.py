"""A connection from one broker to another, against a peer of the test and against a real broker."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from ottla.broker.replicas.elector import RemoteLogs
from ottla.broker.replicas.peer_connection import (
    PeerAddress,
    PeerConnection,
    PeerError,
    PeerLost,
    PeerRefused,
    PeerTimedOut,
    PeerUnreachable,
)
from ottla.model.error_code import ErrorCode
from ottla.model.errors import WireError
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import read_request_header, response_frame
from ottla.protocol.messages import encode_response
from ottla.protocol.replica_fetch import REPLICA_FETCH_VERSION
from ottla.protocol.schemas.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.schemas.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.runtime.event_loop import run
from ottla.testing.broker import RunningBroker

MIB = 1 << 20
# Long enough to never pass in a test that does not wait for it.
LONG_MS = 60_000
FETCH = ApiKey.FETCH

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[PeerAddress]:
    """A peer that serves each connection by `serve`."""

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the test's end has closed
        finally:
            writer.close()

    server = await asyncio.start_server(served, "127.0.0.1", 0, limit=64 * MIB)
    try:
        yield PeerAddress(*server.sockets[0].getsockname()[:2])
    finally:
        server.close()


async def request_of(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The next request's correlation id and body."""
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    frame = await reader.readexactly(length)
    header = read_request_header(frame, 0, length)
    return header.correlation_id, frame[header.body_position :]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every request with its own body."""
    while True:
        correlation_id, body = await request_of(reader)
        writer.write(response_frame(FETCH, REPLICA_FETCH_VERSION, correlation_id, body))
        await writer.drain()


async def opened(address: PeerAddress, response_bytes_max: int = 64 * MIB) -> PeerConnection:
    return await PeerConnection.open(address, "follower", timeout_ms=LONG_MS, response_bytes_max=response_bytes_max)


async def call(peer: PeerConnection, body: bytes = b"", timeout_ms: int = LONG_MS) -> memoryview:
    return await peer.call(FETCH, REPLICA_FETCH_VERSION, body, timeout_ms)


def test_responses_of_every_size_come_back_one_after_another() -> None:
    async def exchange() -> None:
        async with listening(echo) as address:
            peer = await opened(address)
            for size in (0, 1, 65_531, 65_532, 100_000, 5 * MIB, 3, 5 * MIB, 5 * MIB, 10):
                body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
                assert bytes(await call(peer, body)) == body
            peer.close()

    run(exchange())


def test_large_buffer_is_released_after_a_small_response_and_its_views_stay() -> None:
    async def exchange() -> None:
        async with listening(echo) as address:
            peer = await opened(address)
            large = await call(peer, b"y" * 5 * MIB)
            assert len(peer._buffer) > 5 * MIB
            await call(peer, b"small")
            await call(peer, b"small")
            assert len(peer._buffer) < MIB
            assert bytes(large[-3:]) == b"yyy"
            peer.close()

    run(exchange())


def test_address_without_a_listener_refuses() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = PeerAddress(*unused.getsockname())
        with pytest.raises(PeerRefused, match=f"{address} refused the connection"):
            run(opened(address))


def test_unknown_host_name_is_unreachable() -> None:
    with pytest.raises(PeerUnreachable, match="no-such-host"):
        run(opened(PeerAddress("no-such-host.invalid", 9092)))


def test_peer_that_accepts_nothing_is_unreachable_in_time() -> None:
    # A listener whose queue is full: the kernel drops further connection attempts.
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        address = PeerAddress(*listener.getsockname())
        with pytest.raises(PeerUnreachable, match="did not accept a connection in 50 ms"):
            run(PeerConnection.open(address, "follower", timeout_ms=50, response_bytes_max=MIB))


@pytest.mark.parametrize("sent", [b"", b"\0\0", struct.pack(">ii", 100, 1) + b"a part"])
def test_peer_that_closes_before_it_answered_is_lost(sent: bytes) -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(sent)

    async def exchange() -> None:
        async with listening(close) as address:
            peer = await opened(address)
            with pytest.raises(PeerLost):
                await call(peer)
            assert peer.is_closed

    run(exchange())


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


def test_peer_that_does_not_answer_ends_the_call_in_time() -> None:
    async def exchange() -> None:
        async with listening(silent) as address:
            peer = await opened(address)
            with pytest.raises(PeerTimedOut, match="FETCH in 30 ms"):
                await call(peer, timeout_ms=30)
            assert peer.is_closed

    run(exchange())


def test_interrupt_ends_only_a_call_under_way() -> None:
    async def exchange() -> None:
        asked = asyncio.Event()

        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            correlation_id, _ = await request_of(reader)
            writer.write(response_frame(FETCH, REPLICA_FETCH_VERSION, correlation_id, b"first"))
            await request_of(reader)
            asked.set()
            await reader.read()

        async with listening(hang) as address:
            peer = await opened(address)
            peer.interrupt()
            assert bytes(await call(peer)) == b"first"
            peer.interrupt()
            calling = asyncio.ensure_future(call(peer))
            await asked.wait()
            peer.interrupt()
            peer.interrupt()
            with pytest.raises(PeerTimedOut):
                await calling
            assert peer.is_closed
            peer.interrupt()

    run(exchange())


def test_cancelled_call_closes_the_connection() -> None:
    async def exchange() -> None:
        async with listening(silent) as address:
            peer = await opened(address)
            calling = asyncio.ensure_future(call(peer))
            await asyncio.sleep(0)
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
            assert peer.is_closed

    run(exchange())


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (struct.pack(">ii", MIB + 1, 1), "at most 1048576 are accepted"),
        (struct.pack(">ii", -1, 1), "answers with -1 bytes"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "are accepted"),
        (struct.pack(">iiB", 5, 77, 0), "answered request 77, 1 was sent"),
        (struct.pack(">iiB", 5, 1, 0) + b"more", "4 bytes without a request"),
        (struct.pack(">iiB", 5, 1, 9), "tagged fields"),
    ],
)
def test_bytes_that_are_no_response_close_the_connection(answer: bytes, problem: str) -> None:
    async def lie(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(answer)
        await reader.read()

    async def exchange() -> None:
        async with listening(lie) as address:
            peer = await opened(address, MIB)
            with pytest.raises(WireError, match=problem):
                await call(peer)
            assert peer.is_closed

    run(exchange())


def test_length_alone_takes_no_memory() -> None:
    async def claim(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(struct.pack(">ii", 60 * MIB, 1) + b"z" * 100_000)
        await writer.drain()

    async def exchange() -> None:
        async with listening(claim) as address:
            peer = await opened(address)
            with pytest.raises(PeerLost):
                await call(peer)
            assert len(peer._buffer) < MIB

    run(exchange())


def test_peer_without_the_version_is_refused() -> None:
    async def offer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        correlation_id, _ = await request_of(reader)
        body = encode_response(ApiKey.API_VERSIONS, 3, ApiVersionsResponse(0, [ApiVersion(FETCH, 4, 11)]))
        writer.write(response_frame(ApiKey.API_VERSIONS, 3, correlation_id, body))
        await reader.read()

    async def exchange() -> None:
        async with listening(offer) as address:
            peer = await opened(address)
            with pytest.raises(PeerError, match="does not offer FETCH version 17"):
                await peer.require(FETCH, REPLICA_FETCH_VERSION, LONG_MS)
            assert peer.is_closed

    run(exchange())


def test_broker_offers_the_versions_that_a_follower_requires(ottla_broker: RunningBroker) -> None:
    async def exchange() -> None:
        host, port = ottla_broker.bootstrap.rsplit(":", 1)
        peer = await opened(PeerAddress(host, int(port)))
        await peer.require(FETCH, REPLICA_FETCH_VERSION, LONG_MS)
        assert not peer.is_closed
        peer.close()

    run(exchange())


_LISTED = DescribeLogDirsResult(topics=[DescribeLogDirsTopic("t", [DescribeLogDirsPartition(0)])])


@pytest.mark.parametrize(
    ("response", "usable"),
    [
        (DescribeLogDirsResponse(results=[_LISTED]), frozenset({TopicPartition("t", 0)})),
        (DescribeLogDirsResponse(), frozenset()),
        (DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), None),
    ],
)
def test_broker_that_refuses_to_describe_its_logs_reports_none_as_unusable(
    response: DescribeLogDirsResponse, usable: frozenset[TopicPartition] | None
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        correlation_id, _ = await request_of(reader)
        body = encode_response(ApiKey.DESCRIBE_LOG_DIRS, 4, response)
        writer.write(response_frame(ApiKey.DESCRIBE_LOG_DIRS, 4, correlation_id, body))
        await writer.drain()

    async def look() -> None:
        async with listening(answer) as address:
            logs = RemoteLogs(NodeId(1), lambda node_id: (address.host, address.port))
            wanted = [TopicPartition("t", 0), TopicPartition("t", 1)]
            assert await logs.usable(NodeId(2), wanted, LONG_MS) == usable

    run(look())
