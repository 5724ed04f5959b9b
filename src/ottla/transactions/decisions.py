"""What a command does to a transactional id: values in, values out.

| state | init | add | end: commit | end: abort |
| --- | --- | --- | --- | --- |
| unknown | new id, epoch 0 | 49 | 49 | 49 |
| Empty | next epoch | Ongoing | 48 | 48; with the next epoch: CompleteAbort |
| Ongoing | PrepareAbort, waits | Ongoing | PrepareCommit | PrepareAbort |
| PrepareCommit | waits | waits | 0 | 48 |
| PrepareAbort | waits | waits | 48 | 0 |
| CompleteCommit | next epoch | Ongoing | 0 | 48 |
| CompleteAbort | next epoch | Ongoing | 48 | 0 |

An end that advances the epoch (KIP-890) and repeats comes with the epoch before; one with the current epoch ends the
next transaction, which nothing was added to: it is as in Empty, and waits while the last one is prepared.

The prepared states are the decision: they lead to nothing but their complete state.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NO_PRODUCER_ID
from ottla.transactions.commands import (
    NO_CONNECTION,
    AddPartitions,
    EndTransaction,
    IdCommand,
    InitProducer,
    ProducerReply,
    VerifyPartitions,
)
from ottla.transactions.transaction import EPOCH_MAX, NEXT_EPOCH, SAME_EPOCH, Transaction, TransactionState

Identity = tuple[int, int]


class Known(NamedTuple):
    """What a coordinator knows of a transactional id.

    `last` is the identity before the current one, if its producer may still hold it because an answer was lost; None
    where another producer took the id over, and after a load.
    `connection` is the latest connection on which a request of the current epoch was accepted.
    `spare_producer_id` was allocated for it and is in no log.
    """

    transaction: Transaction | None = None
    last: Identity | None = None
    connection: int = NO_CONNECTION
    spare_producer_id: int | None = None


class Outcome(NamedTuple):
    """`change` is logged and applied first, and `last` with it.  Without a reply the command waits and is decided
    again: for a new producer id, or until the transaction is complete."""

    reply: object | None
    change: Transaction | None = None
    last: Identity | None = None
    needs_producer_id: bool = False


_WAIT: Final = Outcome(None)
_WAIT_FOR_PRODUCER_ID: Final = Outcome(None, needs_producer_id=True)


def decide(known: Known, command: IdCommand, now_ms: int) -> Outcome:
    """`now_ms` is wall time."""
    if isinstance(command, InitProducer):
        return _init(known, command, now_ms)
    if isinstance(command, AddPartitions):
        return _add(known, command, now_ms)
    if isinstance(command, VerifyPartitions):
        return _verify(known, command)
    if command.advances_epoch:
        return _end_with_next_epoch(known, command, now_ms)
    return _end(known, command, now_ms)


def fence(transaction: Transaction, now_ms: int) -> Transaction:
    """Abort an open transaction against its producer: the next epoch is that of its markers."""
    assert transaction.state is TransactionState.ONGOING, transaction.state
    return transaction._replace(
        state=TransactionState.PREPARE_ABORT,
        producer_epoch=transaction.producer_epoch + 1,
        updated_ms=now_ms,
        client_version=NEXT_EPOCH,
    )


def complete(transaction: Transaction, now_ms: int) -> Transaction:
    """Every partition has its marker."""
    assert transaction.state.is_prepared, transaction.state
    producer_id, producer_epoch = transaction.next_identity
    is_replaced = producer_id != transaction.producer_id
    return transaction._replace(
        state=TransactionState.COMPLETE_COMMIT if transaction.commits else TransactionState.COMPLETE_ABORT,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partitions=frozenset(),
        updated_ms=now_ms,
        previous_producer_id=transaction.producer_id if is_replaced else transaction.previous_producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def _init(known: Known, command: InitProducer, now_ms: int) -> Outcome:
    found = known.transaction
    if found is None:
        return _init_with_new_id(known, command, NO_PRODUCER_ID, None, now_ms)
    given = (command.producer_id, command.producer_epoch)
    is_given = command.producer_id != NO_PRODUCER_ID
    is_last = is_given and given == known.last
    if is_given and not is_last and given != found.next_identity:
        return Outcome(ProducerReply(_fenced(command.knows_fenced)))
    if found.state.is_prepared:
        return _WAIT
    # Only the producer that gave the current identity may repeat with it: another producer has taken the id over.
    last = given if is_given else None
    if found.state is TransactionState.ONGOING:
        if is_last:
            # A late repeat: its producer has received the current identity, since it uses it.
            return Outcome(ProducerReply(_fenced(command.knows_fenced)))
        return Outcome(None, fence(found, now_ms), last)
    if is_last and found.may_be_used:
        return Outcome(ProducerReply(ErrorCode.NONE, found.producer_id, found.producer_epoch))
    if found.producer_epoch >= EPOCH_MAX:
        return _init_with_new_id(known, command, found.producer_id, last, now_ms)
    epoch = found.producer_epoch + 1
    change = Transaction(found.producer_id, epoch, command.timeout_ms, TransactionState.EMPTY, updated_ms=now_ms)
    return Outcome(ProducerReply(ErrorCode.NONE, found.producer_id, epoch), change, last)


def _init_with_new_id(
    known: Known, command: InitProducer, previous_producer_id: int, last: Identity | None, now_ms: int
) -> Outcome:
    producer_id = known.spare_producer_id
    if producer_id is None:
        return _WAIT_FOR_PRODUCER_ID
    change = Transaction(
        producer_id,
        0,
        command.timeout_ms,
        TransactionState.EMPTY,
        updated_ms=now_ms,
        previous_producer_id=previous_producer_id,
    )
    return Outcome(ProducerReply(ErrorCode.NONE, producer_id, 0), change, last)


def _add(known: Known, command: AddPartitions, now_ms: int) -> Outcome:
    found = known.transaction
    given = (command.producer_id, command.producer_epoch)
    if found is None or command.producer_id != found.next_identity[0]:
        return Outcome(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if given != found.next_identity:
        return Outcome(_fenced(command.knows_fenced))
    if found.state.is_prepared:
        return _WAIT
    if _is_late(known, command.connection):
        return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
    is_open = found.state is TransactionState.ONGOING
    if is_open and command.partitions <= found.partitions:
        return Outcome(ErrorCode.NONE)
    change = found._replace(
        state=TransactionState.ONGOING,
        partitions=found.partitions | command.partitions,
        updated_ms=now_ms,
        started_ms=found.started_ms if is_open else now_ms,
    )
    return Outcome(ErrorCode.NONE, change, known.last)


def _verify(known: Known, command: VerifyPartitions) -> Outcome:
    found = known.transaction
    if found is None or command.producer_id not in (found.producer_id, found.next_identity[0]):
        return Outcome(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if (command.producer_id, command.producer_epoch) != found.next_identity:
        return Outcome(ErrorCode.INVALID_PRODUCER_EPOCH)
    # While it is prepared its partitions are those of the transaction that has ended.
    if found.state is not TransactionState.ONGOING or not command.partitions <= found.partitions:
        return Outcome(ErrorCode.INVALID_TXN_STATE)
    return Outcome(ErrorCode.NONE)


def _end(known: Known, command: EndTransaction, now_ms: int) -> Outcome:
    """The epoch stays, so a repeat and the end of the next transaction look alike."""
    found = known.transaction
    if found is None or command.producer_id != found.next_identity[0]:
        return Outcome(ProducerReply(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    given = (command.producer_id, command.producer_epoch)
    if given != found.next_identity:
        return Outcome(ProducerReply(_fenced(command.knows_fenced)))
    if found.state is TransactionState.ONGOING:
        if _is_late(known, command.connection):
            return Outcome(ProducerReply(ErrorCode.CONCURRENT_TRANSACTIONS))
        change = found._replace(state=_prepared(command), updated_ms=now_ms, client_version=SAME_EPOCH)
        return Outcome(ProducerReply(ErrorCode.NONE, *given), change, known.last)
    if found.state is TransactionState.EMPTY or found.commits != command.commits:
        return Outcome(ProducerReply(ErrorCode.INVALID_TXN_STATE))
    return Outcome(ProducerReply(ErrorCode.NONE, *given))


def _end_with_next_epoch(known: Known, command: EndTransaction, now_ms: int) -> Outcome:
    found = known.transaction
    if found is None:
        return Outcome(ProducerReply(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    given = (command.producer_id, command.producer_epoch)
    if _is_repeated(found, given):
        return _repeated_end(known, command, now_ms)
    if command.producer_id != found.next_identity[0]:
        return Outcome(ProducerReply(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    if given != found.next_identity:
        return Outcome(ProducerReply(_fenced(command.knows_fenced)))
    if found.state.is_prepared:
        return _WAIT
    if found.state is not TransactionState.ONGOING:
        if command.commits:
            return Outcome(ProducerReply(ErrorCode.INVALID_TXN_STATE))
        return _abort_of_nothing(known, given, now_ms)
    next_producer_id = NO_PRODUCER_ID
    if found.producer_epoch >= EPOCH_MAX:
        if known.spare_producer_id is None:
            return _WAIT_FOR_PRODUCER_ID
        next_producer_id = known.spare_producer_id
    change = found._replace(
        state=_prepared(command),
        producer_epoch=found.producer_epoch + 1,
        updated_ms=now_ms,
        next_producer_id=next_producer_id,
        client_version=NEXT_EPOCH,
    )
    return Outcome(ProducerReply(ErrorCode.NONE, *change.next_identity), change, given)


def _is_repeated(found: Transaction, given: Identity) -> bool:
    """Whether `given` was the identity of the transaction that has ended last.

    Where that end kept the epoch, the one before belongs to a producer that was replaced.
    """
    if found.client_version != NEXT_EPOCH or not (found.state.is_prepared or found.state.is_complete):
        return False
    if found.state.is_complete and found.producer_epoch == 0:
        return given == (found.previous_producer_id, EPOCH_MAX)
    return given == (found.producer_id, found.producer_epoch - 1)


def _repeated_end(known: Known, command: EndTransaction, now_ms: int) -> Outcome:
    found = known.transaction
    assert found is not None
    if command.commits != found.commits:
        return Outcome(ProducerReply(ErrorCode.INVALID_TXN_STATE))
    if found.may_be_used:
        return Outcome(ProducerReply(ErrorCode.NONE, *found.next_identity))
    # It was aborted against its producer in the last epoch.
    if found.state.is_prepared:
        return _WAIT
    return _abort_of_nothing(known, (command.producer_id, command.producer_epoch), now_ms)


def _abort_of_nothing(known: Known, given: Identity, now_ms: int) -> Outcome:
    """No partition was added: there is no marker, and the producer receives its next identity."""
    found = known.transaction
    assert found is not None
    producer_id, epoch, previous_producer_id = found.producer_id, found.producer_epoch + 1, NO_PRODUCER_ID
    if epoch > EPOCH_MAX:
        if known.spare_producer_id is None:
            return _WAIT_FOR_PRODUCER_ID
        producer_id, epoch, previous_producer_id = known.spare_producer_id, 0, producer_id
    change = Transaction(
        producer_id,
        epoch,
        found.timeout_ms,
        TransactionState.COMPLETE_ABORT,
        updated_ms=now_ms,
        started_ms=now_ms,
        previous_producer_id=previous_producer_id,
        client_version=NEXT_EPOCH,
    )
    return Outcome(ProducerReply(ErrorCode.NONE, producer_id, epoch), change, given)


def _prepared(command: EndTransaction) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if command.commits else TransactionState.PREPARE_ABORT


def _fenced(knows_fenced: bool) -> ErrorCode:
    return ErrorCode.PRODUCER_FENCED if knows_fenced else ErrorCode.INVALID_PRODUCER_EPOCH


def _is_late(known: Known, connection: int) -> bool:
    """Whether the producer has made an accepted request on a later connection: this request was delayed on its way,
    and its transaction may have ended.  Where the epoch stays nothing else shows it."""
    return connection != NO_CONNECTION and connection < known.connection
