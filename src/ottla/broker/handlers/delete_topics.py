"""DeleteTopics (key 20), v1-v6.

Topics are named, or from v6 on given by id.  UNKNOWN_TOPIC_OR_PARTITION for an unknown name, UNKNOWN_TOPIC_ID for an
unknown id, INVALID_REQUEST for one that occurs twice, has both name and id, or neither.  With delete.topic.enable off:
TOPIC_DELETION_DISABLED, before v3 INVALID_REQUEST.  An internal topic is INVALID_TOPIC_EXCEPTION, unless none of its
logs could be created.  When the answer is sent the topic is no longer in the tree nor served; its files are removed
later.  The time-out is not used.  When the client has used up its controller_mutation_rate, THROTTLING_QUOTA_EXCEEDED
from v5 on; before, it is throttled.

Errors of the tree: see handlers/create_topics.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from ottla.broker.context import BrokerContext, Call, count_mutations, require_mutations
from ottla.broker.handlers.error_text import error_text
from ottla.coordination.topics_view import Topic
from ottla.model.broker_settings import DELETE_TOPIC_ENABLE
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, RequestError
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.schemas.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.runtime.loop_offload import LoopOffload
from ottla.runtime.offload import Offload

_DISABLED_FROM_VERSION: Final = 3
# With controller_mutation_rate: older clients do not know the error, and are throttled.
_STRICT_FROM_VERSION: Final = 5


async def handle(request: DeleteTopicsRequest, context: BrokerContext, call: Call) -> DeleteTopicsResponse:
    turn = LoopOffload()
    wanted = request.topics or [DeleteTopicState(name) for name in request.topic_names]
    if not context.settings[DELETE_TOPIC_ENABLE]:
        is_named = call.api_version >= _DISABLED_FROM_VERSION
        code = ErrorCode.TOPIC_DELETION_DISABLED if is_named else ErrorCode.INVALID_REQUEST
        return DeleteTopicsResponse(
            responses=[_refused(each, code, "delete.topic.enable is false") async for each in _in_turns(wanted, turn)]
        )
    given: dict[tuple[object, ...], DeleteTopicState] = {}
    given_twice: set[tuple[object, ...]] = set()
    async for each in _in_turns(wanted, turn):
        key = _key(each, context)
        if given.setdefault(key, each) is not each:
            given_twice.add(key)
    responses: list[DeletableTopicResult] = []
    for key, each in given.items():
        await turn.pause()
        if key in given_twice:
            problem = "the topic is there twice in the request"
            responses.append(_refused(each, ErrorCode.INVALID_REQUEST, problem))
        else:
            responses.append(await _delete(each, context, call))
    return DeleteTopicsResponse(responses=responses)


async def _in_turns(wanted: Sequence[DeleteTopicState], turn: Offload) -> AsyncIterator[DeleteTopicState]:
    for each in wanted:
        await turn.pause()
        yield each


def _key(wanted: DeleteTopicState, context: BrokerContext) -> tuple[object, ...]:
    """Equal for two that mean the same topic, by name or by id."""
    known = _find(wanted, context)
    return (wanted.name, wanted.topic_id) if isinstance(known, RequestError) else (known.topic_id,)


def _find(wanted: DeleteTopicState, context: BrokerContext) -> Topic | RequestError:
    has_id = wanted.topic_id != ZERO_UUID
    if (wanted.name is not None) is has_id:
        problem = "a topic is given by its name or by its id" + (", not by both" if has_id else "")
        return RequestError(ErrorCode.INVALID_REQUEST, problem)
    if has_id:
        by_id = context.topics.by_id.get(wanted.topic_id)
        return by_id or RequestError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
    assert wanted.name is not None
    by_name = context.topics.by_name.get(wanted.name)
    return by_name or RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {wanted.name!r}")


async def _delete(wanted: DeleteTopicState, context: BrokerContext, call: Call) -> DeletableTopicResult:
    known = _find(wanted, context)
    if isinstance(known, RequestError):
        return _refused(wanted, known.code, error_text(known))
    try:
        require_mutations(call, _STRICT_FROM_VERSION)
        # By id as well: a topic that was recreated under the name meanwhile is another one.
        await context.topic_admin.delete(known.name, known.topic_id)
        count_mutations(call, len(known.partitions), _STRICT_FROM_VERSION)
    except OttlaError as error:
        return _refused(wanted, error.error_code, error_text(error))
    return DeletableTopicResult(known.name, known.topic_id)


def _refused(wanted: DeleteTopicState, code: ErrorCode, message: str) -> DeletableTopicResult:
    return DeletableTopicResult(wanted.name, wanted.topic_id, code, message)
