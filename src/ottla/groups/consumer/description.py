"""A consumer group as an administrator sees it (API 69)."""

from __future__ import annotations

from ottla.groups.assignors import Assignment
from ottla.groups.consumer.state import ConsumerGroupState
from ottla.groups.consumer.targets import preferred_name
from ottla.groups.replies import ConsumerGroupDescription, DescribedConsumer, NamedTopicPartitions
from ottla.groups.settings import GroupSettings
from ottla.groups.topics_image import TopicsImage
from ottla.model.error_code import ErrorCode


def describe(state: ConsumerGroupState, topics: TopicsImage, settings: GroupSettings) -> ConsumerGroupDescription:
    """Members by id.  Deleted topics are left out of assignments: their names are unknown."""
    return ConsumerGroupDescription(
        ErrorCode.NONE,
        state.group_id,
        None,
        state.name,
        state.group_epoch,
        state.assignment_epoch,
        preferred_name(state.assignor_counts, settings.consumer_assignors),
        [_describe_member(state, topics, member_id) for member_id in sorted(state.members)],
    )


def _describe_member(state: ConsumerGroupState, topics: TopicsImage, member_id: str) -> DescribedConsumer:
    metadata, current = state.members[member_id], state.current(member_id)
    return DescribedConsumer(
        member_id,
        metadata.instance_id,
        metadata.rack_id,
        current.member_epoch,
        metadata.client_id,
        metadata.client_host,
        metadata.topic_names,
        metadata.topic_pattern,
        _named(current.assigned, topics),
        _named(state.targets.get(member_id, {}), topics),
    )


def _named(assignment: Assignment, topics: TopicsImage) -> list[NamedTopicPartitions]:
    return [
        NamedTopicPartitions(topic_id, topics.by_id[topic_id].name, sorted(partitions))
        for topic_id, partitions in assignment.items()
        if topic_id in topics.by_id
    ]
