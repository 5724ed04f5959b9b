"""OffsetFetch (key 9), v1-v9.

Partitions without a committed offset are answered with -1 and no error, unknown groups too.  Null topics (v2+) ask for
all that the group has committed.  v8+ takes many groups in one request.  An error of the group is in each named
partition up to v7, from v2 on once for the request, too, and from v8 on once for the group.  Departures: up to v7 an
error is in both places, since aiokafka (v3) looks at partitions only: without one it takes the group for one that has
committed nothing, begins anew and commits lower offsets.  A partition that is named twice is answered once, and a group
that is named twice is INVALID_REQUEST.  A name takes a few bytes in a request, and committed metadata may take
thousands in the answer.  `require_stable` (v7+) changes nothing: there are no transactions, and an answer always waits
until the commits before it are committed in the log, as with it in Apache Kafka.
Not done: v10 (topic ids).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.broker.groups.gathering import Gathering
from ottla.groups.commands import FetchOffsets, TopicPartitions
from ottla.groups.replies import FetchReply
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NO_LEADER_EPOCH, NO_OFFSET
from ottla.protocol.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

_GROUP_ERROR_FROM: Final = 2
_MANY_FROM: Final = 8


def answer(
    request: OffsetFetchRequest, broker: BrokerContext, call: Call, reply: Callable[[OffsetFetchResponse], None]
) -> None:
    if call.api_version >= _MANY_FROM:
        groups = request.groups
    else:
        groups = [OffsetFetchRequestGroup(request.group_id, topics=request.topics)]

    def on_all(fetched: list[FetchReply]) -> None:
        if call.api_version >= _MANY_FROM:
            reply(
                OffsetFetchResponse(
                    groups=[
                        OffsetFetchResponseGroup(group.group_id, _topics(found), found.error)
                        for group, found in zip(groups, fetched, strict=True)
                    ]
                )
            )
        else:
            reply(_single(request.topics, fetched[0], call.api_version))

    gathering = Gathering(len(groups), on_all)
    named: set[str] = set()
    for index, group in enumerate(groups):
        if group.group_id in named:
            gathering.place(index)(FetchReply(ErrorCode.INVALID_REQUEST))
            continue
        named.add(group.group_id)
        command = FetchOffsets(group.group_id, _wanted(group.topics), group.member_id, group.member_epoch)
        broker.groups.submit(group.group_id, command, gathering.place(index))


def _wanted(topics: Sequence[OffsetFetchRequestTopic] | None) -> Sequence[TopicPartitions] | None:
    """Each topic and each partition once, in the order in which they are named first."""
    if topics is None:
        return None
    wanted: dict[str, dict[int, None]] = {}
    for topic in topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return [TopicPartitions(name, list(partitions)) for name, partitions in wanted.items()]


def _single(wanted: Sequence[OffsetFetchRequestTopic] | None, fetched: FetchReply, version: int) -> OffsetFetchResponse:
    if fetched.error is ErrorCode.NONE:
        return OffsetFetchResponse(topics=_topics(fetched))
    failed = [_failed(topic, fetched.error) for topic in wanted or ()]
    return OffsetFetchResponse(
        topics=failed, error_code=fetched.error if version >= _GROUP_ERROR_FROM else ErrorCode.NONE
    )


def _topics(fetched: FetchReply) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(topic.topic, [OffsetFetchResponsePartition(*each) for each in topic.partitions])
        for topic in fetched.topics
    ]


def _failed(topic: OffsetFetchRequestTopic, error: ErrorCode) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        topic.name,
        [
            OffsetFetchResponsePartition(index, NO_OFFSET, NO_LEADER_EPOCH, "", error)
            for index in topic.partition_indexes
        ],
    )
