"""The state of a transactional producer: the next call to a coordinator, and which batches may be sent.  Pure.

Events go in: the user's calls, answers, failed batches.  Calls to coordinators come out, one at a time.  The machine
uses no lock, thread or socket and never waits: `SendEngine` and `BatchTransactions` drive it, by the clock of
`retrying`.

A leader's refusal does not stop the producer: the transaction must be aborted, and the coordinator's answer to the
abort shows whether the producer was fenced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from ottla.client.groups.group_types import CommittedOffset, GroupMetadata
from ottla.client.producing.errors import (
    InvalidTransactionState,
    ProducerFenced,
    TransactionAbortable,
    TransactionAborted,
)
from ottla.client.producing.produce_machine import NO_IDENTITY, ProducerIdentity
from ottla.client.wire.connection import VERSION_MAX
from ottla.client.wire.errors import BrokerRefused, ClientError, error_code_of
from ottla.client.wire.retrying import Backoff, Deadline, Retrying
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition, indexes_by_topic
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.schemas.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

# The first versions that continue an identity (KIP-360), and that name a group's member (KIP-447).
_CONTINUES_FROM: Final = 3
_NAMES_MEMBERS_FROM: Final = 3
# The last versions whose partitions the producer adds itself, and whose end keeps the epoch; the next ones are those of
# KIP-890.  From version 4 on AddPartitionsToTxn is for brokers.
_ADD_PARTITIONS_MAX: Final = 3
_OFFSETS_KEEP_MAX: Final = 4
_END_KEEPS_MAX: Final = 4

# The last transaction is being completed, which takes milliseconds.
_CONCURRENT_RETRY_MS: Final = 20

_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
# Of partitions and groups, not of the producer: another transaction may succeed.
_ABORTABLE: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    }
)
_OUTSIDE_HINT: Final = (
    "after the transaction_timeout_ms of a transaction its coordinator aborts it: end it earlier, or raise that"
)


class TransactionState(Enum):
    UNINITIALIZED = "not initialized"
    INITIALIZING = "initializing"
    READY = "ready"
    OPEN = "open"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE = "to be aborted"
    """Something of the transaction failed: it cannot commit."""

    FAILED = "failed"
    """The producer cannot continue."""


class Operation(Enum):
    INIT = "init_transactions"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"
    OFFSETS = "send_offsets_to_transaction"


class Pending:
    """A user's call that waits for coordinators.  `error`: why it failed, once it is done."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.is_done = False
        self.error: ClientError | None = None
        # Why there is no result yet.
        self.last_problem: ClientError | None = None

    def postpone(self, problem: ClientError) -> None:
        self.last_problem = problem

    def end(self, error: ClientError | None = None) -> None:
        self.is_done = True
        self.error = error


class CoordinatorCall(NamedTuple):
    """A request to the coordinator of the transactional id, or of a group."""

    api: ApiKey
    message: object
    answer: type
    group_id: str | None = None
    at_least: int = 0
    at_most: int = VERSION_MAX


class _GroupCommit:
    """The offsets of one group in the transaction, of which some are not sent yet."""

    def __init__(self, group: GroupMetadata) -> None:
        self.group = group
        self.is_added = False
        self.unsent: dict[TopicPartition, CommittedOffset] = {}
        self.waiting: list[Pending] = []

    def on_sent(self, partition: TopicPartition, offset: int) -> None:
        """The group has this offset; a newer one may have come meanwhile."""
        if partition in self.unsent and self.unsent[partition].offset == offset:
            del self.unsent[partition]


class TransactionMachine:
    """`identity` is that of the batches of the present or the next transaction; NO_IDENTITY before the first init."""

    def __init__(self, transactional_id: str, timeout_ms: int, retrying: Retrying) -> None:
        self.transactional_id: Final = transactional_id
        self.state = TransactionState.UNINITIALIZED
        self.identity = NO_IDENTITY
        # Whether partitions are added by the leaders, and each end advances the epoch (KIP-890); for the transaction.
        self.is_implicit = False
        # Of transactions that have begun.
        self.transactions_count = 0
        self._offers_implicit = False
        self._timeout_ms = timeout_ms
        self._retrying = retrying
        self._backoff: Backoff | None = None
        self._pause: Deadline | None = None
        # The end or the init that a user waits for, or whose result no user has read.
        self._pending: Pending | None = None
        self._reason: ClientError | None = None
        # Partitions of the transaction, and those that its coordinator must know first.
        self._added: set[TopicPartition] = set()
        self._wanted: set[TopicPartition] = set()
        self._groups: dict[str, _GroupCommit] = {}
        # Whether the coordinator may have an open transaction, and whether it certainly had one.
        self._may_be_open = False
        self._is_open = False
        # Whether the next abort has no end to send: the coordinator does not know the producer's id.
        self._is_unknown = False
        self._must_init = False
        # Whether the last transaction has committed; None: that was taken, or it has not ended.
        self._outcome: bool | None = None

    def initialize(self) -> Pending:
        """Take the transactional id over: earlier producers of it are fenced, their open transaction is aborted."""
        pending = self._repeated(Operation.INIT)
        if pending is None:
            self._check_not_failed()
            if self.state is not TransactionState.UNINITIALIZED:
                raise InvalidTransactionState("init_transactions was called before")
            self.state = TransactionState.INITIALIZING
            pending = self._begin_waiting(Operation.INIT)
        return pending

    def begin(self) -> None:
        self._check_not_failed()
        pending = self._pending
        if pending is not None and pending.operation is Operation.ABORT and pending.is_done:
            # Even if no call has waited for it: its only result is that the next transaction may start.
            self._pending = None
        if self._pending is not None:
            raise InvalidTransactionState(
                f"the result of {self._pending.operation.value} was not read",
                hint=f"call {self._pending.operation.value}() again: it returns the result",
            )
        if self.state is not TransactionState.READY:
            raise self._wrong_state("begin a transaction")
        self.state = TransactionState.OPEN
        self.is_implicit = self._offers_implicit
        self.transactions_count += 1

    def commit(self) -> Pending:
        """Commit once no batch of the transaction is in flight.  A repeated call returns the same `Pending`."""
        pending = self._repeated(Operation.COMMIT)
        if pending is None:
            self.check_open("commit")
            self.state = TransactionState.COMMITTING
            pending = self._begin_waiting(Operation.COMMIT)
        return pending

    def abort(self) -> Pending:
        """Abort the transaction, also one that has failed.  A repeated call returns the same `Pending`."""
        pending = self._repeated(Operation.ABORT)
        if pending is None:
            self._check_not_failed()
            if self.state not in (TransactionState.OPEN, TransactionState.ABORTABLE):
                raise self._wrong_state("abort")
            self._drop_unsent(TransactionAborted("the transaction was aborted"))
            self.state = TransactionState.ABORTING
            pending = self._begin_waiting(Operation.ABORT)
        return pending

    def add_offsets(self, group: GroupMetadata, offsets: Mapping[TopicPartition, CommittedOffset]) -> Pending:
        """Commit these offsets with the transaction."""
        self.check_open("send offsets")
        pending = Pending(Operation.OFFSETS)
        if not offsets:
            pending.end()
            return pending
        commit = self._groups.setdefault(group.group_id, _GroupCommit(group))
        if not commit.unsent:
            # Unsent offsets keep the member that owned their partitions: a later one may not own them.
            commit.group = group
        commit.unsent.update(offsets)
        commit.waiting.append(pending)
        return pending

    def take_result(self, pending: Pending) -> bool:
        """Whether it is done; then its result is read, and the next call may follow.  Raises its error."""
        if not pending.is_done:
            return False
        if self._pending is pending:
            self._pending = None
        if pending.error is not None:
            raise pending.error.with_traceback(None)
        return True

    def check_open(self, to_do: str = "send") -> None:
        """Raise the reason why nothing can be added to the transaction."""
        self._check_not_failed()
        if self.state is TransactionState.ABORTABLE:
            assert self._reason is not None
            raise TransactionAbortable(self._reason)
        if self.state is not TransactionState.OPEN:
            raise self._wrong_state(to_do)

    @property
    def is_ended_by_the_user(self) -> bool:
        """No transaction is open, and none is being ended."""
        return self.state is TransactionState.READY

    @property
    def refusal(self) -> ClientError | None:
        """Why batches of the transaction must not be sent, or sent again."""
        if self.state is TransactionState.ABORTING:
            return TransactionAborted("the transaction was aborted")
        if self.state in (TransactionState.ABORTABLE, TransactionState.FAILED):
            return self._reason
        return None

    def take_outcome(self) -> bool | None:
        """Whether a transaction that has ended since the last call has committed; None: none has ended."""
        outcome, self._outcome = self._outcome, None
        return outcome

    @property
    def has_failed(self) -> bool:
        return self.state is TransactionState.FAILED

    @property
    def is_ending(self) -> bool:
        return self.state in (TransactionState.COMMITTING, TransactionState.ABORTING)

    @property
    def is_abortable(self) -> bool:
        """Whether there is a transaction that a closing producer has to abort."""
        return self.state in (TransactionState.OPEN, TransactionState.ABORTABLE)

    def _repeated(self, operation: Operation) -> Pending | None:
        pending = self._pending
        return pending if pending is not None and pending.operation is operation else None

    def _begin_waiting(self, operation: Operation) -> Pending:
        self._pending = Pending(operation)
        self._pause = self._backoff = None
        return self._pending

    def _check_not_failed(self) -> None:
        if self.state is TransactionState.FAILED:
            assert self._reason is not None
            raise self._reason.with_traceback(None)

    def _wrong_state(self, to_do: str) -> InvalidTransactionState:
        return InvalidTransactionState(f"cannot {to_do}: {_WRONG_STATES[self.state]}")

    def may_send(self, partition: TopicPartition) -> bool:
        """Whether a batch may be sent to its leader now; if not, its partition is added to the transaction first."""
        if self.state not in (TransactionState.OPEN, TransactionState.COMMITTING):
            return False
        if self.is_implicit:
            self._may_be_open = self._is_open = True
            return True
        if partition in self._added:
            return True
        self._wanted.add(partition)
        return False

    def on_batch_failed(self, error: OttlaError) -> None:
        """A batch of the transaction was refused, or is not known to be stored."""
        reason = error if isinstance(error, ClientError) else ClientError(str(error), hint=error.hint)
        code = reason.code if isinstance(reason, BrokerRefused) else None
        if code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            self._fail(reason)
        else:
            self._must_abort(reason)

    def due_in_ms(self, *, is_idle: bool) -> float | None:
        """The time until the next call; None when there is none.  `is_idle`: no batch is under way."""
        if self._needs_end(is_idle=is_idle):
            return 0
        if self._choose(is_idle=is_idle) is None:
            return None
        return 0 if self._pause is None else self._pause.remaining_ms

    def next_call(self, *, is_idle: bool) -> CoordinatorCall | None:
        """The call that is due.  A transaction of nothing ends here, without one."""
        if self._needs_end(is_idle=is_idle):
            self._end()
            return None
        if self._pause is not None and not self._pause.has_passed:
            return None
        call = self._choose(is_idle=is_idle)
        if call is not None and call.api in _OPENING:
            self._may_be_open = True
        return call

    def _needs_end(self, *, is_idle: bool) -> bool:
        """Whether a transaction ends that no coordinator knows: there is no call to make."""
        return (
            self.is_ending
            and is_idle
            and not self._may_be_open
            and not self._must_init
            and self._choose_within() is None
        )

    def _choose(self, *, is_idle: bool) -> CoordinatorCall | None:
        if self.state is TransactionState.INITIALIZING:
            return self._init()
        if self.state in (TransactionState.OPEN, TransactionState.COMMITTING):
            within = self._choose_within()
            if within is not None:
                return within
        if not self.is_ending or not is_idle:
            return None
        if self._may_be_open and not self._is_unknown:
            return self._end_call()
        return self._init() if self._must_init or self._is_unknown else None

    def _choose_within(self) -> CoordinatorCall | None:
        """What must precede the end."""
        if self._wanted:
            return self._add_partitions()
        for commit in self._groups.values():
            if commit.unsent:
                return self._commit_offsets(commit) if commit.is_added or self.is_implicit else self._add_group(commit)
        return None

    def _init(self) -> CoordinatorCall:
        identity = self.identity
        request = InitProducerIdRequest(self.transactional_id, self._timeout_ms, *identity)
        at_least = 0 if identity == NO_IDENTITY else _CONTINUES_FROM
        return CoordinatorCall(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse, at_least=at_least)

    def _add_partitions(self) -> CoordinatorCall:
        topics = [AddPartitionsToTxnTopic(topic, indexes) for topic, indexes in indexes_by_topic(self._wanted)]
        request = AddPartitionsToTxnRequest([], self.transactional_id, *self.identity, topics)
        return CoordinatorCall(
            ApiKey.ADD_PARTITIONS_TO_TXN, request, AddPartitionsToTxnResponse, at_most=_ADD_PARTITIONS_MAX
        )

    def _add_group(self, commit: _GroupCommit) -> CoordinatorCall:
        request = AddOffsetsToTxnRequest(self.transactional_id, *self.identity, commit.group.group_id)
        return CoordinatorCall(ApiKey.ADD_OFFSETS_TO_TXN, request, AddOffsetsToTxnResponse)

    def _commit_offsets(self, commit: _GroupCommit) -> CoordinatorCall:
        group = commit.group
        topics = [
            TxnOffsetCommitRequestTopic(
                topic,
                [
                    TxnOffsetCommitRequestPartition(index, each.offset, each.leader_epoch, each.metadata)
                    for index in indexes
                    for each in [commit.unsent[TopicPartition(topic, index)]]
                ],
            )
            for topic, indexes in indexes_by_topic(commit.unsent)
        ]
        request = TxnOffsetCommitRequest(
            self.transactional_id,
            group.group_id,
            *self.identity,
            group.generation_id,
            group.member_id,
            group.instance_id,
            topics,
        )
        return CoordinatorCall(
            ApiKey.TXN_OFFSET_COMMIT,
            request,
            TxnOffsetCommitResponse,
            group.group_id,
            at_least=_OFFSETS_KEEP_MAX + 1 if self.is_implicit else _NAMES_MEMBERS_FROM if group.member_id else 0,
            at_most=VERSION_MAX if self.is_implicit else _OFFSETS_KEEP_MAX,
        )

    def _end_call(self) -> CoordinatorCall:
        is_commit = self.state is TransactionState.COMMITTING
        request = EndTxnRequest(self.transactional_id, *self.identity, is_commit)
        return CoordinatorCall(
            ApiKey.END_TXN,
            request,
            EndTxnResponse,
            at_least=_END_KEEPS_MAX + 1 if self.is_implicit else 0,
            at_most=VERSION_MAX if self.is_implicit else _END_KEEPS_MAX,
        )

    def on_connected(self, *, offers_implicit: bool) -> None:
        """The coordinator's cluster has, or has not, finalized the transactions of KIP-890."""
        self._offers_implicit = offers_implicit

    def on_lost(self, call: CoordinatorCall, error: ClientError) -> None:
        """There is no answer: the call may have been executed.  Each of them may be repeated."""
        if error.is_retriable:
            self._postpone(error)
        elif call.group_id is not None:
            self._must_abort(error)
        else:
            self._fail(error)

    def on_answer(self, call: CoordinatorCall, answer: object) -> bool:
        """Whether the coordinator has moved: it is looked up before the next call."""
        match answer:
            case InitProducerIdResponse():
                return self._on_init(answer)
            case EndTxnResponse():
                return self._on_end(call, answer)
            case AddPartitionsToTxnResponse():
                return self._on_partitions_added(answer)
            case AddOffsetsToTxnResponse():
                return self._on_group_added(call, answer)
            case TxnOffsetCommitResponse():
                return self._on_offsets(call, answer)
        raise AssertionError(f"no answer of a call: {answer!r}")

    def _on_init(self, answer: InitProducerIdResponse) -> bool:
        if answer.error_code:
            error = self._refused(answer.error_code)
            if error.code not in _FENCED and not error.is_retriable:
                self._fail(error)
                return False
            return self._on_refusal(error)
        self.identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
        self._must_init = self._is_unknown = False
        self._end()
        return False

    def _on_end(self, call: CoordinatorCall, answer: EndTxnResponse) -> bool:
        if not self.is_ending:
            return False
        if answer.error_code:
            return self._on_refused_end(self._refused(answer.error_code))
        self._may_be_open = self._is_open = False
        if answer.producer_id >= 0:
            self.identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
        elif self.state is TransactionState.ABORTING:
            # The logs lack the sequence numbers of unsent batches: a new epoch starts at 0, and fences the batches
            # that are still in flight.
            self._must_init = True
            return False
        self._end()
        return False

    def _on_refused_end(self, error: BrokerRefused) -> bool:
        is_commit = self.state is TransactionState.COMMITTING
        if error.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            self._is_unknown = True
            if is_commit:
                self._must_abort(error)
            return False
        if error.code is ErrorCode.INVALID_TXN_STATE:
            if is_commit:
                self._must_abort(BrokerRefused(error.code, error.subject, "it has ended before", hint=_OUTSIDE_HINT))
                return False
            if not self._is_open:
                # The call that would have opened it had no answer, and was not executed.
                self._may_be_open = False
                self._must_init = True
                return False
        if not is_commit and error.code in _ABORTABLE:
            self._fail(error)
            return False
        return self._on_refusal(error)

    def _on_partitions_added(self, answer: AddPartitionsToTxnResponse) -> bool:
        errors: list[BrokerRefused] = []
        for topic in answer.results_by_topic_v3_and_below:
            for row in topic.results_by_partition:
                partition = TopicPartition(topic.name, row.partition_index)
                if row.partition_error_code:
                    errors.append(self._refused(row.partition_error_code, partition))
                elif partition in self._wanted:
                    self._wanted.discard(partition)
                    self._added.add(partition)
        if not errors:
            self._on_opened()
            return False
        # OPERATION_NOT_ATTEMPTED gives no reason: the error of another partition does.
        errors.sort(key=lambda error: error.code is ErrorCode.OPERATION_NOT_ATTEMPTED)
        return self._on_refusal(errors[0])

    def _on_group_added(self, call: CoordinatorCall, answer: AddOffsetsToTxnResponse) -> bool:
        assert isinstance(call.message, AddOffsetsToTxnRequest)
        group_id = call.message.group_id
        if answer.error_code:
            return self._on_refusal(self._refused(answer.error_code, f"group {group_id}"))
        self._on_opened()
        if group_id in self._groups:
            self._groups[group_id].is_added = True
        return False

    def _on_offsets(self, call: CoordinatorCall, answer: TxnOffsetCommitResponse) -> bool:
        assert isinstance(call.message, TxnOffsetCommitRequest)
        commit = self._groups.get(call.message.group_id)
        codes = {
            TopicPartition(topic.name, row.partition_index): row.error_code
            for topic in answer.topics
            for row in topic.partitions
        }
        errors: list[BrokerRefused] = []
        for topic in call.message.topics:
            for sent in topic.partitions:
                partition = TopicPartition(topic.name, sent.partition_index)
                code = codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
                if code:
                    errors.append(self._refused(code, f"group {call.message.group_id}, {partition}"))
                elif commit is not None:
                    commit.on_sent(partition, sent.committed_offset)
        if errors:
            errors.sort(key=lambda error: error.is_retriable)
            return self._on_refusal(errors[0])
        self._on_opened()
        if commit is not None and not commit.unsent:
            waiting, commit.waiting = commit.waiting, []
            for pending in waiting:
                pending.end()
        return False

    def _on_opened(self) -> None:
        """A coordinator has accepted a part of the transaction."""
        self._may_be_open = self._is_open = True
        self._pause = self._backoff = None

    def _on_refusal(self, error: BrokerRefused) -> bool:
        if error.code in _FENCED:
            self._fail(ProducerFenced(self.transactional_id, error))
        elif error.is_retriable:
            self._postpone(error)
            return error.code in _MOVED
        elif error.code in _ABORTABLE:
            self._is_unknown |= error.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
            self._must_abort(error)
        else:
            self._fail(error)
        return False

    def _refused(self, code: int, subject: object = None) -> BrokerRefused:
        error_code = error_code_of(code)
        name = f"transactional id {self.transactional_id}" if subject is None else str(subject)
        return BrokerRefused(error_code, name, hint=_HINTS.get(error_code))

    def _postpone(self, error: ClientError) -> None:
        self._retrying.on_wait(error)
        self._backoff = self._backoff or self._retrying.backoff()
        pause_ms = self._backoff.next_ms()
        if isinstance(error, BrokerRefused) and error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
            pause_ms = min(pause_ms, _CONCURRENT_RETRY_MS)
        self._pause = self._retrying.deadline(pause_ms)
        for pending in self._waiting():
            pending.postpone(error)

    def _waiting(self) -> Iterable[Pending]:
        ends = [] if self._pending is None or self._pending.is_done else [self._pending]
        return [*ends, *(pending for commit in self._groups.values() for pending in commit.waiting)]

    def _must_abort(self, reason: ClientError) -> None:
        """The transaction cannot commit: the user learns why, and aborts it."""
        if self.state in (TransactionState.OPEN, TransactionState.COMMITTING):
            self.state = TransactionState.ABORTABLE
            self._reason = reason
            error = TransactionAbortable(reason)
            if self._pending is not None:
                self._pending.end(error)
            self._drop_unsent(error)

    def _fail(self, error: ClientError) -> None:
        if self.state is TransactionState.FAILED:
            return
        self.state = TransactionState.FAILED
        self._reason = error
        if self._pending is not None and not self._pending.is_done:
            self._pending.end(error)
        self._drop_unsent(error)

    def _drop_unsent(self, error: ClientError) -> None:
        """Nothing more is added to the transaction."""
        self._wanted.clear()
        self._pause = self._backoff = None
        for commit in self._groups.values():
            commit.unsent.clear()
            for pending in commit.waiting:
                pending.end(error)
            commit.waiting.clear()

    def _end(self) -> None:
        """The next transaction may begin."""
        if self.is_ending:
            self._outcome = self.state is TransactionState.COMMITTING
        self.state = TransactionState.READY
        self._reason = None
        self._may_be_open = self._is_open = False
        self._added.clear()
        self._wanted.clear()
        self._groups.clear()
        self._pause = self._backoff = None
        assert self._pending is not None, "a user's call ends it"
        self._pending.end()


_OPENING: Final = frozenset({ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT})
_WRONG_STATES: Final = {
    TransactionState.UNINITIALIZED: "init_transactions() comes first",
    TransactionState.INITIALIZING: "init_transactions() has not ended; call it again",
    TransactionState.READY: "no transaction is open; begin_transaction() comes first",
    TransactionState.OPEN: "a transaction is open",
    TransactionState.COMMITTING: "the transaction is being committed; commit_transaction() again gives the result",
    TransactionState.ABORTING: "the transaction is being aborted; abort_transaction() again gives the result",
    TransactionState.ABORTABLE: "the transaction has failed; abort_transaction() comes first",
    TransactionState.FAILED: "the producer has failed",
}
_HINTS: Final = {
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "transaction_timeout_ms is above the transaction.max.timeout.ms of the brokers"
    ),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "this client may not use the transactional id",
    ErrorCode.INVALID_TXN_STATE: _OUTSIDE_HINT,
    ErrorCode.ILLEGAL_GENERATION: "the group's partitions have moved since: abort, and read from the committed offsets",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group's partitions have moved since: abort, and read from the committed offsets",
}
