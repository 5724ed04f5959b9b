"""Requests about groups: without a task each, since commits and heartbeats come by the thousand and joins wait long.

The reply comes during the call, or later from the groups: by a flush, a deadline, another member's request.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.connection import Answer, Connection
from ottla.broker.context import BrokerContext, Call
from ottla.broker.failed_request import close_failed
from ottla.broker.handlers import GROUP_HANDLERS
from ottla.broker.ready_connections import ReadyConnections
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import RequestHeader, response_frame
from ottla.protocol.messages import decode_request, encode_response


class GroupCall:
    """One request that is being answered; `reply` takes the response, once."""

    __slots__ = ("_answer", "_api", "_connection", "_frame", "_header", "_ready")

    def __init__(self, connection: Connection, api: ApiKey, header: RequestHeader, ready: ReadyConnections) -> None:
        self._connection = connection
        self._api = api
        self._header = header
        self._ready = ready
        self._answer: Answer | None = None
        self._frame: bytes | None = None

    def reply(self, response: object) -> None:
        if self._connection.is_closed:
            return
        header = self._header
        try:
            body = encode_response(self._api, header.api_version, response)
        except Exception as error:  # noqa: BLE001 (close_failed tells it, with its traceback)
            # The caller is about to release other requests: a bug in this answer must not keep them waiting.
            close_failed(self._connection, error, api_key=int(self._api))
            return
        frame = response_frame(self._api, header.api_version, header.correlation_id, body)
        if self._answer is None:
            self._frame = frame
        else:
            self._answer.complete((frame,))
            self._ready.add(self._connection)

    def send_or_park(self) -> None:
        """The handler has returned: send its reply, or reserve the request's position."""
        if self._frame is not None:
            self._connection.answer_now(self._frame)
        elif not self._connection.is_closed:
            self._answer = self._connection.park(exclusive=True)


class GroupCalls:
    """Serves the APIs of `GROUP_HANDLERS`."""

    def __init__(self, broker: BrokerContext, ready: ReadyConnections) -> None:
        self._broker: Final = broker
        self._ready: Final = ready

    def handle(self, header: RequestHeader, body: bytes, connection: Connection) -> None:
        """Serve one request of an offered version.  Raises `WireError` when the body is not what its version says."""
        api = ApiKey(header.api_key)
        request = decode_request(api, header.api_version, body)
        host = connection.peer_name.rpartition(":")[0]
        # Java writes an address without a name like this, and tools show it as it is.
        call = Call(header.api_version, header.client_id, connection.local_address, f"/{host}")
        waiting = GroupCall(connection, api, header, self._ready)
        GROUP_HANDLERS[api](request, self._broker, call, waiting.reply)
        waiting.send_or_park()
