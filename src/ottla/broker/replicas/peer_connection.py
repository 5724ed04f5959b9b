"""A connection of this broker's own to another broker: one request at a time, and its response in a buffer that is
reused.

The client package has its own connections, which block; this one belongs to the event loop.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Final, NamedTuple

from typing_extensions import Buffer

from ottla.broker.net.limits import MIB
from ottla.model.errors import OttlaError, WireError
from ottla.model.listener import address_text
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import LENGTH_PREFIX, RESPONSE_HEAD, read_response_header, request_frame
from ottla.protocol.messages import decode_response, encode_request
from ottla.protocol.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse

_BUFFER_BYTES: Final = 64 * 1024
# A larger buffer is released when a response fits the first size again.
_BUFFER_KEPT_BYTES: Final = 2 * MIB
_CORRELATION_ID_MAX: Final = 2**31 - 1
_SOFTWARE: Final = "ottla"


class PeerAddress(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return address_text(self.host, self.port)


class PeerError(OttlaError):
    """Another broker was not reached, or gave no usable answer; the connection is closed."""


class PeerRefused(PeerError):
    """No process listens at the address: on a machine that answers, the broker's process is gone."""


class PeerUnreachable(PeerError):
    """No connection: no route, no such name, or no answer in time."""


class PeerLost(PeerError):
    """The connection broke: reset or closed by the peer."""


class PeerTimedOut(PeerError):
    """The peer did not answer in time."""


class PeerConnection:
    """An open connection.  After any error, also a cancelled call, it is closed.

    Memory follows the bytes that came, not the length that a response claims; above `response_bytes_max` it is refused.
    """

    def __init__(self, connected: socket.socket, address: PeerAddress, client_id: str, response_bytes_max: int) -> None:
        self._socket = connected
        self._address = address
        self._client_id = client_id
        self._response_bytes_max = response_bytes_max
        self._correlation_id = 0
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._last_frame_bytes = 0
        self._loop = asyncio.get_running_loop()
        # Kept from call to call: the loop's own receive makes a watcher for each, 11 us of a short round trip.
        self._is_watched = False
        # Of the call under way.
        self._readable: asyncio.Future[None] | None = None
        self._is_expired = False
        self.is_closed = False

    @classmethod
    async def open(
        cls, address: PeerAddress, client_id: str, *, timeout_ms: int, response_bytes_max: int
    ) -> PeerConnection:
        """Connect to the first of the host's addresses that answers."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                connected = await _connect(address)
        except TimeoutError:
            raise PeerUnreachable(f"{address} did not accept a connection in {timeout_ms} ms") from None
        except ConnectionRefusedError:
            raise PeerRefused(f"{address} refused the connection") from None
        except OSError as error:
            raise PeerUnreachable(f"cannot connect to {address}: {error.strerror or error}") from error
        return cls(connected, address, client_id, response_bytes_max)

    async def require(self, api: ApiKey, version: int, timeout_ms: int) -> None:
        """Ask for the peer's versions; raises `PeerError` when it does not offer this one."""
        body = encode_request(ApiKey.API_VERSIONS, 3, ApiVersionsRequest(_SOFTWARE, "1"))
        answer = await self.call(ApiKey.API_VERSIONS, 3, body, timeout_ms)
        try:
            # A peer that does not know version 3 answers in version 0, which lacks what follows the keys.
            response = decode_response(ApiKey.API_VERSIONS, 3, answer)
        except WireError as error:
            self.close()
            raise PeerError(f"{self._address} does not speak ApiVersions 3: is it a broker?") from error
        assert isinstance(response, ApiVersionsResponse)
        for offered in response.api_keys:
            if offered.api_key == api and offered.min_version <= version <= offered.max_version:
                return
        self.close()
        raise PeerError(
            f"{self._address} does not offer {api.name} version {version}",
            hint="do all brokers of the cluster run a version of Ottla that replicates?",
        )

    async def call(self, api: ApiKey, version: int, body: Buffer, timeout_ms: int) -> memoryview:
        """Send a request; returns its response's body, which is valid until the next call.

        Raises `PeerError`, or `WireError` for bytes that are no response to it.
        """
        assert not self.is_closed
        self._correlation_id = self._correlation_id % _CORRELATION_ID_MAX + 1
        frame = request_frame(api, version, self._correlation_id, self._client_id, body)
        is_done = self._is_expired = False
        expiry = self._loop.call_later(timeout_ms / 1000, self.interrupt)
        try:
            await self._send(frame, timeout_ms)
            end = await self._receive()
            correlation_id, position = read_response_header(api, version, self._view, LENGTH_PREFIX.size, end)
            if correlation_id != self._correlation_id:
                raise WireError(
                    f"{self._address} answered request {correlation_id}, {self._correlation_id} was sent",
                    hint="is the peer a broker?",
                )
            is_done = True
            return self._view[position:end]
        except TimeoutError:
            raise PeerTimedOut(f"{self._address} did not answer {api.name} in {timeout_ms} ms") from None
        except OSError as error:
            raise PeerLost(f"the connection to {self._address} broke: {error.strerror or error}") from error
        finally:
            expiry.cancel()
            if not is_done:
                self.close()

    def interrupt(self) -> None:
        """End the call under way, if there is one, as if its time had passed."""
        self._is_expired = True
        self._end_wait(TimeoutError())

    def close(self) -> None:
        """Close the socket; safe to call twice.  A body that was returned stays as it is."""
        if self.is_closed:
            return
        self.is_closed = True
        self._unwatch()
        self._socket.close()
        self._end_wait(OSError(errno.ECONNABORTED, "it was closed here"))

    async def _send(self, frame: bytes, timeout_ms: int) -> None:
        try:
            sent = self._socket.send(frame)
        except (BlockingIOError, InterruptedError):
            sent = 0
        if sent < len(frame):
            async with asyncio.timeout(timeout_ms / 1000):
                await self._loop.sock_sendall(self._socket, memoryview(frame)[sent:])

    async def _until_readable(self) -> None:
        """Wait for bytes, or the peer's end.  Raises TimeoutError when the call's time has passed."""
        if self._is_expired:
            raise TimeoutError
        if not self._is_watched:
            self._is_watched = True
            self._loop.add_reader(self._socket.fileno(), self._on_readable)
        self._readable = self._loop.create_future()
        try:
            await self._readable
        finally:
            self._readable = None

    def _on_readable(self) -> None:
        waiting = self._readable
        if waiting is None:
            # Between two calls: the next one finds it, and until then it must not turn the loop.
            self._unwatch()
        elif not waiting.done():
            waiting.set_result(None)

    def _unwatch(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._loop.remove_reader(self._socket.fileno())

    def _end_wait(self, failure: OSError) -> None:
        if self._readable is not None and not self._readable.done():
            self._readable.set_exception(failure)

    async def _receive(self) -> int:
        """Receive one whole frame to the start of the buffer; returns its end."""
        if len(self._buffer) > _BUFFER_KEPT_BYTES and self._last_frame_bytes <= _BUFFER_BYTES:
            self._replace_buffer(_BUFFER_BYTES, 0)
        filled, frame_end = 0, LENGTH_PREFIX.size
        await self._until_readable()
        while filled < frame_end:
            if filled == len(self._buffer):
                self._replace_buffer(min(2 * filled, frame_end), filled)
            try:
                received = self._socket.recv_into(self._view[filled:])
            except (BlockingIOError, InterruptedError):
                await self._until_readable()
                continue
            if not received:
                raise OSError(errno.ECONNRESET, "the peer closed it")
            was_known = filled >= LENGTH_PREFIX.size
            filled += received
            if not was_known and filled >= LENGTH_PREFIX.size:
                frame_end = LENGTH_PREFIX.size + self._checked_length()
        if filled > frame_end:
            raise WireError(f"{self._address} sent {filled - frame_end} bytes without a request")
        self._last_frame_bytes = frame_end
        return frame_end

    def _checked_length(self) -> int:
        length: int = LENGTH_PREFIX.unpack_from(self._buffer)[0]
        if not RESPONSE_HEAD.size <= length <= self._response_bytes_max:
            raise WireError(
                f"{self._address} answers with {length} bytes; at most {self._response_bytes_max} are accepted",
                hint="is the peer a broker, and is this a PLAINTEXT port?",
            )
        return length

    def _replace_buffer(self, size_bytes: int, kept_bytes: int) -> None:
        """A new buffer: what was returned before stays a view of the old one."""
        buffer = bytearray(size_bytes)
        buffer[:kept_bytes] = self._view[:kept_bytes]
        self._buffer = buffer
        self._view = memoryview(buffer)


async def _connect(address: PeerAddress) -> socket.socket:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    failure: OSError = OSError(errno.EADDRNOTAVAIL, "the host has no address")
    for family, kind, protocol, _, socket_address in found:
        connecting = socket.socket(family, kind, protocol)
        try:
            connecting.setblocking(False)
            # A request is one send; Nagle's algorithm would only delay it.
            connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connecting.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            await loop.sock_connect(connecting, socket_address)
        except OSError as error:
            connecting.close()
            # A refusal says more than that another address of the host has no route.
            if not isinstance(failure, ConnectionRefusedError):
                failure = error
        except BaseException:
            connecting.close()
            raise
        else:
            return connecting
    raise failure
