"""Requests that are not on the hot path: decoded by their schema, served by a coroutine, encoded again."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Final

from ottla.broker.answer_pieces import body_pieces, response_pieces
from ottla.broker.answer_room import AnswerRoom
from ottla.broker.connection import Connection
from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers import HANDLERS
from ottla.broker.handlers.api_versions import unsupported_version_response
from ottla.broker.metadata_answers import MetadataAnswers
from ottla.broker.outbox import Piece
from ottla.broker.slow_requests import SlowRequests
from ottla.protocol.api import API_VERSIONS, ApiKey
from ottla.protocol.frame import RequestHeader
from ottla.protocol.messages import decode_request, decode_request_steps, encode_response_steps
from ottla.protocol.schemas.metadata import MetadataResponse
from ottla.runtime.loop_offload import paced

_UNKNOWN_VERSION_ANSWERED_AS: Final = 0


class ColdCalls:
    """Answers the requests of every API but Produce and Fetch."""

    def __init__(
        self, broker: BrokerContext, slow: SlowRequests | None = None, room: AnswerRoom | None = None
    ) -> None:  # fmt: skip
        """`slow` reports the requests that take long; `room` counts the large answers."""
        self._room = room or AnswerRoom()
        self._broker = broker
        self._slow = slow
        self._metadata_answers = MetadataAnswers()

    async def answer(
        self, header: RequestHeader, body: bytes | memoryview, connection: Connection
    ) -> Sequence[Piece]:  # fmt: skip
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
            call = Call(version, header.client_id, connection.local_address, auto_creations=connection.auto_creations)
            if api is ApiKey.METADATA and isinstance(body, bytes):
                made = await self._metadata(call, body)
                return await body_pieces(api, version, header.correlation_id, made, self._room)
            if isinstance(body, bytes):
                request = decode_request(api, version, body)
            else:
                request = await paced(decode_request_steps(api, version, body))
                del body
                connection.let_go()
            read_s = perf_counter()
            response = await HANDLERS[api](request, self._broker, call)
            served_s = perf_counter()
            del request
        pieces = await response_pieces(api, version, header.correlation_id, response, self._room)
        if self._slow is not None and perf_counter() - began_s > self._slow.limit_s:
            parts = {"read": read_s - began_s, "work": served_s - read_s, "write": perf_counter() - served_s}
            self._slow.note(connection, api, version, **parts)
        return pieces

    async def _metadata(self, call: Call, body: bytes) -> bytes | bytearray:
        """The body of the answer, which for many partitions is cached until the topics change."""
        before = self._brokers_state()
        asked = (before, call.api_version, call.local_address, body)
        view = self._broker.topics
        kept = self._metadata_answers.find(view, asked)
        if kept is not None:
            return kept
        request = decode_request(ApiKey.METADATA, call.api_version, body)
        response = await HANDLERS[ApiKey.METADATA](request, self._broker, call)
        assert isinstance(response, MetadataResponse)
        answer = bytes(await paced(encode_response_steps(ApiKey.METADATA, call.api_version, response)))
        # Else parts of the answer may describe what was before, and others what came between two steps.
        if self._broker.topics is view and self._brokers_state() == before:
            self._metadata_answers.keep(view, asked, response, answer)
        return answer

    def _brokers_state(self) -> tuple[int, bool]:
        return self._broker.live.version, self._broker.may_lead
