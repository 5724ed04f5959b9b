"""Requests that are not on the hot path: decoded by their schema, served by a coroutine, encoded again."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Final

from ottla.broker.admin_changes import CHANGING, ChangeReports
from ottla.broker.context import BrokerContext, Call, releases_clients
from ottla.broker.handlers import HANDLERS
from ottla.broker.handlers.api_versions import unsupported_version_response
from ottla.broker.net.access import Access
from ottla.broker.net.connection import Connection
from ottla.broker.net.outbox import Piece
from ottla.broker.net.request_meter import SlowRequests
from ottla.broker.net.response_budget import ResponseBudget
from ottla.broker.net.response_pieces import body_pieces, response_pieces
from ottla.coordination.topics_view import NO_TOPICS, TopicsView
from ottla.model.error_code import ErrorCode
from ottla.protocol.api import API_VERSIONS, ApiKey
from ottla.protocol.frame import RequestHeader
from ottla.protocol.messages import decode_request, decode_request_steps, encode_response_steps
from ottla.protocol.primitives import INT32
from ottla.protocol.schemas.metadata import MetadataRequest, MetadataResponse
from ottla.runtime.loop_offload import paced

if TYPE_CHECKING:
    from ottla.broker.authorization.api_guards import GuardedCalls

# Smaller answers are too cheap to be worth keeping.
PARTITIONS_COUNT_MIN: Final = 20
ANSWERS_COUNT_MAX: Final = 64
ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024

_UNKNOWN_VERSION_ANSWERED_AS: Final = 0
# From here on the body starts with the throttle time.
_METADATA_THROTTLED_FROM: Final = 3
# By which clients look for leaders and coordinators, and how many of each are answered on a connection to a broker that
# cannot lead, before it is closed: clients send these to a broker that they are connected to, and find another one when
# they are not.  The first answers count: tools that send one request see what this broker knows.  librdkafka requests
# metadata after a refused ListOffsets, and waits long before it connects again; kafka-python 3.0 repeats a refused
# ListOffsets hundreds of times a second, and requests metadata only when its connection closes.
_ANSWERED_IN_VAIN_MAX: Final = {ApiKey.METADATA: 1, ApiKey.FIND_COORDINATOR: 1, ApiKey.LIST_OFFSETS: 100}
_RELEASED: Final = "this broker may not lead now: another broker knows the leaders"


class MetadataAnswers:
    """Metadata answers that are kept as bytes while the topics stay as they are; a new view of them empties it.

    An answer for 10,000 partitions takes some 35 ms to make and a request for it 30 bytes: all clients that start
    together, or one hostile client, would block all others.
    """

    def __init__(self) -> None:
        self._view = NO_TOPICS
        self._bodies: OrderedDict[Hashable, bytes] = OrderedDict()
        self._size_bytes = 0

    def find(self, view: TopicsView, request: Hashable) -> bytes | None:
        """The body that was kept for an equal request; the request must hold all that the answer depends on."""
        if view is not self._view:
            self._forget_all(view)
            return None
        body = self._bodies.get(request)
        if body is not None:
            self._bodies.move_to_end(request)
        return body

    def keep(self, view: TopicsView, request: Hashable, response: MetadataResponse, body: bytes) -> None:
        """Keep a large answer without errors: one with errors may differ the next time."""
        if view is not self._view:
            self._forget_all(view)
        partitions_count = sum(len(topic.partitions) for topic in response.topics)
        if partitions_count < PARTITIONS_COUNT_MIN or len(body) > ANSWER_BYTES_MAX or _has_errors(response):
            return
        self._size_bytes += len(body) - len(self._bodies.pop(request, b""))
        self._bodies[request] = body
        while len(self._bodies) > ANSWERS_COUNT_MAX or self._size_bytes > ANSWER_BYTES_MAX:
            _, dropped = self._bodies.popitem(last=False)
            self._size_bytes -= len(dropped)

    def _forget_all(self, view: TopicsView) -> None:
        self._view = view
        self._bodies.clear()
        self._size_bytes = 0


def _with_throttle(body: bytes | bytearray, throttle_ms: int) -> bytes | bytearray:
    """Cached answers have none."""
    return INT32.pack(throttle_ms) + body[INT32.size :] if throttle_ms else body


def _has_errors(response: MetadataResponse) -> bool:
    return any(
        topic.error_code != ErrorCode.NONE or any(each.error_code != ErrorCode.NONE for each in topic.partitions)
        for topic in response.topics
    )


class _InMaking:
    """A Metadata answer that is being made; None when that is over: it is of no use to others."""

    __slots__ = ("answer", "is_over")

    def __init__(self) -> None:
        self.answer: bytes | None = None
        self.is_over = asyncio.Event()


class AsyncRequests:
    """Answers the requests of every API but Produce, Fetch and those that reply by callback (`HANDLERS`)."""

    def __init__(
        self,
        context: BrokerContext,
        slow: SlowRequests | None = None,
        budget: ResponseBudget | None = None,
        guarded: GuardedCalls | None = None,
        changes: ChangeReports | None = None,
    ) -> None:
        """`slow` reports the requests that take long; `budget` counts the large answers.

        `guarded` serves connections that have an access; None: there is no authorizer.  `changes` reports what
        administrators change.
        """
        self._guarded = guarded
        self._changes = changes
        self._budget = budget or ResponseBudget()
        self._context = context
        self._slow = slow
        self._metadata_answers = MetadataAnswers()
        self._in_making: dict[Hashable, _InMaking] = {}

    async def answer(self, header: RequestHeader, body: bytes | memoryview, connection: Connection) -> Sequence[Piece]:
        """The whole response frame.  Raises `WireError` when the body is not what its version says.

        A view is of the connection's buffer, which is let go when it has been read.
        """
        api = ApiKey(header.api_key)
        version = header.api_version
        began_s = read_s = served_s = perf_counter()
        if version not in API_VERSIONS[api]:
            assert api is ApiKey.API_VERSIONS
            version = _UNKNOWN_VERSION_ANSWERED_AS
            response: object = unsupported_version_response()
            connection.let_go()
        else:
            if (
                api in _ANSWERED_IN_VAIN_MAX
                and releases_clients(self._context)
                and not _wants_brokers_only(api, version, body)
            ):
                answered_count = connection.answered_in_vain.get(api, 0)
                connection.answered_in_vain[api] = answered_count + 1
                if answered_count >= _ANSWERED_IN_VAIN_MAX[api]:
                    connection.release(_RELEASED)
            call = Call(
                version,
                header.client_id,
                connection.local_address,
                f"/{connection.peer_host}",
                auto_creations=connection.auto_creations,
                principal=connection.principal,
                listener_name=connection.listener_name,
                connection_number=connection.number,
                quotas=connection.quotas,
            )
            if api is ApiKey.METADATA and isinstance(body, bytes):
                made = await self._metadata(call, body, connection.access)
                served_s = perf_counter()
                if connection.quotas is not None:
                    throttle_ms = connection.quotas.answered()
                    if version >= _METADATA_THROTTLED_FROM:
                        made = _with_throttle(made, throttle_ms)
                pieces = await body_pieces(api, version, header.correlation_id, made, self._budget)
                self._note(connection, header, began_s, read_s, served_s)
                return pieces
            if isinstance(body, bytes):
                request = decode_request(api, version, body)
            else:
                request = await paced(decode_request_steps(api, version, body))
                del body
                connection.let_go()
            read_s = perf_counter()
            response = await self._serve(api, request, call, connection.access)
            served_s = perf_counter()
            if self._changes is not None and api in CHANGING:
                self._changes.report(api, call, request, response)
            del request
            if connection.quotas is not None:
                connection.quotas.answer(response)
        pieces = await response_pieces(api, version, header.correlation_id, response, self._budget)
        self._note(connection, header, began_s, read_s, served_s)
        return pieces

    def _note(
        self, connection: Connection, header: RequestHeader, began_s: float, read_s: float, served_s: float
    ) -> None:
        ended_s = perf_counter()
        if self._slow is not None and ended_s - began_s > self._slow.limit_s:
            parts = {"read": read_s - began_s, "work": served_s - read_s, "write": ended_s - served_s}
            self._slow.note(connection, header.api_key, header.api_version, **parts)

    async def _serve(self, api: ApiKey, request: object, call: Call, access: Access | None) -> object:
        if access is None:
            return await HANDLERS[api](request, self._context, call)
        assert self._guarded is not None, "an access without an authorizer"
        return await self._guarded.serve(api, HANDLERS[api], request, self._context, call, access)

    async def _metadata(self, call: Call, body: bytes, access: Access | None) -> bytes | bytearray:
        """The body of the answer, which for many partitions is cached until the topics change.

        Of many equal requests at once, as after a restart, one computes the answer, and the others wait for it.
        Requests of two principals are never equal, nor those before and after a change of the access rules.
        """
        asker = None if access is None else (access.rights.principal, access.rights.host, access.rights.version)
        while True:
            view = self._context.topics
            key = (self._brokers_state(), asker, call.api_version, call.local_address, body)
            kept = self._metadata_answers.find(view, key)
            if kept is not None:
                return kept
            in_making = self._in_making.get(key)
            if in_making is None:
                break
            await in_making.is_over.wait()
            if in_making.answer is not None:
                return in_making.answer
        making = self._in_making[key] = _InMaking()
        try:
            request = decode_request(ApiKey.METADATA, call.api_version, body)
            response = await self._serve(ApiKey.METADATA, request, call, access)
            assert isinstance(response, MetadataResponse)
            answer = bytes(await paced(encode_response_steps(ApiKey.METADATA, call.api_version, response)))
            # Else parts of the answer may describe what was before, and others what came between two steps.
            if self._context.topics is view and self._brokers_state() == key[0]:
                self._metadata_answers.keep(view, key, response, answer)
                # A topic that this connection may not create may be created by another one.
                if not any(topic.error_code for topic in response.topics):
                    making.answer = answer
            return answer
        finally:
            del self._in_making[key]
            making.is_over.set()

    def _brokers_state(self) -> tuple[int, bool, bool, int]:
        """What an answer depends on besides the topics.

        A broker that registers again may lead before it has read that registration, and before its partitions may.
        """
        return (
            self._context.brokers.live.version,
            self._context.brokers.may_lead,
            self._context.brokers.is_replaced,
            self._context.partitions.resignations_count,
        )


def _wants_brokers_only(api: ApiKey, version: int, body: bytes | memoryview) -> bool:
    """Whether a client requests no topic: librdkafka does so on each new connection, followed by what it wants there.

    Closed at once it would learn nothing from that, and come back.
    """
    if api is not ApiKey.METADATA or version == 0 or not isinstance(body, bytes):
        return False
    request = decode_request(api, version, body)
    return isinstance(request, MetadataRequest) and request.topics == []
