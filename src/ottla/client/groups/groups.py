"""Administration of groups and their offsets: list, describe, move, delete (KIP-222, KIP-496)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from ottla.client.groups.coordinators import Coordinators
from ottla.client.groups.group_descriptions import describe_classic, describe_consumer
from ottla.client.groups.group_listing import GroupListing, listing
from ottla.client.groups.group_offsets import by_topic, commit_topics, group_error_of, offset_fetch, offset_rows
from ottla.client.groups.group_types import CommittedOffset, GroupDescription, ListedGroup
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.client.wire.deadline import Deadline
from ottla.client.wire.errors import BrokerRefused, ClientError, error_code_of
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
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

T = TypeVar("T")

_ALL_TOPICS_FROM: Final = 2


class UnknownGroup(ClientError):
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
            for topic, indexes in by_topic(partitions)
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
