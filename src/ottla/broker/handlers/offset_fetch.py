"""OffsetFetch (key 9), v1-v9.

Partitions without a committed offset are answered with -1 and no error, unknown groups too.  Null topics (v2+) request
all that the group has committed.  v8+ takes many groups in one request.  An error of the group is in each named
partition up to v7, from v2 on once for the request, too, and from v8 on once for the group.  Departures: up to v7 an
error is in both places, since aiokafka (v3) looks at partitions only: without one it takes the group for one that has
committed nothing, starts again and commits lower offsets.  A partition that is named twice is answered once, and a
group that is named twice is INVALID_REQUEST.  A name takes a few bytes in a request, and committed metadata may take
thousands in the answer.  With `require_stable` (v7+) a partition whose offset an open transaction may set gets
UNSTABLE_OFFSET_COMMIT, also where all of a group are requested and only such an offset is there; without it, its last
stable offset.  An answer always waits until the commits before it are committed in the log.
Not done: v10 (topic ids).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.broker.shards.shard_table import Gathering
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
from ottla.runtime.steps import Steps, parts_of

_GROUP_ERROR_FROM: Final = 2
_MANY_FROM: Final = 8
_PARTITIONS_OF_STEP: Final = 64
_TOPICS_OF_TURN: Final = 1_000


def answer(
    request: OffsetFetchRequest,
    context: BrokerContext,
    call: Call,
    reply: Callable[[OffsetFetchResponse | Steps[OffsetFetchResponse]], None],
) -> Steps[None]:
    if call.api_version >= _MANY_FROM:
        groups = request.groups
    else:
        groups = [OffsetFetchRequestGroup(request.group_id, topics=request.topics)]

    def on_all(fetched: list[FetchReply]) -> None:
        if call.api_version >= _MANY_FROM:
            response = _many(list(named), fetched)
        else:
            response = _single(request.topics, fetched[0], call.api_version)
        reply(response)

    # A group once, however often it is named.
    named: dict[str, OffsetFetchRequestGroup] = {}
    named_twice: set[str] = set()
    for group in groups:
        if named.setdefault(group.group_id, group) is not group:
            named_twice.add(group.group_id)
        yield
    gathering = Gathering(len(named), on_all)
    for index, group in enumerate(named.values()):
        if group.group_id in named_twice:
            gathering.place(index)(FetchReply(ErrorCode.INVALID_REQUEST))
            continue
        wanted = yield from _wanted(group.topics)
        parts = [wanted] if wanted is None else _parts(wanted)
        of_group = Gathering(len(parts), partial(_join, gathering.place(index)))
        for number, part in enumerate(parts):
            command = FetchOffsets(
                group.group_id, part, group.member_id, group.member_epoch, requires_stable=request.require_stable
            )
            context.groups.submit(group.group_id, command, of_group.place(number))
            yield


def _wanted(topics: Sequence[OffsetFetchRequestTopic] | None) -> Steps[Sequence[TopicPartitions] | None]:
    """Each topic and each partition once, in the order in which they are named first."""
    if topics is None:
        return None
    wanted: dict[str, dict[int, None]] = {}
    for topic in topics:
        partitions = wanted.setdefault(topic.name, {})
        for some in parts_of(topic.partition_indexes, _PARTITIONS_OF_STEP):
            partitions.update(dict.fromkeys(some))
            yield
        yield
    found: list[TopicPartitions] = []
    for name, partitions in wanted.items():
        found.append(TopicPartitions(name, list(partitions)))
        yield
    return found


def _parts(wanted: Sequence[TopicPartitions]) -> list[Sequence[TopicPartitions]]:
    """What is looked up at once.  Commits may come between two of them."""
    starts = range(0, max(len(wanted), 1), _TOPICS_OF_TURN)
    return [wanted[start : start + _TOPICS_OF_TURN] for start in starts]


def _join(reply: Callable[[FetchReply], None], parts: Sequence[FetchReply]) -> None:
    """The first error, or all that was found."""
    failed = next((each for each in parts if each.error is not ErrorCode.NONE), None)
    reply(failed or FetchReply(ErrorCode.NONE, [topic for each in parts for topic in each.topics]))


def _many(group_ids: Sequence[str], fetched: Sequence[FetchReply]) -> Steps[OffsetFetchResponse]:
    answered: list[OffsetFetchResponseGroup] = []
    for group_id, found in zip(group_ids, fetched, strict=True):
        topics = yield from _topics(found)
        answered.append(OffsetFetchResponseGroup(group_id, topics, found.error))
        yield
    return OffsetFetchResponse(groups=answered)


def _single(
    wanted: Sequence[OffsetFetchRequestTopic] | None, fetched: FetchReply, version: int
) -> Steps[OffsetFetchResponse]:
    if fetched.error is ErrorCode.NONE:
        topics = yield from _topics(fetched)
        return OffsetFetchResponse(topics=topics)
    failed: list[OffsetFetchResponseTopic] = []
    for topic in wanted or ():
        failed.append(_failed(topic, fetched.error))
        yield
    return OffsetFetchResponse(
        topics=failed, error_code=fetched.error if version >= _GROUP_ERROR_FROM else ErrorCode.NONE
    )


def _topics(fetched: FetchReply) -> Steps[list[OffsetFetchResponseTopic]]:
    answered: list[OffsetFetchResponseTopic] = []
    for topic in fetched.topics:
        partitions: list[OffsetFetchResponsePartition] = []
        answered.append(OffsetFetchResponseTopic(topic.topic, partitions))
        for number, each in enumerate(topic.partitions):
            partitions.append(OffsetFetchResponsePartition(*each))
            if number % _PARTITIONS_OF_STEP == 0:
                yield
        yield
    return answered


def _failed(topic: OffsetFetchRequestTopic, error: ErrorCode) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        topic.name,
        [
            OffsetFetchResponsePartition(index, NO_OFFSET, NO_LEADER_EPOCH, "", error)
            for index in dict.fromkeys(topic.partition_indexes)
        ],
    )
