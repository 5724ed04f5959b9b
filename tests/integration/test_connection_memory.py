"""The memory of connections: as much as arrives while they send, and little again when they are idle."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.api_versions import ApiVersionsRequest
from ottla.protocol.schemas.produce import ProduceResponse
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually
from tests.integration.raw_peer import PRODUCE_VERSION, RawPeer, produce_frame, resident_bytes

CONNECTIONS_COUNT = 500
VALUE_BYTES = 40_000
# 8.8 KB were measured; a buffer of the first size and what Python and the broker keep of a connection.
IDLE_BYTES_MAX = 15_000


def produce_at_once(peers: list[RawPeer], meanwhile: Callable[[], None] = lambda: None) -> None:
    """All requests have nearly arrived before the first one is whole: every connection has a large buffer."""
    frame = produce_frame("t", 1, value=bytes(VALUE_BYTES))
    for peer in peers:
        peer.send(frame[:-1])
    meanwhile()
    for peer in peers:
        peer.send(frame[-1:])
    for peer in peers:
        _, produced = peer.answer(ApiKey.PRODUCE, PRODUCE_VERSION)
        assert isinstance(produced, ProduceResponse)
        assert produced.responses[0].partition_responses[0].error_code == 0


def test_connections_that_were_busy_release_their_buffers_when_they_are_idle() -> None:
    with RunningBroker() as broker, ExitStack() as connections:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("t", configs={"retention.ms": "-1"})
        with RawPeer(broker) as peer:
            produce_at_once([peer])
        before_bytes = resident_bytes(broker)

        def connect() -> list[RawPeer]:
            return [connections.enter_context(RawPeer(broker)) for _ in range(CONNECTIONS_COUNT)]

        def connect_more() -> None:
            """Their memory is above the buffers in use, so that the C library cannot shrink its heap."""
            for peer in connect():
                peer.ask(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
                peer.answer(ApiKey.API_VERSIONS, 0)

        produce_at_once(connect(), connect_more)
        eventually(lambda: resident_bytes(broker) - before_bytes < 2 * CONNECTIONS_COUNT * IDLE_BYTES_MAX)
