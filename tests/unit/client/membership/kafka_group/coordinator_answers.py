"""The answers of a coordinator, as messages: from what a test says, or a group of its own, has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from ottla.client.membership.kafka_group.classic import encode_subscription
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from ottla.protocol.schemas.consumer_group_heartbeat import (
    AssignedTopicPartitions,
    Assignment,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.schemas.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.protocol.schemas.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.protocol.schemas.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

INTERVAL_MS: Final = 5_000
SESSION_MS: Final = 30_000


def metadata_answer(topics: Iterable[tuple[str, UUID, int]]) -> MetadataResponse:
    """`topics`: the name, the id, and how many partitions there are."""
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(
                name=name,
                topic_id=identity,
                partitions=[MetadataResponsePartition(partition_index=number) for number in range(count)],
            )
            for name, identity, count in topics
        ]
    )


def commit_answer(
    request: OffsetCommitRequest, commit: Callable[[TopicPartition, int], ErrorCode]
) -> OffsetCommitResponse:
    """`commit` is called with each partition and its offset."""
    topics = []
    for topic in request.topics:
        rows = []
        for row in topic.partitions:
            code = commit(TopicPartition(topic.name, row.partition_index), row.committed_offset)
            rows.append(OffsetCommitResponsePartition(row.partition_index, code))
        topics.append(OffsetCommitResponseTopic(topic.name, rows))
    return OffsetCommitResponse(topics=topics)


def offsets_answer(
    request: OffsetFetchRequest, committed: Mapping[TopicPartition, int], code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponse:
    [group] = request.groups
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(number, committed.get(TopicPartition(topic.name, number), NO_OFFSET))
                for number in topic.partition_indexes
            ],
        )
        for topic in group.topics or []
    ]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group.group_id, topics, code)])


def join_answer(
    member_id: str,
    subscriptions: Mapping[str, Sequence[str]],
    *,
    leader: str | None = None,
    generation: int = 1,
    assignor: str = "range",
) -> JoinGroupResponse:
    """To a member of a classic group.  Without `leader` it is the leader, which receives all subscriptions."""
    members = [
        JoinGroupResponseMember(each, metadata=encode_subscription(topics)) for each, topics in subscriptions.items()
    ]
    return JoinGroupResponse(
        generation_id=generation,
        protocol_type="consumer",
        protocol_name=assignor,
        leader=leader or member_id,
        member_id=member_id,
        members=[] if leader else members,
    )


def heartbeat_answer(
    epoch: int, assigned: Mapping[UUID, Sequence[int]] | None = None, code: ErrorCode = ErrorCode.NONE
) -> ConsumerGroupHeartbeatResponse:
    assignment = (
        None
        if assigned is None
        else Assignment([AssignedTopicPartitions(identity, list(numbers)) for identity, numbers in assigned.items()])
    )
    return ConsumerGroupHeartbeatResponse(
        error_code=code, member_epoch=epoch, heartbeat_interval_ms=INTERVAL_MS, assignment=assignment
    )


def settings_answer(session_timeout_ms: int = SESSION_MS) -> DescribeConfigsResponse:
    row = DescribeConfigsResourceResult(name="consumer.session.timeout.ms", value=str(session_timeout_ms))
    return DescribeConfigsResponse(results=[DescribeConfigsResult(configs=[row])])
