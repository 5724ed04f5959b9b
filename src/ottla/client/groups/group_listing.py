"""The groups of all brokers, and which partitions of `__consumer_offsets` could not be asked for theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ottla.client.groups.group_types import ListedGroup
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.client.wire.deadline import Deadline
from ottla.client.wire.errors import BrokerRefused, error_code_of
from ottla.client.wire.metadata import PartitionInfo
from ottla.model.error_code import ErrorCode
from ottla.model.group_partition import partition_of
from ottla.model.identifiers import OFFSETS_TOPIC
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.schemas.list_groups import ListGroupsRequest, ListGroupsResponse

_STATES_FROM: Final = 4  # KIP-518
_TYPES_FROM: Final = 5  # KIP-848
_NOT_AVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
_NOT_LOADED: Final = "its coordinator could not load it, and says why in its log (groups.not_loaded)"


class GroupListing(NamedTuple):
    """`missing`: by partition of `__consumer_offsets`, why its groups are not among them."""

    groups: Sequence[ListedGroup]
    missing: Mapping[int, str]


def listing(cluster: Cluster, states: Sequence[str], kinds: Sequence[str], deadline: Deadline) -> GroupListing:
    """One attempt.  Raises `ClientError`: retriable while groups are being loaded, or none can be asked."""
    found: dict[str, ListedGroup] = {}
    missing: dict[int, str] = {}
    led_by: dict[int, list[int]] = {}
    for index, partition in _partitions(cluster, deadline).items():
        if partition.leader_id < 0:
            missing[index] = "no broker leads it now"
        else:
            led_by.setdefault(partition.leader_id, []).append(index)
    at_least = _TYPES_FROM if kinds else _STATES_FROM if states else 0
    request = ListGroupsRequest(list(states), list(kinds))
    for node_id in cluster.info.brokers:
        connection = cluster.connect_broker(node_id, deadline)
        answer = connection.call(ApiKey.LIST_GROUPS, request, ListGroupsResponse, deadline, at_least=at_least)
        if answer.error_code:
            refusal = BrokerRefused(error_code_of(answer.error_code), "listing groups")
            led = led_by.get(node_id, [])
            refused = _refused(connection, refusal, led, _count(led_by, missing), deadline)
            if not answer.groups and (len(refused) == len(led) or refusal.code is not _NOT_AVAILABLE):
                # Of all of the broker, or as long as it loads: so Apache Kafka answers, too.
                raise refusal
            missing.update(dict.fromkeys(refused, _NOT_LOADED))
        for row in answer.groups:
            found[row.group_id] = ListedGroup(row.group_id, row.protocol_type, row.group_state, row.group_type.lower())
    return GroupListing([found[group_id] for group_id in sorted(found)], missing)


def _partitions(cluster: Cluster, deadline: Deadline) -> Mapping[int, PartitionInfo]:
    [topic] = cluster.refresh([OFFSETS_TOPIC], deadline=deadline)
    return {} if topic.error_code else topic.partitions


def _count(led_by: Mapping[int, Sequence[int]], missing: Mapping[int, str]) -> int:
    return max([-1, *missing, *(index for led in led_by.values() for index in led)]) + 1


def _refused(
    connection: Connection, refusal: BrokerRefused, led: Sequence[int], count: int, deadline: Deadline
) -> list[int]:
    """Which of a broker's partitions cannot be asked: those that refuse to describe a group that would be theirs.

    Raises the refusal when it is of no single partitions.
    """
    by_id = {_group_in(index, count): index for index in led}
    request = DescribeGroupsRequest(list(by_id))
    answer = connection.call(ApiKey.DESCRIBE_GROUPS, request, DescribeGroupsResponse, deadline)
    refused = sorted(by_id[row.group_id] for row in answer.groups if row.error_code == refusal.code)
    if not refused:
        raise refusal
    return refused


def _group_in(index: int, count: int) -> str:
    """The id of a group of this partition; nothing is made by describing it."""
    number = 0
    while partition_of(f"ottla-{number}", count) != index:
        number += 1
    return f"ottla-{number}"
