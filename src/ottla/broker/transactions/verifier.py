"""Whether partitions are in their producer's open transaction, from the coordinator of its transactional id (KIP-890).

The leader of a partition needs the answer before it appends the first batch of a transaction.  A newer producer does
not add its partitions itself: then they are added.  The coordinator may be this broker: that is a plain call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.broker.transactions.coordinator import TransactionCoordinator
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NodeId, indexes_by_topic
from ottla.transactions.commands import AddPartitions, VerifyPartitions

if TYPE_CHECKING:
    from ottla.protocol.schemas.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

VERIFICATION_VERSION: Final = 5
VERIFICATION_TIMEOUT_MS: Final = 5_000
# For each broker.  A call may wait for the markers of the last transaction, and others must not wait for it.
VERIFICATION_CONNECTIONS_MAX: Final = 4


Verification = AddPartitions | VerifyPartitions


class PeerVerification(NamedTuple):
    """One that another broker answers."""

    wanted: Verification
    reply: Callable[[ErrorCode], None]


class PeerVerifications(Protocol):
    """Sends to other brokers; see `PeerCalls`."""

    def send(self, node_id: NodeId, item: PeerVerification) -> None: ...


class TransactionVerifier:
    """`coordinator_of`: the broker that coordinates a transactional id, -1 for none.

    `peers`: None where there are no other brokers.
    """

    def __init__(
        self,
        node_id: NodeId,
        transactions: TransactionCoordinator,
        coordinator_of: Callable[[str], NodeId],
        peers: PeerVerifications | None = None,
    ) -> None:
        self._node_id = node_id
        self._transactions = transactions
        self._coordinator_of = coordinator_of
        self._peers = peers

    def verify(self, wanted: Verification, reply: Callable[[ErrorCode], None]) -> None:
        """`reply` is called once, now or later; COORDINATOR_NOT_AVAILABLE and the like when no broker answers."""
        coordinator = self._coordinator_of(wanted.transactional_id)
        if coordinator == self._node_id:
            self._transactions.submit(wanted, reply)
        elif coordinator < 0 or self._peers is None:
            reply(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self._peers.send(coordinator, PeerVerification(wanted, reply))


def verification_request(sent: Sequence[PeerVerification]) -> AddPartitionsToTxnRequest:
    # Of a cluster with transactions alone.
    from ottla.protocol.schemas.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTransaction,
    )

    transactions = []
    for wanted, _ in sent:
        topics = [AddPartitionsToTxnTopic(*topic) for topic in indexes_by_topic(wanted.partitions)]
        transactions.append(AddPartitionsToTxnTransaction(*wanted[:3], isinstance(wanted, VerifyPartitions), topics))
    return AddPartitionsToTxnRequest(transactions)


def on_verified(sent: Sequence[PeerVerification], response: AddPartitionsToTxnResponse) -> None:
    # The coordinator decides about all partitions of a producer at once.
    errors = {
        result.transactional_id: ErrorCode.of(each.partition_error_code)
        for result in response.results_by_transaction
        for topic in result.topic_results
        for each in topic.results_by_partition
    }
    of_all = ErrorCode.of(response.error_code)
    for wanted, reply in sent:
        reply(of_all or errors.get(wanted.transactional_id, ErrorCode.UNKNOWN_SERVER_ERROR))


def on_not_verified(sent: Sequence[PeerVerification], error: OttlaError) -> None:
    for _, reply in sent:
        reply(ErrorCode.COORDINATOR_NOT_AVAILABLE)
