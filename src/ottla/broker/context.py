"""What handlers use of the broker.  They depend on these protocols, so a test passes a small implementation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from ottla.broker.net.advertising import BrokerAddress
from ottla.broker.net.auto_creations import AutoCreations
from ottla.broker.net.client_quotas import ClientQuotas
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.coordination.broker_registry import BrokersView
from ottla.coordination.configs import ConfigEntity, ConfigsView
from ottla.coordination.features import FeaturesView
from ottla.coordination.topics_view import Topic, TopicsView
from ottla.groups.commands import Command, ListGroups, TransactionalProducer
from ottla.groups.replies import ListReply
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, RequestError
from ottla.model.identifiers import NodeId, ProducerId, TopicPartition
from ottla.model.listener import DEFAULT_LISTENER_NAME
from ottla.model.settings import BrokerSettings
from ottla.runtime.clock import Clock
from ottla.runtime.steps import Steps
from ottla.security.acl import ANONYMOUS, Acl, AclFilter
from ottla.security.authorizer import AclIndex, Rights
from ottla.transactions.commands import (
    NO_CONNECTION,
    AddPartitions,
    DescribeTransaction,
    IdCommand,
    ListTransactions,
    VerifyPartitions,
)
from ottla.transactions.commands import ListReply as ListedTransactions
from ottla.transactions.end_markers import EndMarkers


class Call(NamedTuple):
    """One request: its version, its sender, and the address that it was sent to."""

    api_version: int
    client_id: str | None
    # The broker's address as this client reached it: host and port.
    local_address: tuple[str, int]
    # The host that is shown for a group's member, as Java writes an address: `/127.0.0.1`.
    client_host: str = ""
    # What this client's connection may still create; None: it is not counted.
    auto_creations: AutoCreations | None = None
    # The connection itself, only to compare: see `Groups.abandon_join`.
    connection: object | None = None
    # The place of its connection in the order in which the broker accepted them.
    connection_number: int = NO_CONNECTION
    # The identity of the sender, as ACLs name it, and the listener that accepted its connection.
    principal: str = ANONYMOUS
    listener_name: str = DEFAULT_LISTENER_NAME
    # What the sender of a request to a group may do; None: there is no authorizer.
    rights: Rights | None = None
    # None: its client has none.
    quotas: ClientQuotas | None = None


class NewTopic(NamedTuple):
    """A topic to be created.  Counts of -1 mean the broker's defaults; `assignment` gives replicas by partition."""

    name: str
    partitions_count: int = -1
    replication_factor: int = -1
    assignment: Mapping[int, Sequence[int]] | None = None
    config: Mapping[str, str | None] = {}
    # Created because a client named it in a Metadata request.
    is_automatic: bool = False


class LogDirectoryState(NamedTuple):
    """Where the partitions are stored; sizes are those of its file system."""

    path: str
    is_online: bool
    total_bytes: int
    usable_bytes: int


class Groups(Protocol):
    """All groups of this broker (broker/groups).  No call waits; replies come later by their callbacks."""

    @property
    def exists(self) -> bool:
        """Whether `__consumer_offsets` exists."""
        ...

    def state_of(self, group_id: str) -> ErrorCode:
        """NONE when this broker decides commands of this group now, else the error that its clients get."""
        ...

    # The command names the type of its reply (groups/commands.py).
    def submit(self, group_id: str, command: Command, reply: Callable[[Any], None]) -> None:
        """Decide `command`; `reply` is called exactly once, now or later."""
        ...

    def open_transaction(
        self,
        group_id: str,
        producer: tuple[int, int],
        verify: Callable[[TopicPartition, Callable[[ErrorCode], None]], None],
        on_open: Callable[[TransactionalProducer | ErrorCode], None],
        *,
        adds_partition: bool = False,
    ) -> None:
        """What commits of a producer need for this group, or an error, to `on_open`; see `GroupCoordinator`."""
        ...

    def abandon_join(self, group_id: str, connection: object) -> None:
        """The connection closed while its JoinGroup for this group was parked."""
        ...

    def submit_to_all(self, command: ListGroups, on_all: Callable[[list[ListReply]], None]) -> Steps[None]:
        """Submit it to every shard, one in each step; `on_all` is called once, with all their replies."""
        ...


class Transactions(Protocol):
    """All transactional ids of this broker (broker/transactions)."""

    @property
    def exists(self) -> bool:
        """Whether `__transaction_state` exists."""
        ...

    def state_of(self, transactional_id: str) -> ErrorCode:
        """NONE when this broker decides commands of this id now, else the error that its clients get."""
        ...

    # The command names the type of its reply (transactions/commands.py).
    def submit(self, command: IdCommand | DescribeTransaction, reply: Callable[[Any], None]) -> None:
        """Decide `command`; `reply` is called exactly once, now or later."""
        ...

    def submit_to_all(
        self, command: ListTransactions, on_all: Callable[[list[ListedTransactions]], None]
    ) -> Steps[None]:
        """Submit it to every shard, one in each step; `on_all` is called once, with all their replies."""
        ...


class Verifier(Protocol):
    """Queries the coordinators of transactional ids (broker/transactions/verifier.py)."""

    def verify(self, wanted: AddPartitions | VerifyPartitions, reply: Callable[[ErrorCode], None]) -> None:
        """`reply` is called once, now or later."""
        ...


class MarkerWriting(Protocol):
    """Writes the markers of transactions to the partitions that this broker leads."""

    def write(self, partition: TopicPartition, markers: EndMarkers, on_done: Callable[[ErrorCode], None]) -> None:
        """`on_done` is called once, now or later: when the marker is on all in-sync replicas, or with an error."""
        ...


class Elections(Protocol):
    """Elections on request, in a cluster."""

    async def elect(self, wanted: Sequence[TopicPartition], *, is_unclean: bool, timeout_ms: int) -> list[ErrorCode]:
        """What became of the election of each partition; NONE: it has the wanted leader now.

        REQUEST_TIMED_OUT: it was not written within `timeout_ms`, or another change was first.
        """
        ...


class Brokers(Protocol):
    """The brokers of the cluster as this one sees them (broker/live_brokers.py)."""

    @property
    def live(self) -> BrokersView:
        """The brokers that are registered now; this one too, also while it has no session."""
        ...

    @property
    def controller_id(self) -> NodeId:
        """The broker that admin clients send changes to.

        Any broker serves them, so there is no controller; all brokers name the live one with the lowest id.
        """
        ...

    @property
    def may_lead(self) -> bool:
        """Whether this broker is registered, in a session that is certain; else others may lead by now what it led."""
        ...

    @property
    def is_replaced(self) -> bool:
        """Whether its session has ended, so that the others list it no more and lead what it led."""
        ...

    def addresses_for(self, local_address: tuple[str, int]) -> list[BrokerAddress]:
        """The live brokers by id, with the addresses for a client that connected to `local_address`."""
        ...


class TopicAdmin(Protocol):
    """Changes of topics and settings (broker/topics/topic_requests.py); each is in force here when its call returns."""

    async def create(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        """Create a topic, or only check that it could be created; it is served when this returns.

        Raises `RequestError` with the code that CreateTopics answers, or `NotServed` when its logs cannot be created
        now.
        """
        ...

    async def add_partitions(
        self, name: str, count: int, assignment: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> None:
        """Add partitions until the topic has `count`, or only check that it could; served when this returns.

        `assignment`: the replicas of each added one.  Raises `RequestError` with the code that CreatePartitions
        answers, or `NotServed` when their logs cannot be created now.
        """
        ...

    async def reassign(
        self, name: str, targets: Mapping[int, Sequence[int] | None], *, may_change_count: bool
    ) -> Mapping[int, RequestError | None]:
        """Start to move partitions to these replicas, or with None end a move; returns what was refused, by index.

        The moves continue after this returns.  Raises `RequestError` with the code of the whole topic, or `OttlaError`.
        """
        ...

    async def delete(self, name: str, topic_id: UUID | None = None) -> None:
        """Delete a topic; it is no longer served when this returns.  Raises `RequestError`."""
        ...

    async def alter_config(
        self, entity: ConfigEntity, changed: Mapping[str, str | None], *, replaces_all: bool = False
    ) -> None:
        """Set (or with None, unset) some dynamic settings of a topic, a group or a broker.

        `replaces_all`: what is not in `changed` is unset.  The caller has checked names and values.  Raises
        `RequestError`.
        """
        ...


class RecordDeletions(Protocol):
    """Deletions of records at their leader (broker/partitions/record_deletions.py)."""

    async def delete(
        self, before: Mapping[TopicPartition, int], timeout_ms: int
    ) -> Mapping[TopicPartition, int | OttlaError]:
        """Move the log starts of partitions up (-1: to the high watermark); durable here when this returns.

        Returns for each the least log start of the live replicas when all of them have moved theirs; or why not: an
        `OttlaError`, `RequestError` with REQUEST_TIMED_OUT when one of them has not within `timeout_ms`.
        """
        ...


class AclAdmin(Protocol):
    """The access rules (broker/authorization/acl_changes.py)."""

    @property
    def index(self) -> AclIndex:
        """Those in force at this broker."""
        ...

    async def create(self, acls: Sequence[Acl]) -> Mapping[Acl, OttlaError]:
        """Add rules that `check_acl` has passed; in force here when this returns.  Returns those that were not."""
        ...

    async def delete(self, wanted: AclFilter) -> Sequence[Acl]:
        """Remove the rules that the filter selects; returns them.  Raises `OttlaError`."""
        ...


class ProducerIds(Protocol):
    """The ids of idempotent producers, each given once in a cluster."""

    async def next(self) -> ProducerId: ...


class LogDirectoryReport(Protocol):
    """The log directory as DescribeLogDirs shows it."""

    def state(self) -> LogDirectoryState: ...


class BrokerContext(Protocol):
    """The broker as a handler sees it: facts, views of the tree, and the objects that own the answers."""

    @property
    def node_id(self) -> NodeId: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def is_sole(self) -> bool:
        """Whether the tree is in this broker's data directory, so that no other broker can share it."""
        ...

    @property
    def settings(self) -> BrokerSettings:
        """The broker's static settings."""
        ...

    @property
    def clock(self) -> Clock: ...

    @property
    def topics(self) -> TopicsView: ...

    @property
    def configs(self) -> ConfigsView: ...

    @property
    def partitions(self) -> PartitionTable: ...

    @property
    def brokers(self) -> Brokers: ...

    @property
    def groups(self) -> Groups: ...

    @property
    def transactions(self) -> Transactions: ...

    @property
    def verifier(self) -> Verifier: ...

    @property
    def markers(self) -> MarkerWriting: ...

    @property
    def features(self) -> FeaturesView:
        """The features of the cluster, as this broker has read them."""
        ...

    @property
    def topic_admin(self) -> TopicAdmin: ...

    @property
    def record_deletions(self) -> RecordDeletions: ...

    @property
    def producer_ids(self) -> ProducerIds: ...

    @property
    def acls(self) -> AclAdmin | None:
        """None: there is no authorizer, and every client may do everything."""
        ...

    @property
    def log_directory(self) -> LogDirectoryReport: ...

    @property
    def elections(self) -> Elections | None:
        """None for a standalone broker, which leads all its partitions."""
        ...


def releases_clients(context: BrokerContext) -> bool:
    """Whether clients must look for another broker: this one may not lead, and others are live."""
    brokers = context.brokers
    return not brokers.may_lead and any(node_id != context.node_id for node_id in brokers.live.by_id)


def require_mutations(call: Call, strict_from: int) -> None:
    """Raises `RequestError` when the client may not change topics now, for its controller_mutation_rate.

    Before the version `strict_from` clients do not know that error: `count_mutations` throttles them.
    """
    if call.quotas is not None and call.api_version >= strict_from:
        call.quotas.require_mutations()


def count_mutations(call: Call, partitions_count: int, strict_from: int | None = None) -> None:
    """So many partitions were created or deleted for the client."""
    if call.quotas is not None:
        is_strict = strict_from is not None and call.api_version >= strict_from
        call.quotas.count_mutations(partitions_count, throttles=not is_strict)
