"""One group described by its coordinator: ConsumerGroupDescribe for KIP-848 groups, DescribeGroups for classic ones."""

from __future__ import annotations

from typing import Final

from ottla.client.groups.group_types import (
    CLASSIC,
    CONSUMER,
    Coordinator,
    GroupDescription,
    GroupMember,
    decode_assignment,
)
from ottla.client.wire.connection import Connection
from ottla.client.wire.deadline import Deadline
from ottla.client.wire.errors import BrokerRefused, error_code_of
from ottla.model.error_code import ErrorCode
from ottla.model.errors import WireError
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
)
from ottla.protocol.schemas.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

CONSUMER_PROTOCOL: Final = "consumer"
_DEAD: Final = "Dead"


def describe_consumer(
    connection: Connection, group_id: str, coordinator: Coordinator, deadline: Deadline
) -> GroupDescription | None:
    """None when the broker has no KIP-848 group of this id; it may still be a classic one.  Raises BrokerRefused."""
    if not connection.supports(ApiKey.CONSUMER_GROUP_DESCRIBE):
        return None
    request = ConsumerGroupDescribeRequest([group_id])
    answer = connection.call(ApiKey.CONSUMER_GROUP_DESCRIBE, request, ConsumerGroupDescribeResponse, deadline)
    [row] = answer.groups
    if row.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    if row.error_code:
        raise BrokerRefused(error_code_of(row.error_code), f"group {group_id}", row.error_message)
    members = tuple(
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.member_epoch,
            _partitions(member.assignment),
            _partitions(member.target_assignment),
        )
        for member in row.members
    )
    return GroupDescription(
        group_id,
        CONSUMER,
        row.group_state,
        CONSUMER_PROTOCOL,
        row.assignor_name,
        row.group_epoch,
        coordinator,
        members,
    )


def describe_classic(
    connection: Connection, group_id: str, coordinator: Coordinator, deadline: Deadline
) -> GroupDescription:
    """Raises BrokerRefused; GROUP_ID_NOT_FOUND also where an old broker describes an unknown group as dead."""
    request = DescribeGroupsRequest([group_id])
    answer = connection.call(ApiKey.DESCRIBE_GROUPS, request, DescribeGroupsResponse, deadline)
    [row] = answer.groups
    code = error_code_of(row.error_code)
    if not code and row.group_state == _DEAD:
        code = ErrorCode.GROUP_ID_NOT_FOUND
    if code:
        raise BrokerRefused(code, f"group {group_id}", row.error_message)
    is_consumer = row.protocol_type == CONSUMER_PROTOCOL
    members = tuple(
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            -1,
            _classic_partitions(member.member_assignment) if is_consumer else (),
        )
        for member in row.members
    )
    return GroupDescription(
        group_id, CLASSIC, row.group_state, row.protocol_type, row.protocol_data, -1, coordinator, members
    )


def _classic_partitions(data: bytes) -> tuple[TopicPartition, ...]:
    """Written by clients, opaque to brokers: an unreadable assignment is shown as empty."""
    try:
        return decode_assignment(bytes(data))
    except WireError:
        return ()


def _partitions(assignment: DescribedAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, partition)
            for topic in assignment.topic_partitions
            for partition in topic.partitions
        )
    )
