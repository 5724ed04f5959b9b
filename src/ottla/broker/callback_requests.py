"""Requests to the coordinators of groups and of transactions, whose handlers reply by callback.

They need no task each: commits and heartbeats come by the thousand, and joins wait long.  The reply comes during the
call, or later from the coordinator: by a flush, a deadline, another member's request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, cast

from ottla.broker.admin_changes import CHANGING, ChangeReports
from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers import CALLBACK_HANDLERS
from ottla.broker.net.client_quotas import timed
from ottla.broker.net.connection import Answer, Connection
from ottla.broker.net.limits import COPIED_ANSWER_BYTES_MAX, IN_STEPS_ELEMENTS
from ottla.broker.net.outbox import Piece
from ottla.broker.net.ready_connections import ReadyConnections
from ottla.broker.net.request_meter import SlowRequests
from ottla.broker.net.request_tasks import close_failed
from ottla.broker.net.response_budget import ResponseBudget
from ottla.broker.net.response_pieces import response_pieces
from ottla.model.errors import WireError
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import RequestHeader, response_frame
from ottla.protocol.messages import decode_request, decode_request_steps, encode_response
from ottla.protocol.writer import is_long
from ottla.runtime.loop_offload import paced, run_first_slice, run_slice
from ottla.runtime.steps import Steps

if TYPE_CHECKING:
    from ottla.broker.authorization.api_guards import GuardedCalls
    from ottla.protocol.schemas.join_group import JoinGroupRequest

# For other members, as long as they take.
_WAITS_BY_INTENTION: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})


class CallbackRequest:
    """One request that is being answered; `reply` takes the response, or the steps that make it, once."""

    __slots__ = (
        "_answer",
        "_api",
        "_began_s",
        "_budget",
        "_connection",
        "_frame",
        "_header",
        "_is_answered",
        "_read_s",
        "_ready",
        "_served_s",
        "_slow",
        "_start",
    )

    def __init__(
        self,
        connection: Connection,
        api: ApiKey,
        header: RequestHeader,
        ready: ReadyConnections,
        start: Callable[[Coroutine[object, object, None], Connection], None],
        budget: ResponseBudget,
        answer: Answer | None = None,
        slow: SlowRequests | None = None,
        began_s: float = 0.0,
    ) -> None:
        """`start` runs a coroutine beside others; `answer`: the request's position, when it has one already.

        `slow` reports it when it takes long, since `began_s`.
        """
        self._connection = connection
        self._api = api
        self._header = header
        self._ready = ready
        self._start = start
        self._budget = budget
        self._answer = answer
        self._frame: bytes | None = None
        self._slow = slow
        self._began_s = began_s
        self._read_s = self._served_s = perf_counter()
        self._is_answered = False

    @property
    def is_answered(self) -> bool:
        return self._is_answered

    def served(self) -> None:
        """The handler has returned; the reply may come later."""
        self._served_s = perf_counter()
        if self._api in _WAITS_BY_INTENTION:
            self._note(self._served_s)

    def _note(self, now_s: float) -> None:
        slow = self._slow
        if slow is not None and now_s - self._began_s > slow.limit_s:
            served_s = max(self._served_s, self._read_s)
            parts = {
                "read": self._read_s - self._began_s,
                "work": served_s - self._read_s,
                "flush": max(now_s - served_s, 0.0),
            }
            slow.note(self._connection, self._api, self._header.api_version, **parts)

    def reply(self, response: object) -> None:
        self._is_answered = True
        if self._connection.is_closed:
            return
        if isinstance(response, Generator):
            try:
                is_made, response = run_first_slice(response)
            except Exception as error:  # noqa: BLE001 (close_failed logs it, with its traceback)
                close_failed(self._connection, error, api_key=int(self._api))
                return
            if not is_made:
                self._start(self._reply_in_steps(response), self._connection)
                return
        self._count(response)
        if is_long(response, IN_STEPS_ELEMENTS):
            self._start(self._reply_in_steps(response), self._connection)
            return
        header = self._header
        try:
            body = encode_response(self._api, header.api_version, response)
        except Exception as error:  # noqa: BLE001 (close_failed logs it, with its traceback)
            # The caller is about to release other requests: a bug in this answer must not keep them waiting.
            close_failed(self._connection, error, api_key=int(self._api))
            return
        if len(body) > COPIED_ANSWER_BYTES_MAX:
            self._start(self._reply_in_steps(response), self._connection)
            return
        frame = response_frame(self._api, header.api_version, header.correlation_id, body)
        if self._api not in _WAITS_BY_INTENTION:
            self._note(perf_counter())
        if self._answer is None:
            self._frame = frame
        else:
            self._complete((frame,))

    def send_or_park(self) -> None:
        """The handler has returned: send its reply, or reserve the request's position."""
        if self._frame is not None:
            self._connection.answer_now(self._frame)
        elif not self._connection.is_closed:
            self._answer = self._connection.park(exclusive=True)

    async def _reply_in_steps(self, response: object) -> None:
        header = self._header
        try:
            if isinstance(response, Generator):
                response = await paced(response)
                self._count(response)
            pieces = await response_pieces(self._api, header.api_version, header.correlation_id, response, self._budget)
            if self._api not in _WAITS_BY_INTENTION:
                self._note(perf_counter())
            self._complete(pieces)
        except WireError as error:
            self._connection.refuse(str(error))
        except Exception as error:  # noqa: BLE001 (close_failed logs it, with its traceback)
            close_failed(self._connection, error, api_key=int(self._api))

    def _count(self, response: object) -> None:
        quotas = self._connection.quotas
        if quotas is not None:
            quotas.answer(response)

    def _complete(self, pieces: Sequence[Piece]) -> None:
        if not self._connection.is_closed:
            if self._api is ApiKey.JOIN_GROUP:
                self._connection.unwatch_close()
            assert self._answer is not None, "a request has a position before its answer is sent"
            self._answer.complete(pieces)
            self._ready.add(self._connection)


class CallbackRequests:
    """Serves the APIs of `CALLBACK_HANDLERS`."""

    def __init__(
        self,
        context: BrokerContext,
        ready: ReadyConnections,
        slow: SlowRequests | None = None,
        budget: ResponseBudget | None = None,
        guarded: GuardedCalls | None = None,
        changes: ChangeReports | None = None,
    ) -> None:
        """`slow` reports the requests that take long; `budget` counts the large answers.

        `guarded` serves connections that have an access; None: there is no authorizer.  `changes` reports what
        administrators change.
        """
        self._guarded: Final = guarded
        self._changes: Final = changes
        self._budget: Final = budget or ResponseBudget()
        self._slow: Final = slow
        self._context: Final = context
        self._ready: Final = ready
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    def handle(self, header: RequestHeader, body: bytes, connection: Connection) -> None:
        """Serve one request of an offered version.  Raises `WireError` when the body is not what its version says."""
        api = ApiKey(header.api_key)
        began_s = perf_counter()
        request = decode_request(api, header.api_version, body)
        waiting = self._request(connection, api, header, None, began_s)
        steps = self._served(api, request, _call(header, connection), waiting, connection)
        if steps is not None and not run_slice(steps):
            self._start(_run_paced(steps, connection, api), connection)
        waiting.served()
        waiting.send_or_park()
        if api is ApiKey.JOIN_GROUP:
            self._watch_join(cast("JoinGroupRequest", request).group_id, connection, waiting)

    async def handle_large(
        self, header: RequestHeader, body: memoryview, connection: Connection, answer: Answer
    ) -> None:
        """The same in steps; the connection holds the body, and has reserved the answer's position."""
        api = ApiKey(header.api_key)
        began_s = perf_counter()
        request = await paced(decode_request_steps(api, header.api_version, body))
        del body
        connection.let_go()
        waiting = self._request(connection, api, header, answer, began_s)
        steps = self._served(api, request, _call(header, connection), waiting, connection)
        if api is ApiKey.JOIN_GROUP:
            self._watch_join(cast("JoinGroupRequest", request).group_id, connection, waiting)
        del request
        if steps is not None:
            await paced(steps)
        waiting.served()

    def _served(
        self, api: ApiKey, request: object, call: Call, waiting: CallbackRequest, connection: Connection
    ) -> Steps[None] | None:
        handler, access = CALLBACK_HANDLERS[api], connection.access
        reply: Callable[[object], None] = waiting.reply
        if self._changes is not None and api in CHANGING:
            reply = self._changes.reporting(api, call, request, reply)
        if access is None:
            return handler(request, self._context, call, reply)
        assert self._guarded is not None, "an access without an authorizer"
        return self._guarded.answer(api, handler, request, self._context, call, reply, access)

    def _request(
        self, connection: Connection, api: ApiKey, header: RequestHeader, answer: Answer | None, began_s: float
    ) -> CallbackRequest:
        return CallbackRequest(
            connection, api, header, self._ready, self._start, self._budget, answer, self._slow, began_s
        )

    def _watch_join(self, group_id: str, connection: Connection, waiting: CallbackRequest) -> None:
        """Report to the group when the connection closes while its join is parked."""
        if connection.is_closed:
            self._context.groups.abandon_join(group_id, connection)
        elif not waiting.is_answered:
            connection.watch_close(partial(self._context.groups.abandon_join, group_id, connection))

    def _start(self, work: Coroutine[object, object, None], connection: Connection) -> None:
        task = asyncio.get_running_loop().create_task(timed(work, connection.quotas))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _run_paced(steps: Steps[None], connection: Connection, api: ApiKey) -> None:
    try:
        await paced(steps)
    except Exception as error:  # noqa: BLE001 (close_failed logs it, with its traceback)
        close_failed(connection, error, api_key=int(api))


def _call(header: RequestHeader, connection: Connection) -> Call:
    host = connection.peer_name.rpartition(":")[0]
    # Java writes an address without a name like this, and tools show it as it is.
    return Call(
        header.api_version,
        header.client_id,
        connection.local_address,
        f"/{host}",
        connection=connection,
        principal=connection.principal,
        listener_name=connection.listener_name,
        connection_number=connection.number,
    )
