"""Administration of transactions (KIP-664): list and describe transactional ids, find and end what hangs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple, TypeVar

from ottla.client.wire.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.client.wire.errors import BrokerRefused, ClientError, error_code_of
from ottla.client.wire.retrying import Deadline
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicRequest,
    ProducerState,
)
from ottla.protocol.schemas.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.protocol.schemas.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.schemas.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.protocol.schemas.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_TRANSACTION_KEY_TYPE: Final = 1
_COORDINATOR_KEYS_FROM: Final = 4  # KIP-699
_DURATION_FROM: Final = 1  # KIP-994
_PATTERN_FROM: Final = 2  # KIP-1152
T = TypeVar("T")


class ListedTransaction(NamedTuple):
    """`coordinator`: the id of the broker that has it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


class TransactionDescription(NamedTuple):
    """`started_ms`: of the last transaction, wall time, -1 for none.  `partitions`: those in the open one."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open, or ends and some partitions have no marker yet."""
        return self.state.startswith(("Ongoing", "Prepare"))


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition, as its leader has it.

    `last_ms`: when the producer's last batch came, wall time.  `start_offset`: of its first record.
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_ms: int


class UnknownTransactionalId(ClientError):
    """Its coordinator knows no such id, or has forgotten it."""

    error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    hint = "`ottla transaction list` shows the transactional ids"


class TransactionAdmin:
    """Transactions of `cluster`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list_transactions(
        self,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        running_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[ListedTransaction]:
        """The transactional ids of all brokers, by id.  Raises `BrokerRefused` for a state that does not exist.

        `running_ms`: only those whose transaction has been open for longer; `pattern`: of RE2, for the whole id.
        """
        request = ListTransactionsRequest(list(states), list(producer_ids))
        at_least = 0
        if running_ms is not None:
            request.duration_filter, at_least = running_ms, _DURATION_FROM
        if pattern is not None:
            request.transactional_id_pattern, at_least = pattern, _PATTERN_FROM

        def attempt(deadline: Deadline) -> list[ListedTransaction]:
            self._cluster.refresh([], deadline=deadline)
            found: dict[str, ListedTransaction] = {}
            for node_id in self._cluster.info.brokers:
                connection = self._cluster.connect_broker(node_id, deadline)
                answer = connection.call(
                    ApiKey.LIST_TRANSACTIONS, request, ListTransactionsResponse, deadline, at_least=at_least
                )
                _check(answer.error_code, f"the transactions of broker {node_id}")
                if answer.unknown_state_filters:
                    unknown = ", ".join(answer.unknown_state_filters)
                    raise BrokerRefused(ErrorCode.INVALID_REQUEST, f"there is no state {unknown}")
                for row in answer.transaction_states:
                    found[row.transactional_id] = ListedTransaction(
                        row.transactional_id, row.producer_id, row.transaction_state, node_id
                    )
            return [found[name] for name in sorted(found)]

        return self._run("listing transactions", attempt)

    def coordinator_of(self, transactional_id: str) -> int:
        """The id of the broker that coordinates it."""

        def attempt(deadline: Deadline) -> int:
            return self._coordinator(transactional_id, deadline)[0]

        return self._run(f"finding the coordinator of {transactional_id}", attempt)

    def describe(self, transactional_id: str) -> TransactionDescription:
        """Raises `UnknownTransactionalId`."""

        def attempt(deadline: Deadline) -> TransactionDescription:
            node_id, connection = self._coordinator(transactional_id, deadline)
            request = DescribeTransactionsRequest([transactional_id])
            answer = connection.call(ApiKey.DESCRIBE_TRANSACTIONS, request, DescribeTransactionsResponse, deadline)
            [row] = answer.transaction_states
            if row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise UnknownTransactionalId(f"transactional id {transactional_id} does not exist")
            _check(row.error_code, f"transactional id {transactional_id}")
            return TransactionDescription(
                transactional_id,
                node_id,
                row.transaction_state,
                row.producer_id,
                row.producer_epoch,
                row.transaction_timeout_ms,
                row.transaction_start_time_ms,
                tuple(_partitions((topic.topic, topic.partitions) for topic in row.topics)),
            )

        return self._run(f"describing transactional id {transactional_id}", attempt)

    def open_in(self, partitions: Iterable[TopicPartition]) -> list[OpenTransaction]:
        """The transactions that are open in these partitions, as their leaders have them."""
        wanted = sorted(partitions)

        def attempt(deadline: Deadline) -> list[OpenTransaction]:
            found: list[OpenTransaction] = []
            for node_id, led in self._by_leader(wanted, deadline).items():
                topics = [
                    DescribeProducersTopicRequest(topic, [each.partition for each in of_topic])
                    for topic, of_topic in groupby(led, key=lambda each: each.topic)
                ]
                answer = self._cluster.connect_broker(node_id, deadline).call(
                    ApiKey.DESCRIBE_PRODUCERS, DescribeProducersRequest(topics), DescribeProducersResponse, deadline
                )
                for topic in answer.topics:
                    for row in topic.partitions:
                        partition = TopicPartition(topic.name, row.partition_index)
                        _check(row.error_code, str(partition))
                        found += [_open(partition, each) for each in row.active_producers if _is_open(each)]
            return sorted(found)

        return self._run("reading the producers of partitions", attempt)

    def hanging(self, partitions: Iterable[TopicPartition], open_since_ms: int) -> list[OpenTransaction]:
        """Transactions without a batch since `open_since_ms` (wall time) that their coordinators do not have.

        No coordinator will end them: records after them are not read by read_committed consumers.
        """
        suspects = [each for each in self.open_in(partitions) if each.last_ms <= open_since_ms]
        if not suspects:
            return []
        by_producer = {
            each.producer_id: each.transactional_id
            for each in self.list_transactions(producer_ids=sorted({each.producer_id for each in suspects}))
        }
        has = {producer_id: self._described(name) for producer_id, name in by_producer.items()}
        return [each for each in suspects if each.partition not in has.get(each.producer_id, ())]

    def _described(self, transactional_id: str) -> tuple[TopicPartition, ...]:
        try:
            return self.describe(transactional_id).partitions
        except UnknownTransactionalId:
            return ()

    def abort(self, hanging: OpenTransaction) -> None:
        """Write the marker that ends it, at its partition's leader, with the epochs that the leader has.

        It is right only for a transaction that no coordinator has: see `hanging`.
        """
        partition = hanging.partition
        marker = WritableTxnMarker(
            hanging.producer_id,
            hanging.producer_epoch,
            topics=[WritableTxnMarkerTopic(partition.topic, [partition.partition])],
            coordinator_epoch=hanging.coordinator_epoch,
        )

        def attempt(deadline: Deadline) -> None:
            [node_id] = self._by_leader([partition], deadline)
            answer = self._cluster.connect_broker(node_id, deadline).call(
                ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest([marker]), WriteTxnMarkersResponse, deadline
            )
            for result in answer.markers:
                for topic in result.topics:
                    for row in topic.partitions:
                        _check(row.error_code, str(partition))

        self._run(f"ending the transaction of producer {hanging.producer_id} in {partition}", attempt)

    def _by_leader(self, partitions: Sequence[TopicPartition], deadline: Deadline) -> dict[int, list[TopicPartition]]:
        self._cluster.refresh(sorted({each.topic for each in partitions}), deadline=deadline)
        led: dict[int, list[TopicPartition]] = {}
        for each in partitions:
            led.setdefault(self._cluster.leader(each, deadline=deadline).leader_id, []).append(each)
        return led

    def _coordinator(self, transactional_id: str, deadline: Deadline) -> tuple[int, Connection]:
        connection = self._cluster.connect_any(deadline)
        request = FindCoordinatorRequest(key_type=_TRANSACTION_KEY_TYPE)
        if connection.version_of(ApiKey.FIND_COORDINATOR) < _COORDINATOR_KEYS_FROM:
            request.key = transactional_id
        else:
            request.coordinator_keys = [transactional_id]
        answer = connection.call(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse, deadline)
        row = answer.coordinators[0] if answer.coordinators else answer
        _check(row.error_code, f"the coordinator of transactional id {transactional_id}")
        if row.node_id not in self._cluster.info.brokers:
            self._cluster.refresh([], deadline=deadline)
        return row.node_id, self._cluster.connect_broker(row.node_id, deadline)

    def _run(self, what: str, attempt: Callable[[Deadline], T]) -> T:
        retrying = self._cluster.retrying
        return retrying.run(what, attempt, retrying.deadline())


def _partitions(topics: Iterable[tuple[str, Sequence[int]]]) -> list[TopicPartition]:
    return sorted(TopicPartition(topic, index) for topic, indexes in topics for index in indexes)


def _is_open(producer: ProducerState) -> bool:
    return producer.current_txn_start_offset >= 0


def _open(partition: TopicPartition, producer: ProducerState) -> OpenTransaction:
    return OpenTransaction(
        partition,
        producer.producer_id,
        producer.producer_epoch,
        max(producer.coordinator_epoch, 0),
        producer.current_txn_start_offset,
        producer.last_timestamp,
    )


def _check(code: int, subject: str) -> None:
    if code:
        raise BrokerRefused(error_code_of(code), subject)
