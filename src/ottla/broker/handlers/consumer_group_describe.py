"""ConsumerGroupDescribe (key 69), v0-v1.

Consumer groups (KIP-848); v1 has the kind of each member.  GROUP_ID_NOT_FOUND for any group that
is not a consumer group.  Authorized operations, when asked for, are all operations without an
authorizer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.broker.shards.shard_table import Gathering
from ottla.groups.commands import DescribeConsumerGroup
from ottla.groups.replies import ConsumerGroupDescription, DescribedConsumer, NamedTopicPartitions
from ottla.protocol.schemas.consumer_group_describe import (
    NO_AUTHORIZED_OPERATIONS,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedGroup,
    DescribedMember,
    DescribedTopicPartitions,
)
from ottla.runtime.steps import Steps
from ottla.security.acl import GROUP_OPERATION_BITS

# A classic member in a consumer group would be 0; there are none.
_CONSUMER_MEMBER: Final = 1


def answer(
    request: ConsumerGroupDescribeRequest,
    context: BrokerContext,
    call: Call,
    reply: Callable[[ConsumerGroupDescribeResponse | Steps[ConsumerGroupDescribeResponse]], None],
) -> Steps[None]:
    operations = GROUP_OPERATION_BITS if request.include_authorized_operations else NO_AUTHORIZED_OPERATIONS

    def response(described: list[ConsumerGroupDescription]) -> Steps[ConsumerGroupDescribeResponse]:
        groups: list[DescribedGroup] = []
        for each in described:
            groups.append(_group(each, operations))
            yield
        return ConsumerGroupDescribeResponse(groups=groups)

    # Each once: a group's members may take megabytes, and naming it takes a few bytes.
    group_ids = list(dict.fromkeys(request.group_ids))
    gathering: Gathering[ConsumerGroupDescription] = Gathering(
        len(group_ids), lambda described: reply(response(described))
    )
    for index, group_id in enumerate(group_ids):
        context.groups.submit(group_id, DescribeConsumerGroup(group_id), gathering.place(index))
        yield


def _group(described: ConsumerGroupDescription, operations: int) -> DescribedGroup:
    return DescribedGroup(
        described.error,
        described.message,
        described.group_id,
        "" if described.error else described.state,
        described.group_epoch,
        described.assignment_epoch,
        described.assignor,
        [_member(member) for member in described.members],
        operations,
    )


def _member(member: DescribedConsumer) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        list(member.topic_names),
        # As Apache Kafka answers for a member without one, although the field may be null.
        member.topic_pattern or "",
        _assignment(member.assignment),
        _assignment(member.target),
        _CONSUMER_MEMBER,
    )


def _assignment(topics: Sequence[NamedTopicPartitions]) -> DescribedAssignment:
    return DescribedAssignment(
        [DescribedTopicPartitions(each.topic_id, each.topic, list(each.partitions)) for each in topics]
    )
