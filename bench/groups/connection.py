"""One asyncio connection that keeps many requests in flight; bodies are made and read by `requests.py`."""

from __future__ import annotations

import asyncio
import struct
from typing import Final, cast

from bench.wire import ANSWER_BYTES_MAX, BrokerRefused, Reader, text_field

CLIENT_ID: Final = text_field("bench")
TIMEOUT_S: Final = 120
# The flexible header ends with a count of tagged fields: none.
NO_TAGS: Final = b"\x00"


class Connection(asyncio.Protocol):
    """Answers find their request by correlation id.  A lost connection fails what is in flight with BrokerRefused."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._next_id = 0
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    @classmethod
    async def open(cls, port: int, host: str = "127.0.0.1") -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(cls, host, port)
        return connection

    async def ask(self, api: tuple[int, int], body: bytes, is_flexible: bool = False) -> Reader:
        """Send one request (key, version) and give its answer from behind the header."""
        # Not wait_for: in Python 3.11 it loses a cancellation that comes together with the answer.
        async with asyncio.timeout(TIMEOUT_S):
            answer = Reader(await self.send(api, body, is_flexible))
        answer.integer("i")
        if is_flexible:
            answer.integer("b")  # no tagged fields
        return answer

    def send(self, api: tuple[int, int], body: bytes, is_flexible: bool = False) -> asyncio.Future[bytes]:
        """The answer will come whole, its header first."""
        if self._transport is None or self._transport.is_closing():
            raise BrokerRefused("the connection is closed")
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        head = struct.pack(">hhi", *api, self._next_id) + CLIENT_ID + (NO_TAGS if is_flexible else b"")
        future = asyncio.get_running_loop().create_future()
        self._waiting[self._next_id] = future
        self._transport.write(struct.pack(">i", len(head) + len(body)) + head + body)
        return future

    def close(self) -> None:
        """At once, without a word to the broker."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= 4:
            size_bytes = int.from_bytes(received[:4], "big")
            if not 4 <= size_bytes <= ANSWER_BYTES_MAX:
                self.close()
                return
            if len(received) < 4 + size_bytes:
                return
            answer = bytes(received[4 : 4 + size_bytes])
            del received[: 4 + size_bytes]
            future = self._waiting.pop(int.from_bytes(answer[:4], "big"), None)
            if future is not None and not future.done():
                future.set_result(answer)

    def connection_lost(self, problem: Exception | None) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(BrokerRefused(f"the broker closed the connection: {problem}"))
        self._waiting.clear()
