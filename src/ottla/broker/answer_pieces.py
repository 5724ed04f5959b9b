"""The answer of a request as its outbox takes it, written in steps."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.limits import COLD_ANSWER_BYTES_MAX, COPIED_ANSWER_BYTES_MAX
from ottla.broker.outbox import Piece
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import response_frame, response_head
from ottla.protocol.messages import encode_response_steps
from ottla.runtime.steps import Steps


def response_pieces(api: ApiKey, version: int, correlation_id: int, response: object) -> Steps[Sequence[Piece]]:
    """The whole frame.  Raises `WireError` when it has more than `COLD_ANSWER_BYTES_MAX`."""
    body = yield from encode_response_steps(api, version, response, COLD_ANSWER_BYTES_MAX)
    if len(body) <= COPIED_ANSWER_BYTES_MAX:
        return (response_frame(api, version, correlation_id, body),)
    return (response_head(api, version, correlation_id, len(body)), memoryview(body))
