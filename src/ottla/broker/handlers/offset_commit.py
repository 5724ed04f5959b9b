"""OffsetCommit (key 8), v2-v9.

Answered when the offsets are stable in the log.  Errors of each partition: UNKNOWN_TOPIC_OR_PARTITION for one that does
not exist (Apache Kafka checks only the topic), OFFSET_METADATA_TOO_LARGE.  Errors of the group are repeated for every
partition.  More than 500 offsets are committed in several batches: a crash between two of them leaves the first, before
the answer.  v2 to v4 may set the retention time of their offsets.  Up to v8 a member of a consumer group (KIP-848) with
an old epoch gets UNSUPPORTED_VERSION, since they do not know STALE_MEMBER_EPOCH. Not done: v10 (topic ids).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.broker.shards.shard_table import Gathering
from ottla.coordination.topics_view import TopicsView
from ottla.groups.commands import CommitOffsets, OffsetToCommit
from ottla.groups.replies import CommitReply
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.runtime.steps import Steps

_STALE_EPOCH_FROM: Final = 9
_NO_RETENTION: Final = -1
# A batch in the log; more are committed in several, one after the other.
_OFFSETS_OF_BATCH: Final = 500


def answer(
    request: OffsetCommitRequest,
    context: BrokerContext,
    call: Call,
    reply: Callable[[OffsetCommitResponse | Steps[OffsetCommitResponse]], None],
) -> Steps[None]:
    topics, offsets, accepted = yield from _sort(request, context.topics)
    if not offsets:
        reply(OffsetCommitResponse(topics=topics))
        return
    retention_ms = request.retention_time_ms
    starts = range(0, len(offsets), _OFFSETS_OF_BATCH)

    def response(committed: list[CommitReply]) -> Steps[OffsetCommitResponse]:
        errors = (error for each in committed for error in each.errors)
        for partition, error in zip(accepted, errors, strict=True):
            partition.error_code = error
            yield
        return OffsetCommitResponse(topics=topics)

    gathering: Gathering[CommitReply] = Gathering(len(starts), lambda committed: reply(response(committed)))
    for number, start in enumerate(starts):
        command = CommitOffsets(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            offsets[start : start + _OFFSETS_OF_BATCH],
            None if retention_ms == _NO_RETENTION else retention_ms,
            knows_stale_epoch=call.api_version >= _STALE_EPOCH_FROM,
            client_host=call.client_host,
        )
        context.groups.submit(request.group_id, command, gathering.place(number))
        yield


def _sort(
    request: OffsetCommitRequest, known: TopicsView
) -> Steps[tuple[list[OffsetCommitResponseTopic], list[OffsetToCommit], list[OffsetCommitResponsePartition]]]:
    """The answer with errors for unknown partitions; the offsets of the others, and their places in the answer."""
    topics: list[OffsetCommitResponseTopic] = []
    offsets: list[OffsetToCommit] = []
    accepted: list[OffsetCommitResponsePartition] = []
    for topic in request.topics:
        found = known.by_name.get(topic.name)
        partitions_count = 0 if found is None else len(found.partitions)
        partitions: list[OffsetCommitResponsePartition] = []
        topics.append(OffsetCommitResponseTopic(topic.name, partitions))
        yield
        for wanted in topic.partitions:
            yield
            index = wanted.partition_index
            if not 0 <= index < partitions_count:
                partitions.append(OffsetCommitResponsePartition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            place = OffsetCommitResponsePartition(index)
            partitions.append(place)
            accepted.append(place)
            offsets.append(
                OffsetToCommit(
                    topic.name,
                    index,
                    wanted.committed_offset,
                    wanted.committed_leader_epoch,
                    wanted.committed_metadata or "",
                )
            )
    return topics, offsets, accepted
