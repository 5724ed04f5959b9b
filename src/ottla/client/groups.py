"""Administration of groups and their offsets: list, describe, move, delete (KIP-222, KIP-496)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final, TypeVar

from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.deadline import Deadline
from ottla.client.errors import BrokerRefused, ClientError, error_code_of
from ottla.client.group_descriptions import describe_classic, describe_consumer
from ottla.client.group_types import CommittedOffset, Coordinator, GroupDescription, ListedGroup
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.schemas.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.schemas.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.protocol.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
)

T = TypeVar("T")

_GROUP_KEY_TYPE: Final = 0
_COORDINATOR_KEYS_FROM: Final = 4  # KIP-699
_STATES_FROM: Final = 4  # KIP-518
_TYPES_FROM: Final = 5  # KIP-848
_GROUPS_FROM: Final = 8  # KIP-709
_ALL_TOPICS_FROM: Final = 2


class UnknownGroup(ClientError):
    error_code = ErrorCode.GROUP_ID_NOT_FOUND
    hint = "`ottla group list` shows the groups"


class GroupAdmin:
    """Groups of `cluster`; each call asks the group's coordinator, and looks it up again when it has moved."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators: dict[str, Coordinator] = {}

    def list_groups(self, states: Sequence[str] = (), kinds: Sequence[str] = ()) -> list[ListedGroup]:
        """The groups of all brokers, by id; filtered by `states` and `kinds`."""
        found: dict[str, ListedGroup] = {}
        at_least = _TYPES_FROM if kinds else _STATES_FROM if states else 0
        request = ListGroupsRequest(list(states), list(kinds))

        def attempt(deadline: Deadline) -> None:
            self._cluster.refresh([], deadline=deadline)
            for node_id in self._cluster.info.brokers:
                connection = self._cluster.connect_broker(node_id, deadline)
                answer = connection.call(ApiKey.LIST_GROUPS, request, ListGroupsResponse, deadline, at_least=at_least)
                _check(answer.error_code, "listing groups")
                for row in answer.groups:
                    found[row.group_id] = ListedGroup(
                        row.group_id, row.protocol_type, row.group_state, row.group_type.lower()
                    )

        self._cluster.retrying.run("LIST_GROUPS", attempt, self._cluster.retrying.deadline())
        return [found[group_id] for group_id in sorted(found)]

    def describe(self, group_id: str) -> GroupDescription:
        """State, members and assignments of a group of either kind.  Raises UnknownGroup."""

        def attempt(connection: Connection, deadline: Deadline) -> GroupDescription:
            coordinator = self._coordinators[group_id]
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
        topics = (
            None
            if partitions is None
            else [OffsetFetchRequestTopic(topic, indexes) for topic, indexes in _by_topic(partitions)]
        )

        def attempt(connection: Connection, deadline: Deadline) -> dict[TopicPartition, CommittedOffset]:
            at_least = _ALL_TOPICS_FROM if topics is None else 0
            if connection.version_of(ApiKey.OFFSET_FETCH) < _GROUPS_FROM:
                request = OffsetFetchRequest(group_id=group_id, topics=topics)
            else:
                request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id, topics=topics)])
            answer = connection.call(ApiKey.OFFSET_FETCH, request, OffsetFetchResponse, deadline, at_least=at_least)
            if not answer.groups:
                return _committed(group_id, answer.error_code, answer.topics)
            return _committed(group_id, answer.groups[0].error_code, answer.groups[0].topics)

        return self._ask(group_id, "reading the offsets of", attempt)

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Set offsets of a group without members; the broker refuses it for others.  Raises BrokerRefused."""
        topics = [
            OffsetCommitRequestTopic(
                topic,
                [
                    OffsetCommitRequestPartition(index, each.offset, each.leader_epoch, each.metadata)
                    for index in indexes
                    for each in [offsets[TopicPartition(topic, index)]]
                ],
            )
            for topic, indexes in _by_topic(offsets)
        ]

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
            for topic, indexes in _by_topic(partitions)
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

    # --- coordinators ---------------------------------------------------------------------------------------

    def _ask(self, group_id: str, what: str, exchange: Callable[[Connection, Deadline], T]) -> T:
        def attempt(deadline: Deadline) -> T:
            try:
                return exchange(self._coordinator(group_id, deadline), deadline)
            except ClientError:
                self._coordinators.pop(group_id, None)
                raise

        return self._cluster.retrying.run(f"{what} group {group_id}", attempt, self._cluster.retrying.deadline())

    def _coordinator(self, group_id: str, deadline: Deadline) -> Connection:
        coordinator = self._coordinators.get(group_id)
        if coordinator is None:
            coordinator = self._coordinators[group_id] = self._find_coordinator(group_id, deadline)
        if coordinator.node_id not in self._cluster.info.brokers:
            self._cluster.refresh([], deadline=deadline)
        return self._cluster.connect_broker(coordinator.node_id, deadline)

    def _find_coordinator(self, group_id: str, deadline: Deadline) -> Coordinator:
        connection = self._cluster.connect_any(deadline)
        if connection.version_of(ApiKey.FIND_COORDINATOR) < _COORDINATOR_KEYS_FROM:
            request = FindCoordinatorRequest(key=group_id, key_type=_GROUP_KEY_TYPE)
        else:
            request = FindCoordinatorRequest(key_type=_GROUP_KEY_TYPE, coordinator_keys=[group_id])
        answer = connection.call(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse, deadline)
        row = answer.coordinators[0] if answer.coordinators else answer
        _check(row.error_code, f"the coordinator of group {group_id}")
        return Coordinator(row.node_id, row.host, row.port)


def _committed(
    group_id: str, error_code: int, topics: Iterable[OffsetFetchResponseTopic]
) -> dict[TopicPartition, CommittedOffset]:
    _check(error_code, f"group {group_id}")
    found: dict[TopicPartition, CommittedOffset] = {}
    for topic in topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            _check(row.error_code, f"group {group_id}, {partition}")
            if row.committed_offset >= 0:
                found[partition] = CommittedOffset(row.committed_offset, row.committed_leader_epoch, row.metadata or "")
    return found


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    return [
        (topic, [each.partition for each in group])
        for topic, group in groupby(sorted(partitions), key=lambda partition: partition.topic)
    ]


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
