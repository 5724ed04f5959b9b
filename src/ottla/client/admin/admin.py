"""Administration of a cluster: topics, settings, groups, users, access rules, quotas, transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from types import TracebackType
from typing import Final, Protocol, TypeVar
from uuid import UUID

from ottla.client.admin.access import (
    DEFAULT_ITERATIONS,
    UserCredential,
    create_acls,
    delete_acls,
    delete_user,
    describe_acls,
    describe_users,
    set_password,
)
from ottla.client.admin.configs import (
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ResourceType,
    alter_configs,
    describe_configs,
)
from ottla.client.admin.lag import Lag, lags
from ottla.client.admin.quotas import SetQuotas, alter_quotas, describe_quotas
from ottla.client.admin.replicas import OngoingMove, Targets, alter_request, list_request, ongoing_moves, refusals
from ottla.client.admin.transactions import (
    ListedTransaction,
    OpenTransaction,
    TransactionAdmin,
    TransactionDescription,
)
from ottla.client.fetching.offsets import LATEST, Isolation, OffsetAnswer, isolation_level_of, list_offsets
from ottla.client.groups.group_types import CommittedOffset, GroupDescription, ListedGroup
from ottla.client.groups.groups import GroupAdmin
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.client.wire.destination.arguments import destination_and_security
from ottla.client.wire.errors import BrokerRefused, ClientError, error_code_of
from ottla.client.wire.leader_calls import Exchange, call_leaders, try_leaders
from ottla.client.wire.metadata import ClusterInfo, TopicInfo
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.other_clients import refuse_mapping
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.security.settings import ClientSecurity
from ottla.model.error_code import ErrorCode
from ottla.model.errors import ConfigError
from ottla.model.identifiers import TopicPartition
from ottla.model.quotas import EntityType, QuotaEntity, QuotaKind
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
from ottla.security.acl import Acl, AclFilter
from ottla.security.mechanism import SaslMechanism
from ottla.security.secret import Secret

T = TypeVar("T")

DEFAULT_CLIENT_ID: Final = "ottla-admin"
_SETTINGS: Final = frozenset({"client_id", "request_timeout_ms", "security"})
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
    """Administration of a cluster, through any of its brokers.

        with Admin("localhost:9092") as admin:
            admin.create_topic("page-views", partitions_count=12, configs={"retention.ms": "86400000"})
            print(admin.group_lag("mailer"))

    `cluster`: the brokers' address, None for the one that is chosen as for `ottla.Producer`, or a `Cluster` of the
    caller, which is not closed here.  `request_timeout_ms`: a request without an answer (30,000).  `security`: TLS and
    SASL, a mapping of librdkafka's or Kafka's names or a `ClientSecurity`.  Not for several threads at once.

    Calls for several topics, partitions or rules return the result or the error of each; the others raise BrokerRefused
    with the broker's reason.  Every call tries again while brokers move or cannot be reached, and raises CallTimedOut,
    BrokerUnreachable or another ClientError then.  Each docstring names the APIs of the protocol.
    """

    def __init__(
        self,
        cluster: Cluster | str | Sequence[str] | None = None,
        *,
        client_id: str | None = None,
        request_timeout_ms: int | None = None,
        security: ClientSecurity | Mapping[str, object] | None = None,
    ) -> None:
        if isinstance(cluster, Mapping):
            refuse_mapping("Admin", cluster, _SETTINGS)
        self._owns_cluster = not isinstance(cluster, Cluster)
        if isinstance(cluster, Cluster):
            if security is not None or client_id is not None or request_timeout_ms is not None:
                raise ConfigError("the cluster has its settings already", hint="give its address, or leave them out")
            self._cluster = cluster
        else:
            destination, checked = destination_and_security(cluster, security)
            options = ClientOptions(client_id or DEFAULT_CLIENT_ID, security=checked)
            if request_timeout_ms is not None:
                options = replace(options, request_timeout_ms=request_timeout_ms)
            self._cluster = Cluster(destination, options)

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections, but not those of a caller's `Cluster`; a later call connects again."""
        if self._owns_cluster:
            self._cluster.close()

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> dict[str, CreatedTopic | BrokerRefused]:
        """Create topics; `validate_only` checks without creating.  CREATE_TOPICS (19)."""
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
        """Create one topic; raises BrokerRefused.  CREATE_TOPICS (19)."""
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
        """Raise the partition counts of topics to these totals (KIP-195); None is success.  CREATE_PARTITIONS (37)."""
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
        """Delete topics; None is success.  DELETE_TOPICS (20)."""
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
        this returns.  ALTER_PARTITION_REASSIGNMENTS (45).
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
        """The moves under way, of these partitions or of all.  LIST_PARTITION_REASSIGNMENTS (46)."""
        wait_ms = self._cluster.options.request_timeout_ms if timeout_ms is None else timeout_ms
        request = list_request(partitions, wait_ms)
        api, answer = ApiKey.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsResponse
        return ongoing_moves(self._ask_controller(api, lambda _: request, answer, timeout_ms))

    def list_topics(self) -> list[TopicInfo]:
        """Every topic, by name, internal ones too.  METADATA (3)."""
        return sorted(self._cluster.refresh(None), key=lambda topic: topic.name)

    def describe_topics(self, names: Iterable[str]) -> list[TopicInfo]:
        """Topics with partitions, leaders and replicas; one that does not exist has an `error_code`.  METADATA (3)."""
        return self._cluster.refresh(list(names))

    def describe_cluster(self) -> ClusterInfo:
        """The cluster's id, its brokers, and the broker for administration.  METADATA (3)."""
        self._cluster.refresh([])
        return self._cluster.info

    def delete_records(
        self, before_offsets: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records below these offsets (HIGH_WATERMARK: everything); returns the new log starts.

        Raises what any of the partitions is refused for; records of the others may be deleted then.
        DELETE_RECORDS (21).
        """
        exchange = _record_deletion(self._cluster.options.request_timeout_ms)
        return call_leaders(self._cluster, "DELETE_RECORDS", before_offsets, exchange, timeout_ms)

    def try_delete_records(
        self, before_offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | ClientError]:
        """Like `delete_records`, but a partition whose records are not deleted has its reason instead, at once.

        DELETE_RECORDS (21).
        """
        exchange = _record_deletion(self._cluster.options.request_timeout_ms)
        return try_leaders(self._cluster, before_offsets, exchange)

    def describe_configs(self, resource: ConfigResource, names: Sequence[str] | None = None) -> dict[str, ConfigEntry]:
        """The settings of a topic or a broker, all of them or the named ones.  DESCRIBE_CONFIGS (32)."""
        return describe_configs(self._cluster, resource, names)

    def alter_configs(
        self, resource: ConfigResource, changes: Iterable[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Change some settings of a topic or a broker, leave the others unchanged (KIP-339).

        INCREMENTAL_ALTER_CONFIGS (44).
        """
        alter_configs(self._cluster, resource, changes, validate_only=validate_only)

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        """The values of all settings of a topic; None: secret, or not set.  DESCRIBE_CONFIGS (32)."""
        found = self.describe_configs(ConfigResource(ResourceType.TOPIC, topic))
        return {name: entry.value for name, entry in found.items()}

    def set_topic_configs(self, topic: str, values: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """Set these settings of a topic; None restores a default.  INCREMENTAL_ALTER_CONFIGS (44)."""
        changes = [
            ConfigChange(name, ConfigOperation.DELETE if value is None else ConfigOperation.SET, value)
            for name, value in values.items()
        ]
        self.alter_configs(ConfigResource(ResourceType.TOPIC, topic), changes, validate_only=validate_only)

    def list_offsets(
        self, partitions: Iterable[TopicPartition], at: int = LATEST, *, isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, OffsetAnswer]:
        """The offset of each partition at LATEST, EARLIEST or MAX_TIMESTAMP, or at a time in ms: that of the first
        record with this timestamp or a later one, -1 without one.  LIST_OFFSETS (2).
        """
        level = isolation_level_of(isolation)
        return list_offsets(self._cluster, dict.fromkeys(partitions, at), isolation=level)

    def list_groups(self, states: Sequence[str] = (), kinds: Sequence[str] = ()) -> list[ListedGroup]:
        """The groups of all brokers, by id: of these states ("Stable", "Empty", ...) and kinds ("consumer", "classic").

        LIST_GROUPS (16).
        """
        return GroupAdmin(self._cluster).list_groups(states, kinds)

    def describe_group(self, group: str) -> GroupDescription:
        """Its state, members and their partitions, of either kind.  Raises UnknownGroup.

        CONSUMER_GROUP_DESCRIBE (69), DESCRIBE_GROUPS (15).
        """
        return GroupAdmin(self._cluster).describe(group)

    def group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """The committed offsets, of all partitions or of these; those without one are left out.  OFFSET_FETCH (9)."""
        return GroupAdmin(self._cluster).committed(group, partitions)

    def set_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset]) -> None:
        """Set the next offsets of a group without members; refused for others.  OFFSET_COMMIT (8)."""
        named = {
            partition: offset if isinstance(offset, CommittedOffset) else CommittedOffset(offset)
            for partition, offset in offsets.items()
        }
        GroupAdmin(self._cluster).commit(group, named)

    def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, BrokerRefused | None]:
        """Delete committed offsets; None is success.  Refused for topics that members read.  Raises UnknownGroup.

        OFFSET_DELETE (47).
        """
        return GroupAdmin(self._cluster).delete_offsets(group, partitions)

    def delete_group(self, group: str) -> None:
        """Delete a group without members, with its offsets.  Raises UnknownGroup.  DELETE_GROUPS (42)."""
        GroupAdmin(self._cluster).delete(group)

    def group_lag(self, group: str) -> dict[TopicPartition, Lag]:
        """How far a group's committed offsets are before the ends, in records and in time.  A partition that cannot be
        queried has its `problem`.  OFFSET_FETCH (9), LIST_OFFSETS (2), FETCH (1).
        """
        committed = self.group_offsets(group)
        return lags(self._cluster, {partition: each.offset for partition, each in committed.items()})

    def describe_users(self, names: Sequence[str] | None = None) -> dict[str, list[UserCredential]]:
        """The SCRAM credentials of these users, or of all, without secrets; refused for one that has none.

        DESCRIBE_USER_SCRAM_CREDENTIALS (50).
        """
        return describe_users(self._cluster, names)

    def set_password(
        self,
        user: str,
        password: str | Secret,
        mechanisms: Sequence[SaslMechanism] = (SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512),
        iterations: int = DEFAULT_ITERATIONS,
    ) -> None:
        """Let a user log in by these mechanisms, with a new salt; the password itself is not sent.

        ALTER_USER_SCRAM_CREDENTIALS (51).
        """
        secret = password if isinstance(password, Secret) else Secret(password)
        set_password(self._cluster, user, secret, mechanisms, iterations)

    def delete_user(self, user: str) -> None:
        """Delete all credentials of a user; refused when there are none.  ALTER_USER_SCRAM_CREDENTIALS (51)."""
        delete_user(self._cluster, user)

    def describe_acls(self, wanted: AclFilter | None = None) -> list[Acl]:
        """The access rules that the filter selects, or all.  DESCRIBE_ACLS (29)."""
        return describe_acls(self._cluster, wanted or AclFilter())

    def create_acls(self, acls: Sequence[Acl]) -> dict[Acl, BrokerRefused | None]:
        """Create access rules; None is success, also for one that is there already.  CREATE_ACLS (30)."""
        return create_acls(self._cluster, acls)

    def delete_acls(self, filters: Iterable[AclFilter]) -> list[Acl]:
        """Delete the rules that any of the filters selects; returns them.  DELETE_ACLS (31)."""
        return delete_acls(self._cluster, filters)

    def describe_quotas(
        self, wanted: Mapping[EntityType, str | None] | None = None, *, strict: bool = False
    ) -> list[SetQuotas]:
        """The quotas of the entities with all the wanted parts, of any name where it is None; `strict`: without other
        parts.  DESCRIBE_CLIENT_QUOTAS (48).
        """
        return describe_quotas(self._cluster, wanted, strict=strict)

    def alter_quotas(self, entity: QuotaEntity, changed: Mapping[QuotaKind, float | None]) -> None:
        """Set quotas of an entity, or with None remove them.  ALTER_CLIENT_QUOTAS (49)."""
        alter_quotas(self._cluster, entity, changed)

    def list_transactions(
        self, states: Sequence[str] = (), *, running_ms: int | None = None
    ) -> list[ListedTransaction]:
        """The transactional ids in these states; `running_ms`: open for longer than that.  LIST_TRANSACTIONS (66)."""
        return TransactionAdmin(self._cluster).list_transactions(states, running_ms=running_ms)

    def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """Its state, producer and partitions.  Raises UnknownTransactionalId.  DESCRIBE_TRANSACTIONS (65)."""
        return TransactionAdmin(self._cluster).describe(transactional_id)

    def hanging_transactions(self, partitions: Iterable[TopicPartition], open_since_ms: int) -> list[OpenTransaction]:
        """Transactions without a batch since this wall time that no coordinator will end.

        DESCRIBE_PRODUCERS (61), LIST_TRANSACTIONS (66), DESCRIBE_TRANSACTIONS (65).
        """
        return TransactionAdmin(self._cluster).hanging(partitions, open_since_ms)

    def abort_transaction(self, hanging: OpenTransaction) -> None:
        """End one of `hanging_transactions` at its partition's leader.  WRITE_TXN_MARKERS (27)."""
        TransactionAdmin(self._cluster).abort(hanging)

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


def _record_deletion(wait_ms: int) -> Exchange[int, int]:
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

    return exchange


def _record_topics(before_offsets: Mapping[TopicPartition, int]) -> list[DeleteRecordsTopic]:
    return [
        DeleteRecordsTopic(topic, [DeleteRecordsPartition(each.partition, before_offsets[each]) for each in partitions])
        for topic, partitions in groupby(sorted(before_offsets), key=lambda partition: partition.topic)
    ]
