"""Produce in transactions: when the coordinator is queried, and what its answers become."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ottla.broker.handlers.produce import ProduceHandler
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import request_frame
from ottla.protocol.messages import encode_request
from ottla.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.end_marker import EndMarker
from ottla.transactions.commands import AddPartitions, VerifyPartitions
from tests.unit.broker.handlers.test_produce import NOW_MS, Served, batch

NONE = ErrorCode.NONE
P = 7
TP = TopicPartition("t", 0)


class Transactional(Served):
    """The coordinator answers each query at once, with `answer`."""

    def __init__(self, version: int = 11) -> None:
        super().__init__()
        self.version = version
        self.answer = NONE
        self.queries: list[AddPartitions | VerifyPartitions] = []
        self.handler = ProduceHandler(self.table, self.ready, self.clock, self.hints, self.lease, verifier=self)

    def verify(self, wanted: AddPartitions | VerifyPartitions, reply: Callable[[ErrorCode], None]) -> None:
        self.queries.append(wanted)
        reply(self.answer)

    def produce(self, sequence: int, *, epoch: int = 0, name: str | None = "tx", is_transactional: bool = True) -> int:
        """The error code of one batch."""
        data = batch(producer_id=P, producer_epoch=epoch, base_sequence=sequence, is_transactional=is_transactional)
        topic = TopicProduceData("t", [PartitionProduceData(0, data)])
        request = ProduceRequest(name, -1, 1_000, [topic])
        body = encode_request(ApiKey.PRODUCE, self.version, request)
        self.client.send(request_frame(ApiKey.PRODUCE, self.version, 9, "test", body))
        self.loop.turn()
        self.flush()
        [answer] = self.answers()
        return answer.responses[0].partition_responses[0].error_code

    def commit(self, epoch: int, *, advances_epoch: bool) -> None:
        self.logs["t", 0].partition.append_marker(EndMarker(True, 0), P, epoch, NOW_MS, advances_epoch=advances_epoch)
        self.flush()

    def flush(self) -> None:
        log = self.logs["t", 0]
        if log.partition.stable_end < log.partition.log_end_offset:
            log.become_stable()


@pytest.fixture
def transactional() -> Iterator[Transactional]:
    served = Transactional()
    served.add("t", 0)
    yield served
    served.connection.close("the test is over")
    served.client.close()


def test_first_batch_of_a_transaction_is_verified_and_the_others_are_not(transactional: Transactional) -> None:
    assert [transactional.produce(sequence) for sequence in range(3)] == [NONE] * 3
    assert transactional.queries == [VerifyPartitions("tx", P, 0, frozenset([TP]))]
    transactional.commit(0, advances_epoch=False)
    assert transactional.produce(3) == NONE
    assert len(transactional.queries) == 2


def test_newer_producer_leaves_its_partitions_to_the_leader_to_add(transactional: Transactional) -> None:
    transactional.version = 12
    assert transactional.produce(0) == NONE
    [query] = transactional.queries
    assert isinstance(query, AddPartitions)
    assert query[:4] == ("tx", P, 0, frozenset([TP]))


@pytest.mark.parametrize(
    ("version", "answer", "code"),
    [
        (10, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE),
        (11, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (12, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (11, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (12, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (11, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (9, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_refusal_of_the_coordinator_is_one_that_the_client_knows(
    transactional: Transactional, version: int, answer: ErrorCode, code: ErrorCode
) -> None:
    transactional.version, transactional.answer = version, answer
    assert transactional.produce(0) == code
    assert transactional.logs["t", 0].partition.log_end_offset == 0


def test_refusal_does_not_hold_up_the_next_right_batch(transactional: Transactional) -> None:
    """Apache Kafka 4.1 leaves a guard, and refuses the next batches of the open transaction for their sequence."""
    assert transactional.produce(0) == NONE
    transactional.answer = ErrorCode.INVALID_PRODUCER_EPOCH
    assert transactional.produce(0, epoch=3) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert transactional.produce(1) == NONE


@pytest.mark.parametrize(("version", "code"), [(11, NONE), (12, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)])
def test_unknown_producer_starts_within_its_sequences_only_where_an_epoch_has_several_transactions(
    transactional: Transactional, version: int, code: ErrorCode
) -> None:
    transactional.version = version
    assert transactional.produce(5) == code
    assert transactional.produce(0, epoch=1) == (NONE if code else ErrorCode.INVALID_TXN_STATE)


def test_batch_in_a_transaction_needs_a_transactional_id(transactional: Transactional) -> None:
    assert transactional.produce(0, name=None) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert not transactional.queries


def test_batch_outside_of_the_open_transaction_of_its_producer_is_refused(transactional: Transactional) -> None:
    assert transactional.produce(0) == NONE
    assert transactional.produce(1, is_transactional=False) == ErrorCode.INVALID_TXN_STATE
    assert transactional.produce(1) == NONE


def test_producer_below_the_epoch_of_a_marker_is_fenced_without_a_query(transactional: Transactional) -> None:
    assert transactional.produce(0) == NONE
    transactional.commit(1, advances_epoch=True)
    assert transactional.produce(1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(transactional.queries) == 1
    assert transactional.produce(0, epoch=1) == NONE


def test_nothing_is_queried_where_the_lease_is_over(transactional: Transactional) -> None:
    transactional.clock.suspended_ms = 1_000_000
    assert transactional.produce(0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not transactional.queries
