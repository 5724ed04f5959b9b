from __future__ import annotations

from ottla.client.producing.delivery import BatchDelivery, BatchOutcome, Failures
from ottla.client.producing.errors import MessageNotDelivered, MessagesNotDelivered
from ottla.client.producing.producer_monitor import ProducerMonitor
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition

PARTITION = TopicPartition("t", 1)


def failed(messages_count: int) -> BatchDelivery:
    batch_delivery = BatchDelivery(ProducerMonitor(), PARTITION, [0] * messages_count)
    error = MessageNotDelivered(PARTITION, OttlaError("no room", hint="make some"), may_be_stored=False)
    batch_delivery.settle(BatchOutcome(error=error))
    return batch_delivery


def test_messages_that_nobody_was_told_of_are_counted_once() -> None:
    failures = Failures()
    first, second = failed(3), failed(2)
    failures.add(first)
    failures.add(second)
    first.mark_reported([0])
    second.mark_reported([0, 1])
    unreported = failures.take()
    assert isinstance(unreported, MessagesNotDelivered)
    assert unreported.messages_count == 2
    assert str(unreported) == "2 messages were not delivered: 2 of t-1: no room"
    assert unreported.hint == "make some"
    assert failures.take() is None


def test_failures_that_nobody_ever_asks_for_are_counted_and_bounded() -> None:
    failures = Failures()
    for _ in range(1500):
        failures.add(failed(2))
    unreported = failures.take()
    assert unreported is not None
    assert unreported.messages_count == 3000
    assert len(unreported.failures) == 1000
    assert "and of 997 more batches" in str(unreported)
