"""One connection to one broker: frames are received, and responses arrive in the order of the requests."""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from typing_extensions import Buffer

from ottla.client.wire.address import Address
from ottla.client.wire.errors import ClientError, ConnectionLost, ListenerMismatch, UnsupportedByBroker
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.reused_memory import ReusedMemory
from ottla.client.wire.transport import Dial, Transport
from ottla.model.error_code import ErrorCode
from ottla.model.errors import WireError
from ottla.model.limits import KIB, MIB
from ottla.model.version import __version__
from ottla.protocol.api import KNOWN_VERSIONS, ApiKey, VersionRange, request_header_version
from ottla.protocol.frame import LENGTH_PREFIX, REQUEST_HEAD, read_response_header
from ottla.protocol.messages import decode_response, encode_request
from ottla.protocol.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.runtime.clock import Clock

if TYPE_CHECKING:
    from ottla.client.wire.security.sasl import SaslSession


_BUFFER_BYTES: Final = 64 * KIB
# A frame larger than all before gets memory page by page, as bytes arrive: a length alone allocates nothing.  Others
# get it from the heap, which is faster.
_LAZY_FROM_BYTES: Final = 1 * MIB
# Smaller ones come from the heap, which has them ready.
_REUSED_FROM_BYTES: Final = 128 * KIB
_CORRELATION_ID_BYTES: Final = 4
# The type of a TLS record (20 to 23) and the first byte of its version, where a frame has its length.
_TLS_RECORDS: Final = frozenset({0x1403, 0x1503, 0x1603, 0x1703})

ReceiveInto = Callable[[memoryview], int]


class TlsRecordReceived(WireError):
    """The peer speaks TLS."""


class FrameReader:
    """Reads ahead into a small buffer, so that several short answers cost one system call.

    Each frame has its own memory, which lives as long as a view of it; with `memory` it is used again afterwards.
    """

    def __init__(self, response_bytes_max: int, memory: ReusedMemory | None = None) -> None:
        self._response_bytes_max = response_bytes_max
        self._memory = memory
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._start = 0
        self._end = 0
        self._largest_bytes = _LAZY_FROM_BYTES

    @property
    def has_buffered(self) -> bool:
        """Whether a part of the next frame has arrived."""
        return self._end > self._start

    def read(self, receive_into: ReceiveInto) -> memoryview:
        """The next frame without its length.  Raises WireError for an impossible length."""
        while self._end - self._start < LENGTH_PREFIX.size:
            self._fill(receive_into)
        length: int = LENGTH_PREFIX.unpack_from(self._buffer, self._start)[0]
        if not _CORRELATION_ID_BYTES <= length <= self._response_bytes_max:
            if length >> 16 in _TLS_RECORDS:
                raise TlsRecordReceived("a TLS record instead of a response")
            raise WireError(
                f"a response of {length} bytes; at most {self._response_bytes_max} are accepted",
                hint="is the peer a Kafka broker?",
            )
        self._start += LENGTH_PREFIX.size
        frame = self._frame(length)
        filled = min(length, self._end - self._start)
        frame[:filled] = self._buffer[self._start : self._start + filled]
        self._start += filled
        while filled < length:
            filled += receive_into(frame[filled:])
        self._largest_bytes = max(self._largest_bytes, length)
        return frame

    def _frame(self, length: int) -> memoryview:
        is_largest = length > self._largest_bytes
        if self._memory is not None and length >= _REUSED_FROM_BYTES:
            lent = self._memory.lend(length, may_grow=not is_largest)
            if lent is not None:
                return lent
        return memoryview(mmap.mmap(-1, length) if is_largest else bytearray(length))

    def _fill(self, receive_into: ReceiveInto) -> None:
        kept = self._end - self._start
        if self._start:
            self._buffer[:kept] = bytes(self._buffer[self._start : self._end])
            self._start, self._end = 0, kept
        self._end += receive_into(self._buffer[self._end :])


T = TypeVar("T")

_ERROR_CODE_BYTES: Final = 2
_CORRELATION_ID_LIMIT: Final = 1 << 31
# Above all versions.
VERSION_MAX: Final = (1 << 15) - 1
_NO_BROKER_HINT: Final = (
    "is the peer a Kafka broker? A listener with TLS needs security.protocol SSL or SASL_SSL, and its CA"
)
_NEEDS_LOGIN_HINT: Final = (
    "if the listener requires a login, set security.protocol to SASL_SSL or SASL_PLAINTEXT, and sasl.mechanism;"
    " else the broker's log says why it closed the connection"
)


class Sent(NamedTuple):
    """A request without a response yet."""

    correlation_id: int
    api: ApiKey
    version: int


class Connection:
    """Uses versions that both sides know.  Several requests may be in flight; `receive` returns the response to the
    oldest.

    After any error but one in a valid response the connection is closed: `is_open` is False.
    """

    def __init__(
        self,
        transport: Transport,
        address: Address,
        options: ClientOptions,
        clock: Clock,
        memory: ReusedMemory | None = None,
    ) -> None:
        self.address = address
        self.is_open = True
        self.in_flight: deque[Sent] = deque()
        self._transport = transport
        self._options = options
        self._clock = clock
        self._frames = FrameReader(options.response_bytes_max, memory)
        self._client_id = options.client_id.encode()
        self._next_correlation_id = 0
        self._versions: Mapping[int, VersionRange] = {ApiKey.API_VERSIONS: KNOWN_VERSIONS[ApiKey.API_VERSIONS]}
        self._features: Mapping[str, int] = {}
        self._used_at_ms = clock.monotonic_ms()
        # The number of the first request after those that open the connection.
        self._first_request_id = -1
        # Responses that arrived during a login between two requests, and that no caller has received yet.
        self._arrived: deque[tuple[Sent, memoryview]] = deque()
        self._sasl: SaslSession | None = None
        if options.security.login is not None:
            # Imported late: clients without a login need none of it.
            from ottla.client.wire.security.sasl import SaslSession

            self._sasl = SaslSession(options.security.login, address, clock)

    @classmethod
    def open(
        cls,
        address: Address,
        dial: Dial,
        options: ClientOptions,
        clock: Clock,
        deadline: Deadline,
        memory: ReusedMemory | None = None,
    ) -> Connection:
        """Connect, with TLS and a login as `options.security` demands, and negotiate versions.

        Large responses are received into `memory`.
        """
        deadline = deadline.at_most(options.connect_timeout_ms)
        transport = dial(address, deadline)
        if options.security.protocol.uses_tls:
            # Imported late: `ssl` takes longer to import than the client.
            from ottla.client.wire.security.tls import secure

            transport = secure(transport, address, options.security.tls, deadline)
        connection = cls(transport, address, options, clock, memory)
        connection._negotiate(deadline)
        if connection._sasl is not None:
            connection._log_in(connection._sasl, deadline)
        connection._first_request_id = connection._next_correlation_id
        return connection

    def fileno(self) -> int:
        return self._transport.fileno()

    def has_buffered(self) -> bool:
        return self._frames.has_buffered or self._transport.has_buffered() or bool(self._arrived)

    @property
    def is_fresh(self) -> bool:
        """Whether it is open and was used recently enough that the broker has not closed it as idle."""
        return self.is_open and self._clock.monotonic_ms() - self._used_at_ms < self._options.connections_max_idle_ms

    def version_of(self, api: ApiKey, *, at_least: int = 0, at_most: int = VERSION_MAX) -> int:
        """The highest version of `api` that both sides know; UnsupportedByBroker when there is none."""
        ours = KNOWN_VERSIONS[api]
        theirs = self._versions.get(api)
        if theirs is None:
            raise UnsupportedByBroker(f"the broker at {self.address} does not offer {api.name}")
        version = min(ours.highest, theirs.highest, at_most)
        if version < max(ours.lowest, theirs.lowest, at_least):
            raise UnsupportedByBroker(
                f"the broker at {self.address} offers {api.name} v{theirs.lowest} to v{theirs.highest},"
                f" needed is v{max(ours.lowest, at_least)} to v{min(ours.highest, at_most)}"
            )
        return version

    def feature_level(self, name: str) -> int:
        """The level of a feature that all brokers of the cluster have (KIP-584); 0 where the broker names none."""
        return self._features.get(name, 0)

    def supports(self, api: ApiKey, *, at_least: int = 0) -> bool:
        try:
            self.version_of(api, at_least=at_least)
        except UnsupportedByBroker:
            return False
        return True

    def send(
        self, api: ApiKey, version: int, body: Sequence[Buffer], deadline: Deadline, *, expects_response: bool = True
    ) -> Sent:
        """Send a request whose body is the concatenation of these pieces.  A login that is due precedes it."""
        if self._sasl is not None and self._sasl.is_due:
            self._log_in(self._sasl, deadline.at_most(self._options.request_timeout_ms))
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) % _CORRELATION_ID_LIMIT
        head = REQUEST_HEAD.pack(api, version, correlation_id, len(self._client_id)) + self._client_id
        if request_header_version(api, version) == 2:
            head += b"\x00"
        length = len(head) + sum(memoryview(piece).nbytes for piece in body)
        sent = Sent(correlation_id, api, version)
        self._transmit([LENGTH_PREFIX.pack(length) + head, *body], deadline)
        if expects_response:
            self.in_flight.append(sent)
        self._used_at_ms = self._clock.monotonic_ms()
        return sent

    def receive(self, deadline: Deadline) -> tuple[Sent, memoryview]:
        """The oldest request in flight and the body of its response."""
        if not self.is_open:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        if self._arrived:
            return self._arrived.popleft()
        assert self.in_flight, "nothing is in flight"
        try:
            frame = self._frames.read(lambda into: self._transport.receive_into(into, deadline))
            sent = self.in_flight.popleft()
            correlation_id, position = read_response_header(sent.api, sent.version, frame, 0, len(frame))
            if correlation_id != sent.correlation_id:
                raise WireError(f"{self.address} answered request {correlation_id}, not {sent.correlation_id}")
        except BaseException as error:
            is_first = bool(self.in_flight) and self.in_flight[0].correlation_id == self._first_request_id
            # After an interruption in the middle of a frame the stream cannot be read further.
            self.close()
            if is_first and isinstance(error, ConnectionLost) and self._sasl is None:
                raise ConnectionLost(str(error), hint=_NEEDS_LOGIN_HINT) from error
            raise
        self._used_at_ms = self._clock.monotonic_ms()
        return sent, frame[position:]

    def call(
        self,
        api: ApiKey,
        message: object,
        answer: type[T],
        deadline: Deadline,
        *,
        at_least: int = 0,
        at_most: int = VERSION_MAX,
    ) -> T:
        """Send `message`, wait for its response.  Nothing else may be in flight."""
        assert not self.in_flight, "a call would read the answer of another request"
        assert not self._arrived, "another request's response was not received yet"
        version = self.version_of(api, at_least=at_least, at_most=at_most)
        deadline = deadline.at_most(self._options.request_timeout_ms)
        self.send(api, version, [encode_request(api, version, message)], deadline)
        _, body = self.receive(deadline)
        return self.decode(api, version, body, answer)

    def decode(self, api: ApiKey, version: int, body: memoryview, answer: type[T]) -> T:
        """The response as a message; an invalid body closes the connection."""
        try:
            decoded = decode_response(api, version, body)
        except WireError:
            self.close()
            raise
        assert isinstance(decoded, answer)
        return decoded

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self.in_flight.clear()
            self._arrived.clear()
            self._transport.close()

    def _transmit(self, pieces: Sequence[Buffer], deadline: Deadline) -> None:
        if not self.is_open:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        try:
            self._transport.send(pieces, deadline)
        except BaseException:
            # A part of the request may have been sent: nothing can follow it.
            self.close()
            raise

    def _log_in(self, sasl: SaslSession, deadline: Deadline) -> None:
        """First, and again before the session ends (KIP-368): responses in flight arrive before those of the login."""

        def call(api: ApiKey, message: object, answer: type[T], at_least: int) -> T:
            version = self.version_of(api, at_least=at_least)
            body = [encode_request(api, version, message)]
            sent = self.send(api, version, body, deadline)
            while True:
                received, response = self.receive(deadline)
                if received is sent:
                    return self.decode(api, version, response, answer)
                earlier.append((received, response))

        # `receive` must read from the broker meanwhile.
        earlier, self._arrived = self._arrived, deque()
        try:
            sasl.log_in(call)
        except BaseException:
            self.close()
            raise
        self._arrived = earlier

    def _negotiate(self, deadline: Deadline) -> None:
        """ApiVersions (KIP-511): our highest version first; a broker that lacks it answers in v0 with its own
        versions."""
        version = KNOWN_VERSIONS[ApiKey.API_VERSIONS].highest
        try:
            response = self._ask_versions(version, deadline)
            if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
                theirs = [row.max_version for row in response.api_keys if row.api_key == ApiKey.API_VERSIONS]
                response = self._ask_versions(max(0, min([version - 1, *theirs])) if theirs else 0, deadline)
            if response.error_code:
                raise UnsupportedByBroker(f"{self.address} answered error {response.error_code} to ApiVersions")
        except ConnectionLost as error:
            raise ConnectionLost(str(error), hint=_NO_BROKER_HINT) from error
        except TlsRecordReceived as error:
            self.close()
            raise ListenerMismatch(
                f"{self.address} speaks TLS, and security.protocol is {self._options.security.protocol}",
                hint="set security.protocol to SSL, or to SASL_SSL for a listener that requires a login",
            ) from error
        except WireError as error:
            self.close()
            raise ConnectionLost(
                f"{self.address} does not answer as a broker: {error}", hint=_NO_BROKER_HINT
            ) from error
        except ClientError:
            self.close()
            raise
        self._versions = {row.api_key: VersionRange(row.min_version, row.max_version) for row in response.api_keys}
        self._features = {row.name: row.max_version_level for row in response.finalized_features}

    def _ask_versions(self, version: int, deadline: Deadline) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
        self.send(ApiKey.API_VERSIONS, version, [encode_request(ApiKey.API_VERSIONS, version, request)], deadline)
        _, body = self.receive(deadline)
        refused = bytes(body[:_ERROR_CODE_BYTES]) == ErrorCode.UNSUPPORTED_VERSION.to_bytes(_ERROR_CODE_BYTES, "big")
        return self.decode(ApiKey.API_VERSIONS, 0 if refused else version, body, ApiVersionsResponse)
