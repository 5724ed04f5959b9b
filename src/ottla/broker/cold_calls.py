"""Requests that are not on the hot path: decoded by their schema, served by a coroutine, encoded again."""

from __future__ import annotations

from typing import Final

from ottla.broker.connection import Connection
from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers import HANDLERS
from ottla.broker.handlers.api_versions import unsupported_version_response
from ottla.broker.metadata_answers import MetadataAnswers
from ottla.protocol.api import API_VERSIONS, ApiKey
from ottla.protocol.frame import RequestHeader, response_frame
from ottla.protocol.messages import decode_request, encode_response
from ottla.protocol.schemas.metadata import MetadataResponse

_UNKNOWN_VERSION_ANSWERED_AS: Final = 0


class ColdCalls:
    """Answers the requests of every API but Produce and Fetch."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._metadata_answers = MetadataAnswers()

    async def answer(self, header: RequestHeader, body: bytes, connection: Connection) -> bytes:
        """The whole response frame.  Raises `WireError` when the body is not what its version says."""
        api = ApiKey(header.api_key)
        version = header.api_version
        if version not in API_VERSIONS[api]:
            assert api is ApiKey.API_VERSIONS
            version = _UNKNOWN_VERSION_ANSWERED_AS
            response: object = unsupported_version_response()
        else:
            call = Call(version, header.client_id, connection.local_address, auto_creations=connection.auto_creations)
            if api is ApiKey.METADATA:
                return response_frame(api, version, header.correlation_id, await self._metadata(call, body))
            response = await HANDLERS[api](decode_request(api, version, body), self._broker, call)
        return response_frame(api, version, header.correlation_id, encode_response(api, version, response))

    async def _metadata(self, call: Call, body: bytes) -> bytes:
        """The body of the answer, which for many partitions is cached until the topics change."""
        asked = (self._broker.live.version, self._broker.may_lead, call.api_version, call.local_address, body)
        view = self._broker.topics
        kept = self._metadata_answers.find(view, asked)
        if kept is not None:
            return kept
        request = decode_request(ApiKey.METADATA, call.api_version, body)
        response = await HANDLERS[ApiKey.METADATA](request, self._broker, call)
        assert isinstance(response, MetadataResponse)
        answer = encode_response(ApiKey.METADATA, call.api_version, response)
        if self._broker.topics is view:  # else parts of the answer may describe the former topics
            self._metadata_answers.keep(view, asked, response, answer)
        return answer
