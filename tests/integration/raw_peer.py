"""A peer made of one socket: the test decides which bytes it sends, well formed or not, and when it reads."""

from __future__ import annotations

import os
import socket
import struct
from types import TracebackType
from typing import Self

from ottla.client.wire.address import Address
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import read_response_header, request_frame
from ottla.protocol.messages import decode_response, encode_request
from ottla.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.builder import BatchBuilder
from ottla.testing.broker import RunningBroker

TIMEOUT_S = 120.0
# As the kernel's table of connections writes them.
ESTABLISHED, CLOSE_WAIT = "01", "08"
PRODUCE_VERSION, FETCH_VERSION = 9, 11


class RawPeer:
    """Blocking; every wait ends with an error after `TIMEOUT_S`."""

    def __init__(
        self,
        broker: RunningBroker | Address,
        *,
        receive_buffer_bytes: int | None = None,
        source_host: str | None = None,
    ) -> None:
        """`source_host`: the address of this machine that the broker sees."""
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(TIMEOUT_S)
        try:
            if source_host is not None:
                self.socket.bind((source_host, 0))
            self.socket.connect((broker.host, broker.port))
        except OSError:
            self.socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(self, api: ApiKey, version: int, request: object, correlation_id: int = 1) -> None:
        self.send(request_frame(api, version, correlation_id, "raw", encode_request(api, version, request)))

    def frame(self) -> bytes | None:
        """The next whole response without its length prefix, None when the broker has closed the connection."""
        head = self._exactly(4)
        return None if head is None else self._exactly(struct.unpack(">i", head)[0])

    def answer(self, api: ApiKey, version: int) -> tuple[int, object]:
        """(correlation id, response)."""
        frame = self.frame()
        assert frame is not None, "the broker closed the connection"
        correlation_id, position = read_response_header(api, version, frame, 0, len(frame))
        return correlation_id, decode_response(api, version, frame[position:])

    def is_closed_by_broker(self) -> bool:
        """Wait for the end of the connection; whether no byte came before it."""
        return self.frame() is None

    def _exactly(self, size_bytes: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < size_bytes:
            try:
                part = self.socket.recv(min(size_bytes - len(parts), 1 << 20))
            except ConnectionError:
                return None
            if not part:
                return None
            parts += part
        return bytes(parts)


def produce_frame(topic: str, correlation_id: int, *, acks: int = -1, value: bytes = b"v", index: int = 0) -> bytes:
    builder = BatchBuilder()
    builder.append(1_767_225_600_000, None, value)
    partition = PartitionProduceData(index, bytes(builder.build()))
    request = ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=[TopicProduceData(topic, [partition])])
    body = encode_request(ApiKey.PRODUCE, PRODUCE_VERSION, request)
    return request_frame(ApiKey.PRODUCE, PRODUCE_VERSION, correlation_id, "raw", body)


def fetch_request(topic: str, offset: int, *, max_wait_ms: int, min_bytes: int = 1) -> FetchRequest:
    partition = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 30)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 30,
        topics=[FetchTopic(topic, partitions=[partition])],
    )


def resident_bytes(broker: RunningBroker) -> int:
    """The memory of the broker's process without mapped files."""
    with open(f"/proc/{broker.pid}/status", encoding="ascii") as status:
        rows = dict(line.split(":", 1) for line in status)
    return int(rows["RssAnon"].split()[0]) * 1024


def connections_count(broker: RunningBroker) -> int:
    """Connections that the broker has not closed, including those that the peer has closed."""
    with open("/proc/net/tcp", encoding="ascii") as table:
        rows = [line.split() for line in table][1:]
    states = [row[3] for row in rows if int(row[1].rpartition(":")[2], 16) == broker.port]
    return states.count(ESTABLISHED) + states.count(CLOSE_WAIT)


def open_files(broker: RunningBroker) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))
