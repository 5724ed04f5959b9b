"""The answer of a request as its outbox takes it."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.net.limits import COLD_ANSWER_BYTES_MAX, COPIED_ANSWER_BYTES_MAX
from ottla.broker.net.outbox import Piece
from ottla.broker.net.response_budget import ResponseBudget
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import response_frame, response_head
from ottla.protocol.messages import encode_response_steps
from ottla.runtime.loop_offload import paced


async def response_pieces(
    api: ApiKey, version: int, correlation_id: int, response: object, budget: ResponseBudget
) -> Sequence[Piece]:
    """The whole frame, written in steps.

    Raises `WireError` when it has more than `COLD_ANSWER_BYTES_MAX`, or finds no room in the budget.
    """
    body = await paced(encode_response_steps(api, version, response, COLD_ANSWER_BYTES_MAX))
    return await body_pieces(api, version, correlation_id, body, budget)


async def body_pieces(
    api: ApiKey, version: int, correlation_id: int, body: bytes | bytearray, budget: ResponseBudget
) -> Sequence[Piece]:
    """The whole frame of a response that is written already.  Raises `WireError` when it finds no room."""
    if len(body) <= COPIED_ANSWER_BYTES_MAX:
        return (response_frame(api, version, correlation_id, body),)
    return (response_head(api, version, correlation_id, len(body)), await budget.counted(body))
