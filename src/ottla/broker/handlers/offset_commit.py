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
from ottla.broker.handlers.offsets_to_commit import sort_offsets
from ottla.broker.shards.shard_table import Gathering
from ottla.groups.commands import CommitOffsets
from ottla.groups.replies import CommitReply
from ottla.protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.runtime.steps import Steps

_STALE_EPOCH_FROM: Final = 9
_NO_RETENTION: Final = -1


def answer(
    request: OffsetCommitRequest,
    context: BrokerContext,
    call: Call,
    reply: Callable[[OffsetCommitResponse | Steps[OffsetCommitResponse]], None],
) -> Steps[None]:
    wanted = yield from sort_offsets(
        request.topics, context.topics, OffsetCommitResponseTopic, OffsetCommitResponsePartition
    )
    if not wanted.offsets:
        reply(OffsetCommitResponse(topics=wanted.topics))
        return
    retention_ms = request.retention_time_ms
    parts = wanted.parts()

    def response(committed: list[CommitReply]) -> Steps[OffsetCommitResponse]:
        yield from wanted.place_errors([error for each in committed for error in each.errors])
        return OffsetCommitResponse(topics=wanted.topics)

    gathering: Gathering[CommitReply] = Gathering(len(parts), lambda committed: reply(response(committed)))
    for number, offsets in enumerate(parts):
        command = CommitOffsets(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            offsets,
            None if retention_ms == _NO_RETENTION else retention_ms,
            knows_stale_epoch=call.api_version >= _STALE_EPOCH_FROM,
            client_host=call.client_host,
        )
        context.groups.submit(request.group_id, command, gathering.place(number))
        yield
