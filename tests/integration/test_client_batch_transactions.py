"""Transactions of whole batches, against a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.client.fetching.fetch_requests import AbortedBatches, fetch_raw
from ottla.client.fetching.offsets import LATEST, IsolationLevel, list_offsets
from ottla.client.producing.batch_transactions import BatchTransactions
from ottla.client.producing.errors import InvalidTransactionState, ProducerFenced, TransactionAbortable
from ottla.client.wire.cluster import Cluster
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import BatchBuilder
from ottla.records.header import read_header
from ottla.records.record import decode_batch
from tests.eventually import eventually
from tests.integration.conftest import NewTopicName

TIMEOUT_MS = 60_000


def batch(*values: str) -> bytearray:
    builder = BatchBuilder()
    for value in values:
        builder.append(0, None, value.encode())
    return builder.build(is_transactional=True)


def committed(cluster: Cluster, place: TopicPartition) -> list[str]:
    """What a reader of committed records gets, when nothing of the partition is open: markers follow a commit."""

    def ends() -> list[int]:
        return [list_offsets(cluster, {place: LATEST}, isolation=each)[place].offset for each in IsolationLevel]

    end = eventually(ends, lambda found: found[0] == found[1])[0]
    found: list[str] = []
    offset = 0
    while offset < end:
        fetched = fetch_raw(cluster, *place, offset, isolation=IsolationLevel.READ_COMMITTED)
        aborted = AbortedBatches(fetched.aborted_transactions)
        for each in fetched.batches():
            header = read_header(each)
            if not aborted.is_aborted(header, each) and not header.is_control:
                found += [(record.value or b"").decode() for record in decode_batch(each)]
        offset = fetched.next_offset
    return found


@pytest.fixture
def place(new_topic: NewTopicName) -> TopicPartition:
    return TopicPartition(new_topic(), 0)


@pytest.fixture
def transactions(cluster: Cluster, place: TopicPartition) -> Iterator[BatchTransactions]:
    with BatchTransactions(cluster, place.topic, TIMEOUT_MS) as found:
        found.take_over()
        yield found


def test_batches_of_several_partitions_are_committed_together(
    cluster: Cluster, transactions: BatchTransactions, place: TopicPartition, new_topic: NewTopicName
) -> None:
    other = TopicPartition(new_topic(2), 1)
    for number in range(2):
        transactions.begin()
        transactions.send(place, batch(f"a{number}", f"b{number}"))
        transactions.send(other, batch(f"c{number}"))
        transactions.send(place, batch(f"d{number}"))
        transactions.commit()
    assert committed(cluster, place) == ["a0", "b0", "d0", "a1", "b1", "d1"]
    assert committed(cluster, other) == ["c0", "c1"]


def test_an_aborted_transaction_is_not_seen_and_the_next_one_is(
    cluster: Cluster, transactions: BatchTransactions, place: TopicPartition
) -> None:
    for value, ends in [("a", transactions.abort), ("b", transactions.commit)]:
        transactions.begin()
        transactions.send(place, batch(value))
        ends()
    assert committed(cluster, place) == ["b"]


def test_a_transaction_of_nothing_is_committed(transactions: BatchTransactions) -> None:
    transactions.begin()
    transactions.commit()


def test_a_block_that_ends_without_a_commit_aborts(cluster: Cluster, place: TopicPartition) -> None:
    with BatchTransactions(cluster, place.topic, TIMEOUT_MS) as transactions:
        transactions.take_over()
        transactions.begin()
        transactions.send(place, batch("a"))
    assert committed(cluster, place) == []


def test_a_take_over_ends_the_open_transaction_of_the_former_producer_and_fences_it(
    cluster: Cluster, transactions: BatchTransactions, place: TopicPartition
) -> None:
    transactions.begin()
    transactions.send(place, batch("a"))
    transactions.flush()
    with BatchTransactions(cluster, place.topic, TIMEOUT_MS) as following:
        following.take_over()
        assert committed(cluster, place) == []
        with pytest.raises(ProducerFenced):
            transactions.commit()
        following.begin()
        following.send(place, batch("b"))
        following.commit()
    assert committed(cluster, place) == ["b"]


def test_a_refused_batch_makes_its_transaction_one_that_must_be_aborted(
    cluster: Cluster, transactions: BatchTransactions, place: TopicPartition, new_topic: NewTopicName
) -> None:
    narrow = TopicPartition(new_topic(max_message_bytes="1000"), 0)
    transactions.begin()
    transactions.send(place, batch("a"))

    def send_and_commit() -> None:
        transactions.send(narrow, batch("x" * 2_000))
        transactions.commit()

    with pytest.raises(TransactionAbortable, match=f"{narrow}"):
        send_and_commit()
    transactions.abort()
    transactions.begin()
    transactions.send(place, batch("b"))
    transactions.commit()
    assert committed(cluster, place) == ["b"]
    assert committed(cluster, narrow) == []


def test_a_commit_without_a_transaction_is_refused(transactions: BatchTransactions) -> None:
    with pytest.raises(InvalidTransactionState):
        transactions.commit()
