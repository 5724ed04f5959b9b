"""Numbers of one partition: given once, for all answers in any order."""

from __future__ import annotations

from ottla.client.producing.produce_queue import SEQUENCE_LIMIT, PendingBatch, ProduceQueue
from ottla.client.wire.retrying import Deadline
from ottla.model.identifiers import TopicPartition
from ottla.testing.fake_clock import FakeClock


def add(queue: ProduceQueue, records_count: int = 20) -> PendingBatch:
    give_up = Deadline(FakeClock(), 1_000)
    batch = PendingBatch(TopicPartition("t", 0), bytearray(), records_count, records_count, give_up, None)
    queue.add(batch)
    return batch


def known_queue() -> ProduceQueue:
    """A queue whose leader has acknowledged numbers 0 to 19, so that several batches may be in flight."""
    queue = ProduceQueue()
    first = add(queue)
    assert queue.take() is first
    queue.acknowledge(first)
    return queue


def test_numbers_follow_each_other() -> None:
    queue = known_queue()
    batches = [add(queue) for _ in range(3)]
    assert [queue.take() for _ in batches] == batches
    assert [batch.base_sequence for batch in batches] == [20, 40, 60]


def test_batch_that_may_be_stored_keeps_its_number_and_its_place() -> None:
    queue = known_queue()
    first, second = add(queue), add(queue)
    queue.take()
    queue.take()
    queue.put_back(second, may_be_stored=True)
    queue.put_back(first, may_be_stored=True)
    assert queue.take() is first
    queue.acknowledge(first)
    assert queue.take() is second
    assert [first.base_sequence, second.base_sequence] == [20, 40]


def test_number_is_not_given_twice_when_a_batch_is_acknowledged_after_its_successor() -> None:
    queue = known_queue()
    first, second, third = add(queue), add(queue), add(queue)
    for _ in range(3):
        queue.take()
    queue.put_back(first, may_be_stored=True)
    queue.acknowledge(second)
    queue.acknowledge(third)
    assert queue.take() is first
    queue.acknowledge(first)
    later = add(queue)
    assert queue.take() is later
    assert later.base_sequence == 80


def test_numbers_begin_anew_on_the_wire_at_the_limit() -> None:
    queue = known_queue()
    large = add(queue, SEQUENCE_LIMIT - 30)
    queue.take()
    queue.acknowledge(large)
    wrapping, next_batch = add(queue), add(queue)
    assert queue.take() is wrapping
    assert queue.take() is next_batch
    assert [wrapping.wire_sequence, next_batch.wire_sequence] == [SEQUENCE_LIMIT - 10, 10]


def test_batch_that_may_be_stored_is_in_flight_alone() -> None:
    queue = known_queue()
    first, second = add(queue), add(queue)
    queue.take()
    queue.put_back(first, may_be_stored=True)
    assert queue.take() is first
    assert not queue.can_take
    queue.acknowledge(first)
    assert queue.take() is second


def test_no_more_batches_are_in_flight_than_a_leader_recognises() -> None:
    queue = known_queue()
    for _ in range(6):
        add(queue)
    for _ in range(5):
        queue.take()
    assert not queue.can_take


def test_acknowledged_batches_count_as_long_as_an_older_one_is_in_flight() -> None:
    queue = known_queue()
    batches = [add(queue) for _ in range(7)]
    for _ in range(5):
        queue.take()
    for batch in batches[1:5]:
        queue.acknowledge(batch)
    assert not queue.can_take
    queue.acknowledge(batches[0])
    assert queue.take() is batches[5]


def test_batch_after_one_that_is_in_no_log_gets_the_next_number_after_a_leader_move() -> None:
    queue = known_queue()
    first, second, third = add(queue), add(queue), add(queue)
    for _ in range(3):
        queue.take()
    third.was_unanswered = True
    for batch in (first, second, third):
        queue.put_back(batch, may_be_stored=True)
    assert queue.take() is first
    queue.refuse(first)
    assert [second.may_be_stored, third.may_be_stored] == [False, True]
    assert queue.take() is second
    assert second.base_sequence == 20


def test_refused_batch_does_not_settle_an_earlier_one() -> None:
    queue = known_queue()
    first, second = add(queue), add(queue)
    queue.take()
    queue.take()
    queue.put_back(first, may_be_stored=True)
    queue.refuse(second)
    assert first.may_be_stored
