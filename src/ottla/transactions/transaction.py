"""A transactional id as its coordinator's log has it."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from ottla.model.identifiers import NO_PRODUCER_ID, TopicPartition

NO_EPOCH: Final = -1
# The last epoch that a producer is given: one more is left for the marker that fences it.
EPOCH_MAX: Final = 32_766
NOT_STARTED: Final = -1
# How a transaction ends, by the version of the request: with its producer's epoch, or with the next one (KIP-890).
SAME_EPOCH: Final = 1
NEXT_EPOCH: Final = 2


class TransactionState(IntEnum):
    """The numbers are those in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def title(self) -> str:
        """The name that ListTransactions and DescribeTransactions give."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """The outcome is decided, and not every partition has its marker."""
        return self in {TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}

    @property
    def is_complete(self) -> bool:
        return self in {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}


class Transaction(NamedTuple):
    """The value of a transactional id.

    `producer_epoch` is the current one: while a transaction is prepared, that of its markers.  `previous_producer_id`
    is the one whose epochs were exhausted, `next_producer_id` the one that replaces it when the markers are written.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    updated_ms: int = -1
    started_ms: int = NOT_STARTED
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0

    @property
    def commits(self) -> bool:
        """What was decided; only for one that is prepared or complete."""
        assert self.state.is_prepared or self.state.is_complete, self.state
        return self.state in {TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT}

    @property
    def next_identity(self) -> tuple[int, int]:
        """The producer id and epoch of its producer's next transaction: the end gives them before the markers are
        written."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    @property
    def may_be_used(self) -> bool:
        """Whether `next_identity` may be given to a producer: after a fence its epoch may be the one for markers."""
        return self.next_identity[1] <= EPOCH_MAX
