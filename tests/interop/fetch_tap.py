"""A relay between clients and a broker that records the sessions of fetch requests, and on which connection each API
came.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import defaultdict
from types import TracebackType
from typing import NamedTuple

from ottla.protocol.api import ApiKey
from ottla.protocol.fetch import read_fetch
from ottla.protocol.frame import read_request_header
from tests.peers.free_ports import find_free_ports


class TappedFetch(NamedTuple):
    """The session of a fetch request, and how many partitions it named."""

    session_id: int
    session_epoch: int
    partitions_count: int


class FetchTap:
    """Listens on `port`; `connect_to` sets the broker's address once it is known."""

    def __init__(self) -> None:
        (self.port,) = find_free_ports(1)
        self.fetches: list[TappedFetch] = []
        # Numbers of connections, in the order of their acceptance, by API.
        self.connections_of: defaultdict[int, set[int]] = defaultdict(set)
        self._accepted_count = 0
        self._target: tuple[str, int] | None = None
        self._listening = socket.create_server(("127.0.0.1", self.port))
        self._open: set[socket.socket] = {self._listening}
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def __enter__(self) -> FetchTap:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in list(self._open):
            # A close alone does not wake a thread that waits in the socket.
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in list(self._threads):
            thread.join(10)
        for each in self._open:
            each.close()

    def connect_to(self, host: str, port: int) -> None:
        self._target = (host, port)

    def _start(self, run: object, *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)  # type: ignore[arg-type]  # replaced
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            assert self._target is not None
            broker = socket.create_connection(self._target)
            self._open |= {client, broker}
            self._accepted_count += 1
            self._start(self._pass_requests, client, broker, self._accepted_count)
            self._start(self._pass_answers, broker, client)

    def _pass_requests(self, client: socket.socket, broker: socket.socket, connection: int) -> None:
        pending = b""
        while data := _receive(client):
            broker.sendall(data)
            pending += data
            while len(pending) >= 4 and len(pending) >= 4 + (length := struct.unpack(">i", pending[:4])[0]):
                self._note(pending[4 : 4 + length], connection)
                pending = pending[4 + length :]
        _end(broker)

    def _pass_answers(self, broker: socket.socket, client: socket.socket) -> None:
        while data := _receive(broker):
            client.sendall(data)
        _end(client)

    def _note(self, frame: bytes, connection: int) -> None:
        (api,) = struct.unpack_from(">h", frame)
        self.connections_of[api].add(connection)
        if api != ApiKey.FETCH:
            return
        header = read_request_header(memoryview(frame), 0, len(frame))
        request = read_fetch(memoryview(frame), header.body_position, len(frame), header.api_version)
        count = sum(len(wanted) for _, wanted in request.topics)
        self.fetches.append(TappedFetch(request.session_id, request.session_epoch, count))


def _receive(peer: socket.socket) -> bytes:
    try:
        return peer.recv(1 << 16)
    except OSError:
        return b""


def _end(peer: socket.socket) -> None:
    try:
        peer.shutdown(socket.SHUT_WR)
    except OSError:
        return
