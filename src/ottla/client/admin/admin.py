"""Administration of topics, settings and the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, Protocol, TypeVar
from uuid import UUID

from ottla.client.admin.configs import ConfigChange, ConfigEntry, ConfigResource, alter_configs, describe_configs
from ottla.client.admin.replicas import OngoingMove, Targets, alter_request, list_request, ongoing_moves, refusals
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.client.wire.errors import BrokerRefused, error_code_of
from ottla.client.wire.leader_calls import call_leaders
from ottla.client.wire.metadata import ClusterInfo, TopicInfo
from ottla.client.wire.retrying import Deadline
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from ottla.protocol.schemas.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.protocol.schemas.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.schemas.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.protocol.schemas.list_partition_reassignments import ListPartitionReassignmentsResponse

T = TypeVar("T")

BROKER_DEFAULT: Final = -1
HIGH_WATERMARK: Final = -1
# The first version of DeleteTopics that names topics in structures (KIP-516).
_TOPIC_STATES_FROM: Final = 6

_COUNT_HINTS: Final = {
    ErrorCode.INVALID_PARTITIONS: "give more than it has (see `ottla topic describe`); for fewer, create another topic",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the broker's internal topics cannot be deleted",
}
_DELETION_HINTS: Final = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: "`ottla group delete GROUP` deletes a group with its offsets",
}


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A count of -1 means the broker's default.  `assignments` names the replicas of every partition instead."""

    name: str
    partitions_count: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """Counts are -1 and the id is all zeros where the broker is too old to return them."""

    name: str
    topic_id: UUID
    partitions_count: int
    replication_factor: int


class _TopicAnswer(Protocol):
    """What became of one topic of a request."""

    @property
    def error_code(self) -> int: ...


class Admin:
    """Administration through any broker of `cluster`.

    Calls for several topics return the result or the error of each.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> dict[str, CreatedTopic | BrokerRefused]:
        """Create topics; `validate_only` checks without creating."""
        wait_ms = self._cluster.options.request_timeout_ms if timeout_ms is None else timeout_ms
        request = CreateTopicsRequest([_creatable(topic) for topic in topics], wait_ms, validate_only)
        response = self._ask_controller(
            ApiKey.CREATE_TOPICS, lambda _: request, CreateTopicsResponse, timeout_ms, lambda answer: answer.topics
        )
        self._cluster.forget(row.name for row in response.topics)
        return {row.name: _created(row) for row in response.topics}

    def create_topic(
        self,
        name: str,
        partitions_count: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        configs: Mapping[str, str] | None = None,
    ) -> CreatedTopic:
        """Create one topic; raises BrokerRefused."""
        (outcome,) = self.create_topics([NewTopic(name, partitions_count, replication_factor, configs or {})]).values()
        if isinstance(outcome, BrokerRefused):
            raise outcome
        return outcome

    def ensure_topic(self, name: str, partitions_count: int, replicas_max: int, configs: Mapping[str, str]) -> None:
        """Create the topic unless it is there: with `replicas_max` replicas, or as many as there are brokers.

        One that is there is left as it is.  Raises ClientError.
        """
        if not self._cluster.refresh([name])[0].error_code:
            return
        replicas_count = min(replicas_max, max(1, len(self._cluster.info.brokers)))
        try:
            self.create_topic(name, partitions_count, replicas_count, configs)
        except BrokerRefused as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> dict[str, BrokerRefused | None]:
        """Raise the partition counts of topics to these totals (KIP-195); None is success."""
        wait_ms = self._cluster.options.request_timeout_ms if timeout_ms is None else timeout_ms
        topics = [CreatePartitionsTopic(name, count, None) for name, count in counts.items()]
        request = CreatePartitionsRequest(topics, wait_ms, validate_only)
        response = self._ask_controller(
            ApiKey.CREATE_PARTITIONS,
            lambda _: request,
            CreatePartitionsResponse,
            timeout_ms,
            lambda answer: answer.results,
        )
        self._cluster.forget(counts)
        return {
            row.name: _refusal(row.error_code, f"topic {row.name}", row.error_message, _COUNT_HINTS)
            for row in response.results
        }

    def delete_topics(self, names: Iterable[str], *, timeout_ms: int | None = None) -> dict[str, BrokerRefused | None]:
        """Delete topics; None is success."""
        wanted = list(names)
        wait_ms = self._cluster.options.request_timeout_ms if timeout_ms is None else timeout_ms

        def request(version: int) -> DeleteTopicsRequest:
            if version < _TOPIC_STATES_FROM:
                return DeleteTopicsRequest(topic_names=wanted, timeout_ms=wait_ms)
            return DeleteTopicsRequest([DeleteTopicState(name) for name in wanted], timeout_ms=wait_ms)

        response = self._ask_controller(
            ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse, timeout_ms, lambda answer: answer.responses
        )
        self._cluster.forget(wanted)
        return {
            row.name: _refusal(row.error_code, f"topic {row.name}", row.error_message, _DELETION_HINTS)
            for row in response.responses
            if row.name is not None
        }

    def alter_reassignments(
        self, targets: Targets, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, BrokerRefused | None]:
        """Begin to move partitions to other brokers, or end moves (KIP-455); None is success.  Moves continue after
        this returns.
        """
        wait_ms = self._cluster.options.request_timeout_ms if timeout_ms is None else timeout_ms
        request = alter_request(targets, wait_ms)
        api, answer = ApiKey.ALTER_PARTITION_REASSIGNMENTS, AlterPartitionReassignmentsResponse
        response = self._ask_controller(api, lambda _: request, answer, timeout_ms)
        self._cluster.forget({each.topic for each in targets})
        return refusals(response)

    def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OngoingMove]:
        """The moves under way, of these partitions or of all."""
        wait_ms = self._cluster.options.request_timeout_ms if timeout_ms is None else timeout_ms
        request = list_request(partitions, wait_ms)
        api, answer = ApiKey.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsResponse
        return ongoing_moves(self._ask_controller(api, lambda _: request, answer, timeout_ms))

    def list_topics(self) -> list[TopicInfo]:
        """Every topic, by name, internal ones too."""
        return sorted(self._cluster.refresh(None), key=lambda topic: topic.name)

    def describe_topics(self, names: Iterable[str]) -> list[TopicInfo]:
        """Topics with partitions, leaders and replicas; one that does not exist has an `error_code`."""
        return self._cluster.refresh(list(names))

    def describe_cluster(self) -> ClusterInfo:
        """The cluster's id, its brokers, and the broker for administration."""
        self._cluster.refresh([])
        return self._cluster.info

    def delete_records(
        self, before_offsets: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records below these offsets (HIGH_WATERMARK: everything); returns the new log starts."""
        wait_ms = self._cluster.options.request_timeout_ms

        def exchange(
            connection: Connection, asked: Mapping[TopicPartition, int], deadline: Deadline
        ) -> Mapping[TopicPartition, int | BrokerRefused]:
            request = DeleteRecordsRequest(_record_topics(asked), wait_ms)
            response = connection.call(ApiKey.DELETE_RECORDS, request, DeleteRecordsResponse, deadline)
            answers: dict[TopicPartition, int | BrokerRefused] = {}
            for topic in response.topics:
                for row in topic.partitions:
                    partition = TopicPartition(topic.name, row.partition_index)
                    answers[partition] = _refusal(row.error_code, str(partition), None) or row.low_watermark
            return answers

        return call_leaders(self._cluster, "DELETE_RECORDS", before_offsets, exchange, timeout_ms)

    def describe_configs(self, resource: ConfigResource, names: Sequence[str] | None = None) -> dict[str, ConfigEntry]:
        """The settings of a topic or a broker, all of them or the named ones."""
        return describe_configs(self._cluster, resource, names)

    def alter_configs(
        self, resource: ConfigResource, changes: Iterable[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Change some settings of a topic or a broker, leave the others unchanged (KIP-339)."""
        alter_configs(self._cluster, resource, changes, validate_only=validate_only)

    def _ask_controller(
        self,
        api: ApiKey,
        request: Callable[[int], object],
        answer: type[T],
        timeout_ms: float | None,
        topics_of: Callable[[T], Sequence[_TopicAnswer]] = lambda _answer: (),
    ) -> T:
        """Ask the controller that the metadata names; any broker when there is none.

        While it refuses all topics of the answer as one that is not the controller (any more), ask again.
        """

        def attempt(deadline: Deadline) -> T:
            self._cluster.refresh([], deadline=deadline)
            controller_id = self._cluster.info.controller_id
            if controller_id in self._cluster.info.brokers:
                connection = self._cluster.connect_broker(controller_id, deadline)
            else:
                connection = self._cluster.connect_any(deadline)
            response = connection.call(api, request(connection.version_of(api)), answer, deadline)
            topics = topics_of(response)
            if topics and all(each.error_code == ErrorCode.NOT_CONTROLLER for each in topics):
                raise BrokerRefused(ErrorCode.NOT_CONTROLLER, api.name)
            return response

        return self._cluster.retrying.run(api.name, attempt, self._cluster.retrying.deadline(timeout_ms))


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions_count,
        replication_factor=topic.replication_factor,
        assignments=[CreatableReplicaAssignment(index, list(nodes)) for index, nodes in topic.assignments.items()],
        configs=[CreatableTopicConfig(name, value) for name, value in topic.configs.items()],
    )


def _created(row: CreatableTopicResult) -> CreatedTopic | BrokerRefused:
    refusal = _refusal(row.error_code, f"topic {row.name}", row.error_message)
    return refusal or CreatedTopic(row.name, row.topic_id, row.num_partitions, row.replication_factor)


def _refusal(code: int, subject: str, detail: str | None, hints: Mapping[ErrorCode, str] = {}) -> BrokerRefused | None:
    """`hints`: advice for a code that is more specific than the default."""
    if not code:
        return None
    error_code = error_code_of(code)
    return BrokerRefused(error_code, subject, detail, hint=hints.get(error_code))


def _record_topics(before_offsets: Mapping[TopicPartition, int]) -> list[DeleteRecordsTopic]:
    return [
        DeleteRecordsTopic(topic, [DeleteRecordsPartition(each.partition, before_offsets[each]) for each in partitions])
        for topic, partitions in groupby(sorted(before_offsets), key=lambda partition: partition.topic)
    ]
