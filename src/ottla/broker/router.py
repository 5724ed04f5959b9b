"""Routes each frame to its handler.

Three kinds of handlers.  Produce and Fetch read their requests themselves; those of coordinators reply by callback.
Both answer at once or park, without a task.  All others are coroutines, one at a time per connection.

A request that the protocol cannot answer closes the connection with one log line: an API or version that is
not offered (except ApiVersions, which always gets an answer), or bytes that the version does not allow.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Final, Protocol

from ottla.broker.net.client_quotas import ClientQuotas, timed
from ottla.broker.net.connection import Answer, Connection
from ottla.broker.net.large_requests import LargeRequests
from ottla.broker.net.limits import COLD_REQUEST_BYTES_MAX, IN_STEPS_BYTES, STOP_REQUESTS_MS
from ottla.broker.net.outbox import Piece
from ottla.broker.net.ready_connections import ReadyConnections
from ottla.broker.net.request_meter import SAMPLING_MASK, RequestMeter
from ottla.broker.net.request_tasks import close_failed
from ottla.model.errors import WireError
from ottla.observe.events import fields
from ottla.protocol.api import API_VERSIONS, FLEXIBLE_FROM, ApiKey
from ottla.protocol.frame import RequestHeader, read_request_header
from ottla.protocol.primitives import RequestBytes

log = logging.getLogger(__name__)

_HEAD: Final = struct.Struct(">hhih")
_PRODUCE: Final = int(ApiKey.PRODUCE)
_FETCH: Final = int(ApiKey.FETCH)
_PRODUCE_MIN, _PRODUCE_MAX = API_VERSIONS[ApiKey.PRODUCE]
_FETCH_MIN, _FETCH_MAX = API_VERSIONS[ApiKey.FETCH]
_PRODUCE_FLEXIBLE_FROM: Final = FLEXIBLE_FROM[ApiKey.PRODUCE]


class HotHandler(Protocol):
    """A handler without a task: it answers, parks or closes before it returns."""

    def handle(
        self,
        connection: Connection,
        view: memoryview,
        position: int,
        end: int,
        version: int,
        correlation_id: int,
        quotas: ClientQuotas | None = None,
    ) -> None: ...


class CallbackDispatch(Protocol):
    """Serves requests whose handlers reply by callback."""

    def handle(self, header: RequestHeader, body: bytes, connection: Connection) -> None:
        """Answer or park before it returns."""
        ...

    async def handle_large(
        self, header: RequestHeader, body: memoryview, connection: Connection, answer: Answer
    ) -> None:
        """The same in steps; see `Connection.hold`."""
        ...


# Gives the whole response frame for a request: header, body.  A view is let go by it.
AsyncDispatch = Callable[[RequestHeader, bytes | memoryview, Connection], Awaitable[Sequence[Piece]]]


class Router:
    """Routes the frames of all connections."""

    def __init__(
        self,
        produce: HotHandler,
        fetch: HotHandler,
        callback: CallbackDispatch,
        callback_keys: Collection[int],
        coroutine: AsyncDispatch,
        ready: ReadyConnections,
        meter: RequestMeter | None = None,
    ) -> None:
        """`meter`: takes the latencies, and counts all but Produce and Fetch; without one, nothing is counted."""
        self._produce = produce
        self._fetch = fetch
        self._callback = callback
        self._callback_keys = frozenset(callback_keys)
        self._coroutine = coroutine
        self._ready = ready
        self._meter = meter
        # Counted here because a call for each would be too dear: it was 3 % of a fetch.
        self.produce_count = self.fetch_count = 0
        self._large = LargeRequests()
        self._tasks: set[asyncio.Task[None]] = set()

    def route(self, connection: Connection, buffer: RequestBytes, view: memoryview, position: int, end: int) -> None:
        """Handle the frame `buffer[position:end]`; see `connection.Router`."""
        try:
            # The only cost of quotas to a broker that has none.
            quotas = connection.quotas
            if quotas is None and end - position >= 10:
                key, version, correlation_id, name_length = _HEAD.unpack_from(buffer, position)
                if key == _PRODUCE and _PRODUCE_MIN <= version < _PRODUCE_FLEXIBLE_FROM and name_length >= -1:
                    # The hot path does not read the client id, it only skips it.
                    body = position + 10 + (name_length if name_length > 0 else 0)
                    count = self.produce_count = self.produce_count + 1
                    meter = None if count & SAMPLING_MASK else self._meter
                    timing = None if meter is None else meter.begin(connection)
                    self._produce.handle(connection, view, body, end, version, correlation_id)
                    if meter is not None and timing is not None:
                        meter.handled(_PRODUCE, connection, timing)
                    return
            header = read_request_header(view, position, end)
            key, version, correlation_id, connection.client_id, body = header
            if quotas is not None:
                quotas.begin(connection.client_id, end - position)
            if key == _FETCH and _FETCH_MIN <= version <= _FETCH_MAX:
                handler = self._fetch
                count = self.fetch_count = self.fetch_count + 1
            elif key == _PRODUCE and _PRODUCE_MIN <= version <= _PRODUCE_MAX:
                handler = self._produce
                count = self.produce_count = self.produce_count + 1
            else:
                self._route_other(connection, header, view[body:end])
                if quotas is not None:
                    quotas.settle()
                return
            meter = None if count & SAMPLING_MASK else self._meter
            timing = None if meter is None else meter.begin(connection)
            handler.handle(connection, view, body, end, version, correlation_id, quotas)
            if meter is not None and timing is not None:
                meter.handled(key, connection, timing)
            if quotas is not None:
                quotas.settle()
        except WireError as error:
            self.refuse(connection, error)
        except Exception as error:  # noqa: BLE001 (close_failed logs it, with its traceback)
            # A bug must leave no client waiting: no later request of the connection could be answered.
            close_failed(connection, error, client_id=connection.client_id)

    def refuse(self, connection: Connection, error: WireError) -> None:
        """Close a connection whose request cannot be read or answered."""
        connection.refuse(str(error))

    async def stop(self) -> None:
        """Wait for the coroutines in progress; those that do not end in time are cancelled."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=STOP_REQUESTS_MS / 1000)
        if late:
            log.warning("requests.cut", extra=fields(requests_count=len(late)))
            for task in late:
                task.cancel()
            await asyncio.wait(late)

    def _route_other(self, connection: Connection, header: RequestHeader, body: memoryview) -> None:
        meter = self._meter
        if meter is None:
            self._start_other(connection, header, body)
            return
        meter.count(header.api_key)
        timing = meter.begin(connection)
        self._start_other(connection, header, body)
        meter.handled(header.api_key, connection, timing)

    def _start_other(self, connection: Connection, header: RequestHeader, body: memoryview) -> None:
        if not _is_answered(header, API_VERSIONS):
            raise WireError(
                f"API key {header.api_key} version {header.api_version} is not offered; ApiVersions lists what is"
            )
        if len(body) > COLD_REQUEST_BYTES_MAX:
            api = ApiKey(header.api_key).name
            raise WireError(
                f"{api} has {len(body)} bytes, {COLD_REQUEST_BYTES_MAX} are accepted: request less at a time"
            )
        is_by_callback = header.api_key in self._callback_keys
        if len(body) <= IN_STEPS_BYTES:
            if is_by_callback:
                self._callback.handle(header, bytes(body), connection)
            else:
                answer = connection.park(exclusive=True)
                self._start(connection, header, self._serve_coroutine(connection, header, bytes(body), answer))
            return
        answer = connection.hold()

        def serve() -> Coroutine[object, object, None]:
            if is_by_callback:
                return self._callback.handle_large(header, body, connection, answer)
            return self._serve_coroutine(connection, header, body, answer)

        self._start(connection, header, self._large.in_turn(header.api_key, len(body), connection, serve))

    def _start(self, connection: Connection, header: RequestHeader, serving: Coroutine[object, object, None]) -> None:
        guarded = self._guarded(connection, header, serving)
        task = asyncio.get_running_loop().create_task(timed(guarded, connection.quotas))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(
        self, connection: Connection, header: RequestHeader, serving: Coroutine[object, object, None]
    ) -> None:
        try:
            await serving
        except WireError as error:
            self.refuse(connection, error)
        except Exception as error:  # noqa: BLE001 (close_failed logs it, with its traceback)
            # A bug must not leave a client waiting for ever: the connection is closed and the failure logged.
            close_failed(connection, error, api_key=header.api_key)

    async def _serve_coroutine(
        self, connection: Connection, header: RequestHeader, body: bytes | memoryview, answer: Answer
    ) -> None:
        serving = self._coroutine(header, body, connection)
        # It lets the bytes go when it has read them.
        del body
        pieces = await serving
        if not connection.is_closed:
            answer.complete(pieces)
            self._ready.add(connection)


def _is_answered(header: RequestHeader, offered: Mapping[ApiKey, tuple[int, int]]) -> bool:
    if header.api_key == ApiKey.API_VERSIONS:
        return True
    try:
        lowest, highest = offered[ApiKey(header.api_key)]
    except (KeyError, ValueError):
        return False
    return lowest <= header.api_version <= highest
