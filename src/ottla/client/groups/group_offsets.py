"""OffsetFetch and OffsetCommit as messages: the rows of a group's partitions, in each version's form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ottla.client.groups.group_types import CommittedOffset
from ottla.model.identifiers import TopicPartition, indexes_by_topic
from ottla.protocol.schemas.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.protocol.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

_GROUPS_FROM: Final = 8  # KIP-709
STABLE_FROM: Final = 7  # KIP-447


class OffsetRow(NamedTuple):
    """`committed` is None where the group has no offset."""

    partition: TopicPartition
    error_code: int
    committed: CommittedOffset | None


def offset_fetch(
    version: int,
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    member_id: str | None = None,
    member_epoch: int = -1,
    is_stable: bool = False,
) -> OffsetFetchRequest:
    """Of these partitions, or of all that have one.  `is_stable`: not while a transaction may still change one."""
    topics = (
        None
        if partitions is None
        else [OffsetFetchRequestTopic(topic, indexes) for topic, indexes in indexes_by_topic(partitions)]
    )
    require_stable = is_stable and version >= STABLE_FROM
    if version < _GROUPS_FROM:
        return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=require_stable)
    group = OffsetFetchRequestGroup(group_id, member_id, member_epoch, topics)
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)


def group_error_of(answer: OffsetFetchResponse) -> int:
    """The error code of the group as a whole."""
    return answer.groups[0].error_code if answer.groups else answer.error_code


def offset_rows(answer: OffsetFetchResponse) -> Iterator[OffsetRow]:
    for topic in answer.groups[0].topics if answer.groups else answer.topics:
        for row in topic.partitions:
            committed = (
                CommittedOffset(row.committed_offset, row.committed_leader_epoch, row.metadata or "")
                if row.committed_offset >= 0
                else None
            )
            yield OffsetRow(TopicPartition(topic.name, row.partition_index), row.error_code, committed)


def commit_topics(offsets: Mapping[TopicPartition, CommittedOffset]) -> list[OffsetCommitRequestTopic]:
    """What an OffsetCommit says of these partitions."""
    return [
        OffsetCommitRequestTopic(
            topic,
            [
                OffsetCommitRequestPartition(index, each.offset, each.leader_epoch, each.metadata)
                for index in indexes
                for each in [offsets[TopicPartition(topic, index)]]
            ],
        )
        for topic, indexes in indexes_by_topic(offsets)
    ]
