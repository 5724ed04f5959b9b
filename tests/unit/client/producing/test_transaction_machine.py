"""The state of a transactional producer: each call and each answer, without a broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import pytest

from ottla.client.groups.group_types import CommittedOffset, GroupMetadata
from ottla.client.producing.errors import (
    InvalidTransactionState,
    ProducerFenced,
    TransactionAbortable,
    TransactionAborted,
)
from ottla.client.producing.produce_machine import ProducerIdentity
from ottla.client.producing.transaction_machine import (
    CoordinatorCall,
    Operation,
    Pending,
    TransactionMachine,
    TransactionState,
)
from ottla.client.wire.errors import BrokerRefused, ConnectionLost, UnsupportedByBroker
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.retrying import Retrying
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.schemas.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.schemas.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.testing.fake_clock import FakeClock

CLICKS: Final = TopicPartition("clicks", 0)
VIEWS: Final = TopicPartition("views", 1)
GROUP: Final = GroupMetadata("g", 7, "member")
PAUSE_MS: Final = 2_000


class Coordinator:
    """The machine, and answers of coordinators to its calls."""

    def __init__(self, *, is_implicit: bool) -> None:
        self.clock = FakeClock()
        self.is_implicit = is_implicit
        self.machine = TransactionMachine("id", 60_000, Retrying(ClientOptions(), self.clock, lambda seconds: None))
        self.identity = ProducerIdentity(9, 0)

    def call(self, *, is_idle: bool = True) -> CoordinatorCall | None:
        return self.machine.next_call(is_idle=is_idle)

    def due(self, api: ApiKey, *, is_idle: bool = True) -> CoordinatorCall:
        call = self.call(is_idle=is_idle)
        assert call is not None
        assert call.api is api
        return call

    def answer(self, call: CoordinatorCall, code: ErrorCode = ErrorCode.NONE) -> bool:
        """The answer to any call, with this code for all that it names; whether the coordinator has moved."""
        self.machine.on_connected(offers_implicit=self.is_implicit)
        return self.machine.on_answer(call, self._answer(call.message, code))

    def _answer(self, message: object, code: ErrorCode) -> object:
        if isinstance(message, InitProducerIdRequest):
            if message.producer_id >= 0:
                self.identity = ProducerIdentity(message.producer_id, message.producer_epoch + 1)
            return InitProducerIdResponse(0, code, *self.identity)
        if isinstance(message, EndTxnRequest):
            if self.is_implicit and not code:
                self.identity = ProducerIdentity(message.producer_id, message.producer_epoch + 1)
                return EndTxnResponse(0, code, *self.identity)
            return EndTxnResponse(0, code)
        if isinstance(message, AddPartitionsToTxnRequest):
            rows = [
                AddPartitionsToTxnTopicResult(
                    topic.name, [AddPartitionsToTxnPartitionResult(index, code) for index in topic.partitions]
                )
                for topic in message.v3_and_below_topics
            ]
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows)
        if isinstance(message, AddOffsetsToTxnRequest):
            return AddOffsetsToTxnResponse(0, code)
        assert isinstance(message, TxnOffsetCommitRequest)
        return TxnOffsetCommitResponse(
            0,
            [
                TxnOffsetCommitResponseTopic(
                    topic.name,
                    [TxnOffsetCommitResponsePartition(row.partition_index, code) for row in topic.partitions],
                )
                for topic in message.topics
            ],
        )

    def initialized(self) -> Coordinator:
        pending = self.machine.initialize()
        self.answer(self.due(ApiKey.INIT_PRODUCER_ID))
        assert self.machine.take_result(pending)
        return self

    def begun(self, *partitions: TopicPartition) -> Coordinator:
        """With a transaction that has sent to these partitions."""
        if self.machine.state is TransactionState.UNINITIALIZED:
            self.initialized()
        self.machine.begin()
        for partition in partitions:
            if not self.machine.may_send(partition):
                self.answer(self.due(ApiKey.ADD_PARTITIONS_TO_TXN))
                assert self.machine.may_send(partition)
        return self

    def later(self) -> Coordinator:
        self.clock.advance(PAUSE_MS)
        return self


def old(*partitions: TopicPartition) -> Coordinator:
    return Coordinator(is_implicit=False).begun(*partitions)


def new(*partitions: TopicPartition) -> Coordinator:
    return Coordinator(is_implicit=True).begun(*partitions)


Begun: TypeAlias = Callable[..., Coordinator]
BOTH: Final = pytest.mark.parametrize("begun", [old, new], ids=["added", "implicit"])


def end_request(call: CoordinatorCall) -> EndTxnRequest:
    assert isinstance(call.message, EndTxnRequest)
    return call.message


def test_nothing_is_sent_before_the_init_and_outside_of_a_transaction() -> None:
    it = Coordinator(is_implicit=True)
    with pytest.raises(InvalidTransactionState, match="init_transactions"):
        it.machine.begin()
    with pytest.raises(InvalidTransactionState, match="init_transactions"):
        it.machine.check_open()
    it.initialized()
    for call in (it.machine.check_open, it.machine.commit, it.machine.abort):
        with pytest.raises(InvalidTransactionState, match="begin_transaction"):
            call()
    with pytest.raises(InvalidTransactionState, match="called before"):
        it.machine.initialize()


@BOTH
def test_transaction_takes_nothing_while_it_is_committed(begun: Begun) -> None:
    it = begun(CLICKS)
    it.machine.commit()
    for call in (it.machine.check_open, it.machine.begin, it.machine.abort):
        with pytest.raises(InvalidTransactionState, match="commit_transaction"):
            call()


def test_init_that_was_not_awaited_is_repeated_by_the_same_call() -> None:
    it = Coordinator(is_implicit=True)
    first = it.machine.initialize()
    assert it.machine.initialize() is first
    it.answer(it.due(ApiKey.INIT_PRODUCER_ID))
    with pytest.raises(InvalidTransactionState, match="init_transactions was not read"):
        it.machine.begin()
    assert it.machine.take_result(it.machine.initialize())
    it.machine.begin()


def test_identity_is_that_of_the_answer() -> None:
    it = Coordinator(is_implicit=True).initialized()
    assert it.machine.identity == (9, 0)


def test_partition_is_added_before_its_first_batch_and_once() -> None:
    it = Coordinator(is_implicit=False).initialized()
    it.machine.begin()
    assert not it.machine.may_send(CLICKS)
    assert not it.machine.may_send(VIEWS)
    call = it.due(ApiKey.ADD_PARTITIONS_TO_TXN, is_idle=False)
    assert isinstance(call.message, AddPartitionsToTxnRequest)
    assert [topic.name for topic in call.message.v3_and_below_topics] == ["clicks", "views"]
    assert call.at_most == 3
    it.answer(call)
    assert it.machine.may_send(CLICKS)
    assert it.machine.may_send(VIEWS)
    assert it.call(is_idle=False) is None


def test_partition_is_not_added_where_its_leader_does_it() -> None:
    it = Coordinator(is_implicit=True).initialized()
    it.machine.begin()
    assert it.machine.may_send(CLICKS)
    assert it.call(is_idle=False) is None


def test_partitions_of_the_last_transaction_are_added_again() -> None:
    it = old(CLICKS)
    pending = it.machine.commit()
    it.answer(it.due(ApiKey.END_TXN))
    assert it.machine.take_result(pending)
    it.machine.begin()
    assert not it.machine.may_send(CLICKS)


@BOTH
def test_commit_waits_for_batches_that_are_under_way(begun: Begun) -> None:
    it = begun(CLICKS)
    pending = it.machine.commit()
    assert it.call(is_idle=False) is None
    assert end_request(it.due(ApiKey.END_TXN)).committed
    assert not it.machine.take_result(pending)


def test_commit_that_keeps_the_epoch_is_sent_in_the_versions_that_do() -> None:
    it = old(CLICKS)
    it.machine.commit()
    call = it.due(ApiKey.END_TXN)
    assert (call.at_least, call.at_most) == (0, 4)
    it.answer(call)
    assert it.machine.identity == (9, 0)
    assert it.machine.state is TransactionState.READY


def test_commit_that_advances_the_epoch_gives_the_next_identity() -> None:
    it = new(CLICKS)
    it.machine.commit()
    call = it.due(ApiKey.END_TXN)
    assert call.at_least == 5
    it.answer(call)
    assert it.machine.identity == (9, 1)


@BOTH
def test_transaction_of_nothing_ends_without_a_call(begun: Begun) -> None:
    it = begun()
    for end in (it.machine.commit, it.machine.abort):
        pending = end()
        assert it.machine.due_in_ms(is_idle=True) == 0
        assert it.call() is None
        assert it.machine.take_result(pending)
        it.machine.begin()


def test_abort_that_keeps_the_epoch_is_followed_by_the_next_one() -> None:
    it = old(CLICKS)
    pending = it.machine.abort()
    end = it.due(ApiKey.END_TXN)
    assert not end_request(end).committed
    it.answer(end)
    assert not it.machine.take_result(pending)
    init = it.due(ApiKey.INIT_PRODUCER_ID)
    assert isinstance(init.message, InitProducerIdRequest)
    assert (init.message.producer_id, init.message.producer_epoch) == (9, 0)
    it.answer(init)
    assert it.machine.take_result(pending)
    assert it.machine.identity == (9, 1)


def test_abort_that_advances_the_epoch_is_one_call() -> None:
    it = new(CLICKS)
    pending = it.machine.abort()
    it.answer(it.due(ApiKey.END_TXN))
    assert it.machine.take_result(pending)
    assert it.machine.identity == (9, 1)


def test_level_of_the_cluster_counts_from_the_next_transaction_on() -> None:
    it = old(CLICKS)
    it.machine.on_connected(offers_implicit=True)
    assert not it.machine.is_implicit
    pending = it.machine.commit()
    it.answer(it.due(ApiKey.END_TXN))
    assert it.machine.take_result(pending)
    it.machine.on_connected(offers_implicit=True)
    it.machine.begin()
    assert it.machine.is_implicit


@BOTH
def test_end_without_an_answer_is_repeated_with_the_same_identity(begun: Begun) -> None:
    it = begun(CLICKS)
    pending = it.machine.commit()
    first = it.due(ApiKey.END_TXN)
    it.machine.on_lost(first, ConnectionLost("gone"))
    assert it.call() is None, "it pauses"
    again = it.later().due(ApiKey.END_TXN)
    assert again.message == first.message
    it.answer(again)
    assert it.machine.take_result(pending)


@BOTH
def test_commit_called_again_gives_the_result_of_the_first(begun: Begun) -> None:
    it = begun(CLICKS)
    pending = it.machine.commit()
    call = it.due(ApiKey.END_TXN)
    assert it.machine.commit() is pending
    it.answer(call)
    with pytest.raises(InvalidTransactionState, match="commit_transaction was not read"):
        it.machine.begin()
    assert it.machine.take_result(it.machine.commit())
    with pytest.raises(InvalidTransactionState):
        it.machine.commit()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    ],
)
@BOTH
def test_passing_refusal_is_repeated_after_a_pause(begun: Begun, code: ErrorCode) -> None:
    it = begun(CLICKS)
    pending = it.machine.commit()
    has_moved = it.answer(it.due(ApiKey.END_TXN), code)
    assert has_moved == (code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert it.call() is None
    due_ms = it.machine.due_in_ms(is_idle=True)
    assert due_ms is not None
    assert 0 < due_ms <= (20 if code is ErrorCode.CONCURRENT_TRANSACTIONS else PAUSE_MS)
    assert isinstance(pending.last_problem, BrokerRefused)
    it.answer(it.later().due(ApiKey.END_TXN))
    assert it.machine.take_result(pending)


def test_add_without_an_answer_may_have_opened_the_transaction() -> None:
    it = Coordinator(is_implicit=False).initialized()
    it.machine.begin()
    it.machine.may_send(CLICKS)
    it.machine.on_lost(it.due(ApiKey.ADD_PARTITIONS_TO_TXN, is_idle=False), ConnectionLost("gone"))
    pending = it.machine.abort()
    # The coordinator has no transaction: the call was not executed.
    it.answer(it.due(ApiKey.END_TXN), ErrorCode.INVALID_TXN_STATE)
    it.answer(it.due(ApiKey.INIT_PRODUCER_ID))
    assert it.machine.take_result(pending)


def test_abort_that_was_not_awaited_keeps_no_next_transaction_from_beginning() -> None:
    it = new(CLICKS)
    it.machine.abort()
    with pytest.raises(InvalidTransactionState, match="abort_transaction"):
        it.machine.begin()
    it.answer(it.due(ApiKey.END_TXN))
    it.machine.begin()


def test_refused_init_ends_the_producer() -> None:
    it = Coordinator(is_implicit=True)
    pending = it.machine.initialize()
    it.answer(it.due(ApiKey.INIT_PRODUCER_ID), ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    with pytest.raises(BrokerRefused, match="INVALID_TRANSACTION_TIMEOUT") as raised:
        it.machine.take_result(pending)
    assert raised.value.hint is not None
    assert "transaction.max.timeout.ms" in raised.value.hint
    with pytest.raises(BrokerRefused):
        it.machine.begin()


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
@BOTH
def test_fenced_producer_can_do_nothing_more(begun: Begun, code: ErrorCode) -> None:
    it = begun(CLICKS)
    pending = it.machine.commit()
    it.answer(it.due(ApiKey.END_TXN), code)
    with pytest.raises(ProducerFenced, match="transactional id id is fenced"):
        it.machine.take_result(pending)
    for call in (it.machine.begin, it.machine.commit, it.machine.abort, it.machine.check_open, it.machine.initialize):
        with pytest.raises(ProducerFenced):
            call()
    assert it.call() is None


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.MESSAGE_TOO_LARGE,
    ],
)
@BOTH
def test_refusal_of_a_leader_makes_the_transaction_one_to_be_aborted(begun: Begun, code: ErrorCode) -> None:
    it = begun(CLICKS)
    it.machine.on_batch_failed(BrokerRefused(code, "clicks-0"))
    assert it.machine.refusal is not None
    with pytest.raises(TransactionAbortable, match=code.name):
        it.machine.commit()
    with pytest.raises(TransactionAbortable):
        it.machine.check_open()
    pending = it.machine.abort()
    it.answer(it.due(ApiKey.END_TXN))
    if begun is old:
        it.answer(it.due(ApiKey.INIT_PRODUCER_ID))
    assert it.machine.take_result(pending)
    it.machine.begin()


def test_leader_that_refuses_the_transactional_id_ends_the_producer() -> None:
    it = new(CLICKS)
    it.machine.on_batch_failed(BrokerRefused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "clicks-0"))
    with pytest.raises(BrokerRefused, match="TRANSACTIONAL_ID"):
        it.machine.abort()


@BOTH
def test_batch_that_fails_during_the_commit_fails_it(begun: Begun) -> None:
    it = begun(CLICKS)
    pending = it.machine.commit()
    it.machine.on_batch_failed(BrokerRefused(ErrorCode.MESSAGE_TOO_LARGE, "clicks-0"))
    with pytest.raises(TransactionAbortable) as raised:
        it.machine.take_result(pending)
    assert isinstance(raised.value.reason, BrokerRefused)
    assert not end_request_of_abort(it).committed


def end_request_of_abort(it: Coordinator) -> EndTxnRequest:
    it.machine.abort()
    return end_request(it.due(ApiKey.END_TXN))


@BOTH
def test_commit_of_a_transaction_that_its_coordinator_has_ended_says_so(begun: Begun) -> None:
    """As after its time-out."""
    it = begun(CLICKS)
    pending = it.machine.commit()
    it.answer(it.due(ApiKey.END_TXN), ErrorCode.INVALID_TXN_STATE)
    with pytest.raises(TransactionAbortable, match="it has ended before"):
        it.machine.take_result(pending)
    aborted = it.machine.abort()
    it.answer(it.due(ApiKey.END_TXN))
    if begun is old:
        it.answer(it.due(ApiKey.INIT_PRODUCER_ID))
    assert it.machine.take_result(aborted)


@BOTH
def test_producer_whose_id_is_unknown_aborts_by_an_init(begun: Begun) -> None:
    """The transactional id has expired, or another producer has it: the init finds out."""
    it = begun(CLICKS)
    pending = it.machine.commit()
    it.answer(it.due(ApiKey.END_TXN), ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    with pytest.raises(TransactionAbortable):
        it.machine.take_result(pending)
    aborted = it.machine.abort()
    call = it.due(ApiKey.INIT_PRODUCER_ID)
    it.answer(call, ErrorCode.PRODUCER_FENCED)
    with pytest.raises(ProducerFenced):
        it.machine.take_result(aborted)


@pytest.mark.parametrize(
    "code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.OPERATION_NOT_ATTEMPTED]
)
def test_partition_that_cannot_be_added_makes_the_transaction_one_to_be_aborted(code: ErrorCode) -> None:
    it = Coordinator(is_implicit=False).initialized()
    it.machine.begin()
    it.machine.may_send(CLICKS)
    it.answer(it.due(ApiKey.ADD_PARTITIONS_TO_TXN), code)
    assert it.machine.state is TransactionState.ABORTABLE
    assert not it.machine.may_send(VIEWS)
    assert it.call(is_idle=True) is None


def test_partition_that_was_not_attempted_is_not_the_reason() -> None:
    it = Coordinator(is_implicit=False).initialized()
    it.machine.begin()
    for partition in (CLICKS, VIEWS):
        it.machine.may_send(partition)
    call = it.due(ApiKey.ADD_PARTITIONS_TO_TXN)
    codes = {"clicks": ErrorCode.OPERATION_NOT_ATTEMPTED, "views": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    rows = [
        AddPartitionsToTxnTopicResult(topic, [AddPartitionsToTxnPartitionResult(index, codes[topic])])
        for topic, index in (CLICKS, VIEWS)
    ]
    it.machine.on_answer(call, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows))
    with pytest.raises(TransactionAbortable, match="views-1"):
        it.machine.commit()


def test_abort_drops_what_was_not_sent() -> None:
    it = Coordinator(is_implicit=False).initialized()
    it.machine.begin()
    it.machine.may_send(CLICKS)
    offsets = it.machine.add_offsets(GROUP, {CLICKS: CommittedOffset(5)})
    it.machine.abort()
    assert isinstance(it.machine.refusal, TransactionAborted)
    assert it.call(is_idle=False) is None
    with pytest.raises(TransactionAborted):
        it.machine.take_result(offsets)


def test_abort_that_is_refused_for_good_ends_the_producer() -> None:
    it = new(CLICKS)
    pending = it.machine.abort()
    it.answer(it.due(ApiKey.END_TXN), ErrorCode.TRANSACTION_ABORTABLE)
    with pytest.raises(BrokerRefused, match="TRANSACTION_ABORTABLE"):
        it.machine.take_result(pending)
    assert it.machine.state is TransactionState.FAILED


def add_offsets(it: Coordinator) -> Pending:
    return it.machine.add_offsets(GROUP, {CLICKS: CommittedOffset(5), VIEWS: CommittedOffset(6)})


def test_group_is_added_once_before_its_offsets() -> None:
    it = old()
    pending = add_offsets(it)
    it.answer(it.due(ApiKey.ADD_OFFSETS_TO_TXN, is_idle=False))
    assert not it.machine.take_result(pending)
    call = it.due(ApiKey.TXN_OFFSET_COMMIT, is_idle=False)
    assert (call.group_id, call.at_least, call.at_most) == ("g", 3, 4)
    assert isinstance(call.message, TxnOffsetCommitRequest)
    assert (call.message.generation_id, call.message.member_id) == (7, "member")
    it.answer(call)
    assert it.machine.take_result(pending)
    later = it.machine.add_offsets(GROUP, {CLICKS: CommittedOffset(8)})
    it.answer(it.due(ApiKey.TXN_OFFSET_COMMIT))
    assert it.machine.take_result(later)


def test_group_is_not_added_where_its_coordinator_does_it() -> None:
    it = new()
    pending = add_offsets(it)
    call = it.due(ApiKey.TXN_OFFSET_COMMIT, is_idle=False)
    assert call.at_least == 5
    it.answer(call)
    assert it.machine.take_result(pending)
    it.machine.commit()
    assert end_request(it.due(ApiKey.END_TXN)).committed, "offsets alone are a transaction"


@BOTH
def test_commit_waits_for_the_offsets(begun: Begun) -> None:
    it = begun(CLICKS)
    add_offsets(it)
    it.machine.commit()
    call = it.call()
    assert call is not None
    if call.api is ApiKey.ADD_OFFSETS_TO_TXN:
        it.answer(call)
        call = it.call()
    assert call is not None
    assert call.api is ApiKey.TXN_OFFSET_COMMIT
    it.machine.on_lost(call, ConnectionLost("gone"))
    assert it.call() is None
    it.answer(it.later().due(ApiKey.TXN_OFFSET_COMMIT))
    it.due(ApiKey.END_TXN)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTION_ABORTABLE,
    ],
)
def test_offsets_of_a_member_whose_partitions_have_moved_make_the_transaction_one_to_be_aborted(
    code: ErrorCode,
) -> None:
    it = new(CLICKS)
    pending = add_offsets(it)
    it.answer(it.due(ApiKey.TXN_OFFSET_COMMIT), code)
    with pytest.raises(TransactionAbortable, match=code.name):
        it.machine.take_result(pending)
    assert not end_request_of_abort(it).committed


def test_group_coordinator_that_fences_the_producer_ends_it() -> None:
    it = new(CLICKS)
    pending = add_offsets(it)
    it.answer(it.due(ApiKey.TXN_OFFSET_COMMIT), ErrorCode.INVALID_PRODUCER_EPOCH)
    with pytest.raises(ProducerFenced):
        it.machine.take_result(pending)


def test_group_coordinator_that_knows_no_members_makes_the_transaction_one_to_be_aborted() -> None:
    it = new(CLICKS)
    pending = add_offsets(it)
    it.machine.on_lost(it.due(ApiKey.TXN_OFFSET_COMMIT), UnsupportedByBroker("too old"))
    with pytest.raises(TransactionAbortable, match="too old"):
        it.machine.take_result(pending)


def test_offsets_of_nothing_need_no_call() -> None:
    it = new()
    pending = it.machine.add_offsets(GROUP, {})
    assert pending.operation is Operation.OFFSETS
    assert it.machine.take_result(pending)
    assert it.call(is_idle=False) is None


def test_offsets_that_wait_are_committed_as_the_member_that_gave_them() -> None:
    it = new()
    it.machine.add_offsets(GROUP, {CLICKS: CommittedOffset(5)})
    it.machine.add_offsets(GROUP._replace(generation_id=8), {VIEWS: CommittedOffset(6)})
    call = it.due(ApiKey.TXN_OFFSET_COMMIT)
    assert isinstance(call.message, TxnOffsetCommitRequest)
    assert call.message.generation_id == 7
    it.answer(call)
    it.machine.add_offsets(GROUP._replace(generation_id=9), {VIEWS: CommittedOffset(7)})
    later = it.due(ApiKey.TXN_OFFSET_COMMIT)
    assert isinstance(later.message, TxnOffsetCommitRequest)
    assert later.message.generation_id == 9


def test_newer_offset_replaces_one_that_was_sent_meanwhile() -> None:
    it = new()
    first = it.machine.add_offsets(GROUP, {CLICKS: CommittedOffset(5)})
    call = it.due(ApiKey.TXN_OFFSET_COMMIT)
    second = it.machine.add_offsets(GROUP, {CLICKS: CommittedOffset(6)})
    it.answer(call)
    assert not it.machine.take_result(first)
    again = it.due(ApiKey.TXN_OFFSET_COMMIT)
    assert isinstance(again.message, TxnOffsetCommitRequest)
    assert again.message.topics[0].partitions[0].committed_offset == 6
    it.answer(again)
    assert it.machine.take_result(first)
    assert it.machine.take_result(second)
