"""What handlers see of a broker, in memory: real logs on a memory disk, topics in a dictionary, no tree, no server."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TypeVar
from uuid import UUID

from ottla.broker.authorization.api_guards import GuardedCalls
from ottla.broker.context import AclAdmin, Call, Elections, LogDirectoryState, NewTopic, Verifier
from ottla.broker.groups.coordinator import GroupCoordinator, consumer_times, group_settings
from ottla.broker.handlers import CALLBACK_HANDLERS, HANDLERS
from ottla.broker.net.access import Access
from ottla.broker.net.advertising import BrokerAddress
from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.broker.partitions.record_deletions import RecordDeletions
from ottla.broker.partitions.waiting_requests import ACKS_ALL
from ottla.broker.shards.shard_table import ShardSources
from ottla.broker.topics.topic_rules import checked_config
from ottla.broker.transactions.coordinator import TransactionCoordinator, transaction_settings
from ottla.broker.transactions.marker_sender import MarkerSender
from ottla.broker.transactions.marker_writer import MarkerWriter
from ottla.broker.transactions.verifier import TransactionVerifier
from ottla.broker.tree.broker_lifecycle import BrokerLifecycle
from ottla.coordination import topics_view
from ottla.coordination.configs import ConfigEntity, ConfigsView
from ottla.coordination.features import FeaturesView
from ottla.coordination.topics_view import Topic, TopicsView
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, RequestError
from ottla.model.identifiers import LeaderEpoch, NodeId, ProducerId, TopicPartition
from ottla.model.partition_state import PartitionState, ReplicaIncarnation
from ottla.model.settings import BrokerSettings
from ottla.protocol.api import ApiKey
from ottla.protocol.messages import decode_request, decode_response, encode_request, encode_response
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.header import HEADER
from ottla.records.record import Record
from ottla.runtime.offload import run_inline
from ottla.runtime.steps import run_steps
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.log_config import LogConfig
from ottla.testing.fake_clock import FakeClock
from ottla.testing.memory_disk import MemoryDisk
from tests.unit.broker.live_brokers import live
from tests.unit.broker.roles import HERE, lead
from tests.unit.broker.turned_loop import TurnedLoop

R = TypeVar("R")

NODE_ID = NodeId(5)
PARTITIONS_MADE_MAX = 8
HOST, PORT = "reached.example", 19_092


class SmallBrokers:
    """This broker as it was reached, and the others as they registered."""

    def __init__(self) -> None:
        self.controller_id = NODE_ID
        self.live = live(NODE_ID)
        self.may_lead = True
        self.is_replaced = False

    def addresses_for(self, local_address: tuple[str, int]) -> list[BrokerAddress]:
        own = BrokerAddress(NODE_ID, *local_address, "rack-1")
        others = self.live.by_id.keys() - {NODE_ID}
        listeners = {each: self.live.by_id[each].registration.listeners[0] for each in others}
        return [own, *(BrokerAddress(each, found.host, found.port, None) for each, found in listeners.items())]


class SmallLogDirectory:
    def __init__(self) -> None:
        self.is_online = True

    def state(self) -> LogDirectoryState:
        return LogDirectoryState("/data", self.is_online, 1000, 400)


class CountedIds:
    def __init__(self) -> None:
        self._given = 1000

    async def next(self) -> ProducerId:
        self._given += 1
        return ProducerId(self._given)

    def begin_at(self, producer_id: int) -> None:
        self._given = max(self._given, producer_id - 1)


class SmallTopicAdmin:
    """Records what is requested; only a creation has an effect."""

    def __init__(self, broker: SmallBroker) -> None:
        self._broker = broker

    async def create(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        self._broker.refuse()
        if new.name in self._broker.topics.by_name:
            raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {new.name!r} exists already")
        checked_config(new.config, self._broker.settings)
        self._broker.created.append((new, validate_only))
        if validate_only:
            return _topic(new.name, 1, UUID(int=0), 0)
        return self._broker.add_topic(new.name, min(max(new.partitions_count, 1), PARTITIONS_MADE_MAX))

    async def add_partitions(
        self, name: str, count: int, assignment: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> None:
        self._broker.refuse()
        self._broker.grown.append((name, count, assignment, validate_only))

    async def reassign(
        self, name: str, targets: Mapping[int, Sequence[int] | None], *, may_change_count: bool
    ) -> Mapping[int, RequestError | None]:
        self._broker.refuse()
        self._broker.reassigned.append((name, dict(targets), may_change_count))
        missing = RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is none")
        return {index: None if index == 0 else missing for index in targets}

    async def delete(self, name: str, topic_id: UUID | None = None) -> None:
        self._broker.refuse()
        self._broker.deleted.append((name, topic_id))

    async def alter_config(
        self, entity: ConfigEntity, changed: Mapping[str, str | None], *, replaces_all: bool = False
    ) -> None:
        self._broker.refuse()
        if replaces_all:
            self._broker.replaced.append((entity, changed))
            return
        self._broker.altered.append((entity, changed))


class SmallRecordDeletions:
    def __init__(self, broker: SmallBroker) -> None:
        self._broker = broker

    async def delete(
        self, before: Mapping[TopicPartition, int], timeout_ms: int
    ) -> Mapping[TopicPartition, int | OttlaError]:
        broker = self._broker
        if broker.refusal is not None:
            return dict.fromkeys(before, broker.refusal)
        return await RecordDeletions(broker.partitions, broker.directory).delete(before, timeout_ms)


class SmallBroker:
    """A `BrokerContext` whose state the test reads and writes."""

    def __init__(self, **settings: str) -> None:
        self.node_id = NODE_ID
        self.cluster_id = "cluster-of-the-test-xx"
        self.settings = BrokerSettings.of({name.replace("_", "."): value for name, value in settings.items()})
        self.clock = FakeClock()
        self.partitions = PartitionTable()
        self.topics = TopicsView.of(0, {})
        self.is_sole = True
        self.brokers = SmallBrokers()
        self.elections: Elections | None = None
        self.overrides: dict[ConfigEntity, Mapping[str, str]] = {}
        self.refusal: OttlaError | None = None
        self.created: list[tuple[NewTopic, bool]] = []
        self.grown: list[tuple[str, int, Sequence[Sequence[int]] | None, bool]] = []
        self.reassigned: list[tuple[str, Mapping[int, Sequence[int] | None], bool]] = []
        self.replaced: list[tuple[ConfigEntity, Mapping[str, str | None]]] = []
        self.log_directory = SmallLogDirectory()
        self.deleted: list[tuple[str, UUID | None]] = []
        self.altered: list[tuple[ConfigEntity, Mapping[str, str | None]]] = []
        self.disk = MemoryDisk()
        self.directory = LogDirectory.open(
            self.disk, "/data", clock=self.clock, config_of=lambda _: LogConfig(flush_policy="os")
        )
        self.producer_ids = CountedIds()
        self.acls: AclAdmin | None = None
        self.topic_admin = SmallTopicAdmin(self)
        self.record_deletions = SmallRecordDeletions(self)
        self.loop = TurnedLoop()
        sources = ShardSources(
            self.partitions,
            self.clock,
            self.loop,  # type: ignore[arg-type]  # the part of a loop that it uses
            is_flushing=lambda: False,
        )
        self.groups = GroupCoordinator(
            group_settings(self.settings),
            lambda group_id: consumer_times(self.configs, group_id, self.settings),
            1 << 20,
            sources,
        )
        self.features = FeaturesView()
        self.markers = MarkerWriter(self.partitions, self.clock, BrokerLifecycle.sole(NODE_ID), self.groups)
        self.transactions = TransactionCoordinator(
            transaction_settings(self.settings),
            1 << 20,
            sources,
            self.producer_ids,
            MarkerSender(NODE_ID, self, self.markers, sources.loop),
        )
        self.verifier: Verifier = TransactionVerifier(NODE_ID, self.transactions, lambda transactional_id: NODE_ID)

    @property
    def configs(self) -> ConfigsView:
        return ConfigsView(1, self.overrides)

    def refuse(self) -> None:
        """Raise what the test wants raised."""
        if self.refusal is not None:
            raise self.refusal

    def leader_of(self, partition: TopicPartition) -> NodeId | None:
        return None if self.partitions.find(*partition) is None else NODE_ID

    async def refresh(self) -> None:
        """The topics are never out of date."""

    def add_topic(self, name: str, partitions_count: int = 1, *, leader_epoch: int = 0) -> Topic:
        topic_id = UUID(int=0xABC0000 + len(self.topics.by_name))
        topic = _topic(name, partitions_count, topic_id, leader_epoch)
        self.topics = TopicsView.of(self.topics.version + 1, {**self.topics.by_name, name: topic})
        names = [TopicPartition(name, index) for index in range(partitions_count)]
        for log in run_inline(self.directory.create([(each, topic_id) for each in names])):
            partition = Partition(log, HERE)
            lead(partition, leader_epoch)
            self.partitions.add(partition)
        self.groups.on_topics_changed(self.topics)
        self.transactions.on_topics_changed(self.topics)
        return topic

    def place(self, name: str, replicas: Sequence[int], leader: int, in_sync: Sequence[int]) -> None:
        """Let the tree assign every partition of a topic so."""
        topic = self.topics.by_name[name]
        members = tuple(ReplicaIncarnation(NodeId(each), 1) for each in in_sync)
        nodes = tuple(
            node._replace(
                replicas=tuple(NodeId(each) for each in replicas),
                state=node.state._replace(leader=NodeId(leader), in_sync=members),
            )
            for node in topic.partitions
        )
        placed = topic._replace(partitions=nodes)
        self.topics = TopicsView.of(self.topics.version + 1, {**self.topics.by_name, name: placed})

    def partition(self, topic: str, index: int = 0) -> Partition:
        found = self.partitions.find(topic, index)
        assert found is not None
        return found

    def fail_log(self, topic: str, index: int) -> None:
        """Its disk fails, or damage is found in it: it takes no appends any more."""
        self.directory.logs[TopicPartition(topic, index)].distrust()

    def append(self, topic: str, *timestamps_ms: int, codec: Codec = Codec.NONE) -> None:
        """One batch with a record for each timestamp."""
        batch = build_batch([Record(0, each, b"key", b"value") for each in timestamps_ms], codec)
        self.partition(topic).append(memoryview(batch), HEADER.unpack_from(batch), ACKS_ALL, self.clock.now_ms())

    async def ask(
        self, api: ApiKey, version: int, request: object, response_class: type[R], access: Access | None = None
    ) -> R:
        """The answer as a client of this version reads it: over the wire's bytes in both directions.

        `access`: that of the client's connection, where there is an authorizer.
        """
        read = decode_request(api, version, encode_request(api, version, request))
        call = Call(version, "a-client", (HOST, PORT), "/192.0.2.1")
        if api in CALLBACK_HANDLERS:
            replies: list[object] = []
            handler = CALLBACK_HANDLERS[api]
            if access is None:
                steps = handler(read, self, call, replies.append)
            else:
                steps = GuardedCalls().answer(api, handler, read, self, call, replies.append, access)
            if steps is not None:
                run_steps(steps)
            (response,) = replies
            if isinstance(response, Generator):
                response = run_steps(response)
        elif access is None:
            response = await HANDLERS[api](read, self, call)
        else:
            response = await GuardedCalls().serve(api, HANDLERS[api], read, self, call, access)
        found = decode_response(api, version, encode_response(api, version, response))
        assert isinstance(found, response_class)
        return found


def _topic(name: str, partitions_count: int, topic_id: UUID, leader_epoch: int) -> Topic:
    state = PartitionState(NODE_ID, LeaderEpoch(leader_epoch), (ReplicaIncarnation(NODE_ID, 1),))
    nodes = (topics_view.PartitionNode(index, (NODE_ID,), state, 0) for index in range(partitions_count))
    return Topic(name, topic_id, tuple(nodes))


def codes(message: object) -> list[int]:
    """Every error code in a response, depth first."""
    found: list[int] = []
    if isinstance(message, list):
        for element in message:
            found += codes(element)
    elif is_dataclass(message):
        for declared in fields(message):
            value = getattr(message, declared.name)
            if declared.name in ("error_code", "partition_error_code"):
                found.append(value)
            else:
                found += codes(value)
    return found
