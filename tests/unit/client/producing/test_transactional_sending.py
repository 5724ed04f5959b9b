"""A transactional producer's engine on fake brokers, whose requests and answers are lost one after the other."""

from __future__ import annotations

import itertools
from typing import Final

import pytest

from ottla.client.groups.group_types import CommittedOffset, GroupMetadata
from ottla.client.producing.errors import (
    InvalidTransactionState,
    MessageNotDelivered,
    ProducerFenced,
    TransactionAbortable,
    TransactionAborted,
    TransactionOutcomeUnknown,
)
from ottla.client.producing.send_steps import TransactionStep
from ottla.client.producing.settings import ProducerSettings
from ottla.client.producing.transaction_machine import Pending, TransactionMachine
from ottla.client.wire.errors import BrokerRefused
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from tests.unit.client.fake_cluster import FakeCluster, Fault
from tests.unit.client.fake_transactions import FakeTransactions
from tests.unit.client.producing.sending import Sending

INPUT: Final = TopicPartition("input", 0)
GROUP: Final = GroupMetadata("g")
BOTH: Final = pytest.mark.parametrize("is_implicit", [False, True], ids=["added", "implicit"])


class Transactional(Sending):
    """The calls of a producer's user, each with as many rounds as its result takes."""

    def __init__(self, fake: FakeCluster, **settings: object) -> None:
        super().__init__(fake, ProducerSettings(transactional_id="id", **settings))  # type: ignore[arg-type]
        machine = self.engine.transactions
        assert machine is not None
        self.machine: TransactionMachine = machine

    def check(self) -> None:
        self.machine.check_open()

    def init(self) -> None:
        self.result(self.machine.initialize())

    def commit(self) -> None:
        self.result(self.machine.commit())

    def abort(self) -> None:
        self.result(self.machine.abort())

    def offsets(self, offset: int) -> None:
        self.result(self.machine.add_offsets(GROUP, {INPUT: CommittedOffset(offset)}))

    def result(self, pending: Pending) -> None:
        if self.machine.is_ending:
            self.accumulator.close_all()
        self.engine.hurry()
        self.until_taken(TransactionStep(pending, self.machine, self.monitor))


def cluster(*, is_implicit: bool) -> tuple[FakeCluster, FakeTransactions, TopicPartition]:
    fake = FakeCluster()
    transactions = FakeTransactions(fake, is_implicit=is_implicit)
    (partition,) = fake.add_topic("t", 1)
    return fake, transactions, partition


@BOTH
def test_committed_messages_are_visible_and_aborted_ones_are_not(is_implicit: bool) -> None:
    fake, transactions, partition = cluster(is_implicit=is_implicit)
    it = Transactional(fake)
    it.init()
    for number in range(4):
        it.machine.begin()
        delivery = it.send("t", b"%d" % number)
        assert transactions.visible(partition) == [b"0", b"2"][: (number + 1) // 2]
        it.flush()
        assert delivery.wait(0).offset == 2 * number
        it.abort() if number % 2 else it.commit()
    assert transactions.visible(partition) == [b"0", b"2"]


@BOTH
def test_deliveries_are_complete_when_the_commit_is(is_implicit: bool) -> None:
    fake, transactions, partition = cluster(is_implicit=is_implicit)
    it = Transactional(fake, linger_ms=60_000, batch_count_max=3)
    it.init()
    it.machine.begin()
    deliveries = [it.send("t", b"%d" % number) for number in range(10)]
    it.commit()
    assert [delivery.wait(0).offset for delivery in deliveries] == list(range(10))
    assert len(transactions.visible(partition)) == 10


@BOTH
def test_messages_that_an_abort_finds_unsent_are_not_stored_and_say_so(is_implicit: bool) -> None:
    fake, transactions, partition = cluster(is_implicit=is_implicit)
    it = Transactional(fake, linger_ms=60_000)
    it.init()
    it.machine.begin()
    delivery = it.send("t", b"never")
    it.abort()
    error = delivery.error()
    assert isinstance(error, MessageNotDelivered)
    assert not error.may_be_stored
    assert isinstance(error.reason, TransactionAborted)
    assert it.failures.take() is None, "the abort has reported it"
    assert fake.partitions[partition].records() == []
    it.machine.begin()
    it.send("t", b"then")
    it.commit()
    assert transactions.visible(partition) == [b"then"]


@BOTH
def test_delivery_of_a_message_whose_transaction_was_aborted_has_failed(is_implicit: bool) -> None:
    fake, _, _ = cluster(is_implicit=is_implicit)
    it = Transactional(fake)
    it.init()
    it.machine.begin()
    committed = it.send("t", b"committed")
    it.commit()
    it.machine.begin()
    aborted = it.send("t", b"aborted")
    it.flush()
    assert aborted.error() is None, "it is stored"
    it.abort()
    error = aborted.error()
    assert isinstance(error, MessageNotDelivered)
    assert isinstance(error.reason, TransactionAborted)
    assert not error.may_be_stored
    assert committed.wait(0).offset == 0
    assert it.failures.take() is None


@BOTH
def test_delivery_of_a_fenced_producer_may_be_stored_or_not(is_implicit: bool) -> None:
    fake, _, _ = cluster(is_implicit=is_implicit)
    first, second = Transactional(fake), Transactional(fake)
    first.init()
    first.machine.begin()
    delivery = first.send("t", b"v")
    first.flush()
    second.init()
    with pytest.raises(ProducerFenced):
        first.commit()
    error = delivery.error()
    assert isinstance(error, MessageNotDelivered)
    assert error.may_be_stored


@BOTH
def test_messages_of_a_transaction_count_as_acknowledged_when_it_has_committed(is_implicit: bool) -> None:
    fake, _, _ = cluster(is_implicit=is_implicit)
    it = Transactional(fake)
    counts: list[int] = []
    it.engine.on_acknowledged(lambda acknowledged: counts.append(len(acknowledged.timestamps_ms)))
    it.init()
    for number in range(3):
        it.machine.begin()
        it.send_set("t", [b"v"] * (number + 1))
        it.flush()
        assert counts == [1][:number], "it is stored, and open"
        it.abort() if number == 1 else it.commit()
    assert counts == [1, 3]


@BOTH
def test_offsets_are_committed_with_the_messages_or_not(is_implicit: bool) -> None:
    fake, transactions, _ = cluster(is_implicit=is_implicit)
    it = Transactional(fake)
    it.init()
    for offset, commits in ((5, True), (9, False)):
        it.machine.begin()
        it.send("t", b"v")
        it.offsets(offset)
        it.commit() if commits else it.abort()
    assert transactions.committed == {("g", INPUT): 5}


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.SILENCE])
@pytest.mark.parametrize("hit", range(0, 30, 3))
@BOTH
def test_lost_request_changes_no_outcome(fault: Fault, hit: int, is_implicit: bool) -> None:
    fake, transactions, partition = cluster(is_implicit=is_implicit)
    # Three in a row: what repeats a request is lost, too.
    numbers = itertools.count()
    fake.brokers[1].fault_of = lambda api: fault if hit <= next(numbers) < hit + 3 else None
    it = Transactional(fake, batch_count_max=2)
    it.init()
    for number in range(3):
        it.machine.begin()
        for part in range(3):
            it.send("t", b"%d-%d" % (number, part))
        it.offsets(number)
        it.abort() if number == 1 else it.commit()
    assert transactions.visible(partition) == [b"%d-%d" % (number, part) for number in (0, 2) for part in range(3)]
    assert transactions.committed == {("g", INPUT): 2}


@BOTH
def test_message_that_is_refused_fails_the_commit_and_the_next_transaction_does_not_know(is_implicit: bool) -> None:
    fake, transactions, partition = cluster(is_implicit=is_implicit)
    it = Transactional(fake)
    it.init()
    it.machine.begin()
    it.send("t", b"small")
    it.flush()
    fake.partitions[partition].batch_bytes_max = 200
    delivery = it.send("t", bytes(500))
    with pytest.raises(TransactionAbortable) as raised:
        it.commit()
    assert isinstance(raised.value.reason, BrokerRefused)
    assert isinstance(delivery.error(), MessageNotDelivered)
    with pytest.raises(TransactionAbortable):
        it.check()
    it.abort()
    it.machine.begin()
    it.send("t", b"next")
    it.commit()
    assert transactions.visible(partition) == [b"next"]


@BOTH
def test_second_producer_fences_the_first_and_aborts_what_it_has_open(is_implicit: bool) -> None:
    fake, transactions, partition = cluster(is_implicit=is_implicit)
    first, second = Transactional(fake), Transactional(fake)
    first.init()
    first.machine.begin()
    first.send("t", b"of the first")
    first.flush()
    second.init()
    with pytest.raises(ProducerFenced):
        first.commit()
    with pytest.raises(ProducerFenced):
        first.check()
    second.machine.begin()
    second.send("t", b"of the second")
    second.commit()
    assert transactions.visible(partition) == [b"of the second"]


def test_transaction_that_its_time_out_ended_is_aborted_and_the_producer_continues() -> None:
    fake, transactions, partition = cluster(is_implicit=True)
    it = Transactional(fake)
    it.init()
    it.machine.begin()
    it.send("t", b"late")
    it.flush()
    transactions.time_out("id")
    with pytest.raises(TransactionAbortable, match="it has ended before"):
        it.commit()
    it.abort()
    it.machine.begin()
    it.send("t", b"in time")
    it.commit()
    assert transactions.visible(partition) == [b"in time"]


@BOTH
def test_commit_without_an_answer_in_time_is_unknown_and_repeated(is_implicit: bool) -> None:
    fake, transactions, partition = cluster(is_implicit=is_implicit)
    it = Transactional(fake)
    it.init()
    it.machine.begin()
    it.send("t", b"v")
    it.flush()
    fake.brokers[1].fault_of = lambda api: Fault.CUT_AFTER if api is ApiKey.END_TXN else None
    pending = it.machine.commit()
    for _ in range(5):
        it.engine.turn()
    late = TransactionStep(pending, it.machine, it.monitor).too_late(60_000)
    assert isinstance(late, TransactionOutcomeUnknown)
    assert "again" in (late.hint or "")
    with pytest.raises(InvalidTransactionState):
        it.machine.begin()
    fake.brokers[1].fault_of = lambda api: None
    it.commit()
    assert transactions.visible(partition) == [b"v"]


@BOTH
def test_producer_that_finishes_aborts_the_transaction_that_is_open(is_implicit: bool) -> None:
    fake, transactions, partition = cluster(is_implicit=is_implicit)
    it = Transactional(fake)
    it.init()
    it.machine.begin()
    delivery = it.send("t", b"open")
    it.flush()
    assert delivery.wait(0).offset == 0
    unsent = it.send("t", b"unsent")
    with it.monitor.lock:
        it.engine.finish()
    for _ in range(100):
        if not it.engine.turn():
            break
    assert delivery.error() is not None
    assert unsent.error() is not None
    assert transactions.visible(partition) == []
    assert len(fake.partitions[partition].batches) == 2, "the marker follows the message"


def test_producer_that_finishes_does_not_wait_for_ever_for_its_coordinator() -> None:
    fake, _, _ = cluster(is_implicit=True)
    it = Transactional(fake, max_block_ms=10_000)
    it.init()
    it.machine.begin()
    it.send("t", b"open")
    it.flush()
    fake.brokers[1].is_down = True
    for connection in fake.brokers[1].connections:
        connection.is_cut = True
    began_ms = fake.clock.monotonic_ms()
    with it.monitor.lock:
        it.engine.finish()
    while it.engine.turn():
        assert fake.clock.monotonic_ms() - began_ms < 60_000


@BOTH
def test_leader_that_moves_within_a_transaction_costs_and_doubles_nothing(is_implicit: bool) -> None:
    fake = FakeCluster(2)
    transactions = FakeTransactions(fake, is_implicit=is_implicit)
    (partition,) = fake.add_topic("t", 1)
    it = Transactional(fake)
    it.init()
    it.machine.begin()
    it.send("t", b"1")
    it.flush()
    fake.move_leader(partition, 2)
    it.send("t", b"2")
    it.commit()
    assert transactions.visible(partition) == [b"1", b"2"]


@pytest.mark.parametrize("api", [ApiKey.PRODUCE])
def test_passing_refusal_of_a_leader_is_retried(api: ApiKey) -> None:
    fake, transactions, partition = cluster(is_implicit=True)
    refusals = iter([ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS])
    fake.brokers[1].error_of = lambda seen, place: next(refusals, None) if seen is api else None
    it = Transactional(fake)
    it.init()
    it.machine.begin()
    it.send("t", b"v")
    it.commit()
    assert transactions.visible(partition) == [b"v"]
