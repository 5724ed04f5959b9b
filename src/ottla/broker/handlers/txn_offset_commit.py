"""TxnOffsetCommit (key 28), v0-v5.

The offsets take effect with the transaction, and are answered when they are stable in the log.  The coordinator of the
transactional id is queried first, where the transaction is not open yet in the group's partition: v5 adds the partition
to it, before v5 AddOffsetsToTxn must have done so.  Errors of each partition as in OffsetCommit; those of the group and
of the transaction are repeated for every partition.  From v4 on a partition that is not in the transaction gets
TRANSACTION_ABORTABLE, before v4 INVALID_TXN_STATE; another epoch gets INVALID_PRODUCER_EPOCH in all versions.  The
fields of the member come with v3: without them a producer is fenced by its epoch only.  Not done: v6 (topic ids).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers.offsets_to_commit import SortedOffsets, sort_offsets
from ottla.groups.commands import CommitOffsets, TransactionalProducer
from ottla.groups.replies import CommitReply
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.runtime.steps import Steps
from ottla.transactions.commands import AddPartitions, VerifyPartitions

_ABORTABLE_FROM: Final = 4
_ADDS_PARTITION_FROM: Final = 5
# Producers before it end when they get COORDINATOR_LOAD_IN_PROGRESS.
_LOADING_FROM: Final = 2
# The transaction's coordinator is elsewhere, loads, or does not answer: the client tries again.
_UNANSWERED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def answer(
    request: TxnOffsetCommitRequest,
    context: BrokerContext,
    call: Call,
    reply: Callable[[TxnOffsetCommitResponse | Steps[TxnOffsetCommitResponse]], None],
) -> Steps[None]:
    wanted = yield from sort_offsets(
        request.topics, context.topics, TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition
    )
    if not wanted.offsets:
        reply(TxnOffsetCommitResponse(topics=wanted.topics))
        return
    commit = _Commit(request, context, call, wanted, reply)
    context.groups.open_transaction(
        request.group_id,
        (request.producer_id, request.producer_epoch),
        commit.verify,
        commit.start,
        adds_partition=call.api_version >= _ADDS_PARTITION_FROM,
    )


class _Commit:
    """One request.  Parts of it follow each other: the first one may open the transaction in the group's partition."""

    def __init__(
        self,
        request: TxnOffsetCommitRequest,
        context: BrokerContext,
        call: Call,
        wanted: SortedOffsets,
        reply: Callable[[Steps[TxnOffsetCommitResponse]], None],
    ) -> None:
        self._request = request
        self._context = context
        self._call = call
        self._wanted = wanted
        self._reply = reply
        self._parts = iter(wanted.parts())
        self._errors: list[ErrorCode] = []
        self._producer: TransactionalProducer | None = None
        self._is_verified = False
        # A part waits for its reply; `_commit_parts` runs.
        self._waits = self._is_running = False

    def verify(self, partition: TopicPartition, on_verified: Callable[[ErrorCode], None]) -> None:
        request = self._request
        verification = AddPartitions if self._call.api_version >= _ADDS_PARTITION_FROM else VerifyPartitions
        command = verification(
            request.transactional_id, request.producer_id, request.producer_epoch, frozenset([partition])
        )
        self._is_verified = True
        self._context.verifier.verify(command, lambda error: on_verified(self._code_of_verification(error)))

    def start(self, producer: TransactionalProducer | ErrorCode) -> None:
        if isinstance(producer, ErrorCode):
            self._end(producer)
        else:
            self._producer = producer
            self._commit_parts()

    def _commit_parts(self) -> None:
        """Submit the next parts, as long as their replies come at once: without recursion, however many there are."""
        if self._is_running:
            return
        self._is_running = True
        request = self._request
        while not self._waits:
            offsets = next(self._parts, None)
            if offsets is None:
                self._end(ErrorCode.NONE)
                break
            command = CommitOffsets(
                request.group_id,
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                offsets,
                client_host=self._call.client_host,
                producer=self._producer,
            )
            self._waits = True
            self._context.groups.submit(request.group_id, command, self._on_committed)
        self._is_running = False

    def _on_committed(self, committed: CommitReply) -> None:
        self._waits = False
        if self._is_verified and ErrorCode.INVALID_TXN_STATE in committed.errors:
            # The transaction ended between the answer and the append: another query finds out how it is now.
            self._errors += (ErrorCode.COORDINATOR_NOT_AVAILABLE,) * len(committed.errors)
        else:
            self._errors += committed.errors
        self._commit_parts()

    def _end(self, error: ErrorCode) -> None:
        """Answer; `error` is that of all offsets that were not committed before."""
        errors = [*self._errors, *[error] * (len(self._wanted.offsets) - len(self._errors))]
        self._reply(self._response([self._code(each) for each in errors]))

    def _response(self, errors: Sequence[ErrorCode]) -> Steps[TxnOffsetCommitResponse]:
        yield from self._wanted.place_errors(errors)
        return TxnOffsetCommitResponse(topics=self._wanted.topics)

    def _code_of_verification(self, error: ErrorCode) -> ErrorCode:
        if error is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if error in _UNANSWERED:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error is ErrorCode.CONCURRENT_TRANSACTIONS and self._call.api_version < _ADDS_PARTITION_FROM:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return error

    def _code(self, error: ErrorCode) -> ErrorCode:
        """As the version knows it."""
        version = self._call.api_version
        if error is ErrorCode.INVALID_TXN_STATE and version >= _ABORTABLE_FROM:
            return ErrorCode.TRANSACTION_ABORTABLE
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOADING_FROM:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return error
