"""One connection to one broker: frames are received, and responses arrive in the order of the requests."""

from __future__ import annotations

import math
import mmap
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from typing_extensions import Buffer

from ottla.client.wire.address import Address
from ottla.client.wire.client_log import CONNECTIONS
from ottla.client.wire.dialogue import Dialogue, Question
from ottla.client.wire.errors import (
    BrokerUnreachable,
    CallTimedOut,
    ClientError,
    ConnectionLost,
    ListenerMismatch,
    UnsupportedByBroker,
)
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.request_metrics import RequestMeter
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.reused_memory import ReusedMemory
from ottla.client.wire.transport import Dial, Transport
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, WireError
from ottla.model.limits import KIB, MIB
from ottla.model.version import __version__
from ottla.observe.events import named
from ottla.observe.text import safe_line
from ottla.protocol.api import KNOWN_VERSIONS, ApiKey, VersionRange, request_header_version
from ottla.protocol.frame import LENGTH_PREFIX, REQUEST_HEAD, read_response_header
from ottla.protocol.messages import decode_response, encode_request
from ottla.protocol.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.runtime.clock import Clock

if TYPE_CHECKING:
    from ottla.client.wire.security.sasl import SaslSession
    from ottla.client.wire.security.tls import TlsTransport


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
        # The frame of which a part has arrived.
        self._frame: memoryview | None = None
        self._filled = 0

    @property
    def has_buffered(self) -> bool:
        """Whether `read` has something to do with what has arrived: not with a part of a length."""
        return self._end - self._start >= LENGTH_PREFIX.size

    def read(self, receive_into: ReceiveInto) -> memoryview:
        """The next frame without its length.  Raises WireError for an impossible length.

        After an error of `receive_into` that has left the stream intact, the next call continues.
        """
        if self._frame is None:
            self._frame = self._next_frame(receive_into)
            self._filled = min(len(self._frame), self._end - self._start)
            self._frame[: self._filled] = self._buffer[self._start : self._start + self._filled]
            self._start += self._filled
        frame = self._frame
        while self._filled < len(frame):
            self._filled += receive_into(frame[self._filled :])
        self._largest_bytes = max(self._largest_bytes, len(frame))
        self._frame = None
        return frame

    def _next_frame(self, receive_into: ReceiveInto) -> memoryview:
        """Memory for the next frame, whose length has arrived."""
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
        return self._memory_for(length)

    def _memory_for(self, length: int) -> memoryview:
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
_UNSUPPORTED_VERSION: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(_ERROR_CODE_BYTES, "big")
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
    sent_ms: int


class _Talk:
    """A dialogue under way; after `within` its present response is not expected any more."""

    def __init__(self, dialogue: Dialogue, within: Deadline) -> None:
        self._dialogue = dialogue
        # The request that is due, or under way; None: the dialogue has ended.
        self.due: Question | None = next(dialogue)
        self.sent: Sent | None = None
        self.within = within

    def on_sent(self, sent: Sent, within: Deadline) -> None:
        self.sent = sent
        self.within = within

    def on_response(self, response: object) -> None:
        self.sent = None
        try:
            self.due = self._dialogue.send(response)
        except StopIteration:
            self.due = None

    def on_error(self, error: ClientError | WireError) -> None:
        """There is no response.  Raises what the dialogue makes of it."""
        self.due = self._dialogue.throw(error)


class Connection:
    """Uses versions that both sides know.  Several requests may be in flight; `receive` returns the response to the
    oldest.

    After any error but one in a valid response the connection is closed: `is_open` is False.  Only one that is still
    being opened outlives a time-out of its caller's.
    """

    def __init__(
        self,
        transport: Transport,
        address: Address,
        options: ClientOptions,
        clock: Clock,
        memory: ReusedMemory | None = None,
        meter: RequestMeter | None = None,
    ) -> None:
        self.address = address
        self.is_open = True
        self.in_flight: deque[Sent] = deque()
        self._transport = transport
        self._options = options
        self._clock = clock
        self._meter = meter or RequestMeter()
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
        # What is left of its opening: TCP, the TLS handshake, and then the requests.
        self._is_connecting = False
        self._is_sending = False
        self._handshake: TlsTransport | None = None
        self._opening: _Talk | None = None
        # Whether nothing arrived while a caller waited for it.
        self._is_silent = False
        # From the last request of the opening to its response, and when that came.
        self.round_trip_ms: float = 0
        self.opened_at_ms: float = -math.inf
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
        connection = cls.dial(address, dial, options, clock, memory)
        try:
            connection.finish_opening(deadline)
        except BaseException:
            connection.close()
            raise
        return connection

    @classmethod
    def dial(
        cls,
        address: Address,
        dial: Dial,
        options: ClientOptions,
        clock: Clock,
        memory: ReusedMemory | None = None,
        meter: RequestMeter | None = None,
    ) -> Connection:
        """A connection to be opened by `finish_opening` or `continue_opening`."""
        transport = dial(address)
        handshake: TlsTransport | None = None
        if options.security.protocol.uses_tls:
            # Imported late: `ssl` takes longer to import than the client.
            from ottla.client.wire.security.tls import start_tls

            transport = handshake = start_tls(transport, address, options.security.tls)
        connection = cls(transport, address, options, clock, memory, meter)
        connection._is_connecting = True
        connection._handshake = handshake
        connection._opening = _Talk(connection._open(), Deadline(clock, options.connect_timeout_ms))
        return connection

    @property
    def is_opening(self) -> bool:
        """Whether `finish_opening` has not finished."""
        return self._opening is not None

    @property
    def waits_to_write(self) -> bool:
        return self._is_connecting or self._is_sending

    @property
    def is_sending(self) -> bool:
        """Whether a part of a request is left, see `send`."""
        return self._is_sending

    @property
    def is_silent(self) -> bool:
        """Whether nothing arrived during the last call of `finish_opening`, which it has not finished, or a caller of
        `continue_opening` has waited for so long that it counts as silent."""
        return self._opening is not None and self._is_silent

    def count_as_silent(self) -> None:
        """Until something arrives: other brokers are tried before this one."""
        self._is_silent = True

    @property
    def opening_wait_ms(self) -> float:
        """How long `continue_opening` has nothing to do while nothing arrives: until the present step is late, and it
        raises, or until another IP address of the broker is due."""
        if self._opening is None:
            return math.inf
        step_ms = self._opening.within.remaining_ms
        return min(step_ms, self._transport.connect_wait_ms()) if self._is_connecting else step_ms

    def continue_opening(self) -> bool:
        """As `finish_opening`, without waiting: whether it is open.  It is called again when the connection can be read
        (while it is connecting: written), and after `opening_wait_ms`."""
        was_silent = self._is_silent
        try:
            self.finish_opening(Deadline(self._clock, 0))
        except CallTimedOut:
            if self._opening is None:
                raise
            self._is_silent = was_silent and self._is_silent
            return False
        return True

    def finish_opening(self, deadline: Deadline) -> None:
        """Connect, shake hands, negotiate versions, log in; nothing to do for a connection that has.

        Each step has its own time-out: `connect_timeout_ms` for TCP and for the TLS handshake, and the smaller of this
        and `request_timeout_ms` for a request.  After any error the connection is closed, but for CallTimedOut when
        `deadline` passes before that: the next call continues from there, so that a line that is slower than its
        callers' deadlines is opened nevertheless.
        """
        opening = self._opening
        if opening is None:
            return
        self._is_silent = True
        try:
            if self._is_connecting:
                self._transport.connect(deadline.at_most(opening.within.remaining_ms))
                self._is_connecting = False
                opening.within = Deadline(self._clock, self._options.connect_timeout_ms)
            if self._handshake is not None:
                self._handshake.shake_hands(deadline.at_most(opening.within.remaining_ms))
                self._handshake = None
                self._is_silent = False
            self._converse(opening, deadline)
        except CallTimedOut as error:
            if not opening.within.has_passed:
                raise
            self.close()
            if self._is_connecting:
                raise BrokerUnreachable(f"cannot connect to {self.address}: timed out") from error
            raise
        except BaseException:
            self.close()
            raise
        self._opening = None
        self.opened_at_ms = self._clock.monotonic_ms()
        self._first_request_id = self._next_correlation_id

    def fileno(self) -> int:
        return self._transport.fileno()

    def has_buffered(self) -> bool:
        return self._frames.has_buffered or self._transport.has_buffered() or bool(self._arrived)

    @property
    def is_fresh(self) -> bool:
        """Whether it is open and was used recently enough that the broker has not closed it as idle.

        One that is still being opened is fresh for the time of its present step.
        """
        if self._opening is not None and self._opening.within.has_passed:
            return False
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
        self,
        api: ApiKey,
        version: int,
        body: Sequence[Buffer],
        deadline: Deadline,
        *,
        expects_response: bool = True,
        waits: bool = True,
    ) -> Sent:
        """Send a request whose body is the concatenation of these pieces.  A login that is due precedes it.

        Unless it `waits`, a part may be left, which `continue_sending` sends: the pieces must not change before.
        """
        if self._sasl is not None and self._sasl.is_due:
            self._log_in_again(self._sasl, deadline)
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) % _CORRELATION_ID_LIMIT
        head = REQUEST_HEAD.pack(api, version, correlation_id, len(self._client_id)) + self._client_id
        if request_header_version(api, version) == 2:
            head += b"\x00"
        length = len(head) + sum(memoryview(piece).nbytes for piece in body)
        self._used_at_ms = self._clock.monotonic_ms()
        sent = Sent(correlation_id, api, version, self._used_at_ms)
        self._transmit([LENGTH_PREFIX.pack(length) + head, *body], deadline, waits=waits)
        self._meter.on_sent(LENGTH_PREFIX.size + length, expects_response=expects_response)
        if expects_response:
            self.in_flight.append(sent)
        return sent

    def receive(self, deadline: Deadline) -> tuple[Sent, memoryview]:
        """The oldest request in flight and the body of its response."""
        try:
            return self._receive(deadline)
        except CallTimedOut as error:
            if self._opening is None:
                self.close(error)
            raise

    def try_receive(self) -> tuple[Sent, memoryview] | None:
        """As `receive`, without waiting: None while the response is not whole."""
        try:
            return self._receive(Deadline(self._clock, 0))
        except CallTimedOut:
            return None

    def try_response(self, sent: Sent) -> memoryview | None:
        """The response to this request, without waiting, for one of several callers who have requests in flight; None
        while it is not whole."""
        others, self._arrived = self._arrived, deque()
        mine = next((body for each, body in others if each is sent), None)
        while mine is None and (received := self.try_receive()) is not None:
            others.append(received)
            if received[0] is sent:
                mine = received[1]
        self._arrived = deque(each for each in others if each[0] is not sent)
        return mine

    def _receive(self, deadline: Deadline) -> tuple[Sent, memoryview]:
        """After CallTimedOut it may be called again, and continues."""
        if not self.is_open:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        if self._arrived:
            return self._arrived.popleft()
        assert self.in_flight, "nothing is in flight"
        try:
            frame = self._frames.read(lambda into: self._transport.receive_into(into, deadline))
            sent = self.in_flight[0]
            correlation_id, position = read_response_header(sent.api, sent.version, frame, 0, len(frame))
            if correlation_id != sent.correlation_id:
                raise WireError(f"{self.address} answered request {correlation_id}, not {sent.correlation_id}")
            self.in_flight.popleft()
        except CallTimedOut:
            raise
        except BaseException as error:
            is_first = bool(self.in_flight) and self.in_flight[0].correlation_id == self._first_request_id
            # After an interruption in the middle of a frame the stream cannot be read further.
            self.close(error)
            if is_first and isinstance(error, ConnectionLost) and self._sasl is None:
                raise ConnectionLost(str(error), hint=_NEEDS_LOGIN_HINT) from error
            raise
        self._used_at_ms = self._clock.monotonic_ms()
        self._meter.on_received(sent.api, LENGTH_PREFIX.size + len(frame), self._used_at_ms - sent.sent_ms)
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
        """Send `message`, wait for its response.  Responses to requests before it are left to `receive`."""
        version = self.version_of(api, at_least=at_least, at_most=at_most)
        deadline = deadline.at_most(self._options.request_timeout_ms)
        sent = self.send(api, version, [encode_request(api, version, message)], deadline)
        if self.in_flight[0] is sent and not self._arrived:
            _, body = self.receive(deadline)
            return self.decode(api, version, body, answer)
        earlier, self._arrived = self._arrived, deque()
        while (received := self.receive(deadline))[0] is not sent:
            earlier.append(received)
        self._arrived = earlier
        return self.decode(api, version, received[1], answer)

    def decode(self, api: ApiKey, version: int, body: memoryview, answer: type[T]) -> T:
        """The response as a message; an invalid body closes the connection."""
        try:
            decoded = decode_response(api, version, body)
        except WireError as error:
            self.close(error)
            raise
        assert isinstance(decoded, answer)
        return decoded

    def close(self, reason: BaseException | None = None) -> None:
        """`reason`: why it is lost, if it is."""
        if self.is_open:
            self._log_end(reason)
            self.is_open = False
            self._meter.on_unanswered(len(self.in_flight))
            self.in_flight.clear()
            self._arrived.clear()
            self._opening = None
            self._is_sending = False
            self._transport.close()

    def _log_end(self, reason: BaseException | None) -> None:
        """Of one that was open: what fails while it is opened, the pool reports."""
        if self._opening is not None:
            return
        if isinstance(reason, OttlaError):
            self._meter.on_lost()
            text = safe_line(str(reason))
            CONNECTIONS.info(
                "the connection to broker %s is lost: %s",
                self.address,
                text,
                extra=named("connection.lost", broker=self.address, reason=text),
            )
        else:
            CONNECTIONS.debug(
                "the connection to broker %s is closed",
                self.address,
                extra=named("connection.closed", broker=self.address),
            )

    def continue_sending(self) -> None:
        """Send what can be sent of what is left, without waiting.  The caller closes it when that takes too long."""
        if self._is_sending:
            self._transmit((), Deadline(self._clock, 0), waits=False)

    def _transmit(self, pieces: Sequence[Buffer], deadline: Deadline, *, waits: bool) -> None:
        if not self.is_open:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        try:
            if waits and deadline.has_passed and self._opening is None:
                raise CallTimedOut(f"no time is left for sending a request ({self.address})")
            self._transport.send(pieces, deadline if waits else Deadline(self._clock, 0))
            self._is_sending = False
        except BaseException as error:
            if isinstance(error, CallTimedOut) and not waits:
                self._is_sending = True
                return
            # A part of the request may have been sent: nothing can follow it.
            self.close(error)
            raise

    def _log_in_again(self, sasl: SaslSession, deadline: Deadline) -> None:
        """Before the session ends (KIP-368): responses in flight arrive before those of the login."""
        # `receive` must read from the broker meanwhile.
        earlier, self._arrived = self._arrived, deque()
        try:
            self._converse(_Talk(sasl.log_in(), deadline), deadline, earlier)
        except BaseException:
            self.close()
            raise
        self._arrived = earlier

    def _converse(self, talk: _Talk, deadline: Deadline, earlier: deque[tuple[Sent, memoryview]] | None = None) -> None:
        """Continue a dialogue to its end.  CallTimedOut at `deadline`, or when a response is late.

        Responses to requests that were in flight before it are appended to `earlier`.
        """
        while talk.due is not None:
            try:
                if talk.sent is None:
                    self._send_question(talk.due, talk, deadline)
                response = self._response_to(talk.due, talk, deadline, earlier)
            except CallTimedOut:
                raise
            except (ClientError, WireError) as error:
                talk.on_error(error)
            else:
                self._is_silent = False
                talk.on_response(response)

    def _send_question(self, question: Question, talk: _Talk, deadline: Deadline) -> None:
        version = question.version
        if version is None:
            version = self.version_of(question.api, at_least=question.at_least)
        # A later login is answered after the requests in flight, which have this time.
        within_ms = self._options.request_timeout_ms
        if talk is self._opening:
            within_ms = min(within_ms, self._options.connect_timeout_ms)
        within = Deadline(self._clock, within_ms)
        body = [encode_request(question.api, version, question.message)]
        talk.on_sent(self.send(question.api, version, body, deadline), within)

    def _response_to(
        self, question: Question, talk: _Talk, deadline: Deadline, earlier: deque[tuple[Sent, memoryview]] | None
    ) -> object:
        while True:
            received, body = self.receive(deadline.at_most(talk.within.remaining_ms))
            if received is talk.sent:
                break
            assert earlier is not None, "nothing else is in flight on a connection that is opened"
            earlier.append((received, body))
        self.round_trip_ms = self._used_at_ms - received.sent_ms
        version = received.version
        if question.api is ApiKey.API_VERSIONS and bytes(body[:_ERROR_CODE_BYTES]) == _UNSUPPORTED_VERSION:
            version = 0  # a broker that lacks the version answers in the first one (KIP-511)
        return self.decode(question.api, version, body, object)

    def _open(self) -> Dialogue:
        yield from self._negotiate()
        if self._sasl is not None:
            yield from self._sasl.log_in()

    def _negotiate(self) -> Dialogue:
        """ApiVersions (KIP-511): our highest version first; a broker that lacks it answers in v0 with its own
        versions."""
        version = KNOWN_VERSIONS[ApiKey.API_VERSIONS].highest
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
        try:
            response = yield Question(ApiKey.API_VERSIONS, request, version=version)
            assert isinstance(response, ApiVersionsResponse)
            if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
                theirs = [row.max_version for row in response.api_keys if row.api_key == ApiKey.API_VERSIONS]
                version = max(0, min([version - 1, *theirs])) if theirs else 0
                response = yield Question(ApiKey.API_VERSIONS, request, version=version)
                assert isinstance(response, ApiVersionsResponse)
        except ConnectionLost as error:
            raise ConnectionLost(str(error), hint=_NO_BROKER_HINT) from error
        except TlsRecordReceived as error:
            raise ListenerMismatch(
                f"{self.address} speaks TLS, and security.protocol is {self._options.security.protocol}",
                hint="set security.protocol to SSL, or to SASL_SSL for a listener that requires a login",
            ) from error
        except WireError as error:
            raise ConnectionLost(
                f"{self.address} does not answer as a broker: {error}", hint=_NO_BROKER_HINT
            ) from error
        if response.error_code:
            raise UnsupportedByBroker(f"{self.address} answered error {response.error_code} to ApiVersions")
        self._versions = {row.api_key: VersionRange(row.min_version, row.max_version) for row in response.api_keys}
        self._features = {row.name: row.max_version_level for row in response.finalized_features}
