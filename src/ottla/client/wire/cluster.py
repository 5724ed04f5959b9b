"""A connection to a cluster: its brokers, topics and leaders.  Blocking, one thread, no locks.

Not safe to share between threads or processes: each opens its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, TypeVar

from ottla.client.wire.address import Address, parse_bootstrap
from ottla.client.wire.client_log import METADATA
from ottla.client.wire.connection import Connection
from ottla.client.wire.connection_pool import ConnectionPool
from ottla.client.wire.destination.destination import Bootstrap, Destination
from ottla.client.wire.errors import BrokerRefused, BrokerUnreachable, CallTimedOut, UnknownTopic
from ottla.client.wire.metadata import BrokerInfo, ClusterInfo, MetadataCache, PartitionInfo, TopicInfo
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.request_metrics import RequestMeter
from ottla.client.wire.retrying import Deadline, Retrying
from ottla.client.wire.reused_memory import ReusedMemory
from ottla.client.wire.topic_look_ups import TopicLookUps, led_partition
from ottla.client.wire.transport import Dial, Wait, dial_tcp, wait_readable
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition, topic_name_problem
from ottla.observe.events import named
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.runtime.clock import Clock, SystemClock

T = TypeVar("T")

# Metadata v0 cannot ask for no topic at all.
_METADATA_VERSION_MIN: Final = 1
_MISSING: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class Cluster:
    """`bootstrap`: "host:port,host:port", a sequence of such, or a `Destination`.  It connects with the first call.

    with Cluster("localhost:9092") as cluster:
        cluster.partitions("clicks")

    `dial`, `clock`, `sleep` and `wait` are its only access to the system: tests replace them.  Large responses are
    received into `memory`, which several clusters may share.  `on_wait` receives the reason of each retry.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        options: ClientOptions | None = None,
        *,
        dial: Dial = dial_tcp,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
        wait: Wait = wait_readable,
        memory: ReusedMemory | None = None,
        on_wait: Callable[[OttlaError], None] = lambda reason: None,
    ) -> None:
        self.options = options or ClientOptions()
        self.wait = wait
        self.clock: Clock = clock or SystemClock()
        self.meter = RequestMeter()

        def on_retry(reason: OttlaError) -> None:
            self.meter.on_retry(reason)
            on_wait(reason)

        def on_give_up(reason: OttlaError) -> None:
            self.meter.on_error(reason)
            on_wait(reason)  # its caller may try again

        self.retrying = Retrying(self.options, self.clock, sleep, on_retry, on_give_up)
        if isinstance(bootstrap, Destination):
            self._bootstrap, self._unreachable_hint = bootstrap.addresses(), bootstrap.unreachable_hint
        else:
            self._bootstrap, self._unreachable_hint = parse_bootstrap(bootstrap), None
        self._metadata = MetadataCache(self.options.metadata_max_age_ms, _log_new_leader)
        self._dial = dial
        self._memory = memory
        self._pool = self.new_pool()
        # For loops that must not wait for a broker.
        self.look_ups: Final = TopicLookUps(
            self._metadata, self._pool, self._addresses, self._with_hint, self.retrying, self.options, self.clock
        )

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; a later call connects again."""
        self._pool.close()

    def new_pool(self) -> ConnectionPool:
        """For a reader or a producer that keeps requests in flight; it closes the pool itself."""
        return ConnectionPool(self._dial, self.options, self.clock, self._memory, self.meter)

    def connect_any(self, deadline: Deadline) -> Connection:
        """A connection to any broker: an open one, a known broker's, or one of the bootstrap addresses."""
        try:
            return self._pool.connect_any(self._addresses(), deadline)
        except BrokerUnreachable as error:
            raise self._with_hint(error) from error.__cause__

    def _addresses(self) -> list[Address]:
        return [*(broker.address for broker in self.info.brokers.values()), *self._bootstrap]

    def _with_hint(self, error: BrokerUnreachable) -> BrokerUnreachable:
        return error if self._unreachable_hint is None else BrokerUnreachable(str(error), hint=self._unreachable_hint)

    def connect_broker(self, node_id: int, deadline: Deadline, pool: ConnectionPool | None = None) -> Connection:
        """A connection to the broker with this id; BrokerUnreachable when the cluster has no such broker now.

        It is the cluster's own, with one call at a time, or one of the caller's `pool`.
        """
        address = self._address_of(node_id)
        try:
            return (pool or self._pool).connect(address, deadline)
        except BrokerUnreachable as error:
            raise self._advertised(node_id, address, error) from error.__cause__

    def poll_broker(self, node_id: int, pool: ConnectionPool | None = None) -> Connection | None:
        """As `connect_broker`, without waiting: None while the connection is opened, see `ConnectionPool.poll`."""
        address = self._address_of(node_id)
        try:
            return (pool or self._pool).poll(address)
        except BrokerUnreachable as error:
            raise self._advertised(node_id, address, error) from error.__cause__

    def opening(self, node_id: int, pool: ConnectionPool | None = None) -> Connection | None:
        """What `poll_broker` waits for."""
        broker = self.info.brokers.get(node_id)
        return None if broker is None else (pool or self._pool).opening(broker.address)

    def _address_of(self, node_id: int) -> Address:
        broker = self.info.brokers.get(node_id)
        if broker is None:
            raise BrokerUnreachable(f"broker {node_id} is not in the cluster now")
        return broker.address

    def _advertised(self, node_id: int, address: Address, error: BrokerUnreachable) -> BrokerUnreachable:
        if address not in self._bootstrap:
            error.hint = f"the cluster advertises broker {node_id} there: check its advertised.listeners"
        return error

    def call_any(self, api: ApiKey, message: object, answer: type[T], timeout_ms: float | None = None) -> T:
        """Ask any broker; retried while brokers cannot be reached."""

        def attempt(deadline: Deadline) -> T:
            return self.connect_any(deadline).call(api, message, answer, deadline)

        return self.retrying.run(api.name, attempt, self.retrying.deadline(timeout_ms))

    @property
    def info(self) -> ClusterInfo:
        """The cluster's description in the last metadata response."""
        return self._metadata.cluster

    def refresh(
        self, topics: Iterable[str] | None, *, allow_auto_topic_creation: bool = False, deadline: Deadline | None = None
    ) -> list[TopicInfo]:
        """Ask any broker for these topics now (None: all).  Topics with errors are included."""
        names = None if topics is None else list(topics)

        def attempt(deadline: Deadline) -> list[TopicInfo]:
            return self.refresh_once(names, deadline, allow_auto_topic_creation=allow_auto_topic_creation)

        return self.retrying.run("METADATA", attempt, deadline or self.retrying.deadline())

    def refresh_once(
        self, topics: Iterable[str] | None, deadline: Deadline, *, allow_auto_topic_creation: bool = False
    ) -> list[TopicInfo]:
        """The same without another attempt, for a caller that has more to do than to wait for brokers."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=allow_auto_topic_creation)
        began_ms = self.clock.monotonic_ms()
        connection = self.connect_any(deadline)
        if connection.opened_at_ms >= began_ms and deadline.remaining_ms < connection.round_trip_ms:
            # A request that is cut closes its connection.  The next attempt has all its time for the request.
            raise CallTimedOut(f"no time is left for METADATA after the connection to {connection.address} was opened")
        response = connection.call(ApiKey.METADATA, request, MetadataResponse, deadline, at_least=_METADATA_VERSION_MIN)
        return self._metadata.apply(response, self.clock.monotonic_ms(), names_every_topic=topics is None)

    def topic(
        self, name: str, *, allow_auto_topic_creation: bool = False, deadline: Deadline | None = None
    ) -> TopicInfo:
        """The topic with all its partitions.  Raises UnknownTopic after `unknown_topic_wait_ms` of retries."""
        known = self._metadata.topic(name, self.clock.monotonic_ms())
        if known is not None:
            return known
        problem = topic_name_problem(name)
        if problem is not None:
            raise UnknownTopic(problem, hint="topic names have 1 to 249 ASCII letters, digits, '.', '_' and '-'")
        deadline = deadline or self.retrying.deadline()
        missing_until = deadline.at_most(self.options.unknown_topic_wait_ms)
        backoff = self.retrying.backoff()
        while True:
            topics = self.refresh([name], allow_auto_topic_creation=allow_auto_topic_creation, deadline=deadline)
            code = topics[0].error_code if topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not code:
                return topics[0]
            refused = BrokerRefused(code, f"topic {name}")
            if not refused.is_retriable:
                raise refused
            try:
                until = missing_until if code in _MISSING else deadline
                self.retrying.pause_or_give_up("METADATA", backoff, until, refused)
            except CallTimedOut:
                if code in _MISSING:
                    raise UnknownTopic(f"topic {name} does not exist") from None
                raise

    def partitions(self, topic: str) -> list[int]:
        """The topic's partition numbers, in ascending order."""
        return list(self.topic(topic).partitions)

    def leader(
        self, partition: TopicPartition, *, allow_auto_topic_creation: bool = False, deadline: Deadline | None = None
    ) -> PartitionInfo:
        """The partition with its leader.  Raises UnknownTopic, or a retriable error while it has no leader."""
        topic = self.topic(partition.topic, allow_auto_topic_creation=allow_auto_topic_creation, deadline=deadline)
        if partition.partition not in topic.partitions:
            self.forget([partition.topic])  # partitions may have been added since
            topic = self.topic(partition.topic, deadline=deadline)
        return led_partition(topic, partition, self.forget)

    def last_known_leader(self, partition: TopicPartition) -> BrokerInfo | None:
        """Without a request, so for errors only: it may have changed since."""
        leader_id = self._metadata.last_known_leader_id(partition)
        return self.info.brokers.get(leader_id)

    def forget(self, topics: Iterable[str]) -> None:
        """The metadata of these topics is stale: fetch it again before its next use."""
        self.look_ups.forget(topics)


def _log_new_leader(partition: TopicPartition, found: PartitionInfo, former_id: int) -> None:
    METADATA.info(
        "the leader of %s is %s, and was %s",
        partition,
        _leader_text(found.leader_id),
        _leader_text(former_id),
        extra=named(
            "leader.changed",
            partition=partition,
            leader_id=found.leader_id,
            former_id=former_id,
            leader_epoch=found.leader_epoch,
        ),
    )


def _leader_text(leader_id: int) -> str:
    return f"broker {leader_id}" if leader_id >= 0 else "none"
