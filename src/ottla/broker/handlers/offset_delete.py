"""OffsetDelete (key 47), v0-v0.

Takes committed offsets of a group away, but for topics that its members read.  UNKNOWN_TOPIC_OR_PARTITION for a
topic that does not exist, GROUP_SUBSCRIBED_TO_TOPIC for one that is read, GROUP_ID_NOT_FOUND.  A partition without
a committed offset is no error.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.context import BrokerContext, Call
from ottla.groups.commands import DeleteOffsets, TopicPartitions
from ottla.groups.replies import DeleteOffsetsReply, TopicErrors
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def answer(
    request: OffsetDeleteRequest, broker: BrokerContext, call: Call, reply: Callable[[OffsetDeleteResponse], None]
) -> None:
    wanted = [TopicPartitions(each.name, [one.partition_index for one in each.partitions]) for each in request.topics]
    known = [each for each in wanted if each.topic in broker.topics.by_name]
    unknown = [
        TopicErrors(each.topic, [(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for index in each.partitions])
        for each in wanted
        if each.topic not in broker.topics.by_name
    ]

    def on_reply(deleted: DeleteOffsetsReply) -> None:
        if deleted.error is not ErrorCode.NONE:
            reply(OffsetDeleteResponse(error_code=deleted.error))
        else:
            reply(OffsetDeleteResponse(topics=[_topic(each) for each in [*deleted.topics, *unknown]]))

    broker.groups.submit(request.group_id, DeleteOffsets(request.group_id, known), on_reply)


def _topic(found: TopicErrors) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(found.topic, [OffsetDeleteResponsePartition(*each) for each in found.partitions])
