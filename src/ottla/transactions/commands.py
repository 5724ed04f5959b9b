"""The commands to a shard and their replies.  No wire versions: a handler turns their differences into named flags."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NO_PRODUCER_ID, TopicPartition
from ottla.transactions.transaction import NO_EPOCH, Transaction

# A command without a connection: it is never late.
NO_CONNECTION = -1


class ProducerReply(NamedTuple):
    """The identity that a producer has from now on; none with an error."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class InitProducer(NamedTuple):
    """API 22 with a transactional id.  Reply: `ProducerReply`.

    `producer_id` and `producer_epoch` are those that the producer had, for one that continues (KIP-360).
    """

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    # Versions below 4 do not know PRODUCER_FENCED: they get INVALID_PRODUCER_EPOCH.
    knows_fenced: bool = True


class AddPartitions(NamedTuple):
    """API 24; API 25 with the partition of `__consumer_offsets` that its group has; a produce or an offset commit that
    adds its partition (KIP-890).  Reply: `ErrorCode`.

    The partitions exist and are allowed: the handler refuses the others.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    # Versions below 2 do not know PRODUCER_FENCED: they get INVALID_PRODUCER_EPOCH.
    knows_fenced: bool = True
    connection: int = NO_CONNECTION


class VerifyPartitions(NamedTuple):
    """API 24 between brokers: whether all of them are in the open transaction.  Reply: `ErrorCode`, INVALID_TXN_STATE
    when one is not."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]


class EndTransaction(NamedTuple):
    """API 26.  Reply: `ProducerReply`, once the outcome is decided for good.

    `advances_epoch`: v5 and above, the end gives its producer the next epoch (KIP-890).
    `connection` is the place of the request's connection in the order in which the broker accepted them.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commits: bool
    advances_epoch: bool
    knows_fenced: bool = True
    connection: int = NO_CONNECTION


class DescribedTransaction(NamedTuple):
    error: ErrorCode
    transactional_id: str
    transaction: Transaction | None = None


class DescribeTransaction(NamedTuple):
    """API 65, one id of it.  Reply: `DescribedTransaction`."""

    transactional_id: str


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


class ListReply(NamedTuple):
    error: ErrorCode
    transactions: Sequence[ListedTransaction] = ()


class ListTransactions(NamedTuple):
    """API 66, for the ids of this shard.  Reply: `ListReply`.  An empty filter matches everything.

    `running_ms`: only transactions that are open or prepared for longer.
    """

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    running_ms: int = -1
    matches: Callable[[str], bool] | None = None


IdCommand = InitProducer | AddPartitions | VerifyPartitions | EndTransaction
Command = IdCommand | DescribeTransaction | ListTransactions


def refusal(command: Command, error: ErrorCode) -> object:
    """The reply to `command` that only has an error."""
    if isinstance(command, InitProducer | EndTransaction):
        return ProducerReply(error)
    if isinstance(command, DescribeTransaction):
        return DescribedTransaction(error, command.transactional_id)
    if isinstance(command, ListTransactions):
        return ListReply(error)
    return error


def refused(reply: object, error: ErrorCode) -> object:
    """The same for a reply that was held."""
    if isinstance(reply, ProducerReply):
        return ProducerReply(error)
    if isinstance(reply, DescribedTransaction):
        return DescribedTransaction(error, reply.transactional_id)
    return ListReply(error) if isinstance(reply, ListReply) else error
