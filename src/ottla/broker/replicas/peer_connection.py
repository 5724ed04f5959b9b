"""A connection of this broker's own to another broker: one request at a time, and its response in a buffer that is
reused.

The client package has its own connections, which block; this one belongs to the event loop.
"""

from __future__ import annotations

import asyncio
import errno
import math
import secrets
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.net.limits import MIB
from ottla.broker.net.socket_loop import PeerSocket
from ottla.broker.net.tls_channel import TlsChannel
from ottla.model.errors import OttlaError, WireError
from ottla.model.listener import address_text
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import LENGTH_PREFIX, RESPONSE_HEAD, read_response_header, request_frame
from ottla.protocol.messages import decode_response, encode_request
from ottla.protocol.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.schemas.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.schemas.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.mechanism import SaslMechanism
from ottla.security.sasl_messages import PlainMessage
from ottla.security.scram import ScramClient, ScramRejected, ServerNotAuthentic
from ottla.security.secret import Secret

if TYPE_CHECKING:
    from typing_extensions import Buffer

_BUFFER_BYTES: Final = 64 * 1024
# A larger buffer is released when a response fits the first size again.
_BUFFER_KEPT_BYTES: Final = 2 * MIB
_CORRELATION_ID_MAX: Final = 2**31 - 1
_SOFTWARE: Final = "ottla"
_NONCE_BYTES: Final = 24
# Of the time for which a login is valid.
_RENEWED_AFTER: Final = 0.8


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


class PeerDistrusted(PeerError):
    """TLS or the login failed: the peer is not the broker it should be, or does not accept this one."""


class PeerLogin(NamedTuple):
    """As which user this broker logs in to others."""

    mechanism: SaslMechanism
    username: str
    password: Secret


class PeerSecurity(NamedTuple):
    """Of the listener at which brokers reach each other.  `tls` returns the context of the next connection."""

    tls: Callable[[], ssl.SSLContext] | None = None
    login: PeerLogin | None = None


class PeerConnection:
    """An open connection.  After any error, also a cancelled call, it is closed.

    Memory follows the bytes that came, not the length that a response claims; above `response_bytes_max` it is refused.
    """

    def __init__(
        self,
        connected: PeerSocket,
        address: PeerAddress,
        client_id: str,
        response_bytes_max: int,
        login: PeerLogin | None = None,
    ) -> None:
        """`login`: made by `open`, and renewed before it ends."""
        self._socket = connected
        self._login = login
        # The time of the loop at which the login must be renewed.
        self._renew_at_s = math.inf
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
        cls,
        address: PeerAddress,
        client_id: str,
        *,
        timeout_ms: int,
        response_bytes_max: int,
        security: PeerSecurity = PeerSecurity(),  # noqa: B008 (an immutable value)
    ) -> PeerConnection:
        """Connect to the first of the host's addresses that answers, and log in."""
        connected: PeerSocket
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                plain = await _connect(address)
                connected = plain if security.tls is None else await _encrypt(plain, security.tls(), address)
        except ssl.SSLError as error:
            raise _distrusted(address, error) from error
        except TimeoutError:
            raise PeerUnreachable(f"{address} did not accept a connection in {timeout_ms} ms") from None
        except ConnectionRefusedError:
            raise PeerRefused(f"{address} refused the connection") from None
        except OSError as error:
            raise PeerUnreachable(f"cannot connect to {address}: {error.strerror or error}") from error
        peer = cls(connected, address, client_id, response_bytes_max, security.login)
        if security.login is not None:
            await peer._log_in(security.login, timeout_ms)
        return peer

    async def _log_in(self, login: PeerLogin, timeout_ms: int) -> None:
        """Raises `PeerDistrusted` when the peer refuses it, or cannot prove that it has the user's credential."""
        self._renew_at_s = math.inf
        try:
            lifetime_ms = await self._exchange_tokens(login, timeout_ms)
        except (WireError, ScramRejected, ServerNotAuthentic) as error:
            self.close()
            raise PeerDistrusted(
                f"{self._address} did not log in the user {login.username}: {error}",
                hint="sasl.inter.broker.username and its password must be those of a user (ottla user add)",
            ) from error
        if lifetime_ms:
            # Some time before its end, as clients do (KIP-368).
            self._renew_at_s = self._loop.time() + lifetime_ms * _RENEWED_AFTER / 1000

    async def _exchange_tokens(self, login: PeerLogin, timeout_ms: int) -> int:
        """Returns the time for which the login is valid, in ms; 0: as long as the connection."""
        handshake = encode_request(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(login.mechanism))
        answer = await self.call(ApiKey.SASL_HANDSHAKE, 1, handshake, timeout_ms)
        response = decode_response(ApiKey.SASL_HANDSHAKE, 1, answer)
        assert isinstance(response, SaslHandshakeResponse)
        if response.error_code:
            offered = ", ".join(response.mechanisms) or "none"
            raise WireError(f"{login.mechanism} is not enabled there, but {offered}")
        if not login.mechanism.is_scram:
            return (await self._token(PlainMessage("", login.username, login.password).to_bytes(), timeout_ms))[1]
        scram = ScramClient(login.mechanism, login.username, login.password, secrets.token_urlsafe(_NONCE_BYTES))
        challenge, _ = await self._token(scram.first(), timeout_ms)
        last, lifetime_ms = await self._token(scram.final(challenge), timeout_ms)
        scram.verify(last)
        return lifetime_ms

    async def _token(self, token: bytes, timeout_ms: int) -> tuple[bytes, int]:
        body = encode_request(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(token))
        answer = await self.call(ApiKey.SASL_AUTHENTICATE, 2, body, timeout_ms)
        response = decode_response(ApiKey.SASL_AUTHENTICATE, 2, answer)
        assert isinstance(response, SaslAuthenticateResponse)
        if response.error_code:
            raise WireError(response.error_message or f"error {response.error_code}")
        return bytes(response.auth_bytes), response.session_lifetime_ms

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
        if self._loop.time() >= self._renew_at_s:
            assert self._login is not None
            await self._log_in(self._login, timeout_ms)
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
                await self._send_rest(memoryview(frame)[sent:])

    async def _send_rest(self, rest: memoryview) -> None:
        if isinstance(self._socket, socket.socket):
            await self._loop.sock_sendall(self._socket, rest)
            return
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                await _ready(self._loop.add_writer, self._loop.remove_writer, self._socket.fileno())

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


async def _encrypt(connected: socket.socket, context: ssl.SSLContext, address: PeerAddress) -> TlsChannel:
    """The handshake, with the peer's name verified.  Raises `OSError`, of which `ssl.SSLError` is one."""
    loop = asyncio.get_running_loop()
    try:
        channel = TlsChannel(connected, context, loop, server_name=address.host)
    except BaseException:
        connected.close()
        raise
    try:
        while True:
            try:
                channel.handshake()
                return channel
            except ssl.SSLWantReadError:
                await _ready(loop.add_reader, loop.remove_reader, channel.fileno())
            except ssl.SSLWantWriteError:
                await _ready(loop.add_writer, loop.remove_writer, channel.fileno())
    except BaseException:
        channel.close()
        raise


async def _ready(watch: Callable[[int, Callable[[], None]], object], unwatch: Callable[[int], object], fd: int) -> None:
    """Wait until the socket is ready for what is watched."""
    waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    watch(fd, lambda: None if waiting.done() else waiting.set_result(None))
    try:
        await waiting
    finally:
        unwatch(fd)


def _distrusted(address: PeerAddress, error: ssl.SSLError) -> PeerDistrusted:
    reason = getattr(error, "verify_message", "") or error.reason or str(error)
    return PeerDistrusted(
        f"no TLS with {address}: {reason}",
        hint="the peer's certificate must have its host name and come from a CA of ssl.truststore.location; does the "
        "listener use TLS?",
    )


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
