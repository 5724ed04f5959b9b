from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from typing_extensions import Buffer

from ottla.client.wire.address import Address
from ottla.client.wire.connection import Connection, FrameReader
from ottla.client.wire.errors import CallTimedOut, ConnectionLost, ListenerMismatch, UnsupportedByBroker
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.retrying import Deadline
from ottla.model.errors import WireError
from ottla.protocol.api import ApiKey, VersionRange
from ottla.protocol.schemas.metadata import MetadataRequest, MetadataResponse
from ottla.testing.fake_clock import FakeClock
from tests.unit.client.fake_cluster import FakeCluster, Fault

PEAK_RESET = Path("/proc/self/clear_refs")
STATUS = Path("/proc/self/status")


def open_connection(fake: FakeCluster, options: ClientOptions | None = None) -> Connection:
    deadline = Deadline(fake.clock, 1000)
    return Connection.open(fake.brokers[1].address, fake.dial, options or ClientOptions(), fake.clock, deadline)


def ask_metadata(connection: Connection, fake: FakeCluster) -> MetadataResponse:
    return connection.call(ApiKey.METADATA, MetadataRequest(topics=[]), MetadataResponse, Deadline(fake.clock, 1000))


def test_connection_agrees_on_the_highest_version_of_both_sides() -> None:
    fake = FakeCluster()
    fake.brokers[1].versions |= {ApiKey.METADATA: VersionRange(2, 8), ApiKey.FETCH: VersionRange(4, 90)}
    connection = open_connection(fake)
    assert connection.version_of(ApiKey.METADATA) == 8
    assert connection.version_of(ApiKey.FETCH) == 17
    assert connection.version_of(ApiKey.FETCH, at_most=12) == 12
    assert ask_metadata(connection, fake).cluster_id == "fake"
    assert fake.brokers[1].seen[-1] == (ApiKey.METADATA, 8)


@pytest.mark.parametrize("highest", [0, 2, 3])
def test_connection_falls_back_when_the_broker_lacks_our_version_of_api_versions(highest: int) -> None:
    fake = FakeCluster()
    fake.brokers[1].versions[ApiKey.API_VERSIONS] = VersionRange(0, highest)
    connection = open_connection(fake)
    assert fake.brokers[1].seen == [(ApiKey.API_VERSIONS, 4), (ApiKey.API_VERSIONS, highest)]
    assert connection.version_of(ApiKey.METADATA) == 12


def test_connection_says_which_versions_the_broker_has_when_none_is_ours() -> None:
    fake = FakeCluster()
    fake.brokers[1].versions[ApiKey.PRODUCE] = VersionRange(0, 2)
    del fake.brokers[1].versions[ApiKey.DELETE_RECORDS]
    connection = open_connection(fake)
    with pytest.raises(UnsupportedByBroker, match="PRODUCE v0 to v2"):
        connection.version_of(ApiKey.PRODUCE)
    with pytest.raises(UnsupportedByBroker, match="DELETE_RECORDS"):
        connection.version_of(ApiKey.DELETE_RECORDS)
    assert not connection.supports(ApiKey.DELETE_RECORDS)


def test_connection_closes_itself_when_no_answer_comes() -> None:
    fake = FakeCluster()
    connection = open_connection(fake)
    fake.brokers[1].fault_of = lambda api: Fault.SILENCE
    with pytest.raises(CallTimedOut):
        ask_metadata(connection, fake)
    assert not connection.is_open
    assert fake.brokers[1].connections[0].is_closed
    with pytest.raises(ConnectionLost):
        ask_metadata(connection, fake)


@pytest.mark.parametrize("record", [b"\x15\x03\x03\x00\x02\x02\x50", b"\x16\x03\x01\x00\x10" + bytes(16)])
def test_connection_to_a_listener_with_tls_is_a_mismatch(record: bytes) -> None:
    transport = ScriptedTransport(record)
    with pytest.raises(ListenerMismatch, match="speaks TLS") as refused:
        Connection.open(
            Address("tls", 1),
            lambda _: transport,
            ClientOptions(),
            FakeClock(),
            Deadline(FakeClock(), 1000),
        )
    assert "SASL_SSL" in str(refused.value.hint)
    assert transport.is_closed


def test_connection_is_not_trusted_when_it_was_idle_for_long() -> None:
    fake = FakeCluster()
    connection = open_connection(fake)
    assert connection.is_fresh
    fake.clock.advance(ClientOptions().connections_max_idle_ms)
    assert connection.is_open
    assert not connection.is_fresh


class ScriptedTransport:
    """Gives these bytes, in pieces of at most `piece_bytes`."""

    def __init__(self, data: bytes, piece_bytes: int = 1 << 20) -> None:
        self._data = data
        self._piece_bytes = piece_bytes
        self.is_closed = False
        self.asked_bytes = 0

    def send(self, pieces: Sequence[Buffer], deadline: Deadline) -> None:
        pass

    def connect(self, deadline: Deadline) -> None:
        pass

    def connect_wait_ms(self) -> float:
        return math.inf

    def finish_sending(self, deadline: Deadline) -> None:
        pass

    def receive_into(self, buffer: memoryview, deadline: Deadline) -> int:
        part = self._data[: min(len(buffer), self._piece_bytes)]
        if not part:
            raise ConnectionLost("the end")
        buffer[: len(part)] = part
        self._data = self._data[len(part) :]
        return len(part)

    def has_buffered(self) -> bool:
        return False

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (struct.pack(">i", -1), "-1 bytes"),
        (struct.pack(">i", 3), "3 bytes"),
        (struct.pack(">i", 2**31 - 1), "2147483647 bytes"),
        (b"HTTP/1.1 400 Bad Request", "1213486160 bytes"),
        (struct.pack(">ii", 4, 7), "answered request 7, not 0"),
        (struct.pack(">iih", 6, 0, 0), "a varint needs"),
        (struct.pack(">iihi", 10, 0, 0, 2**31 - 1), "cannot"),
    ],
)
def test_connection_closes_itself_when_the_answer_breaks_the_protocol(answer: bytes, what: str) -> None:
    transport, clock = ScriptedTransport(answer), FakeClock()
    address = Address("evil", 1)
    connection = Connection.dial(address, lambda _: transport, ClientOptions(), clock)
    with pytest.raises(ConnectionLost, match="does not answer as a broker") as lost:
        connection.finish_opening(Deadline(clock, 1000))
    assert isinstance(lost.value.__cause__, WireError)
    assert what in str(lost.value)
    assert "is the peer a Kafka broker" in str(lost.value.hint)
    assert transport.is_closed
    assert not connection.is_open


@pytest.mark.parametrize("piece_bytes", [1_000_003, 65_536, 4_099])
def test_frame_reader_cuts_frames_out_of_any_pieces(piece_bytes: int) -> None:
    frames = [b"\x00\x00\x00\x01", b"\x00\x00\x00\x02" + bytes(100), bytes(70_000), bytes(range(256)) * 10_000]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    transport = ScriptedTransport(stream, piece_bytes)
    reader = FrameReader(1 << 24)
    deadline = Deadline(FakeClock(), 1000)
    assert [bytes(reader.read(lambda into: transport.receive_into(into, deadline))) for _ in frames] == frames
    assert not reader.has_buffered


def test_frame_reader_keeps_frames_apart_that_came_together() -> None:
    transport = ScriptedTransport(struct.pack(">i4si4s", 4, b"aaaa", 4, b"bbbb"))
    reader = FrameReader(100)
    deadline = Deadline(FakeClock(), 1000)
    first = reader.read(lambda into: transport.receive_into(into, deadline))
    assert reader.has_buffered
    assert bytes(reader.read(lambda into: transport.receive_into(into, deadline))) == b"bbbb"
    assert bytes(first) == b"aaaa"


@pytest.mark.parametrize("arrived_bytes", [1, 3, 4, 5, 7])
def test_frame_reader_waits_for_the_rest_of_a_length_and_of_a_frame(arrived_bytes: int) -> None:
    pieces = [(struct.pack(">i", 4) + b"aaaa")[:arrived_bytes]]

    def receive_into(buffer: memoryview) -> int:
        if not pieces:
            raise CallTimedOut("nothing came")
        piece = pieces.pop()
        buffer[: len(piece)] = piece
        return len(piece)

    reader = FrameReader(100)
    with pytest.raises(CallTimedOut):
        reader.read(receive_into)
    assert not reader.has_buffered
    pieces.append((struct.pack(">i", 4) + b"aaaa")[arrived_bytes:])
    assert bytes(reader.read(receive_into)) == b"aaaa"


@pytest.mark.skipif(not PEAK_RESET.exists(), reason="resets the process's peak memory by Linux's /proc")
def test_frame_reader_takes_no_memory_for_a_length_alone() -> None:
    transport = ScriptedTransport(struct.pack(">i", 200 << 20) + bytes(1000))
    reader = FrameReader(1 << 30)
    PEAK_RESET.write_text("5")
    before = peak_memory_kib()
    with pytest.raises(ConnectionLost):
        reader.read(lambda into: transport.receive_into(into, Deadline(FakeClock(), 1000)))
    assert peak_memory_kib() - before < 4 * 1024


def peak_memory_kib() -> int:
    (line,) = [line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1])
