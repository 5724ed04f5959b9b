"""Administration of groups and their offsets: list, describe, move, delete (KIP-222, KIP-496)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from ottla.client.groups.group_offsets import (
    STABLE_FROM,
    commit_topics,
    group_error_of,
    offset_fetch,
    offset_rows,
)
from ottla.client.groups.group_types import (
    CLASSIC,
    CONSUMER,
    CommittedOffset,
    Coordinator,
    GroupDescription,
    GroupMember,
    ListedGroup,
    decode_assignment,
)
from ottla.client.wire.client_log import METADATA
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.client.wire.errors import BrokerRefused, ClientError, error_code_of
from ottla.client.wire.metadata import PartitionInfo
from ottla.client.wire.retrying import Deadline
from ottla.model.error_code import ErrorCode
from ottla.model.errors import WireError
from ottla.model.group_partition import partition_of
from ottla.model.identifiers import OFFSETS_TOPIC, TopicPartition, indexes_by_topic
from ottla.observe.events import named
from ottla.observe.text import safe_line
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
)
from ottla.protocol.schemas.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.schemas.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.schemas.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.schemas.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from ottla.protocol.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.protocol.schemas.offset_fetch import (
    OffsetFetchResponse,
)

_COORDINATOR_KEYS_FROM: Final = 4  # KIP-699


class CoordinatorKind(IntEnum):
    """Of what a broker is the coordinator: the key types of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


_NAMES: Final = {CoordinatorKind.GROUP: "group", CoordinatorKind.TRANSACTION: "transactional id"}


class Coordinators:
    """The coordinators of groups, or of transactional ids, of `cluster`.  One attempt for each call: the caller tries
    again.
    """

    def __init__(self, cluster: Cluster, kind: CoordinatorKind = CoordinatorKind.GROUP) -> None:
        self._cluster = cluster
        self._kind = kind
        self._known: dict[str, Coordinator] = {}
        # As they were found last, known or not.
        self._found: dict[str, Coordinator] = {}

    def of(self, key: str, deadline: Deadline) -> Coordinator:
        """Raises ClientError."""
        if key not in self._known:
            self._known[key] = self._find(key, deadline)
            if self._found.get(key) != self._known[key]:
                self._found[key] = self._known[key]
                self._log_found(key, self._known[key])
        return self._known[key]

    def _log_found(self, key: str, found: Coordinator) -> None:
        METADATA.info(
            "the coordinator of %s %s is broker %d at %s:%d",
            _NAMES[self._kind],
            safe_line(key),
            found.node_id,
            safe_line(found.host),
            found.port,
            extra=named("coordinator.found", kind=_NAMES[self._kind], key=key, node_id=found.node_id),
        )

    def connect(self, key: str, deadline: Deadline) -> Connection:
        """The cluster's own connection to the coordinator.  Raises ClientError."""
        coordinator = self.of(key, deadline)
        if coordinator.node_id not in self._cluster.info.brokers:
            self._cluster.refresh([], deadline=deadline)
        return self._cluster.connect_broker(coordinator.node_id, deadline)

    def forget(self, key: str) -> None:
        """It does not answer, or says that it is not the coordinator: it is looked up before its next use."""
        self._known.pop(key, None)

    def _find(self, key: str, deadline: Deadline) -> Coordinator:
        connection = self._cluster.connect_any(deadline)
        if connection.version_of(ApiKey.FIND_COORDINATOR) < _COORDINATOR_KEYS_FROM:
            request = FindCoordinatorRequest(key=key, key_type=self._kind)
        else:
            request = FindCoordinatorRequest(key_type=self._kind, coordinator_keys=[key])
        answer = connection.call(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse, deadline)
        row = answer.coordinators[0] if answer.coordinators else answer
        if row.error_code:
            raise BrokerRefused(error_code_of(row.error_code), f"the coordinator of {_NAMES[self._kind]} {key}")
        return Coordinator(row.node_id, row.host, row.port)


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
    for index, partition in _offsets_partitions(cluster, deadline).items():
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


def _offsets_partitions(cluster: Cluster, deadline: Deadline) -> Mapping[int, PartitionInfo]:
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


T = TypeVar("T")

_ALL_TOPICS_FROM: Final = 2


class UnknownGroup(ClientError):
    """Its coordinator knows no such group."""

    error_code = ErrorCode.GROUP_ID_NOT_FOUND
    hint = "`ottla group list` shows the groups"


class GroupAdmin:
    """Groups of `cluster`; each call asks the group's coordinator, and looks it up again when it has moved."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators(cluster)

    def list_groups(self, states: Sequence[str] = (), kinds: Sequence[str] = ()) -> list[ListedGroup]:
        """The groups of all brokers, by id, filtered by `states` and `kinds`.  `listing` names the possibly missing."""
        return list(self.listing(states, kinds).groups)

    def listing(self, states: Sequence[str] = (), kinds: Sequence[str] = ()) -> GroupListing:
        """The same, and the partitions of `__consumer_offsets` that cannot be asked for their groups."""
        retrying = self._cluster.retrying

        def attempt(deadline: Deadline) -> GroupListing:
            return listing(self._cluster, states, kinds, deadline)

        return retrying.run("LIST_GROUPS", attempt, retrying.deadline())

    def describe(self, group_id: str) -> GroupDescription:
        """State, members and assignments of a group of either kind.  Raises UnknownGroup."""

        def attempt(connection: Connection, deadline: Deadline) -> GroupDescription:
            coordinator = self._coordinators.of(group_id, deadline)
            try:
                found = describe_consumer(connection, group_id, coordinator, deadline)
                return found or describe_classic(connection, group_id, coordinator, deadline)
            except BrokerRefused as error:
                raise _unknown_if_missing(error, group_id) from None

        return self._ask(group_id, "describing", attempt)

    def committed(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """The group's committed offsets, of all partitions or of these; those without an offset are left out."""
        wanted = None if partitions is None else list(partitions)

        def attempt(connection: Connection, deadline: Deadline) -> dict[TopicPartition, CommittedOffset]:
            at_least = _ALL_TOPICS_FROM if wanted is None else 0
            request = offset_fetch(connection.version_of(ApiKey.OFFSET_FETCH), group_id, wanted)
            return _committed(
                group_id,
                connection.call(ApiKey.OFFSET_FETCH, request, OffsetFetchResponse, deadline, at_least=at_least),
            )

        return self._ask(group_id, "reading the offsets of", attempt)

    def pending(self, group_id: str) -> frozenset[TopicPartition]:
        """The partitions whose offset an open transaction may change; none where the broker is too old to know them.

        Of those without a committed offset Apache Kafka names none.
        """

        def attempt(connection: Connection, deadline: Deadline) -> frozenset[TopicPartition]:
            version = connection.version_of(ApiKey.OFFSET_FETCH)
            if version < STABLE_FROM:
                return frozenset()
            request = offset_fetch(version, group_id, None, is_stable=True)
            answer = connection.call(
                ApiKey.OFFSET_FETCH, request, OffsetFetchResponse, deadline, at_least=_ALL_TOPICS_FROM
            )
            _check(group_error_of(answer), f"group {group_id}")
            unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
            return frozenset(row.partition for row in offset_rows(answer) if row.error_code == unstable)

        return self._ask(group_id, "reading the pending offsets of", attempt)

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Set offsets of a group without members; the broker refuses it for others.  Raises BrokerRefused."""
        topics = commit_topics(offsets)

        def attempt(connection: Connection, deadline: Deadline) -> None:
            request = OffsetCommitRequest(group_id=group_id, topics=topics)
            answer = connection.call(ApiKey.OFFSET_COMMIT, request, OffsetCommitResponse, deadline)
            for topic in answer.topics:
                for row in topic.partitions:
                    _check(row.error_code, f"group {group_id}, {TopicPartition(topic.name, row.partition_index)}")

        self._ask(group_id, "committing offsets of", attempt)

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, BrokerRefused | None]:
        """Delete committed offsets; None is success.  Refused for a topic that the group reads.  Raises
        UnknownGroup."""
        topics = [
            OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(index) for index in indexes])
            for topic, indexes in indexes_by_topic(partitions)
        ]

        def attempt(connection: Connection, deadline: Deadline) -> dict[TopicPartition, BrokerRefused | None]:
            request = OffsetDeleteRequest(group_id, topics)
            answer = connection.call(ApiKey.OFFSET_DELETE, request, OffsetDeleteResponse, deadline)
            _check_group(answer.error_code, group_id)
            return {
                (partition := TopicPartition(topic.name, row.partition_index)): _refusal(
                    row.error_code, f"group {group_id}, {partition}"
                )
                for topic in answer.topics
                for row in topic.partitions
            }

        return self._ask(group_id, "deleting offsets of", attempt)

    def delete(self, group_id: str) -> None:
        """Delete a group without members, with its offsets.  Raises BrokerRefused, UnknownGroup."""

        def attempt(connection: Connection, deadline: Deadline) -> None:
            answer = connection.call(
                ApiKey.DELETE_GROUPS, DeleteGroupsRequest([group_id]), DeleteGroupsResponse, deadline
            )
            for row in answer.results:
                _check_group(row.error_code, group_id)

        self._ask(group_id, "deleting", attempt)

    def _ask(self, group_id: str, what: str, exchange: Callable[[Connection, Deadline], T]) -> T:
        def attempt(deadline: Deadline) -> T:
            try:
                return exchange(self._coordinators.connect(group_id, deadline), deadline)
            except ClientError:
                self._coordinators.forget(group_id)
                raise

        return self._cluster.retrying.run(f"{what} group {group_id}", attempt, self._cluster.retrying.deadline())


def _committed(group_id: str, answer: OffsetFetchResponse) -> dict[TopicPartition, CommittedOffset]:
    _check(group_error_of(answer), f"group {group_id}")
    found: dict[TopicPartition, CommittedOffset] = {}
    for row in offset_rows(answer):
        _check(row.error_code, f"group {group_id}, {row.partition}")
        if row.committed is not None:
            found[row.partition] = row.committed
    return found


def _refusal(code: int, subject: str) -> BrokerRefused | None:
    if not code:
        return None
    error_code = error_code_of(code)
    return BrokerRefused(error_code, subject, _DETAILS.get(error_code), hint=_HINTS.get(error_code))


def _check(code: int, subject: str) -> None:
    refusal = _refusal(code, subject)
    if refusal is not None:
        raise refusal


def _check_group(code: int, group_id: str) -> None:
    refusal = _refusal(code, f"group {group_id}")
    if refusal is not None:
        raise _unknown_if_missing(refusal, group_id)


def _unknown_if_missing(error: BrokerRefused, group_id: str) -> ClientError:
    return UnknownGroup(f"group {group_id} does not exist") if error.code is ErrorCode.GROUP_ID_NOT_FOUND else error


_DETAILS: Final = {
    ErrorCode.NON_EMPTY_GROUP: "it has members",
    ErrorCode.UNKNOWN_MEMBER_ID: "it has members, and only they may commit",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group read the topic",
    ErrorCode.INVALID_GROUP_ID: "it is not a valid group id",
}
_HINTS: Final = {
    ErrorCode.NON_EMPTY_GROUP: "stop its members first; `ottla group describe GROUP --members` shows them",
    ErrorCode.UNKNOWN_MEMBER_ID: "stop its members first; `ottla group describe GROUP --members` shows them",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop them, or end their subscription, first",
}
