"""OffsetDelete (key 47), v0-v0.

Deletes committed offsets of a group, except of topics that its members subscribe to.  UNKNOWN_TOPIC_OR_PARTITION for a
partition that does not exist, GROUP_SUBSCRIBED_TO_TOPIC for a subscribed topic, GROUP_ID_NOT_FOUND.  A partition
without a committed offset is no error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.broker.context import BrokerContext, Call
from ottla.groups.commands import DeleteOffsets, TopicPartitions
from ottla.groups.replies import DeleteOffsetsReply
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.runtime.steps import Steps


def answer(
    request: OffsetDeleteRequest,
    context: BrokerContext,
    call: Call,
    reply: Callable[[OffsetDeleteResponse | Steps[OffsetDeleteResponse]], None],
) -> Steps[None]:
    # Each partition once, however often it is named.
    known: dict[str, dict[int, None]] = {}
    unknown: dict[str, dict[int, None]] = {}
    for wanted in request.topics:
        for one in wanted.partitions:
            is_there = context.topics.partition(TopicPartition(wanted.name, one.partition_index)) is not None
            (known if is_there else unknown).setdefault(wanted.name, {})[one.partition_index] = None
            yield
        yield

    def response(deleted: DeleteOffsetsReply) -> Steps[OffsetDeleteResponse]:
        topics = {each.topic: list(each.partitions) for each in deleted.topics}
        for topic, indexes in unknown.items():
            topics.setdefault(topic, []).extend((index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for index in indexes)
            yield
        answered = []
        for each in topics.items():
            answered.append(_topic(*each))
            yield
        return OffsetDeleteResponse(topics=answered)

    def on_reply(deleted: DeleteOffsetsReply) -> None:
        if deleted.error is not ErrorCode.NONE:
            reply(OffsetDeleteResponse(error_code=deleted.error))
        else:
            reply(response(deleted))

    topics = [TopicPartitions(name, list(indexes)) for name, indexes in known.items()]
    context.groups.submit(request.group_id, DeleteOffsets(request.group_id, topics), on_reply)


def _topic(name: str, partitions: Iterable[tuple[int, ErrorCode]]) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(name, [OffsetDeleteResponsePartition(*each) for each in partitions])
