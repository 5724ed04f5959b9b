"""Requests that are not on the hot path: decoded by their schema, served by a coroutine, encoded again."""

from __future__ import annotations

from typing import Final

from ottla.broker.connection import Connection
from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers import HANDLERS
from ottla.broker.handlers.api_versions import unsupported_version_response
from ottla.protocol.api import API_VERSIONS, ApiKey
from ottla.protocol.frame import RequestHeader, response_frame
from ottla.protocol.messages import decode_request, encode_response

_UNKNOWN_VERSION_ANSWERED_AS: Final = 0


class ColdCalls:
    """Answers the requests of every API but Produce and Fetch."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def answer(self, header: RequestHeader, body: bytes, connection: Connection) -> bytes:
        """The whole response frame.  Raises `WireError` when the body is not what its version says."""
        api = ApiKey(header.api_key)
        version = header.api_version
        if version not in API_VERSIONS[api]:
            assert api is ApiKey.API_VERSIONS
            version = _UNKNOWN_VERSION_ANSWERED_AS
            response: object = unsupported_version_response()
        else:
            request = decode_request(api, version, body)
            call = Call(version, header.client_id, connection.local_address)
            response = await HANDLERS[api](request, self._broker, call)
        return response_frame(api, version, header.correlation_id, encode_response(api, version, response))
