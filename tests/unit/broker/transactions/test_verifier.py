"""Queries to coordinators: the broker that gets them, and what becomes of its answer."""

from __future__ import annotations

from typing import cast

import pytest

from ottla.broker.transactions.coordinator import TransactionCoordinator
from ottla.broker.transactions.verifier import (
    PeerVerification,
    TransactionVerifier,
    on_not_verified,
    on_verified,
    verification_request,
)
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.protocol.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from ottla.transactions.commands import AddPartitions, VerifyPartitions

HERE, THERE, NO_BROKER = NodeId(1), NodeId(2), NodeId(-1)
PARTITIONS = frozenset([TopicPartition("a", 1), TopicPartition("a", 0), TopicPartition("b", 2)])
VERIFY = VerifyPartitions("t", 7, 3, PARTITIONS)
ADD = AddPartitions("u", 8, 0, frozenset([TopicPartition("a", 0)]), knows_fenced=False)


class Coordinators:
    """The one of this broker, and a connection to the other brokers."""

    def __init__(self) -> None:
        self.here: list[object] = []
        self.there: list[tuple[NodeId, PeerVerification]] = []

    def submit(self, command: object, reply: object) -> None:
        self.here.append(command)

    def send(self, node_id: NodeId, item: PeerVerification) -> None:
        self.there.append((node_id, item))


def verifier(found: Coordinators, coordinator: NodeId, *, has_peers: bool = True) -> TransactionVerifier:
    here = cast(TransactionCoordinator, found)
    return TransactionVerifier(HERE, here, lambda _: coordinator, found if has_peers else None)


def test_query_to_this_broker_is_a_plain_call() -> None:
    found = Coordinators()
    verifier(found, HERE).verify(VERIFY, lambda _: None)
    assert found.here == [VERIFY]
    assert not found.there


def test_query_to_another_broker_is_sent_there() -> None:
    found = Coordinators()
    verifier(found, THERE).verify(ADD, lambda _: None)
    [(node_id, item)] = found.there
    assert (node_id, item.wanted) == (THERE, ADD)


@pytest.mark.parametrize(("coordinator", "has_peers"), [(NO_BROKER, True), (THERE, False)])
def test_query_without_a_coordinator_is_answered_at_once(coordinator: NodeId, has_peers: bool) -> None:
    replies: list[ErrorCode] = []
    verifier(Coordinators(), coordinator, has_peers=has_peers).verify(VERIFY, replies.append)
    assert replies == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_one_request_has_the_queries_of_many_producers() -> None:
    request = verification_request([PeerVerification(VERIFY, print), PeerVerification(ADD, print)])
    verify, add = request.transactions
    assert (verify.transactional_id, verify.producer_id, verify.producer_epoch) == ("t", 7, 3)
    assert (verify.verify_only, add.verify_only) == (True, False)
    assert [(topic.name, topic.partitions) for topic in verify.topics] == [("a", [0, 1]), ("b", [2])]


def test_each_query_gets_the_answer_of_its_transactional_id() -> None:
    replies: list[tuple[str, ErrorCode]] = []

    def sent_with(wanted: AddPartitions | VerifyPartitions) -> PeerVerification:
        return PeerVerification(wanted, lambda code: replies.append((wanted.transactional_id, code)))

    sent = [sent_with(VERIFY), sent_with(ADD)]

    def result(name: str, code: ErrorCode) -> AddPartitionsToTxnResult:
        partitions = [AddPartitionsToTxnPartitionResult(0, code)]
        return AddPartitionsToTxnResult(name, [AddPartitionsToTxnTopicResult("a", partitions)])

    response = AddPartitionsToTxnResponse(
        results_by_transaction=[result("u", ErrorCode.NONE), result("t", ErrorCode.INVALID_TXN_STATE)]
    )
    on_verified(sent, response)
    assert replies == [("t", ErrorCode.INVALID_TXN_STATE), ("u", ErrorCode.NONE)]


def test_queries_are_refused_where_the_whole_request_is_or_none_answers() -> None:
    replies: list[ErrorCode] = []
    sent = [PeerVerification(VERIFY, replies.append)]
    on_verified(sent, AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    on_not_verified(sent, OttlaError("no answer in time"))
    assert replies == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.COORDINATOR_NOT_AVAILABLE]
