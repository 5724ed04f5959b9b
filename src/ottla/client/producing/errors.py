"""What a producer's user may get.

ClientError
  BufferFull             `send` waited `max_block_ms` for room
  MessageTooLarge        one message is larger than `max_request_bytes`
  MessageRefused         a message cannot be sent as it is: a serializer failed, a value is not bytes
  ProducerClosed         `send` after `close`, or in a process that was forked
  MessageNotDelivered    the end of one message that was taken
  MessagesNotDelivered   `flush` and `close`: of several, which no delivery has reported

of a producer with a transactional id

  ProducerFenced             another producer has its transactional id: this one is over
  TransactionAbortable       the transaction cannot commit: abort it, and do its work again
  TransactionAborted         a message was not sent, because its transaction was aborted
  TransactionOutcomeUnknown  an end was not answered in time: the same call again gives the result
  InvalidTransactionState    a call that does not follow the one before it, such as a commit without a transaction
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.client.wire.errors import ClientError
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition

# So many failed batches are named in a message for people.
_NAMED_MAX: Final = 3


class BufferFull(ClientError):
    """There was no room for a message within `max_block_ms`; nothing of the call was taken."""

    is_retriable = True
    hint = "the brokers take less than is sent: send slower, or raise buffer_bytes or max_block_ms"


class MessageTooLarge(ClientError):
    """A message is larger than one request may be, or than its topic accepts."""

    error_code = ErrorCode.MESSAGE_TOO_LARGE
    hint = "raise max_request_bytes, and the topic's max.message.bytes with it, or send less in one message"


class MessageRefused(ClientError):
    """Nothing of the call was taken.  A serializer's own error is the `__cause__`."""


class ProducerClosed(ClientError):
    """The producer is closed, or was opened by another process before a fork."""

    hint = "open a new producer"


class MessageNotDelivered(ClientError):
    """`may_be_stored` is False when the message is certainly not in the log: it can be sent again without a duplicate.

    `reason` is the `__cause__`, too.
    """

    def __init__(self, partition: TopicPartition, reason: OttlaError, *, may_be_stored: bool) -> None:
        fate = "may or may not be stored" if may_be_stored else "is not stored"
        super().__init__(f"a message for {partition} {fate}: {reason}", hint=reason.hint)
        self.topic = partition.topic
        self.partition = partition.partition
        self.may_be_stored = may_be_stored
        self.reason = reason
        self.__cause__ = reason

    def again(self) -> MessageNotDelivered:
        """The same for another raise: the messages of a batch share theirs, and each raise writes its traceback."""
        return MessageNotDelivered(
            TopicPartition(self.topic, self.partition), self.reason, may_be_stored=self.may_be_stored
        )


class Failure(NamedTuple):
    """Messages of one batch that were not delivered, for the same reason."""

    topic: str
    partition: int
    messages_count: int
    error: MessageNotDelivered


class MessagesNotDelivered(ClientError):
    """`failures` names the first ones, `messages_count` counts all of them."""

    def __init__(self, failures: Sequence[Failure], messages_count: int) -> None:
        plural = "s were" if messages_count != 1 else " was"
        shown = "; ".join(
            f"{each.messages_count} of {each.topic}-{each.partition}: {each.error.reason}"
            for each in failures[:_NAMED_MAX]
        )
        more = f"; and of {len(failures) - _NAMED_MAX} more batches" if len(failures) > _NAMED_MAX else ""
        hint = next((each.error.hint for each in failures if each.error.hint), None)
        super().__init__(f"{messages_count:,} message{plural} not delivered: {shown}{more}", hint=hint)
        self.failures = tuple(failures)
        self.messages_count = messages_count


class ProducerFenced(ClientError):
    """A producer that was started later has the transactional id.  This one can do nothing more but close."""

    error_code = ErrorCode.PRODUCER_FENCED
    hint = (
        "close it: a newer producer has its transactional id, or the transaction took longer than "
        "transaction_timeout_ms (then open another producer)"
    )

    def __init__(self, transactional_id: str, reason: OttlaError) -> None:
        super().__init__(f"the producer with the transactional id {transactional_id} is fenced: {reason}")
        self.transactional_id = transactional_id
        self.reason = reason
        self.__cause__ = reason


class TransactionAbortable(ClientError):
    """Something of the transaction failed, so it cannot commit; `reason` is the `__cause__`, too.

    The producer can continue: `abort_transaction()`, then the work again, in the next transaction.
    """

    error_code = ErrorCode.TRANSACTION_ABORTABLE
    hint = "abort_transaction(), then do the work of the transaction again"

    def __init__(self, reason: OttlaError) -> None:
        super().__init__(f"the transaction cannot commit: {reason}")
        self.reason = reason
        self.__cause__ = reason


class TransactionAborted(ClientError):
    """A message of a transaction that was aborted before the message was sent: it is not stored."""


class TransactionOutcomeUnknown(ClientError):
    """The coordinator has not answered yet whether the transaction ended.

    The same call again is safe, and gives the result: it never ends another transaction.
    """

    is_retriable = True


class InvalidTransactionState(ClientError):
    """The call does not follow the one before it; nothing was done."""

    error_code = ErrorCode.INVALID_TXN_STATE
